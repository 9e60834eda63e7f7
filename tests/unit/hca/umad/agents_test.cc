#include "hca/umad/agents.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <vector>

#include "emu/base/prng.h"

namespace hca {
namespace {

constexpr std::uint64_t kMs = 1'000'000;

struct Read {
  MadFileId file;
  ib_user_mad_hdr header;
  std::vector<std::uint8_t> mad;
};

class World : public MadOut {
 public:
  bool to_subnet(emu::Lid dlid, std::uint32_t qpn, const emu::Mad& mad) override {
    if (full) return false;
    subnet.push_back({dlid, qpn, mad});
    return true;
  }
  bool to_node(emu::NodeId dest, const emu::Mad& mad) override {
    nodes.push_back({dest, 1, mad});
    return true;
  }
  void to_program(MadFileId file, std::span<const std::uint8_t> message) override {
    Read one{.file = file, .header = {}, .mad = {}};
    ASSERT_GE(message.size(), sizeof one.header);
    std::memcpy(&one.header, message.data(), sizeof one.header);
    one.mad.assign(message.begin() + sizeof one.header, message.end());
    EXPECT_EQ(one.header.length, message.size());
    read.push_back(one);
  }

  bool is_closed(MadFileId file) override { return file == closed; }

  struct Sent {
    unsigned to;
    std::uint32_t qpn;
    emu::Mad mad;
  };
  bool full = false;
  MadFileId closed = 0;
  std::vector<Sent> subnet;
  std::vector<Sent> nodes;
  std::vector<Read> read;
};

emu::Mad mad_of(std::uint8_t mad_class, std::uint8_t method, std::uint64_t transaction) {
  emu::Mad mad{};
  mad[0] = 1;
  mad[emu::kMadClassAt] = mad_class;
  mad[emu::kMadMethodAt] = method;
  for (unsigned i = 0; i < 8; ++i)
    mad[emu::kMadTransactionAt + i] = static_cast<std::uint8_t>(transaction >> (56 - 8 * i));
  mad[255] = 77;
  return mad;
}

std::vector<std::uint8_t> message_of(const emu::Mad& mad, emu::Lid lid, std::uint32_t qpn,
                                     std::uint32_t agent, std::uint32_t timeout_ms,
                                     std::uint32_t retries = 0) {
  ib_user_mad_hdr header{};
  header.id = agent;
  header.timeout_ms = timeout_ms;
  header.retries = retries;
  header.lid = __builtin_bswap16(lid);
  header.qpn = __builtin_bswap32(qpn);
  std::vector<std::uint8_t> message(sizeof header + mad.size());
  std::memcpy(message.data(), &header, sizeof header);
  std::memcpy(message.data() + sizeof header, mad.data(), mad.size());
  return message;
}

std::vector<std::uint8_t> agent_of(std::uint8_t mad_class, std::uint8_t method,
                                   std::uint32_t oui = 0) {
  ib_user_mad_reg_req2 agent{};
  agent.qpn = 1;
  agent.mgmt_class = mad_class;
  agent.method_mask[method / 64] = std::uint64_t{1} << (method % 64);
  agent.oui = oui;
  std::vector<std::uint8_t> message(sizeof agent);
  std::memcpy(message.data(), &agent, sizeof agent);
  return message;
}

// A file with so many agents that only ask.
MadFileId open_with(MadAgents& agents, std::uint32_t count = 1,
                    std::size_t bytes_max = MadAgents::kMessageBytesLeast) {
  const MadFileId file = agents.open(bytes_max);
  for (std::uint32_t i = 0; i < count; ++i) {
    const auto answer = agents.write(file, agent_of(0, 0), 0);
    EXPECT_TRUE(answer && answer->error == 0 && answer->agent == i);
  }
  return file;
}

// How that is answered; -1: not at all.
int errno_of(const std::optional<MadAgents::Answer>& answer) { return answer ? answer->error : -1; }

int end_of(MadAgents& agents, MadFileId file, std::uint32_t id) {
  return errno_of(agents.write(file, {reinterpret_cast<const std::uint8_t*>(&id), sizeof id}, 0));
}

// How the kernel's ib_register_mad_agent() and its umad take agents of each kind.
TEST(MadAgents, WhatTheKernelRefusesIsRefused) {
  World world;
  MadAgents agents(world, 4);
  const MadFileId file = agents.open();
  const auto ask = [&](const ib_user_mad_reg_req2& agent) {
    const auto answer =
        agents.write(file, {reinterpret_cast<const std::uint8_t*>(&agent), sizeof agent}, 0);
    if (errno_of(answer) == 0) (void)end_of(agents, file, answer->agent);
    return errno_of(answer);
  };
  constexpr std::uint32_t kOui = 0x1405;
  for (unsigned number = 0; number < 256; ++number) {
    const auto mad_class = static_cast<std::uint8_t>(number);
    const bool subnet = number == 0x01 || number == 0x81;
    const bool vendor = number >= 0x30 && number <= 0x4f;
    const bool segments =
        vendor || number == 0x03 || number == 0x06 || number == 0x10 || number == 0x12;
    const bool known = number < 80 || subnet;
    const int on_qp0 = subnet || number == 0 ? 0 : EINVAL;
    const int on_qp1 = known && !subnet ? 0 : EINVAL;
    EXPECT_EQ(ask({.qpn = 0, .mgmt_class = mad_class, .oui = kOui}), on_qp0) << number;
    EXPECT_EQ(ask({.qpn = 1, .mgmt_class = mad_class, .oui = kOui}), on_qp1) << number;
    EXPECT_EQ(ask({.qpn = 2, .mgmt_class = mad_class, .oui = kOui}), EINVAL) << number;
    EXPECT_EQ(ask({.qpn = 1, .mgmt_class = mad_class}), vendor ? EINVAL : on_qp1) << number;
    EXPECT_EQ(ask({.qpn = 1, .mgmt_class = mad_class, .oui = kOui, .rmpp_version = 1}),
              segments || number == 0 ? 0 : EINVAL)
        << number;
    EXPECT_EQ(ask({.qpn = 1, .mgmt_class = mad_class, .oui = kOui, .rmpp_version = 2}), EINVAL);
  }
  EXPECT_EQ(ask({.qpn = 1, .mgmt_class = 4, .mgmt_class_version = 0x82}), 0);
  EXPECT_EQ(ask({.qpn = 1, .mgmt_class = 4, .mgmt_class_version = 0x83}), EINVAL);
  EXPECT_EQ(ask({.qpn = 1, .mgmt_class = 0, .mgmt_class_version = 0x83}), 0) << "only asks";
  EXPECT_EQ(ask({.qpn = 1, .mgmt_class = 4, .oui = 1 << 24}), EINVAL) << "an OUI has 24 bits";
  EXPECT_EQ(ask({.qpn = 1, .mgmt_class = 0, .oui = 1 << 24}), 0);
  EXPECT_EQ(ask({.qpn = 1, .mgmt_class = 3, .flags = IB_USER_MAD_USER_RMPP}), 0);
  EXPECT_EQ(ask({.qpn = 1, .mgmt_class = 0, .flags = IB_USER_MAD_USER_RMPP}), EINVAL);
  EXPECT_EQ(ask({.qpn = 1, .mgmt_class = 3, .flags = IB_USER_MAD_USER_RMPP | 2}), EINVAL);
}

TEST(MadAgents, AnAnswerOfTheSubnetComesToWhoAsked) {
  World world;
  MadAgents agents(world, 4);
  const MadFileId other = agents.open();
  const MadFileId file = open_with(agents, 4);
  ASSERT_NE(other, file);
  const emu::Mad asked = mad_of(emu::kClassSubnetDirected, emu::kMadGet, 0x1122334455667788);
  ASSERT_TRUE(agents.write(file, message_of(asked, 0xffff, 0, 3, 100), 0));
  ASSERT_EQ(world.subnet.size(), 1u);
  EXPECT_EQ(world.subnet[0].to, 0xffffu);
  EXPECT_EQ(world.subnet[0].qpn, 0u);
  emu::Mad answer = world.subnet[0].mad;
  // The lower half is the program's, the upper one ours.
  EXPECT_TRUE(std::equal(&asked[12], &asked[16], &answer[12]));
  EXPECT_FALSE(std::equal(&asked[8], &asked[12], &answer[8]));
  answer[emu::kMadMethodAt] = emu::kMadGetResponse;
  answer[64] = 9;
  agents.from_subnet(7, 0, answer);
  ASSERT_EQ(world.read.size(), 1u);
  EXPECT_EQ(world.read[0].file, file);
  EXPECT_EQ(world.read[0].header.id, 3u);
  EXPECT_EQ(world.read[0].header.status, 0u);
  EXPECT_EQ(world.read[0].header.lid, __builtin_bswap16(7));
  EXPECT_TRUE(std::equal(&asked[8], &asked[16], &world.read[0].mad[8])) << "its own id again";
  EXPECT_EQ(world.read[0].mad[64], 9);
  agents.from_subnet(7, 0, answer);
  EXPECT_EQ(world.read.size(), 1u) << "once";
  EXPECT_FALSE(agents.waiting());
}

TEST(MadAgents, WhatNobodyAnswersEndsAtOnce) {
  World world;
  MadAgents agents(world, 4);
  const MadFileId file = open_with(agents);
  const emu::Mad asked = mad_of(emu::kClassSubnetDirected, emu::kMadGet, 5);
  ASSERT_TRUE(agents.write(file, message_of(asked, 0xffff, 0, 0, 100), 0));
  agents.from_subnet(0xffff, 0, world.subnet[0].mad);
  ASSERT_EQ(world.read.size(), 1u);
  EXPECT_EQ(world.read[0].header.status, static_cast<unsigned>(ETIMEDOUT));
  EXPECT_EQ(world.read[0].mad.size(), 24u) << "as the kernel's: the common header";
  EXPECT_TRUE(std::equal(world.read[0].mad.begin(), world.read[0].mad.end(), asked.begin()));
}

TEST(MadAgents, TimesEnd) {
  World world;
  MadAgents agents(world, 4);
  const MadFileId file = open_with(agents);
  const emu::Mad asked = mad_of(emu::kClassPerformance, emu::kMadGet, 5);
  ASSERT_TRUE(agents.write(file, message_of(asked, 2, 1, 0, 100, 2), 50 * kMs));
  for (const std::uint64_t ms : {149, 150, 249, 250, 349}) agents.service(ms * kMs);
  EXPECT_TRUE(world.read.empty()) << "three tries of 100 ms";
  ASSERT_EQ(world.subnet.size(), 3u);
  EXPECT_EQ(world.subnet[0].mad, world.subnet[2].mad) << "one request, sent again";
  agents.service(350 * kMs);
  EXPECT_EQ(world.read.size(), 1u);
  // The session ends; a queue is full; there is no such LID.
  ASSERT_TRUE(agents.write(file, message_of(asked, 2, 1, 0, 100), 0));
  agents.lost();
  EXPECT_EQ(world.read.size(), 2u);
  world.full = true;
  ASSERT_TRUE(agents.write(file, message_of(asked, 2, 1, 0, 100), 0));
  EXPECT_EQ(world.read.size(), 3u);
  const emu::Mad ping = mad_of(0x32, emu::kMadGet, 6);
  for (const emu::Lid lid : {emu::Lid{0}, emu::Lid{5}, emu::Lid{0xffff}})
    ASSERT_TRUE(agents.write(file, message_of(ping, lid, 1, 0, 100), 0));
  ASSERT_TRUE(agents.write(file, message_of(ping, 1, 0, 0, 100), 0)) << "QP0 is the subnet's";
  EXPECT_EQ(world.read.size(), 7u);
  EXPECT_TRUE(world.nodes.empty());
  EXPECT_FALSE(agents.waiting());
}

// By the classes of communication management and of congestion notices nodes believe each other.
TEST(MadAgents, NoProgramSpeaksForItsNode) {
  World world;
  MadAgents agents(world, 4);
  const MadFileId file = open_with(agents);
  for (unsigned mad_class = 0; mad_class < 256; ++mad_class) {
    const bool vendor =
        (mad_class >= 0x09 && mad_class <= 0x0f) || (mad_class >= 0x30 && mad_class <= 0x4f);
    for (const unsigned method : {1u, 3u, 0x81u}) {
      world.nodes.clear();
      const emu::Mad mad =
          mad_of(static_cast<std::uint8_t>(mad_class), static_cast<std::uint8_t>(method), 1);
      ASSERT_TRUE(agents.write(file, message_of(mad, 2, 1, 0, 0), 0));
      EXPECT_EQ(world.nodes.size(), vendor ? 1u : 0u) << mad_class;
    }
  }
}

// ibping: a class of a vendor, whose server has registered.
TEST(MadAgents, NodesAskEachOther) {
  World world;
  MadAgents agents(world, 4);
  const MadFileId file = agents.open();
  ASSERT_EQ(errno_of(agents.write(file, agent_of(0x32, emu::kMadSet, 0x1405), 0)), 0);
  ASSERT_EQ(errno_of(agents.write(file, agent_of(0x32, emu::kMadGet, 0x9999), 0)), 0);
  ASSERT_EQ(errno_of(agents.write(file, agent_of(0x32, emu::kMadGet, 0x1405), 0)), 0);
  emu::Mad ping = mad_of(0x32, emu::kMadGet, 6);
  ping[38] = 0x14;
  ping[39] = 0x05;
  agents.from_node(3, ping);
  ASSERT_EQ(world.read.size(), 1u);
  EXPECT_EQ(world.read[0].header.id, 2u);
  EXPECT_EQ(world.read[0].header.lid, __builtin_bswap16(4));
  emu::Mad pong = ping;
  pong[emu::kMadMethodAt] = emu::kMadGetResponse;
  ASSERT_TRUE(agents.write(file, message_of(pong, 4, 1, 2, 0), 0));
  ASSERT_EQ(world.nodes.size(), 1u);
  EXPECT_EQ(world.nodes[0].to, 3u);
  EXPECT_EQ(world.nodes[0].mad, pong) << "an answer goes as it is";
  // Only of the version that it registered for.
  emu::Mad other = ping;
  other[emu::kMadClassVersionAt] = 2;
  agents.from_node(3, other);
  ASSERT_EQ(world.read.size(), 1u);
  // Its end: nobody wants the next one.
  ASSERT_EQ(end_of(agents, file, 2), 0);
  agents.from_node(3, ping);
  EXPECT_EQ(world.read.size(), 1u);
}

// As the kernel: a datagram has one agent at most that takes it, of whatever file.
TEST(MadAgents, OfTwoAgentsForOneDatagramTheSecondIsRefused) {
  World world;
  MadAgents agents(world, 4);
  const MadFileId file = agents.open();
  const MadFileId later = agents.open();
  constexpr std::uint8_t kOld = 0x0a;  // a class that names no vendor
  ASSERT_EQ(errno_of(agents.write(file, agent_of(0x32, emu::kMadGet, 0x1405), 0)), 0);
  ASSERT_EQ(errno_of(agents.write(file, agent_of(kOld, emu::kMadGet), 0)), 0);
  for (const MadFileId one : {file, later}) {
    EXPECT_EQ(errno_of(agents.write(one, agent_of(0x32, emu::kMadGet, 0x1405), 0)), EINVAL);
    EXPECT_EQ(errno_of(agents.write(one, agent_of(kOld, emu::kMadGet, 0x1405), 0)), EINVAL);
  }
  // Another method, vendor, class or version; nothing at all.
  EXPECT_EQ(errno_of(agents.write(later, agent_of(0x32, emu::kMadSet, 0x1405), 0)), 0);
  EXPECT_EQ(errno_of(agents.write(later, agent_of(0x32, emu::kMadGet, 0x1406), 0)), 0);
  EXPECT_EQ(errno_of(agents.write(later, agent_of(0x33, emu::kMadGet, 0x1405), 0)), 0);
  auto bytes = agent_of(0x32, emu::kMadGet, 0x1405);
  ib_user_mad_reg_req2 agent;
  std::memcpy(&agent, bytes.data(), sizeof agent);
  agent.mgmt_class_version = 2;
  std::memcpy(bytes.data(), &agent, sizeof agent);
  EXPECT_EQ(errno_of(agents.write(later, bytes, 0)), 0);
  agent.mgmt_class_version = 0;
  agent.method_mask[0] = 0;
  std::memcpy(bytes.data(), &agent, sizeof agent);
  EXPECT_EQ(errno_of(agents.write(later, bytes, 0)), 0);
  // One of many methods is enough.
  agent.method_mask[0] = ~0ULL;
  std::memcpy(bytes.data(), &agent, sizeof agent);
  EXPECT_EQ(errno_of(agents.write(later, bytes, 0)), EINVAL);
  // Its end, and its file's, leave the place to another.
  ASSERT_EQ(end_of(agents, file, 0), 0);
  EXPECT_EQ(errno_of(agents.write(later, agent_of(0x32, emu::kMadGet, 0x1405), 0)), 0);
  EXPECT_EQ(errno_of(agents.write(later, agent_of(kOld, emu::kMadGet), 0)), EINVAL);
  world.closed = file;  // before anybody has looked
  EXPECT_EQ(errno_of(agents.write(later, agent_of(kOld, emu::kMadGet), 0)), 0);
  agents.close(file);
  EXPECT_EQ(end_of(agents, later, 6), 0);
  EXPECT_EQ(errno_of(agents.write(file, agent_of(kOld, emu::kMadGet), 0)), -1);
  EXPECT_EQ(errno_of(agents.write(later, agent_of(kOld, emu::kMadGet), 0)), 0);
}

TEST(MadAgents, AFileHasSoManyAgentsAndAnyNumberThatIsFree) {
  World world;
  MadAgents agents(world, 4);
  const MadFileId file = open_with(agents, MadAgents::kAgentsMax);
  EXPECT_EQ(errno_of(agents.write(file, agent_of(0, 0), 0)), ENOMEM);
  ASSERT_EQ(end_of(agents, file, 7), 0);
  EXPECT_EQ(end_of(agents, file, 7), EINVAL);
  EXPECT_EQ(end_of(agents, file, MadAgents::kAgentsMax), EINVAL);
  const auto again = agents.write(file, agent_of(0, 0), 0);
  ASSERT_EQ(errno_of(again), 0);
  EXPECT_EQ(again->agent, 7u);
}

// Of no agent, of one that has ended, of another file's: it goes nowhere.
TEST(MadAgents, OnlyAgentsSend) {
  World world;
  MadAgents agents(world, 4);
  const MadFileId other = open_with(agents, 4);
  const MadFileId file = agents.open();
  const emu::Mad asked = mad_of(emu::kClassPerformance, emu::kMadGet, 5);
  const emu::Mad ping = mad_of(0x32, emu::kMadGet, 6);
  for (const std::uint32_t id : {0u, 3u, 31u, 32u, 0xffffffffu}) {
    EXPECT_EQ(errno_of(agents.write(file, message_of(asked, 2, 1, id, 100), 0)), EIO);
    EXPECT_EQ(errno_of(agents.write(file, message_of(ping, 2, 1, id, 0), 0)), EIO);
  }
  ASSERT_EQ(end_of(agents, other, 3), 0);
  EXPECT_EQ(errno_of(agents.write(other, message_of(ping, 2, 1, 3, 0), 0)), EIO);
  EXPECT_TRUE(world.subnet.empty() && world.nodes.empty() && world.read.empty());
  EXPECT_FALSE(agents.waiting());
  EXPECT_EQ(errno_of(agents.write(other, message_of(ping, 2, 1, 2, 0), 0)), 0);
  EXPECT_EQ(world.nodes.size(), 1u);
}

TEST(MadAgents, WhatAnAgentAskedEndsWithIt) {
  World world;
  MadAgents agents(world, 4);
  const MadFileId file = open_with(agents, 2);
  const emu::Mad asked = mad_of(emu::kClassPerformance, emu::kMadGet, 5);
  ASSERT_TRUE(agents.write(file, message_of(asked, 2, 1, 0, 100), 0));
  ASSERT_TRUE(agents.write(file, message_of(asked, 2, 1, 1, 100), 0));
  ASSERT_EQ(end_of(agents, file, 0), 0);
  emu::Mad answer = world.subnet[0].mad;
  answer[emu::kMadMethodAt] = emu::kMadGetResponse;
  agents.from_subnet(2, 1, answer);
  EXPECT_TRUE(world.read.empty()) << "the next agent of that number has not asked";
  agents.service(100 * kMs);
  ASSERT_EQ(world.read.size(), 1u);
  EXPECT_EQ(world.read[0].header.id, 1u);
  EXPECT_FALSE(agents.waiting());
}

TEST(MadAgents, WhoAsksWithoutReadingLosesTheOldest) {
  World world;
  MadAgents agents(world, 4);
  const MadFileId file = open_with(agents);
  for (std::uint64_t i = 0; i < MadAgents::kRequestsMax + 3; ++i) {
    const emu::Mad asked = mad_of(emu::kClassPerformance, emu::kMadGet, i);
    ASSERT_TRUE(agents.write(file, message_of(asked, 2, 1, 0, 100), 0));
  }
  ASSERT_EQ(world.read.size(), 3u);
  for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(world.read[i].mad[15], i);
  agents.close(file);
  EXPECT_FALSE(agents.waiting());
}

std::vector<std::uint8_t> segment_of(const emu::Mad& asked, std::size_t bytes, bool last) {
  std::vector<std::uint8_t> answer(bytes, 5);
  std::copy_n(asked.begin(), 56, answer.begin());
  answer[emu::kMadMethodAt] = emu::kMadGetTableResponse;
  answer[26] = last ? 5 : 1;
  answer[28 + 3] = std::max<std::uint8_t>(asked[28 + 3], 1);
  answer[32 + 2] = static_cast<std::uint8_t>((bytes - 36) >> 8);
  answer[32 + 3] = static_cast<std::uint8_t>((bytes - 36) & 0xff);
  return answer;
}

// A table comes in segments; its program sees it whole, or with a status where it is too long.
TEST(MadAgents, SegmentsOfATableAreOneAnswer) {
  World world;
  MadAgents agents(world, 4);
  const MadFileId file = open_with(agents);
  const emu::Mad asked = mad_of(emu::kClassSubnetAdmin, emu::kMadGetTable, 9);
  ASSERT_TRUE(agents.write(file, message_of(asked, 1, 1, 0, 100), 0));
  for (unsigned n = 1; n <= 3; ++n) {
    ASSERT_EQ(world.subnet.size(), n);
    EXPECT_EQ(world.subnet.back().mad[31], n == 1 ? 0 : n);
    EXPECT_TRUE(world.read.empty());
    agents.from_subnet(1, 1, segment_of(world.subnet.back().mad, 56 + 400, n == 3));
  }
  ASSERT_EQ(world.read.size(), 1u);
  EXPECT_EQ(world.read[0].mad.size(), 56u + 3 * 400);
  EXPECT_EQ(world.read[0].mad[emu::kMadStatusAt], 0);
  world.subnet.clear();
  ASSERT_TRUE(agents.write(file, message_of(asked, 1, 1, 0, 100), 0));
  while (world.read.size() == 1) {
    ASSERT_LT(world.subnet.size(), 20u);
    agents.from_subnet(1, 1, segment_of(world.subnet.back().mad, 4096, false));
  }
  EXPECT_EQ(world.read[1].mad[emu::kMadStatusAt], 4) << "too many records";
  EXPECT_LE(sizeof(ib_user_mad_hdr) + world.read[1].mad.size(), MadAgents::kMessageBytesLeast);
  // Who can be sent more gets more.
  world.subnet.clear();
  const MadFileId wide = open_with(agents, 1, 4 * MadAgents::kMessageBytesLeast);
  ASSERT_TRUE(agents.write(wide, message_of(asked, 1, 1, 0, 100), 0));
  while (world.read.size() == 2) {
    const bool last = world.subnet.size() == 60;
    agents.from_subnet(1, 1, segment_of(world.subnet.back().mad, 4096, last));
  }
  EXPECT_EQ(world.read[2].mad[emu::kMadStatusAt], 0);
  EXPECT_EQ(world.read[2].mad.size(), 56u + 60 * (4096 - 56));
}

// Asked again because the first answer was late: both come, and each segment counts once.
TEST(MadAgents, ATableAnsweredTwiceIsReadOnce) {
  World world;
  MadAgents agents(world, 4);
  const MadFileId file = open_with(agents);
  const emu::Mad asked = mad_of(emu::kClassSubnetAdmin, emu::kMadGetTable, 9);
  ASSERT_TRUE(agents.write(file, message_of(asked, 1, 1, 0, 100, 3), 0));
  agents.service(150 * kMs);
  ASSERT_EQ(world.subnet.size(), 2u) << "asked again";
  const auto first = segment_of(world.subnet[0].mad, 56 + 400, false);
  agents.from_subnet(1, 1, first);
  agents.from_subnet(1, 1, first);
  ASSERT_EQ(world.subnet.size(), 3u) << "the second segment once";
  const auto second = segment_of(world.subnet[2].mad, 56 + 200, true);
  EXPECT_EQ(second[28 + 3], 2);
  agents.from_subnet(1, 1, second);
  agents.from_subnet(1, 1, second);
  ASSERT_EQ(world.read.size(), 1u);
  EXPECT_EQ(world.read[0].mad.size(), 56u + 400 + 200);
}

// The request for it or the segment itself: a session with the fabric that was made anew, a queue
// that was full. What has come is not asked for again.
TEST(MadAgents, ASegmentThatIsLostIsAskedForAgain) {
  World world;
  MadAgents agents(world, 4);
  const MadFileId file = open_with(agents);
  const emu::Mad asked = mad_of(emu::kClassSubnetAdmin, emu::kMadGetTable, 9);
  ASSERT_TRUE(agents.write(file, message_of(asked, 1, 1, 0, 100, 3), 0));
  agents.from_subnet(1, 1, segment_of(world.subnet[0].mad, 56 + 400, false));
  ASSERT_EQ(world.subnet.size(), 2u);
  agents.service(100 * kMs);
  ASSERT_EQ(world.subnet.size(), 3u);
  EXPECT_EQ(world.subnet[2].mad, world.subnet[1].mad) << "the second, as before";
  world.full = true;
  agents.from_subnet(1, 1, segment_of(world.subnet[2].mad, 56 + 300, false));
  ASSERT_EQ(world.subnet.size(), 3u);
  EXPECT_TRUE(world.read.empty()) << "a full queue is no long table";
  world.full = false;
  agents.service(200 * kMs);
  ASSERT_EQ(world.subnet.size(), 4u);
  EXPECT_EQ(world.subnet[3].mad[31], 3);
  agents.from_subnet(1, 1, segment_of(world.subnet[3].mad, 56 + 200, true));
  ASSERT_EQ(world.read.size(), 1u);
  EXPECT_EQ(world.read[0].header.status, 0u);
  EXPECT_EQ(world.read[0].mad[emu::kMadStatusAt], 0);
  EXPECT_EQ(world.read[0].mad.size(), 56u + 400 + 300 + 200);
}

TEST(MadAgents, RandomMessagesEndNothingButTheirFile) {
  const std::uint64_t seed = 20261124;
  emu::Prng random(seed);
  World world;
  MadAgents agents(world, 4);
  std::vector<MadFileId> files;
  for (int i = 0; i < 20'000; ++i) {
    if (files.size() < 4) files.push_back(open_with(agents));
    const std::size_t which = random.below(static_cast<std::uint32_t>(files.size()));
    std::vector<std::uint8_t> bytes(random.below(400));
    if (random.below(2) == 0) {
      bytes = random.below(2) == 0
                  ? message_of(mad_of(static_cast<std::uint8_t>(random.below(256)), 1, i),
                               static_cast<emu::Lid>(random.below(8)), random.below(3), 0, 10)
                  : agent_of(0x32, static_cast<std::uint8_t>(random.below(128)), 0x1405);
    }
    for (std::uint32_t n = random.below(4); n != 0 && !bytes.empty(); --n) {
      const std::uint32_t at = random.below(static_cast<std::uint32_t>(bytes.size()));
      bytes[at] = static_cast<std::uint8_t>(random.below(256));
    }
    if (!agents.write(files[which], bytes, static_cast<std::uint64_t>(i) * kMs)) {
      agents.close(files[which]);
      files.erase(files.begin() + static_cast<std::ptrdiff_t>(which));
    }
    if (!world.subnet.empty() && random.below(2) == 0) {
      emu::Mad back = world.subnet.back().mad;
      if (random.below(2) == 0) back[emu::kMadMethodAt] |= emu::kMadResponseBit;
      agents.from_subnet(1, 0, back);
    }
    agents.service(static_cast<std::uint64_t>(i) * kMs);
    ASSERT_EQ(agents.files(), files.size()) << "seed " << seed;
    world.subnet.clear();
  }
  EXPECT_FALSE(world.read.empty()) << "seed " << seed;
}

}  // namespace
}  // namespace hca

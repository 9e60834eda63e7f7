// Counters, records, and whatever else somebody may send: by LID to QP1.
#include "emu/base/guid.h"
#include "emu/base/prng.h"
#include "fabric/subnet/management.h"
#include "tests/unit/fabric/subnet/subnet_world.h"

namespace fabric {
namespace {

constexpr std::uint16_t kPortCounters = 0x12;
constexpr std::uint16_t kPortCountersExtended = 0x1d;
constexpr std::uint16_t kNodeRecord = 0x11;
constexpr std::uint16_t kPathRecord = 0x35;
constexpr std::size_t kRecordsAt = 56;

class ServicesTest : public SubnetTest {
 protected:
  void send(emu::NodeId from, emu::NodeId to, int packets) {
    hca::SendPacket packet;
    packet.flits = 40;
    packet.dest = to;
    packet.traffic_class = emu::TrafficClass::best_effort;
    for (int i = 0; i < packets; ++i) ASSERT_TRUE(network_->submit(from, packet));
    network_->run_until(network_->now() + 5000);
    network_->clear_events();
  }
  std::optional<MadPayload> counters(emu::Lid lid, std::uint16_t attribute, std::uint8_t port,
                                     std::optional<std::uint16_t> reset = {}) {
    MadPayload mad =
        question(emu::kClassPerformance, attribute, 0, reset ? emu::kMadSet : emu::kMadGet);
    mad[65] = port;
    set_number(&mad[66], 2, reset.value_or(0));
    return ask(mad, 0, lid);
  }
  std::uint64_t narrow(emu::Lid lid, std::uint8_t port, std::size_t at) {
    return number(&(*counters(lid, kPortCounters, port))[64 + at], 4);
  }
  std::uint64_t wide(emu::Lid lid, std::uint8_t port, std::size_t at) {
    return number(&(*counters(lid, kPortCountersExtended, port))[64 + at], 8);
  }
  static MadPayload path(std::uint64_t mask, std::uint8_t method = emu::kMadGet) {
    MadPayload mad = question(emu::kClassSubnetAdmin, kPathRecord, 0, method);
    set_number(&mad[48], 8, mask);
    return mad;
  }
  static void set_gid(MadPayload& mad, std::size_t at, std::uint64_t guid) {
    set_number(&mad[kRecordsAt + at], 8, emu::kGidPrefix);
    set_number(&mad[kRecordsAt + at + 8], 8, guid);
  }
};

TEST_F(ServicesTest, CountersAreThoseOfTheNetwork) {
  send(0, 1, 5);
  EXPECT_EQ(narrow(1, 1, 24), 5U * 40 * 4) << "words of 32 bits";
  EXPECT_EQ(narrow(1, 1, 32), 5U);
  EXPECT_EQ(narrow(2, 1, 28), 5U * 40 * 4);
  EXPECT_EQ(narrow(2, 1, 36), 5U);
  EXPECT_EQ(wide(2, 1, 16), 5U * 40 * 4);
  EXPECT_EQ(wide(2, 1, 48), 5U);
  EXPECT_EQ(wide(1, 0xff, 24), 5U);
  const auto port = static_cast<std::uint8_t>(network_->port_of(1) + 1);
  EXPECT_EQ(narrow(switch_lid(1), port, 32), 5U) << "towards the node";
  EXPECT_EQ(narrow(switch_lid(1), 0xff, 32), 5U);
  EXPECT_EQ(status(*counters(1, kPortCounters, 2)), 0x1cU);
  EXPECT_EQ(status(*counters(switch_lid(0), kPortCounters, 0)), 0x1cU);
  EXPECT_EQ(status(*counters(1, 0x7777, 1)), 0x0cU);
  away_[1] = true;
  EXPECT_FALSE(counters(2, kPortCounters, 1));
}

TEST_F(ServicesTest, AResetTakesOffWhatItNames) {
  send(0, 1, 5);
  EXPECT_EQ(status(*counters(1, kPortCounters, 1, 1 << 14)), 0U) << "packets sent";
  EXPECT_EQ(narrow(1, 1, 32), 0U);
  EXPECT_EQ(narrow(1, 1, 24), 5U * 40 * 4);
  EXPECT_EQ(wide(1, 1, 24), 5U) << "the wide counters are others";
  send(0, 1, 2);
  EXPECT_EQ(narrow(1, 1, 32), 2U);
  EXPECT_EQ(narrow(1, 1, 24), 7U * 40 * 4);
  counters(1, kPortCountersExtended, 0xff, 0x0f);
  EXPECT_EQ(wide(1, 1, 24), 0U);
  EXPECT_EQ(wide(1, 1, 40), 7U) << "unicast, not named";
  counters(switch_lid(0), kPortCounters, 0xff, 0xffff);
  EXPECT_EQ(narrow(switch_lid(0), 0xff, 32), 0U);
  EXPECT_GT(wide(switch_lid(0), 0xff, 24), 0U);
}

TEST_F(ServicesTest, MulticastIsCountedApart) {
  send(0, 1, 5);
  multicasts_[0].sent = multicasts_[1].received = 3;
  EXPECT_EQ(wide(1, 1, 24), 5U);
  EXPECT_EQ(wide(1, 1, 40), 2U);
  EXPECT_EQ(wide(1, 1, 56), 3U);
  EXPECT_EQ(wide(1, 1, 48) + wide(1, 1, 64), 0U);
  EXPECT_EQ(wide(2, 1, 32), 5U);
  EXPECT_EQ(wide(2, 1, 48), 2U);
  EXPECT_EQ(wide(2, 1, 64), 3U);
  const auto port = static_cast<std::uint8_t>(network_->port_of(1) + 1);
  EXPECT_EQ(wide(switch_lid(1), port, 40), 2U) << "towards the node";
  EXPECT_EQ(wide(switch_lid(1), port, 56), 3U);
  EXPECT_EQ(wide(switch_lid(0), static_cast<std::uint8_t>(network_->port_of(0) + 1), 64), 3U);
  counters(1, kPortCountersExtended, 1, 1 << 6);
  EXPECT_EQ(wide(1, 1, 56), 0U);
  EXPECT_EQ(wide(1, 1, 40), 2U) << "not named";
  multicasts_[0].sent = 4;
  counters(1, kPortCountersExtended, 1, 1 << 4);
  EXPECT_EQ(wide(1, 1, 56), 1U);
  multicasts_[0].sent = 5;
  EXPECT_EQ(wide(1, 1, 40), 0U) << "what a link still carries may be counted before its port";
}

TEST_F(ServicesTest, LinksThatWentDownAreCountedAndReset) {
  const auto downed = [&](emu::Lid lid, std::uint8_t port) {
    return (*counters(lid, kPortCounters, port))[64 + 7];
  };
  downs_[4] = 3;
  EXPECT_EQ(downed(switch_lid(4), 1), 3);
  EXPECT_EQ(downed(switch_lid(4), 2), 0);
  EXPECT_EQ(downed(switch_lid(4), 0xff), 3);
  counters(switch_lid(4), kPortCounters, 1, 0xf000);
  EXPECT_EQ(downed(switch_lid(4), 1), 3) << "not named";
  counters(switch_lid(4), kPortCounters, 1, 1 << 2);
  EXPECT_EQ(downed(switch_lid(4), 1), 0);
  downs_[4] = 1000;
  EXPECT_EQ(downed(switch_lid(4), 1), 0xff) << "it stops there";
  const emu::RouterId router = network_->router_of(2);
  ASSERT_EQ(network_->port_of(2), 0) << "the link that counts here";
  downs_[router] = 2;
  EXPECT_EQ(downed(3, 1), 2) << "of the HCA";
}

TEST_F(ServicesTest, APathIsFoundByGidAndByLid) {
  MadPayload by_gid = path(1 << 2 | 1 << 3);
  set_gid(by_gid, 8, emu::guid_of(4));
  set_gid(by_gid, 24, emu::guid_of(2));
  auto answer = ask(by_gid, 2, 1);
  ASSERT_TRUE(answer);
  EXPECT_EQ(status(*answer), 0U);
  EXPECT_EQ((*answer)[3], 0x81);
  EXPECT_EQ(number(&(*answer)[kRecordsAt + 40], 2), 5U);
  EXPECT_EQ(number(&(*answer)[kRecordsAt + 42], 2), 3U);
  EXPECT_EQ((*answer)[kRecordsAt + 55] & 0x3f, 16) << "100 Gb/s";
  MadPayload by_lid = path(1 << 4);
  set_number(&by_lid[kRecordsAt + 40], 2, switch_lid(3));
  answer = ask(by_lid, 2, 1);
  EXPECT_EQ(number(&(*answer)[kRecordsAt + 16], 8), emu::switch_guid_of(3));
  EXPECT_EQ(number(&(*answer)[kRecordsAt + 42], 2), 3U) << "from who asks";
  away_[4] = true;
  EXPECT_EQ(status(*ask(by_gid, 2, 1)), 0x0300U);
  set_number(&by_gid[kRecordsAt + 8], 8, 1);
  EXPECT_EQ(status(*ask(by_gid, 2, 1)), 0x0500U);
  EXPECT_FALSE(ask(by_lid, 2, 2)) << "no administration is there";
}

TEST_F(ServicesTest, TablesLieBehindOneHeader) {
  const MadPayload all = question(emu::kClassSubnetAdmin, kNodeRecord, 0, emu::kMadGetTable);
  auto answer = ask(all, 0, 1);
  ASSERT_TRUE(answer);
  EXPECT_EQ(status(*answer), 0U);
  EXPECT_EQ((*answer)[3], 0x92);
  EXPECT_EQ(number(&(*answer)[44], 2), 14U);
  EXPECT_EQ(number(&(*answer)[32], 4), 20U + 18 * 112);
  EXPECT_EQ(answered_.bytes, kRecordsAt + 18 * 112);
  EXPECT_EQ(number(&(*answer)[kRecordsAt + 17 * 112], 2), switch_lid(8));
  MadPayload switches = all;
  set_number(&switches[48], 8, 1 << 4);
  switches[kRecordsAt + 6] = 2;
  answer = ask(switches, 0, 1);
  EXPECT_EQ(number(&(*answer)[32], 4), 20U + 9 * 112);
  // 324 paths, 63 of them in a segment.
  MadPayload paths = path(0, emu::kMadGetTable);
  for (unsigned segment = 1; segment <= 6; ++segment) {
    set_number(&paths[28], 4, segment);
    answer = ask(paths, 0, 1);
    EXPECT_EQ(status(*answer), 0U);
    EXPECT_EQ(number(&(*answer)[28], 4), segment);
    EXPECT_EQ((*answer)[26] & 7, segment == 1 ? 3 : segment == 6 ? 5 : 1) << "first, last, active";
    const std::size_t records = segment == 6 ? 324 - 5 * 63 : 63;
    EXPECT_EQ(answered_.bytes, kRecordsAt + records * 64);
    const unsigned first = (segment - 1) * 63;
    EXPECT_EQ(number(&(*answer)[kRecordsAt + 42], 2), first / 18 + 1) << "from";
    EXPECT_EQ(number(&(*answer)[kRecordsAt + 40], 2), first % 18 + 1) << "to";
  }
  EXPECT_EQ(status(*ask(path(0), 0, 1)), 0x0600U);
  EXPECT_EQ(status(*ask(question(emu::kClassSubnetAdmin, 0x12), 0, 1)), 0x0cU);
}

// The last segment of a table costs no more than the first: rows of pairs before it are not walked.
TEST_F(ServicesTest, SegmentsFarBehindCostNoMore) {
  MadPayload paths = path(0, emu::kMadGetTable);
  constexpr int kDevices = kNodes + kRouters;
  away_[2] = true;
  const auto cost = [&](unsigned segment) {
    set_number(&paths[28], 4, segment);
    asked_of_nodes_ = 0;
    const auto answer = ask(paths, 0, 1);
    EXPECT_TRUE(answer);
    return asked_of_nodes_;
  };
  cost(5);
  EXPECT_EQ(answered_.bytes, kRecordsAt + (17 * 17 - 4 * 63) * 64) << "the last one";
  // Who is there, twice each; the row in which the segment begins, and its own pairs.
  for (const unsigned segment : {1U, 5U, 6U, 1U << 20})
    EXPECT_LE(cost(segment), 2 * kDevices + 2 * kDevices + 2 * 63 + 2 * 4) << segment;
}

TEST_F(ServicesTest, PathsAreAsTheyWereAskedFor) {
  struct Case {
    unsigned at, bit, selector, value;
    int expected;  // of the record; -1: there is none
  };
  enum { greater, less, exactly, best };
  constexpr int kNone = -1, kMtu = 4, kRate = 16, kLife = 18;  // 2048 bytes, 100 Gb/s, a second
  constexpr unsigned kLifeAt = 56;
  const Case cases[] = {
      {54, 16, greater, 3, kMtu},
      {54, 16, greater, 4, kNone},
      {54, 16, less, 5, 4},
      {54, 16, less, 4, 3},
      {54, 16, less, 1, kNone},
      {54, 16, less, 0, kNone},
      {54, 16, exactly, 4, 4},
      {54, 16, exactly, 2, 2},
      {54, 16, exactly, 5, kNone},
      {54, 16, best, 1, kMtu},
      {55, 18, greater, 7, kRate},
      {55, 18, greater, 16, kNone},
      {55, 18, greater, 17, kNone},
      {55, 18, less, 17, kRate},
      {55, 18, less, 10, kRate},
      {55, 18, less, 16, kNone},
      {55, 18, exactly, 16, kRate},
      {55, 18, exactly, 7, kNone},
      {55, 18, exactly, 1, kNone},
      {55, 18, best, 1, kRate},
      {kLifeAt, 20, greater, 17, kLife},
      {kLifeAt, 20, greater, 18, kNone},
      {kLifeAt, 20, less, 19, kLife},
      {kLifeAt, 20, less, 18, kNone},
      {kLifeAt, 20, exactly, 18, kLife},
      {kLifeAt, 20, exactly, 3, kNone},
      {kLifeAt, 20, best, 0, kLife},
  };
  for (const Case& one : cases) {
    SCOPED_TRACE(testing::Message() << one.at << " " << one.selector << " " << one.value);
    MadPayload mad = path(1 << 4 | 3U << one.bit);
    set_number(&mad[kRecordsAt + 40], 2, 3);
    mad[kRecordsAt + one.at] = static_cast<std::uint8_t>(one.selector << 6 | one.value);
    const auto answer = ask(mad, 0, 1);
    ASSERT_TRUE(answer);
    EXPECT_EQ(status(*answer), one.expected == kNone ? 0x0300U : 0U);
    if (one.expected != kNone) {
      EXPECT_EQ((*answer)[kRecordsAt + one.at], 2 << 6 | one.expected) << "exactly";
    }
    set_number(&mad[48], 8, 1 << 4 | 2U << one.bit);  // a value without a selector says nothing
    EXPECT_EQ(status(*ask(mad, 0, 1)), 0U);
  }
  for (const auto& [pkey, records] : {std::pair{0xffffU, 1}, {0x7fffU, 1}, {0x8001U, 0}}) {
    MadPayload mad = path(1 << 4 | 1 << 5 | 1 << 13, emu::kMadGetTable);
    set_number(&mad[kRecordsAt + 40], 2, 3);
    set_number(&mad[kRecordsAt + 42], 2, 1);
    set_number(&mad[kRecordsAt + 50], 2, pkey);
    const auto answer = ask(mad, 0, 1);
    EXPECT_EQ(number(&(*answer)[32], 4), 20U + static_cast<unsigned>(records) * 64) << pkey;
  }
}

// Any bytes: no crash, and an answer is an answer to its question.
TEST_F(ServicesTest, AnyBytesAreAnsweredOrComeBack) {
  const std::uint64_t seed = 20;
  SCOPED_TRACE(seed);
  emu::Prng random(seed);
  constexpr std::uint8_t kClasses[] = {0x01, 0x81, 0x03, 0x04, 0x07};
  constexpr std::uint8_t kMethods[] = {1, 2, 0x12, 3, 0x15, 0x81};
  int answered = 0;
  for (int i = 0; i < 50'000; ++i) {
    MadPayload mad{};
    for (std::size_t at = 0; at < emu::kMadBytes; ++at)
      mad[at] = static_cast<std::uint8_t>(random());
    mad[0] = 1;
    mad[1] = kClasses[random() % 5];
    mad[2] = mad[1] == 3 ? 2 : 1;
    mad[3] = kMethods[random() % 6];
    mad[7] %= 5;
    set_number(&mad[32], 4, 0xffffffff);
    for (std::size_t at = 0; at < 64; ++at) mad[128 + at] %= 6;
    set_number(&mad[16], 2, mad[17] & 0x3fU);
    if (random() % 2 == 0) set_number(&mad[20], 4, mad[23] % 8U);
    const auto lid = static_cast<emu::Lid>(random() % 24);
    const auto source = static_cast<emu::NodeId>(random() % kNodes);
    if (random() % 64 == 0) away_[random() % kNodes] ^= true;
    const auto answer = ask(mad, source, lid);
    if (!answer) continue;
    ++answered;
    EXPECT_GE(answered_.bytes, emu::kMadBytes);
    EXPECT_LE(answered_.bytes, kAnswerBytesMax);
    EXPECT_EQ((*answer)[3], mad[3] == 2 ? 0x81 : mad[3] | 0x80);
    EXPECT_TRUE(std::equal(&mad[8], &mad[24], &(*answer)[8])) << "transaction and attribute";
  }
  EXPECT_GT(answered, 2'000);
}

}  // namespace
}  // namespace fabric

// What the communication manager says at once, more than a host takes: it waits, in order, and
// nothing of it is lost. One real host, whose port gives as many slots as the test likes.
#include "hca/daemon/cm_service.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <rdma/rdma_user_cm.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <set>
#include <span>
#include <vector>

#include "emu/packet/parse.h"
#include "hca/cm/mad.h"
#include "hca/host/host.h"
#include "tests/sim/app.h"

namespace {

constexpr std::uint32_t kMany = 3 * hca::kMadsWaitingMax;
constexpr std::uint32_t kSlots = 64;  // that the port gives in one turn
constexpr emu::NodeId kPeer = 1;

// Keeps the datagrams that leave.
struct Port : hca::PacketPort {
  Port() {
    for (std::uint16_t i = 0; i < kSlots; ++i) free.push_back(i);
  }
  bool reserve(hca::PacketSlot& slot) override {
    if (closed || free.empty()) return false;
    slot = {memory[free.back()].data(), free.back()};
    free.pop_back();
    return true;
  }
  void cancel(std::uint16_t buffer) override { free.push_back(buffer); }
  void send(std::span<const emu::TxDesc> packets) override {
    for (const emu::TxDesc& packet : packets) {
      const std::uint8_t* bytes = memory[packet.buffer].data();
      emu::ParsedPacket parsed;
      ASSERT_EQ(emu::parse_packet(std::as_bytes(std::span(bytes, packet.length)), parsed),
                emu::ParseStatus::ok);
      ASSERT_EQ(parsed.payload_bytes, hca::kMadBytes);
      std::memcpy(left.emplace_back().data(), bytes + parsed.payload_offset, hca::kMadBytes);
      pending.push_back(packet.buffer);
    }
  }
  // What was sent has left.
  void injected() {
    free.insert(free.end(), pending.begin(), pending.end());
    pending.clear();
  }
  std::vector<std::array<std::uint8_t, emu::kPacketBytesMax>> memory{kSlots};
  std::vector<std::uint16_t> free;
  std::vector<std::uint32_t> pending;
  bool closed = false;
  std::vector<hca::Mad> left;
};

struct Silent : hca::HostEvents {
  void completion(hca::ClientId, std::uint32_t) override {}
  void wake_cq(hca::ClientId, std::uint32_t) override {}
  void async(hca::ClientId, hca::AsyncEvent, std::uint32_t) override {}
  void admission(hca::ClientId, std::uint32_t, const hca::AdmissionOutcome&) override {}
};

hca::HostOptions options() {
  hca::HostOptions options;
  options.nodes = 2;
  options.class_of_sl.fill(emu::TrafficClass::best_effort);
  return options;
}

class CmServiceTest : public testing::Test {
 protected:
  CmServiceTest() { service.set_host(host); }

  // As hcad's loop has it.
  void turn() {
    port.injected();
    now += 1000;
    service.send_waiting();
    host.advance(now);
  }
  void run() {
    for (std::uint32_t i = 0; i < 4 * kMany / kSlots; ++i) turn();
  }
  static hca::Mad numbered(std::uint32_t number) {
    hca::Mad mad{};
    std::memcpy(mad.data(), &number, sizeof number);
    return mad;
  }
  std::vector<std::uint32_t> numbers() const {
    std::vector<std::uint32_t> list;
    for (const hca::Mad& mad : port.left)
      std::memcpy(&list.emplace_back(), mad.data(), sizeof(std::uint32_t));
    return list;
  }

  template <class Command>
  std::uint32_t run(hca::CmFileId file, std::uint32_t number, const Command& command) {
    std::vector<std::uint8_t> bytes(sizeof(rdma_ucm_cmd_hdr) + sizeof command);
    std::uint32_t answer = 0;
    std::array<std::uint8_t, 512> to{};
    const rdma_ucm_cmd_hdr header{number, sizeof command, sizeof to};
    std::memcpy(bytes.data(), &header, sizeof header);
    std::memcpy(bytes.data() + sizeof header, &command, sizeof command);
    EXPECT_EQ(service.command(file, bytes, to, now).error, 0) << number;
    std::memcpy(&answer, to.data(), sizeof answer);
    return answer;
  }
  // Asks the peer for a connection.
  void ask(hca::CmFileId file) {
    const std::uint32_t id =
        run(file, RDMA_USER_CM_CMD_CREATE_ID,
            rdma_ucm_create_id{
                .uid = 1, .response = 0, .ps = RDMA_PS_TCP, .qp_type = 2, .reserved = {}});
    rdma_ucm_resolve_ip resolve{};
    resolve.id = id;
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(7471);
    to.sin_addr.s_addr = htonl(hca::node_addresses(config)[kPeer]);
    std::memcpy(&resolve.dst_addr, &to, sizeof to);
    run(file, RDMA_USER_CM_CMD_RESOLVE_IP, resolve);
    run(file, RDMA_USER_CM_CMD_RESOLVE_ROUTE, rdma_ucm_resolve_route{id, 0});
    rdma_ucm_connect connect{};
    connect.id = id;
    run(file, RDMA_USER_CM_CMD_CONNECT, connect);
  }
  std::set<std::uint32_t> said(hca::CmKind kind) const {
    std::set<std::uint32_t> ids;
    for (const hca::Mad& mad : port.left) {
      const auto message = hca::parse(mad);
      if (message && message->kind == kind) ids.insert(message->local_id);
    }
    return ids;
  }

  emu::Config config = *emu::Config::parse("[network]\nnodes = 2\n");
  sim::LocalMemory memory;
  Port port;
  Silent silent;
  hca::Host host{options(), memory, port, silent};
  hca::CmService service{config, options()};
  emu::Cycle now = 1000;
};

// A program with many connections dies: all its peers hear of it.
TEST_F(CmServiceTest, EveryConnectionOfAFileThatClosesIsEnded) {
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe(ends.data()), 0);
  const emu::UniqueFd reads(ends[0]);
  const emu::UniqueFd writes(ends[1]);
  const hca::CmFileId file = service.open(writes.get(), 1);
  ASSERT_NE(file, 0u);
  for (std::uint32_t i = 0; i < kMany; ++i) {
    ask(file);
    turn();
  }
  run();
  ASSERT_EQ(said(hca::CmKind::req).size(), kMany);
  service.close(file);
  turn();
  EXPECT_NE(host.next_event(), emu::kNever);  // it does not sleep on them
  run();
  EXPECT_EQ(said(hca::CmKind::rej), said(hca::CmKind::req));
  EXPECT_EQ(port.left.size(), 2 * kMany);  // each once
  EXPECT_EQ(host.next_event(), emu::kNever);
}

TEST_F(CmServiceTest, WhatWaitsKeepsItsOrder) {
  port.closed = true;
  for (std::uint32_t i = 0; i < kMany; ++i) service.send(kPeer, numbered(i));
  turn();
  EXPECT_GT(host.next_event(), now);  // nothing can leave: no reason to look at once
  port.closed = false;
  turn();
  for (std::uint32_t i = kMany; i < 2 * kMany; ++i) service.send(kPeer, numbered(i));
  run();
  std::vector<std::uint32_t> all(2 * kMany);
  for (std::uint32_t i = 0; i < all.size(); ++i) all[i] = i;
  EXPECT_EQ(numbers(), all);
}

// Who has no network for long says things again and again: that is not kept.
TEST_F(CmServiceTest, WhatWaitsIsLimited) {
  constexpr std::uint32_t kTooMany = 100'000;
  port.closed = true;
  for (std::uint32_t i = 0; i < kTooMany; ++i) service.send(kPeer, numbered(i));
  port.closed = false;
  for (std::uint32_t i = 0; i < 2 * kTooMany / kSlots; ++i) turn();
  EXPECT_EQ(port.left.size(), hca::kMadsWaitingMax + hca::CmService::kWaitingMax);
}

// Nor is what is said again because no answer comes: what it repeats waits here still.
TEST_F(CmServiceTest, RepetitionsDoNotPileUp) {
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe(ends.data()), 0);
  const emu::UniqueFd reads(ends[0]);
  const emu::UniqueFd writes(ends[1]);
  const hca::CmFileId file = service.open(writes.get(), 1);
  port.closed = true;
  for (std::uint32_t i = 0; i < kMany; ++i) ask(file);
  for (int i = 0; i < 3; ++i) {
    now += options().cycle_time.cycle_at(5'000'000'000);
    service.service(now);
    turn();
  }
  port.closed = false;
  run();
  EXPECT_EQ(said(hca::CmKind::req).size(), kMany);
  EXPECT_EQ(port.left.size(), kMany);
  now += options().cycle_time.cycle_at(5'000'000'000);
  service.service(now);  // nothing waits: it is said again
  run();
  EXPECT_GT(port.left.size(), kMany);
}

// Nobody can take it, so it holds up nothing.
TEST_F(CmServiceTest, ToNobody) {
  service.send(2, numbered(1));
  for (std::uint32_t i = 0; i < kMany; ++i) service.send(kPeer, numbered(i));
  service.send(2, numbered(1));
  run();
  EXPECT_EQ(port.left.size(), kMany);
}

}  // namespace

// Acknowledgements of the longest messages, whose packets are nearly half of all PSNs there are.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <vector>

#include "emu/packet/build.h"
#include "tests/unit/hca/host/pair.h"

namespace hca {
namespace {

using test::Pair;
using test::PairOptions;

constexpr std::uint32_t kHalfOfPsns = 1U << 23;
constexpr std::uint32_t kFirstPsn = 0xfffff0;  // of a Pair
constexpr std::uint32_t kPacketBytes = 256;
constexpr std::uint32_t kLongPackets = kHalfOfPsns - 2;
constexpr std::size_t kLongBytes = std::size_t{kLongPackets} * kPacketBytes;

// b, of whom nobody hears, has all packets up to the nth that a sent.
void acknowledge(Pair& pair, std::uint32_t nth) {
  emu::PacketHeaders headers;
  headers.lrh = {0, 0, 1, 2};
  headers.bth.opcode = emu::Opcode::rc_ack;
  headers.bth.dest_qp = pair.a.qp.number;
  headers.bth.psn = emu::psn_add(kFirstPsn, nth);
  headers.aeth.syndrome = emu::kSyndromeAck | emu::kAckNoCredits;
  std::vector<std::byte> bytes(emu::kPacketBytesMax);
  const std::size_t length = emu::pad_packet(bytes, emu::write_headers(bytes, headers, 0));
  Arrival arrival{};
  arrival.desc.length = static_cast<std::uint16_t>(length);
  arrival.desc.src = 1;
  arrival.desc.traffic_class = emu::TrafficClass::best_effort;
  arrival.bytes = reinterpret_cast<const std::uint8_t*>(bytes.data());
  pair.cluster.host(0).receive({&arrival, 1}, pair.cluster.now());
}

// The one of the message itself was lost; that of the requests behind it lies half the circle
// beyond its first packet.
TEST(Acknowledge, OfWhatFollowsIsOneOfTheLongestMessage) {
  void* const bytes =
      ::mmap(nullptr, kLongBytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  ASSERT_NE(bytes, MAP_FAILED);
  PairOptions options;
  options.host.seals = false;
  options.link.trains = 64;
  options.link.lends = true;
  options.link.loss = 1;
  options.path.mtu = 1;  // 256
  options.path.timeout = 0;
  Pair pair(options);
  pair.cluster.on_injected = [&pair](const emu::TxDesc&) { pair.cluster.sent().clear(); };
  const MrKeys keys = pair.a.app->reg(bytes, kLongBytes, kAccessRemoteRead);
  const auto write = [&](std::uint32_t length) {
    const Sge from{reinterpret_cast<std::uint64_t>(bytes), length, keys.lkey};
    return pair.post({.opcode = WrOpcode::rdma_write,
                      .sges = {&from, 1},
                      .remote_addr = pair.b.address(0),
                      .rkey = pair.b.keys.rkey});
  };
  EXPECT_EQ(write(kLongBytes), 0);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(write(8), 0);
  EXPECT_TRUE(pair.run().first.empty());
  acknowledge(pair, kHalfOfPsns / 2 - 1);
  EXPECT_TRUE(pair.run().first.empty());
  acknowledge(pair, kHalfOfPsns);
  EXPECT_EQ(test::statuses(pair.run().first), std::vector(4, WcStatus::success));
  EXPECT_EQ(pair.cluster.host(0).counters().packets_retransmitted, 0U);
  pair.a.app.reset();
  ::munmap(bytes, kLongBytes);
}

}  // namespace
}  // namespace hca

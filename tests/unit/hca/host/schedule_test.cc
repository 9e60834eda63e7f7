// How much goes out at once, and who waits for whom.
#include <gtest/gtest.h>

#include "tests/unit/hca/host/pair.h"

namespace {

using hca::WcStatus;
using hca::WrOpcode;
using test::Pair;
using test::PairOptions;

constexpr std::size_t kAdvanceBytes = 128 << 10;
constexpr std::uint32_t kBlock = 400'000;

PairOptions of_real_time() {
  PairOptions options;
  options.host.packet_flits = emu::kPacketBytesMax / 16;
  options.host.mtu_bytes = 4096;
  options.path.mtu = 5;
  options.path.sl = 1;
  return options;
}

void write_block(Pair& pair) {
  const hca::Sge from = pair.a.sge(0, kBlock);
  ASSERT_EQ(pair.post({.opcode = WrOpcode::rdma_write,
                       .sges = {&from, 1},
                       .remote_addr = pair.b.address(0),
                       .rkey = pair.b.keys.rkey}),
            0);
}

std::size_t bytes_of(const std::vector<emu::TxDesc>& sent, emu::TrafficClass traffic_class) {
  std::size_t bytes = 0;
  for (const emu::TxDesc& packet : sent)
    bytes += packet.traffic_class == traffic_class ? packet.length : 0;
  return bytes;
}

// The rest is not forgotten: it is due at once.
TEST(Schedule, AnAdvanceHandsOnAPart) {
  Pair pair(of_real_time());
  write_block(pair);
  hca::Host& host = pair.cluster.host(0);
  for (int advance = 1; advance <= 2; ++advance) {
    EXPECT_EQ(host.next_event(), pair.cluster.now());
    host.advance(pair.cluster.now());
    const std::size_t bytes = bytes_of(pair.cluster.sent(), emu::TrafficClass::real_time);
    EXPECT_GE(bytes, kAdvanceBytes * advance);
    EXPECT_LT(bytes, kBlock);
  }
  EXPECT_EQ(test::statuses(pair.run().first), std::vector{WcStatus::success});
  EXPECT_TRUE(
      std::equal(pair.a.bytes.begin(), pair.a.bytes.begin() + kBlock, pair.b.bytes.begin()));
}

// What is lent is not copied before its receiver does: an advance hands on four times as much.
TEST(Schedule, AnAdvanceHandsOnMoreOfWhatIsLent) {
  PairOptions options = of_real_time();
  options.host.seals = false;
  options.link.trains = 16;
  options.link.lends = true;
  Pair pair(options);
  for (int block = 0; block < 2; ++block) write_block(pair);
  pair.cluster.host(0).advance(pair.cluster.now());
  std::size_t bytes = 0;
  for (const emu::TxDesc& packet : pair.cluster.sent()) bytes += emu::buffer_bytes(packet);
  EXPECT_GE(bytes, 4 * kAdvanceBytes);
  EXPECT_LT(bytes, 5 * kAdvanceBytes);
  EXPECT_EQ(pair.cluster.lent(), pair.cluster.sent().size());
  EXPECT_EQ(test::statuses(pair.run().first), (std::vector{WcStatus::success, WcStatus::success}));
}

// However much real time waits: the acknowledgements and requests of best effort have their turn.
TEST(Schedule, EachClassHasItsPart) {
  const PairOptions options = of_real_time();
  Pair pair(options);
  sim::Queue here = pair.a.app->make_qp(hca::QpType::rc, pair.a.cq, pair.a.cq, options.capacity);
  sim::Queue there = pair.b.app->make_qp(hca::QpType::rc, pair.b.cq, pair.b.cq, options.capacity);
  sim::Path path;
  path.dest = 1;
  path.dest_qpn = there.number;
  ASSERT_EQ(pair.a.app->connect(here, path, pair.cluster.now()), 0);
  path.dest = 0;
  path.dest_qpn = here.number;
  ASSERT_EQ(pair.b.app->connect(there, path, pair.cluster.now()), 0);
  write_block(pair);
  const hca::Sge word = pair.a.sge(0, 8);
  ASSERT_EQ(pair.a.app->post(here, {.opcode = WrOpcode::rdma_write,
                                    .sges = {&word, 1},
                                    .remote_addr = pair.b.address(500'000),
                                    .rkey = pair.b.keys.rkey}),
            0);
  pair.a.app->ring(pair.cluster.now());
  pair.cluster.host(0).advance(pair.cluster.now());
  EXPECT_LT(bytes_of(pair.cluster.sent(), emu::TrafficClass::real_time), kBlock);
  EXPECT_GT(bytes_of(pair.cluster.sent(), emu::TrafficClass::best_effort), 0U);
}

}  // namespace

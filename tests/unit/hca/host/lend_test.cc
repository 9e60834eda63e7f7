// Payloads of trains that stay with their sender until the receiver copies them: a program that
// gets its memory back, in whatever way, changes nothing of what it had sent.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "emu/base/prng.h"
#include "tests/unit/hca/host/pair.h"
#include "tests/unit/random_bytes.h"
#include "tests/unit/sanitized.h"

namespace {

using hca::WcStatus;
using hca::WrOpcode;
using test::Pair;
using test::PairOptions;

PairOptions lending(hca::QpType type = hca::QpType::rc) {
  PairOptions options;
  options.host.seals = false;
  options.host.packet_flits = emu::kPacketBytesMax / 16;
  options.link.trains = 4;
  options.link.lends = true;
  options.path.mtu = 3;  // 1024
  options.path.timeout = 20;
  options.type = type;
  return options;
}

constexpr std::uint32_t kBytes = 8 * 1024;

hca::Cqe only(const std::vector<hca::Cqe>& cqes) {
  EXPECT_EQ(cqes.size(), 1U);
  return cqes.empty() ? hca::Cqe{} : cqes.front();
}

// A message in a train has left its sender and has not arrived.
struct UnderWay {
  explicit UnderWay(const PairOptions& options = lending(), WrOpcode opcode = WrOpcode::rdma_write)
      : pair(options) {
    pair.cluster.link().delay_min = pair.cluster.link().delay_max = 100'000;
    sent.assign(pair.a.bytes.begin(), pair.a.bytes.begin() + kBytes);
    const hca::Sge from = pair.a.sge(0, kBytes);
    if (opcode == WrOpcode::send) pair.expect_recv(1, pair.b.sge(0, kBytes));
    EXPECT_EQ(pair.post({.opcode = opcode,
                         .sges = {&from, 1},
                         .remote_addr = pair.b.address(0),
                         .rkey = pair.b.keys.rkey}),
              0);
    pair.cluster.run(pair.cluster.now() + 2000);
    EXPECT_TRUE(std::ranges::equal(std::span(pair.b.bytes).first(kBytes),
                                   std::vector<std::uint8_t>(kBytes)));
  }
  hca::Host& host() { return pair.cluster.host(0); }
  hca::ClientId client() const { return pair.a.app->client(); }
  int modify(hca::QpState state) {
    hca::QpAttributes wanted{};
    wanted.state = state;
    return host().modify_qp(client(), pair.a.qp.number, wanted, hca::kQpState, pair.cluster.now());
  }
  // The program writes over what it had sent, and then it arrives.
  void expect_as_sent() {
    std::fill_n(pair.a.bytes.begin(), kBytes, std::uint8_t{0xee});
    pair.cluster.run();
    EXPECT_TRUE(arrived());
  }
  bool arrived() const { return std::ranges::equal(sent, std::span(pair.b.bytes).first(kBytes)); }

  Pair pair;
  std::vector<std::uint8_t> sent;
};

TEST(Lending, PayloadIsReadWhereItLies) {
  for (const WrOpcode opcode : {WrOpcode::rdma_write, WrOpcode::send}) {
    UnderWay message(lending(), opcode);
    EXPECT_EQ(message.pair.cluster.lent(), 1U);
    message.pair.a.bytes[5000] ^= 1;  // no program may: shows that nothing was copied
    message.sent[5000] ^= 1;
    EXPECT_EQ(only(message.pair.run().first).status, WcStatus::success);
    EXPECT_TRUE(message.arrived());
  }
}

TEST(Lending, EndsWhereAQpFails) {
  UnderWay message;
  ASSERT_EQ(message.modify(hca::QpState::err), 0);
  EXPECT_EQ(only(message.pair.a.take()).status, WcStatus::wr_flush_err);
  message.expect_as_sent();
}

TEST(Lending, EndsWhereAQpIsReset) {
  UnderWay message;
  ASSERT_EQ(message.modify(hca::QpState::reset), 0);
  message.expect_as_sent();
}

TEST(Lending, EndsWithTheQp) {
  UnderWay message;
  ASSERT_EQ(message.host().destroy_qp(message.client(), message.pair.a.qp.number), 0);
  message.expect_as_sent();
}

TEST(Lending, EndsWithTheRegion) {
  UnderWay message;
  ASSERT_EQ(message.host().deregister_mr(message.client(), message.pair.a.keys.lkey), 0);
  message.expect_as_sent();
}

TEST(Lending, EndsWhereARegionMoves) {
  UnderWay message;
  hca::MrSpec elsewhere;
  std::vector<std::uint8_t> there(kBytes);
  elsewhere.address = elsewhere.iova = reinterpret_cast<std::uint64_t>(there.data());
  elsewhere.length = there.size();
  elsewhere.access = test::kAll;
  constexpr std::uint32_t kTranslation = 1;
  ASSERT_TRUE(message.host().reregister_mr(message.client(), message.pair.a.keys.lkey, kTranslation,
                                           0, elsewhere));
  message.expect_as_sent();
}

TEST(Lending, EndsWithTheProgram) {
  UnderWay message;
  message.pair.a.app.reset();
  message.expect_as_sent();
}

TEST(Lending, EndsWhenThePeerIsGivenUp) {
  PairOptions options = lending();
  options.path.timeout = 1;
  options.path.retry_cnt = 0;
  UnderWay message(options);
  message.pair.cluster.run(message.pair.cluster.now() + 50'000);
  EXPECT_EQ(only(message.pair.a.take()).status, WcStatus::retry_exc_err);
  message.expect_as_sent();
}

// Between nodes that can lend: one message of so many pieces goes by trains, none of them lent.
void expect_copied(hca::QpType type, WrOpcode opcode, std::size_t pieces) {
  Pair pair(lending(type));
  if (opcode == WrOpcode::rdma_read) std::ranges::swap_ranges(pair.a.bytes, pair.b.bytes);
  const hca::Sge list[2] = {pair.a.sge(0, kBytes), pair.a.sge(kBytes, kBytes)};
  sim::Send send{.opcode = opcode, .sges = {list, pieces}};
  send.remote_addr = pair.b.address(0);
  send.rkey = pair.b.keys.rkey;
  ASSERT_EQ(pair.post(send), 0);
  EXPECT_EQ(only(pair.run().first).status, WcStatus::success);
  EXPECT_TRUE(std::equal(pair.a.bytes.begin(),
                         pair.a.bytes.begin() + static_cast<long>(pieces * kBytes),
                         pair.b.bytes.begin()));
  EXPECT_TRUE(std::ranges::any_of(pair.cluster.sent(),
                                  [](const emu::TxDesc& desc) { return desc.more_packets != 0; }));
  EXPECT_EQ(pair.cluster.lent(), 0U);
}

// Their completions come before the receiver has copied anything, or say nothing of it.
TEST(Lending, NotOfUnreliableServicesNorOfAnswers) {
  expect_copied(hca::QpType::uc, WrOpcode::rdma_write, 1);
  expect_copied(hca::QpType::rc, WrOpcode::rdma_read, 1);
}
TEST(Lending, NotInPieces) { expect_copied(hca::QpType::rc, WrOpcode::rdma_write, 2); }

// A payload whose length is not what the packet says is none.
TEST(Lending, OfAnotherLengthIsDropped) {
  UnderWay message;
  message.pair.cluster.on_deliver = [](hca::Arrival& arrival) {
    if (!arrival.lent.empty()) arrival.lent = arrival.lent.first(arrival.lent.size() - 4);
  };
  message.pair.cluster.run(message.pair.cluster.now() + 150'000);
  EXPECT_EQ(message.pair.cluster.host(1).counters().dropped_bad_packet, 1U);
}

class LendingSoak : public testing::TestWithParam<int> {};

// The program writes over each buffer as soon as its completion is there, whatever is lost,
// repeated or late; what the peer receives is what was sent.
TEST_P(LendingSoak, BuffersAreTheProgramsOnceCompleted) {
  const auto seed = static_cast<std::uint64_t>(GetParam());
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  emu::Prng prng(seed);
  PairOptions options = lending();
  options.link.seed = seed;
  options.link.trains = 1 + prng.below(6);
  options.link.loss = 0.1 * prng.uniform();
  options.link.repeat = 0.2 * prng.uniform();
  options.link.delay_max = options.link.delay_min + prng.below(3000);
  options.path.mtu = static_cast<std::uint8_t>(1 + prng.below(5));
  options.path.timeout = 8;
  options.path.retry_cnt = 7;
  options.host.mtu_bytes = 4096;
  Pair pair(options);
  constexpr std::uint64_t kMessages = 60;
  constexpr std::uint32_t kSlot = 16 * 1024;
  constexpr std::uint64_t kOpen = 8;
  std::vector<std::vector<std::uint8_t>> sent;
  std::uint64_t received = 0;
  std::uint64_t completed = 0;
  const auto take = [&] {
    for (const hca::Cqe& cqe : pair.a.take()) {
      ASSERT_EQ(cqe.status, WcStatus::success);
      std::fill_n(pair.a.bytes.begin() + static_cast<long>(completed++ % kOpen * kSlot), kSlot,
                  std::uint8_t{0xee});
    }
    for (const hca::Cqe& cqe : pair.b.take()) {
      ASSERT_EQ(cqe.byte_len, sent[received].size());
      const auto at = pair.b.bytes.begin() + static_cast<long>(received % kOpen * kSlot);
      ASSERT_TRUE(std::equal(sent[received].begin(), sent[received].end(), at)) << received;
      ++received;
    }
  };
  for (int turns = 0; received < kMessages || completed < kMessages; ++turns) {
    ASSERT_LT(turns, 100'000);
    while (sent.size() < kMessages && sent.size() - std::min(received, completed) < kOpen) {
      const std::size_t at = sent.size() % kOpen * kSlot;
      std::vector<std::uint8_t> message(1 + prng.below(prng.below(2) == 0 ? kSlot : 300));
      test::fill_at_random(prng, std::as_writable_bytes(std::span(message)));
      std::ranges::copy(message, pair.a.bytes.begin() + static_cast<long>(at));
      const hca::Sge from = pair.a.sge(at, static_cast<std::uint32_t>(message.size()));
      const bool write = prng.below(2) == 0;
      pair.expect_recv(sent.size(), pair.b.sge(at, kSlot));
      ASSERT_EQ(pair.post({.opcode = write ? WrOpcode::rdma_write_imm : WrOpcode::send,
                           .wr_id = sent.size(),
                           .sges = {&from, 1},
                           .remote_addr = pair.b.address(at),
                           .rkey = pair.b.keys.rkey}),
                0);
      sent.push_back(std::move(message));
    }
    pair.cluster.run(pair.cluster.now() + 1 + prng.below(500));
    take();
  }
  EXPECT_GT(pair.cluster.lent(), 10U);
}
INSTANTIATE_TEST_SUITE_P(Seeds, LendingSoak, testing::Range(1, test::kSanitized ? 16 : 61));

}  // namespace

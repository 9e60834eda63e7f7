// UC between two Hosts: what arrives whole is told, what does not is dropped in silence.
#include <gtest/gtest.h>

#include <cstring>

#include "tests/unit/hca/host/pair.h"

namespace {

using hca::QpState;
using hca::WcOpcode;
using hca::WcStatus;
using hca::WrOpcode;
using test::Pair;
using test::PairOptions;

PairOptions uc(double loss = 0, std::uint64_t seed = 1) {
  PairOptions options;
  options.type = hca::QpType::uc;
  options.link.loss = loss;
  options.link.seed = seed;
  return options;
}

TEST(Uc, SendAndImmediateArrive) {
  Pair pair(uc());
  pair.expect_recv(9, pair.b.sge(0, 8000));
  pair.expect_recv(10, pair.b.sge(8000, 10));
  const hca::Sge from[] = {pair.a.sge(100, 3000), pair.a.sge(50000, 2500)};
  ASSERT_EQ(pair.post({.wr_id = 5, .sges = from}), 0);
  ASSERT_EQ(pair.post({.opcode = WrOpcode::send_imm, .wr_id = 6, .imm = 0x0a0b0c0d}), 0);
  const auto [sent, received] = pair.run();
  EXPECT_EQ(test::statuses(sent), std::vector(2, WcStatus::success));
  EXPECT_EQ(sent[0].wr_id, 5u);
  ASSERT_EQ(received.size(), 2u);
  EXPECT_EQ(received[0].byte_len, 5500u);
  EXPECT_EQ(received[0].wr_id, 9u);
  EXPECT_EQ(received[1].imm, 0x0a0b0c0du);
  EXPECT_EQ(received[1].wc_flags, hca::kWcWithImm);
  EXPECT_EQ(std::memcmp(&pair.b.bytes[3000], &pair.a.bytes[50000], 2500), 0);
  // Nothing was answered: nine packets of 612 bytes, the last one shorter, and one without any.
  EXPECT_EQ(pair.cluster.sent().size(), 10u);
  EXPECT_EQ(pair.cluster.host(1).counters().acks_sent, 0u);
}

TEST(Uc, WriteAndWriteImm) {
  Pair pair(uc());
  EXPECT_EQ(pair.b.app->post_recv(pair.b.qp, 3, {}), 0);
  const hca::Sge from = pair.a.sge(0, 3000);
  sim::Send send{.opcode = WrOpcode::rdma_write,
                 .sges = {&from, 1},
                 .remote_addr = pair.b.address(50),
                 .rkey = pair.b.keys.rkey};
  ASSERT_EQ(pair.post(send), 0);
  send.opcode = WrOpcode::rdma_write_imm;
  send.remote_addr = pair.b.address(9000);
  send.imm = 7;
  ASSERT_EQ(pair.post(send), 0);
  const auto [sent, received] = pair.run();
  EXPECT_EQ(test::statuses(sent), std::vector(2, WcStatus::success));
  ASSERT_EQ(received.size(), 1u);
  EXPECT_EQ(received[0].opcode, WcOpcode::recv_rdma_with_imm);
  EXPECT_EQ(received[0].byte_len, 3000u);
  EXPECT_EQ(std::memcmp(&pair.b.bytes[50], &pair.a.bytes[0], 3000), 0);
  EXPECT_EQ(std::memcmp(&pair.b.bytes[9000], &pair.a.bytes[0], 3000), 0);
}

// READ is not of this service; a QP that asks for it stops sending, and goes on after SQE -> RTS.
TEST(Uc, ReadIsRefused) {
  Pair pair(uc());
  const hca::Sge to = pair.a.sge(0, 8);
  const hca::Sge over = pair.a.sge(0, 2000);
  pair.expect_recv(1, pair.b.sge(0, 4000));
  ASSERT_EQ(pair.post({.wr_id = 1, .sges = {&over, 1}}), 0);
  ASSERT_EQ(pair.post({.opcode = WrOpcode::rdma_read, .wr_id = 2, .sges = {&to, 1}}), 0);
  ASSERT_EQ(pair.post({.wr_id = 3, .sges = {&over, 1}}), 0);
  auto [sent, received] = pair.run();
  EXPECT_EQ(test::statuses(sent),
            (std::vector{WcStatus::success, WcStatus::loc_qp_op_err, WcStatus::wr_flush_err}));
  EXPECT_EQ(received.size(), 1u);
  EXPECT_EQ(pair.cluster.host(0).query_qp(pair.a.app->client(), pair.a.qp.number)->state,
            QpState::sqe);
  ASSERT_EQ(
      pair.a.app->modify(pair.a.qp, {.state = QpState::rts}, hca::kQpState, pair.cluster.now()), 0);
  pair.expect_recv(2, pair.b.sge(0, 4000));
  ASSERT_EQ(pair.post({.wr_id = 4, .sges = {&over, 1}}), 0);
  std::tie(sent, received) = pair.run();
  EXPECT_EQ(test::statuses(sent), std::vector{WcStatus::success});
  EXPECT_EQ(received.size(), 1u);
}

// A send that fails on its way leaves nothing of its list behind: the next one begins its own.
TEST(Uc, AfterAFailedSendTheNextIsRead) {
  PairOptions options = uc();
  options.link.slots = 1;
  Pair pair(options);
  const hca::Sge two[] = {pair.a.sge(0, 0), pair.a.sge(0, 5000)};
  ASSERT_EQ(pair.post({.wr_id = 1, .sges = two}), 0);
  hca::Host& host = pair.cluster.host(0);
  ASSERT_EQ(host.deregister_mr(pair.a.app->client(), pair.a.keys.lkey), 0);
  EXPECT_EQ(test::statuses(pair.run().first), std::vector{WcStatus::loc_prot_err});
  ASSERT_EQ(
      pair.a.app->modify(pair.a.qp, {.state = QpState::rts}, hca::kQpState, pair.cluster.now()), 0);
  pair.a.keys = pair.a.app->reg(pair.a.bytes.data(), pair.a.bytes.size(), test::kAll);
  pair.expect_recv(3, pair.b.sge(0, 1000));
  const hca::Sge one = pair.a.sge(0, 100);
  ASSERT_EQ(pair.post({.wr_id = 2, .sges = {&one, 1}}), 0);
  const auto [sent, received] = pair.run();
  EXPECT_EQ(test::statuses(sent), std::vector{WcStatus::success});
  EXPECT_EQ(test::statuses(received), std::vector{WcStatus::success});
}

// Without a receive, with a wrong key, beyond a region: the sender has success, nobody hears.
TEST(Uc, WhatCannotBePlacedIsDropped) {
  Pair pair(uc());
  const hca::Sge from = pair.a.sge(0, 2000);
  ASSERT_EQ(pair.post({.sges = {&from, 1}}), 0);
  sim::Send send{.opcode = WrOpcode::rdma_write,
                 .sges = {&from, 1},
                 .remote_addr = pair.b.address(0),
                 .rkey = pair.b.keys.rkey + 1};
  ASSERT_EQ(pair.post(send), 0);
  send.rkey = pair.b.keys.rkey;
  send.remote_addr = pair.b.address(pair.b.bytes.size() - 1999);
  ASSERT_EQ(pair.post(send), 0);
  auto [sent, received] = pair.run();
  EXPECT_EQ(test::statuses(sent), std::vector(3, WcStatus::success));
  EXPECT_TRUE(received.empty());
  pair.expect_recv(2, pair.b.sge(0, 4000));
  ASSERT_EQ(pair.post({.sges = {&from, 1}}), 0);
  EXPECT_EQ(pair.run().second.size(), 1u);
}

// A message longer than its receive is the receiver's error: that QP fails, the sender's does not.
TEST(Uc, TooLongForTheReceive) {
  Pair pair(uc());
  pair.expect_recv(1, pair.b.sge(0, 1000));
  pair.expect_recv(2, pair.b.sge(0, 1000));
  const hca::Sge from = pair.a.sge(0, 2000);
  ASSERT_EQ(pair.post({.sges = {&from, 1}}), 0);
  const auto [sent, received] = pair.run();
  EXPECT_EQ(test::statuses(sent), std::vector{WcStatus::success});
  EXPECT_EQ(test::statuses(received), (std::vector{WcStatus::loc_len_err, WcStatus::wr_flush_err}));
}

// A WRITE to memory that has gone ends the QP that it is for. Nobody is answered and no receive is
// lost, so an event says it; where a receive completes in error, that does.
TEST(Uc, WhatFindsNoMemoryIsTold) {
  for (const WrOpcode opcode : {WrOpcode::rdma_write, WrOpcode::rdma_write_imm, WrOpcode::send}) {
    for (const std::uint32_t length : {100U, 5000U}) {
      PairOptions options = uc();
      options.mapped = false;
      Pair pair(options);
      pair.cluster.memory().unmap(&pair.b.bytes[64], 32);
      pair.expect_recv(1, pair.b.sge(0, 8000));
      const hca::Sge from = pair.a.sge(0, length);
      ASSERT_EQ(pair.post({.opcode = opcode,
                           .sges = {&from, 1},
                           .remote_addr = pair.b.address(0),
                           .rkey = pair.b.keys.rkey}),
                0);
      const auto [sent, received] = pair.run();
      SCOPED_TRACE(testing::Message() << static_cast<int>(opcode) << ", " << length);
      EXPECT_EQ(test::statuses(sent), std::vector{WcStatus::success});
      ASSERT_EQ(received.size(), 1u);
      EXPECT_EQ(pair.cluster.host(1).query_qp(pair.b.app->client(), pair.b.qp.number)->state,
                QpState::err);
      // The first packet of a long WRITE met the fault, and its receive was not taken yet.
      const bool takes_none =
          opcode == WrOpcode::rdma_write || (opcode == WrOpcode::rdma_write_imm && length > 1000);
      EXPECT_EQ(received[0].status, takes_none ? WcStatus::wr_flush_err : WcStatus::loc_prot_err);
      EXPECT_EQ(pair.cluster.told(1).heard(hca::AsyncEvent::qp_access_err), takes_none);
    }
  }
}

class UcUnderLoss : public testing::TestWithParam<int> {};

// Every send completes; what is received is whole, in order, and a subset of what was sent.
TEST_P(UcUnderLoss, WholeMessagesOrNone) {
  SCOPED_TRACE(testing::Message() << "seed " << GetParam());
  Pair pair(uc(0.08, static_cast<std::uint64_t>(GetParam())));
  constexpr std::uint32_t kMessages = 60;
  constexpr std::uint32_t kLength = 3000;
  for (std::uint32_t i = 0; i < kMessages; ++i)
    pair.expect_recv(i, pair.b.sge(i * kLength, kLength));
  std::size_t completed = 0;
  for (std::uint32_t i = 0; i < kMessages; ++i) {
    const hca::Sge from = pair.a.sge(i * 11, kLength);
    ASSERT_EQ(pair.post({.opcode = WrOpcode::send_imm, .sges = {&from, 1}, .imm = i}), 0);
    const auto [sent, received] = pair.run();
    completed += sent.size();
    pair.b.done.insert(pair.b.done.end(), received.begin(), received.end());
  }
  EXPECT_EQ(completed, kMessages);
  EXPECT_GT(pair.b.done.size(), 0u);
  EXPECT_LT(pair.b.done.size(), kMessages);
  EXPECT_GT(pair.cluster.host(1).counters().dropped_messages, 0u);
  std::uint32_t before = 0;
  for (std::size_t i = 0; i < pair.b.done.size(); ++i) {
    const hca::Cqe& cqe = pair.b.done[i];
    EXPECT_EQ(cqe.status, WcStatus::success);
    EXPECT_EQ(cqe.wr_id, i);  // no receive is lost
    EXPECT_EQ(cqe.byte_len, kLength);
    if (i > 0) {
      EXPECT_GT(cqe.imm, before);
    }
    before = cqe.imm;
    EXPECT_EQ(std::memcmp(&pair.b.bytes[i * kLength], &pair.a.bytes[cqe.imm * 11], kLength), 0);
  }
}
INSTANTIATE_TEST_SUITE_P(Seeds, UcUnderLoss, testing::Range(1, 11));

}  // namespace

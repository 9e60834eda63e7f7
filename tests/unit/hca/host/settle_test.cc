// The end of a batch: bytes, then the CQEs that speak of them, then events that speak of those.
// Bytes that find no memory make errors of their own CQEs and of later ones, not of earlier ones.
#include <gtest/gtest.h>

#include <array>

#include "tests/unit/hca/host/pair.h"

namespace {

using hca::AsyncEvent;
using hca::QpState;
using hca::WcStatus;
using hca::WrOpcode;
using test::Pair;
using test::PairOptions;

constexpr std::size_t kHole = 4096;  // offset of a page that is not there

// Within one node, so that what is posted together arrives in one batch.
PairOptions one_batch() {
  PairOptions options;
  options.mapped = false;
  options.same_node = true;
  return options;
}

TEST(Settle, ReceivesBeforeTheFaultAreGood) {
  Pair pair(one_batch());
  pair.cluster.memory().unmap(&pair.b.bytes[kHole], 4096);
  pair.expect_recv(1, pair.b.sge(0, 100));
  pair.expect_recv(2, pair.b.sge(kHole, 100));
  pair.expect_recv(3, pair.b.sge(0, 100));
  const hca::Sge from = pair.a.sge(0, 100);
  for (std::uint64_t id = 1; id <= 3; ++id) {
    ASSERT_EQ(pair.a.app->post(pair.a.qp, {.wr_id = id, .sges = {&from, 1}}), 0);
  }
  pair.a.app->ring(pair.cluster.now());
  const auto [sent, received] = pair.run();
  const std::vector expected{WcStatus::success, WcStatus::loc_prot_err, WcStatus::loc_prot_err};
  EXPECT_EQ(test::statuses(received), expected);
  const std::vector told{WcStatus::success, WcStatus::rem_op_err, WcStatus::wr_flush_err};
  EXPECT_EQ(test::statuses(sent), told);
}

// The answer to a READ behind it would say that the WRITE is done.
TEST(Settle, NoAnswerBehindTheFaultLeaves) {
  Pair pair(one_batch());
  pair.cluster.memory().unmap(&pair.b.bytes[kHole], 4096);
  const hca::Sge from = pair.a.sge(0, 100);
  const hca::Sge into = pair.a.sge(8192, 100);
  ASSERT_EQ(pair.a.app->post(pair.a.qp, {.opcode = WrOpcode::rdma_write,
                                         .sges = {&from, 1},
                                         .remote_addr = pair.b.address(kHole),
                                         .rkey = pair.b.keys.rkey}),
            0);
  ASSERT_EQ(pair.a.app->post(pair.a.qp, {.opcode = WrOpcode::rdma_read,
                                         .sges = {&into, 1},
                                         .remote_addr = pair.b.address(0),
                                         .rkey = pair.b.keys.rkey}),
            0);
  pair.a.app->ring(pair.cluster.now());
  const std::vector expected{WcStatus::rem_op_err, WcStatus::wr_flush_err};
  EXPECT_EQ(test::statuses(pair.run().first), expected);
}

// The answer to a READ before the fault still leaves.
TEST(Settle, AnswersBeforeTheFaultLeave) {
  Pair pair(one_batch());
  pair.cluster.memory().unmap(&pair.b.bytes[kHole], 4096);
  const hca::Sge into = pair.a.sge(8192, 100);
  const hca::Sge from = pair.a.sge(0, 100);
  ASSERT_EQ(pair.a.app->post(pair.a.qp, {.opcode = WrOpcode::rdma_read,
                                         .sges = {&into, 1},
                                         .remote_addr = pair.b.address(0),
                                         .rkey = pair.b.keys.rkey}),
            0);
  ASSERT_EQ(pair.a.app->post(pair.a.qp, {.opcode = WrOpcode::rdma_write,
                                         .sges = {&from, 1},
                                         .remote_addr = pair.b.address(kHole),
                                         .rkey = pair.b.keys.rkey}),
            0);
  pair.a.app->ring(pair.cluster.now());
  const std::vector expected{WcStatus::success, WcStatus::rem_op_err};
  EXPECT_EQ(test::statuses(pair.run().first), expected);
}

// Of two requests to memory that the host copies into and memory that it maps, the first is there
// when the second is: who finds the second looks at the first.
TEST(Settle, WhatComesBeforeMappedBytesIsThereBeforeThem) {
  for (const WrOpcode second : {WrOpcode::rdma_write, WrOpcode::atomic_fadd, WrOpcode::atomic_cas,
                                WrOpcode::atomic_write}) {
    Pair pair(one_batch());
    alignas(8) std::array<std::uint8_t, 64> flag{};
    const hca::MrKeys keys = pair.b.app->reg(flag.data(), flag.size(), test::kAll);
    std::size_t writes = 0;
    pair.cluster.memory().on_write = [&](std::span<const hca::MemoryPiece> pieces) {
      if (pieces.front().remote != pair.b.address(0)) return;  // the atomic's answer
      ++writes;
      EXPECT_EQ(flag[0], 0) << static_cast<int>(second);
    };
    pair.a.bytes[200] = 1;
    const hca::Sge data = pair.a.sge(0, 100);
    const hca::Sge word = pair.a.sge(200, 8);
    ASSERT_EQ(pair.a.app->post(pair.a.qp, {.opcode = WrOpcode::rdma_write,
                                           .sges = {&data, 1},
                                           .remote_addr = pair.b.address(0),
                                           .rkey = pair.b.keys.rkey}),
              0);
    sim::Send send{.opcode = second};
    send.remote_addr = reinterpret_cast<std::uint64_t>(flag.data());
    send.rkey = keys.rkey;
    if (second != WrOpcode::atomic_write) send.sges = {&word, 1};
    (second == WrOpcode::atomic_fadd ? send.compare_add : send.swap) = 1;
    ASSERT_EQ(pair.a.app->post(pair.a.qp, send), 0);
    pair.a.app->ring(pair.cluster.now());
    EXPECT_EQ(test::statuses(pair.run().first), std::vector(2, WcStatus::success));
    EXPECT_EQ(writes, 1u);
    EXPECT_EQ(flag[0], 1);
  }
}

// A READ whose bytes find no memory completes in error, whether it is signaled or not.
TEST(Settle, AnUnsignaledReadSaysThatItFailed) {
  for (const std::uint8_t flags : {std::uint8_t{0}, std::uint8_t{hca::kWqeSignaled}}) {
    PairOptions options;
    options.mapped = false;
    Pair pair(options);
    pair.cluster.memory().unmap(pair.a.bytes.data(), 4096);
    const hca::Sge into = pair.a.sge(0, 100);
    ASSERT_EQ(pair.post({.opcode = WrOpcode::rdma_read,
                         .wr_id = 1,
                         .flags = flags,
                         .sges = {&into, 1},
                         .remote_addr = pair.b.address(0),
                         .rkey = pair.b.keys.rkey}),
              0);
    EXPECT_EQ(test::statuses(pair.run().first), std::vector{WcStatus::loc_prot_err});
    EXPECT_EQ(pair.cluster.host(0).query_qp(pair.a.app->client(), pair.a.qp.number)->state,
              QpState::err);
  }
}

// How many CQEs `side` finds at the moment when it is told of the event.
struct FoundAt {
  FoundAt(Pair& pair, int node, test::Side& side, AsyncEvent event) {
    pair.cluster.told(node).on_async = [this, &side, event](AsyncEvent told) {
      if (told == event) found = side.take().size();
    };
  }
  std::size_t found = ~std::size_t{0};
};

TEST(Settle, SqDrainedComesAfterTheLastCompletion) {
  Pair pair;
  pair.expect_recv(9, pair.b.sge(0, 100));
  const hca::Sge from = pair.a.sge(0, 100);
  ASSERT_EQ(pair.post({.sges = {&from, 1}}), 0);
  pair.cluster.host(0).advance(pair.cluster.now());
  FoundAt drained(pair, 0, pair.a, AsyncEvent::sq_drained);
  ASSERT_EQ(pair.a.app->modify(pair.a.qp, {.state = QpState::sqd, .en_sqd_async_notify = 1},
                               hca::kQpState | hca::kQpEnSqdAsyncNotify, pair.cluster.now()),
            0);
  pair.run();
  EXPECT_EQ(drained.found, 1u);
}

TEST(Settle, LastWqeReachedComesAfterTheFlush) {
  Pair pair;
  sim::Shared srq = pair.b.app->make_srq(16, 1);
  sim::Queue to = pair.b.app->make_qp(hca::QpType::rc, pair.b.cq, pair.b.cq, {4, 0, 1, 1, 0}, false,
                                      srq.number);
  sim::Queue from = pair.a.app->make_qp(hca::QpType::rc, pair.a.cq, pair.a.cq, {4, 4, 1, 1, 0});
  sim::Path path;
  path.dest_qpn = from.number;
  ASSERT_EQ(pair.b.app->connect(to, path, pair.cluster.now()), 0);
  path.dest = 1;
  path.dest_qpn = to.number;
  ASSERT_EQ(pair.a.app->connect(from, path, pair.cluster.now()), 0);
  const hca::Sge room = pair.b.sge(0, 500'000);
  ASSERT_EQ(sim::App::post_shared(srq, 77, {&room, 1}), 0);
  const hca::Sge message = pair.a.sge(0, 500'000);
  ASSERT_EQ(pair.a.app->post(from, {.sges = {&message, 1}}), 0);
  pair.a.app->ring(pair.cluster.now());
  pair.run(pair.cluster.now() + 5000);  // in the middle of the message
  FoundAt reached(pair, 1, pair.b, AsyncEvent::qp_last_wqe_reached);
  ASSERT_EQ(pair.b.app->modify(to, {.state = QpState::err}, hca::kQpState, pair.cluster.now()), 0);
  EXPECT_EQ(reached.found, 1u);
}

// A CQ that has overrun takes nothing more: who completes into it later goes to ERR, and its peer
// is not told that the message came.
TEST(Settle, ANewQpOnABrokenCq) {
  Pair pair;
  sim::Completions small = pair.b.app->make_cq(2);
  sim::Queue breaker = pair.b.app->make_qp(hca::QpType::rc, small, small, {8, 8, 1, 1, 0});
  for (int i = 0; i < 5; ++i) ASSERT_EQ(pair.b.app->post_recv(breaker, 1, {}), 0);
  const emu::Cycle now = pair.cluster.now();
  sim::Path path;
  ASSERT_EQ(pair.b.app->connect(breaker, path, now), 0);
  ASSERT_EQ(pair.b.app->modify(breaker, {.state = QpState::err}, hca::kQpState, now), 0);
  ASSERT_TRUE(pair.cluster.told(1).heard(AsyncEvent::cq_err));
  EXPECT_FALSE(pair.cluster.told(1).heard(AsyncEvent::qp_fatal));  // the CQ's event says it
  hca::Cqe cqe;
  while (sim::App::poll(small, cqe)) {
  }
  sim::Queue to = pair.b.app->make_qp(hca::QpType::rc, small, small, {8, 8, 1, 1, 0});
  for (const bool reset : {false, true}) {
    if (reset) {
      ASSERT_EQ(pair.b.app->modify(to, {.state = QpState::reset}, hca::kQpState, now), 0);
    }
    sim::Queue from = pair.a.app->make_qp(hca::QpType::rc, pair.a.cq, pair.a.cq, {8, 8, 1, 1, 0});
    path.dest = 1;
    path.dest_qpn = to.number;
    ASSERT_EQ(pair.a.app->connect(from, path, now), 0);
    path.dest = 0;
    path.dest_qpn = from.number;
    ASSERT_EQ(pair.b.app->connect(to, path, now), 0);
    pair.cluster.told(1).asyncs.clear();
    ASSERT_EQ(pair.b.app->post_recv(to, 9, {}), 0);
    ASSERT_EQ(pair.a.app->post(from, {}), 0);
    pair.a.app->ring(pair.cluster.now());
    EXPECT_EQ(test::statuses(pair.run().first), std::vector{WcStatus::retry_exc_err});
    EXPECT_EQ(pair.cluster.host(1).query_qp(pair.b.app->client(), to.number)->state, QpState::err);
    EXPECT_TRUE(pair.cluster.told(1).heard(AsyncEvent::qp_fatal));
    EXPECT_FALSE(sim::App::poll(small, cqe));
  }
}

// A page goes under a hundred QPs at once; each is told, however many a batch has.
TEST(Settle, EveryQpIsToldOfMemoryThatIsGone) {
  for (const WrOpcode opcode : {WrOpcode::send, WrOpcode::rdma_write}) {
    Pair pair(one_batch());
    pair.cluster.memory().unmap(&pair.b.bytes[kHole], 4096);
    const hca::Sge from = pair.a.sge(0, 64);
    const hca::Sge gone = pair.b.sge(kHole, 64);
    for (int i = 0; i < 100; ++i) {
      sim::Queue to = pair.b.app->make_qp(hca::QpType::rc, pair.b.cq, pair.b.cq, {4, 4, 1, 1, 0});
      sim::Queue by = pair.a.app->make_qp(hca::QpType::rc, pair.a.cq, pair.a.cq, {4, 4, 1, 1, 0});
      sim::Path path;
      path.dest_qpn = by.number;
      ASSERT_EQ(pair.b.app->connect(to, path, pair.cluster.now()), 0);
      path.dest_qpn = to.number;
      ASSERT_EQ(pair.a.app->connect(by, path, pair.cluster.now()), 0);
      ASSERT_EQ(pair.b.app->post_recv(to, 1, {&gone, 1}), 0);
      ASSERT_EQ(pair.a.app->post(by, {.opcode = opcode,
                                      .sges = {&from, 1},
                                      .remote_addr = pair.b.address(kHole),
                                      .rkey = pair.b.keys.rkey}),
                0);
    }
    pair.a.app->ring(pair.cluster.now());
    const auto [a, b] = pair.run();
    EXPECT_EQ(test::statuses(a), std::vector(100, WcStatus::rem_op_err));
    const bool is_send = opcode == WrOpcode::send;
    EXPECT_EQ(test::statuses(b),
              std::vector(100, is_send ? WcStatus::loc_prot_err : WcStatus::wr_flush_err));
  }
}

}  // namespace

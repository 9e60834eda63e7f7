// The retry timer runs from when the question has left until its answer comes (IBA 9.7.6.1.3),
// whatever else the QP sends meanwhile; and how often it asks can be changed in SQD.
#include <gtest/gtest.h>

#include <array>
#include <tuple>
#include <vector>

#include "tests/unit/hca/host/pair.h"

namespace hca {
namespace {

using test::Pair;
using test::PairOptions;
using test::Side;

constexpr emu::EmuNs kTimeoutNs = emu::EmuNs{4096} << 8;

emu::Cycle after(Pair& pair, emu::EmuNs ns) {
  return pair.cluster.now() + pair.cluster.host(0).options().cycle_time.cycle_at(ns);
}

int read(Pair& pair, Side& reader, const Side& target, std::uint32_t length) {
  const Sge sge = reader.sge(1 << 19, length);
  const int error = reader.app->post(reader.qp, {.opcode = WrOpcode::rdma_read,
                                                 .wr_id = 9,
                                                 .sges = {&sge, 1},
                                                 .remote_addr = target.address(0),
                                                 .rkey = target.keys.rkey});
  reader.app->ring(pair.cluster.now());
  return error;
}

TEST(RetryTimer, WhoAnswersReadsRepeatsItsOwnRequest) {
  PairOptions options;
  options.path.timeout = 8;
  Pair pair(options);
  const Sge from = pair.a.sge(0, 64);
  pair.expect_recv(1, pair.b.sge(4096, 64));
  pair.cluster.link().loss = 1;
  EXPECT_EQ(pair.post({.wr_id = 5, .sges = {&from, 1}}), 0);
  pair.run(after(pair, 10'000));
  pair.cluster.link().loss = 0;
  std::size_t sent = 0;
  std::size_t reads = 0;
  for (int i = 0; i < 8; ++i) {
    EXPECT_EQ(read(pair, pair.b, pair.a, 4096), 0);
    const auto [a, b] = pair.run(after(pair, kTimeoutNs / 2));
    sent += a.size();
    reads += b.size();
  }
  EXPECT_EQ(sent, 1U);
  EXPECT_EQ(reads, 9U) << "eight and the receive";
  EXPECT_EQ(pair.cluster.host(0).counters().timeouts, 1U);
}

// Each has one READ outstanding and answers the other's; who asks again first must not keep the
// other from it.
TEST(RetryTimer, BothGoOnAfterADarkLink) {
  PairOptions options;
  options.path.timeout = 14;  // 67 ms
  Pair pair(options);
  std::array<std::size_t, 2> done{};
  std::array<std::size_t, 2> before{};
  for (int step = 0; step < 800; ++step) {
    if (step == 100) pair.cluster.link().loss = 1;
    if (step == 104) pair.cluster.link().loss = 0;
    if (step == 600) before = done;
    for (Side* side : {&pair.a, &pair.b}) {
      const bool begins = step == (side == &pair.a ? 0 : 1);
      if (!begins && side->done.empty()) continue;
      EXPECT_EQ(read(pair, *side, side == &pair.a ? pair.b : pair.a, 1 << 16), 0);
    }
    std::tie(pair.a.done, pair.b.done) = pair.run(after(pair, 500'000));
    done[0] += pair.a.done.size();
    done[1] += pair.b.done.size();
  }
  EXPECT_GT(done[0], before[0] + 10);
  EXPECT_GT(done[1], before[1] + 10);
}

TEST(RetryTimer, WhatIsPostedBehindGivesADeadPeerNoTime) {
  for (const int messages : {1, 16}) {
    PairOptions options;
    options.path.timeout = 8;
    options.path.retry_cnt = 1;
    Pair pair(options);
    pair.cluster.link().loss = 1;
    const Sge from = pair.a.sge(0, 1 << 20);
    const emu::EmuNs begin = pair.cluster.host(0).options().cycle_time.ns(pair.cluster.now());
    for (int i = 0; i < messages; ++i) {
      EXPECT_EQ(pair.post({.opcode = WrOpcode::rdma_write,
                           .sges = {&from, 1},
                           .remote_addr = pair.b.address(0),
                           .rkey = pair.b.keys.rkey}),
                0);
    }
    const auto [a, b] = pair.run();
    ASSERT_FALSE(a.empty());
    EXPECT_EQ(a[0].status, WcStatus::retry_exc_err);
    EXPECT_GE(a[0].timestamp_ns - begin, 2 * kTimeoutNs);
    // 128 packets leave before the question, and some more are on their way when they are repeated.
    EXPECT_LT(a[0].timestamp_ns - begin, 8 * kTimeoutNs) << messages;
  }
}

void change_in_sqd(Pair& pair, std::uint8_t retries) {
  QpAttributes wanted{};
  const auto modify = [&](std::uint32_t mask) {
    EXPECT_EQ(pair.a.app->modify(pair.a.qp, wanted, mask, pair.cluster.now()), 0);
  };
  wanted.state = QpState::sqd;
  modify(kQpState);
  wanted.retry_cnt = wanted.rnr_retry = retries;
  modify(kQpState | kQpRetryCnt | kQpRnrRetry);
  wanted.state = QpState::rts;
  modify(kQpState);
}

TEST(RetryTimer, NumbersChangedInSqdHoldForTheNextRequest) {
  for (const bool lost : {false, true}) {
    PairOptions options;
    options.path.retry_cnt = options.path.rnr_retry = 0;
    options.path.timeout = 8;
    Pair pair(options);
    change_in_sqd(pair, 7);
    const Sge from = pair.a.sge(0, 64);
    if (lost) pair.expect_recv(1, pair.b.sge(0, 64));
    pair.cluster.link().loss = lost ? 1 : 0;
    EXPECT_EQ(pair.post({.wr_id = 5, .sges = {&from, 1}}), 0);
    EXPECT_TRUE(pair.run(after(pair, kTimeoutNs / 2)).first.empty());
    pair.cluster.link().loss = 0;
    if (!lost) pair.expect_recv(1, pair.b.sge(0, 64));
    EXPECT_EQ(test::statuses(pair.run().first), std::vector{WcStatus::success});
  }
}

TEST(RetryTimer, FewerRetriesOfSqdHoldForTheNextRequest) {
  PairOptions options;
  options.path.retry_cnt = 7;
  options.path.timeout = 8;
  Pair pair(options);
  change_in_sqd(pair, 0);
  pair.cluster.link().loss = 1;
  const Sge from = pair.a.sge(0, 64);
  EXPECT_EQ(pair.post({.wr_id = 5, .sges = {&from, 1}}), 0);
  EXPECT_EQ(test::statuses(pair.run().first), std::vector{WcStatus::retry_exc_err});
  EXPECT_EQ(pair.cluster.host(0).counters().packets_retransmitted, 0U);
}

}  // namespace
}  // namespace hca

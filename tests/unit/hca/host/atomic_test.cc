// Compare-and-swap, fetch-and-add and atomic writes: executed once whatever the link does, in
// order, and refused where they may not be.
#include <gtest/gtest.h>

#include <cstring>

#include "tests/unit/hca/host/pair.h"

namespace {

using hca::WcOpcode;
using hca::WcStatus;
using hca::WrOpcode;
using test::Pair;
using test::PairOptions;

std::uint64_t word(const test::Side& side, std::size_t offset) {
  std::uint64_t value;
  std::memcpy(&value, &side.bytes[offset], sizeof value);
  return value;
}
void set(test::Side& side, std::size_t offset, std::uint64_t value) {
  std::memcpy(&side.bytes[offset], &value, sizeof value);
}

sim::Send atomic(Pair& pair, WrOpcode opcode, const hca::Sge& into, std::uint64_t compare_add,
                 std::uint64_t swap = 0, std::size_t at = 64) {
  sim::Send send{.opcode = opcode, .sges = {&into, 1}};
  send.remote_addr = pair.b.address(at);
  send.rkey = pair.b.keys.rkey;
  send.compare_add = compare_add;
  send.swap = swap;
  return send;
}

class Atomic : public testing::TestWithParam<bool> {
 protected:
  PairOptions options() const {
    PairOptions options;
    options.mapped = GetParam();
    return options;
  }
};

TEST_P(Atomic, FetchAndAddThenCompareAndSwap) {
  Pair pair(options());
  set(pair.b, 64, 100);
  const hca::Sge first = pair.a.sge(0, 8);
  const hca::Sge second = pair.a.sge(8, 8);
  const hca::Sge third = pair.a.sge(16, 8);
  ASSERT_EQ(pair.post(atomic(pair, WrOpcode::atomic_fadd, first, 7)), 0);
  ASSERT_EQ(pair.post(atomic(pair, WrOpcode::atomic_cas, second, 107, ~0ull)), 0);
  ASSERT_EQ(pair.post(atomic(pair, WrOpcode::atomic_cas, third, 107, 5)), 0);  // no match
  const auto sent = pair.run().first;
  ASSERT_EQ(test::statuses(sent), std::vector(3, WcStatus::success));
  EXPECT_EQ(sent[0].opcode, WcOpcode::fetch_add);
  EXPECT_EQ(sent[1].opcode, WcOpcode::comp_swap);
  EXPECT_EQ(sent[0].byte_len, 8u);
  EXPECT_EQ(word(pair.a, 0), 100u);
  EXPECT_EQ(word(pair.a, 8), 107u);
  EXPECT_EQ(word(pair.a, 16), ~0ull);
  EXPECT_EQ(word(pair.b, 64), ~0ull);
}

// A WRITE before it in the same breath is seen by it.
TEST_P(Atomic, SeesTheWriteBeforeIt) {
  Pair pair(options());
  set(pair.a, 1000, 41);
  const hca::Sge from = pair.a.sge(1000, 8);
  const hca::Sge into = pair.a.sge(0, 8);
  ASSERT_EQ(pair.post({.opcode = WrOpcode::rdma_write,
                       .sges = {&from, 1},
                       .remote_addr = pair.b.address(64),
                       .rkey = pair.b.keys.rkey}),
            0);
  ASSERT_EQ(pair.post(atomic(pair, WrOpcode::atomic_fadd, into, 1)), 0);
  pair.run();
  EXPECT_EQ(word(pair.a, 0), 41u);
  EXPECT_EQ(word(pair.b, 64), 42u);
}

TEST_P(Atomic, Refused) {
  for (int what = 0; what < 5; ++what) {
    PairOptions o = options();
    if (what == 0) o.access = test::kAll & ~hca::kAccessRemoteAtomic;
    if (what == 1) o.path.access = hca::kAccessRemoteWrite;
    Pair pair(o);
    const hca::Sge into = pair.a.sge(0, what == 3 ? 4 : 8);
    sim::Send send = atomic(pair, WrOpcode::atomic_fadd, into, 1);
    if (what == 2) send.remote_addr += 4;
    if (what == 4) send.rkey += 1;
    ASSERT_EQ(pair.post(send), 0);
    const bool invalid = what == 1 || what == 2;
    const WcStatus expected = invalid     ? WcStatus::rem_inv_req_err
                              : what == 3 ? WcStatus::loc_len_err
                                          : WcStatus::rem_access_err;
    EXPECT_EQ(test::statuses(pair.run().first), std::vector{expected}) << what;
  }
}

sim::Send write_of(Pair& pair, std::uint64_t value, std::size_t at = 64) {
  sim::Send send{.opcode = WrOpcode::atomic_write};
  send.remote_addr = pair.b.address(at);
  send.rkey = pair.b.keys.rkey;
  send.swap = value;
  return send;
}

// Behind a WRITE, before an atomic operation and a READ: each sees what was before it.
TEST_P(Atomic, WritesAWord) {
  Pair pair(options());
  const hca::Sge from = pair.a.sge(1000, 8);
  const hca::Sge into = pair.a.sge(0, 8);
  const hca::Sge read = pair.a.sge(8, 8);
  sim::Send send{.opcode = WrOpcode::rdma_write, .sges = {&from, 1}};
  send.remote_addr = pair.b.address(64);
  send.rkey = pair.b.keys.rkey;
  ASSERT_EQ(pair.post(send), 0);
  ASSERT_EQ(pair.post(write_of(pair, 0x0123'4567'89ab'cdef)), 0);
  ASSERT_EQ(pair.post(atomic(pair, WrOpcode::atomic_fadd, into, 1)), 0);
  send.opcode = WrOpcode::rdma_read;
  send.sges = {&read, 1};
  ASSERT_EQ(pair.post(send), 0);
  const auto sent = pair.run().first;
  ASSERT_EQ(test::statuses(sent), std::vector(4, WcStatus::success));
  EXPECT_EQ(sent[1].opcode, WcOpcode::atomic_write);
  EXPECT_EQ(word(pair.a, 0), 0x0123'4567'89ab'cdefU);
  EXPECT_EQ(word(pair.a, 8), 0x0123'4567'89ab'cdf0U);
  EXPECT_EQ(word(pair.b, 64), 0x0123'4567'89ab'cdf0U);
}

TEST_P(Atomic, WritesAreRefused) {
  for (int what = 0; what < 5; ++what) {
    PairOptions o = options();
    if (what == 0) o.access = test::kAll & ~hca::kAccessRemoteWrite;
    if (what == 1) o.path.access = hca::kAccessRemoteAtomic;
    Pair pair(o);
    set(pair.b, 64, 77);
    set(pair.b, 72, 78);
    sim::Send send = write_of(pair, ~0ull);
    const hca::Sge list = pair.a.sge(0, 8);
    if (what == 2) send.remote_addr += 4;
    if (what == 3) send.sges = {&list, 1};
    if (what == 4) send.rkey += 1;
    ASSERT_EQ(pair.post(send), 0);
    const bool invalid = what == 1 || what == 2;
    const WcStatus expected = invalid     ? WcStatus::rem_inv_req_err
                              : what == 3 ? WcStatus::loc_qp_op_err
                                          : WcStatus::rem_access_err;
    EXPECT_EQ(test::statuses(pair.run().first), std::vector{expected}) << what;
    EXPECT_EQ(word(pair.b, 64), 77u) << what;
    EXPECT_EQ(word(pair.b, 72), 78u) << what;
  }
}

// Worms too short for a word: packets are longer then.
TEST_P(Atomic, OfTheShortestPackets) {
  PairOptions o = options();
  o.host.packet_flits = 2;
  o.host.flit_bits = 32;
  Pair pair(o);
  set(pair.b, 64, 5);
  const hca::Sge into = pair.a.sge(0, 8);
  ASSERT_EQ(pair.post(atomic(pair, WrOpcode::atomic_fadd, into, 1)), 0);
  ASSERT_EQ(pair.post(write_of(pair, 9, 72)), 0);
  EXPECT_EQ(test::statuses(pair.run().first), std::vector(2, WcStatus::success));
  EXPECT_EQ(word(pair.b, 64), 6u);
  EXPECT_EQ(word(pair.b, 72), 9u);
}
INSTANTIATE_TEST_SUITE_P(MappedOrCopied, Atomic, testing::Bool());

class AtomicUnderLoss : public testing::TestWithParam<int> {};

// The counter counts every request once, and no two requests found the same count.
TEST_P(AtomicUnderLoss, ExecutedOnce) {
  SCOPED_TRACE(testing::Message() << "seed " << GetParam());
  PairOptions options;
  options.mapped = false;
  options.link.seed = static_cast<std::uint64_t>(GetParam());
  options.link.loss = 0.08;
  options.link.repeat = 0.1;
  Pair pair(options);
  set(pair.b, 64, 0);
  constexpr std::uint32_t kRequests = 60;
  std::vector<hca::Cqe> done;
  for (std::uint32_t i = 0; i < kRequests; ++i) {
    const hca::Sge into = pair.a.sge(i * 8, 8);
    ASSERT_EQ(pair.post(atomic(pair, WrOpcode::atomic_fadd, into, 1)), 0);
    if (i % 7 != 6 && i + 1 != kRequests) continue;
    const auto sent = pair.run().first;
    done.insert(done.end(), sent.begin(), sent.end());
  }
  EXPECT_EQ(test::statuses(done), std::vector(kRequests, WcStatus::success));
  EXPECT_EQ(word(pair.b, 64), kRequests);
  for (std::uint32_t i = 0; i < kRequests; ++i) EXPECT_EQ(word(pair.a, i * 8), i);
}

// What was written is not written again by a late repetition: the program has gone on.
TEST_P(AtomicUnderLoss, WrittenOnce) {
  SCOPED_TRACE(testing::Message() << "seed " << GetParam());
  PairOptions options;
  options.mapped = GetParam() % 2 == 0;
  options.link.seed = static_cast<std::uint64_t>(GetParam());
  options.link.loss = 0.08;
  options.link.repeat = 0.3;
  options.link.delay_max = 500;
  Pair pair(options);
  constexpr std::uint64_t kOwn = 1000;
  for (std::uint64_t i = 1; i < 60; ++i) {
    ASSERT_EQ(pair.post(write_of(pair, i)), 0);
    const auto sent = pair.run().first;
    ASSERT_EQ(test::statuses(sent), std::vector{WcStatus::success});
    ASSERT_EQ(word(pair.b, 64), i);
    set(pair.b, 64, kOwn + i);
    pair.run(pair.cluster.now() + 2000);
    ASSERT_EQ(word(pair.b, 64), kOwn + i);
  }
}
INSTANTIATE_TEST_SUITE_P(Seeds, AtomicUnderLoss, testing::Range(1, 13));

}  // namespace

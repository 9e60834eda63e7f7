// Memory windows: what they open and to whom, bound and taken back in the order of the send queue.
#include <gtest/gtest.h>

#include <cerrno>

#include "hca/host/key.h"
#include "tests/unit/hca/host/pair.h"

namespace {

using hca::WcOpcode;
using hca::WcStatus;
using hca::WrOpcode;
using test::Pair;
using test::PairOptions;

constexpr std::uint32_t kRegion = hca::kAccessLocalWrite | hca::kAccessMwBind;

PairOptions options() {
  PairOptions options;
  options.access = kRegion;  // nothing is open to peers but by windows
  return options;
}

class Window : public testing::Test {
 protected:
  Pair pair{options()};
  hca::Host& host = pair.cluster.host(1);

  std::uint32_t alloc(std::uint32_t type) {
    return host.alloc_mw(pair.b.app->client(), pair.b.app->pd(), type).value();
  }
  hca::WqeExtension binding(std::uint32_t key, std::uint64_t length) const {
    hca::WqeExtension e{};
    e.bind_length = length;
    e.bind_lkey = pair.b.keys.lkey;
    e.bind_rkey = key;
    e.bind_access = hca::kAccessRemoteWrite;
    return e;
  }
  // b binds [100, 100 + length) of its region; the new key is key + 1.
  WcStatus bind(std::uint32_t key, std::uint64_t length) { return bind(key, key + 1, length); }
  WcStatus bind(std::uint32_t key, std::uint32_t new_key, std::uint64_t length) {
    const hca::WqeExtension e = binding(new_key, length);
    return run(pair.b, {.opcode = WrOpcode::bind_mw,
                        .remote_addr = pair.b.address(100),
                        .rkey = key,
                        .extension = &e});
  }
  WcStatus write(std::uint32_t key, std::size_t offset, std::uint32_t length) {
    const hca::Sge from = pair.a.sge(0, length);
    return run(pair.a, {.opcode = WrOpcode::rdma_write,
                        .sges = {&from, 1},
                        .remote_addr = pair.b.address(offset),
                        .rkey = key});
  }
  WcStatus run(test::Side& side, const sim::Send& send) {
    EXPECT_EQ(side.app->post(side.qp, send), 0);
    side.app->ring(pair.cluster.now());
    pair.cluster.run();
    const auto done = side.take();
    if (done.empty()) return WcStatus::general_err;
    last = done.front();
    return last.status;
  }
  hca::Cqe last{};
};

TEST_F(Window, OpensItsPartAndNoMore) {
  const std::uint32_t key = alloc(1);
  EXPECT_EQ(bind(key, 50), WcStatus::success);
  EXPECT_EQ(last.opcode, WcOpcode::bind_mw);
  EXPECT_EQ(write(key + 1, 100, 50), WcStatus::success);
  EXPECT_EQ(pair.b.bytes[149], pair.a.bytes[49]);
  EXPECT_EQ(pair.b.bytes[150], 0);
  EXPECT_EQ(write(key + 1, 100, 51), WcStatus::rem_access_err);
}

TEST_F(Window, TheOldKeyAndTheRegionsStayClosed) {
  const std::uint32_t key = alloc(1);
  EXPECT_EQ(bind(key, 50), WcStatus::success);
  EXPECT_EQ(write(pair.b.keys.rkey, 100, 8), WcStatus::rem_access_err);
}

TEST_F(Window, OneOfTypeOneMovesAndEndsWithALengthOfNothing) {
  const std::uint32_t key = alloc(1);
  EXPECT_EQ(bind(key, 50), WcStatus::success);
  EXPECT_EQ(bind(key, key + 2, 60), WcStatus::success);
  EXPECT_EQ(write(key + 2, 100, 60), WcStatus::success);
  EXPECT_EQ(bind(key, key + 3, 0), WcStatus::success);
  EXPECT_EQ(write(key + 3, 100, 8), WcStatus::rem_access_err);
}

// The program has the key of a bind at once; whether that came to be it need not know. A window
// that has gone is none, whose slot another has now.
TEST_F(Window, AFlushedBindOfTypeOneIsBoundAnew) {
  const std::uint32_t key = alloc(1);
  test::Side& b = pair.b;
  const emu::Cycle now = pair.cluster.now();
  ASSERT_EQ(b.app->modify(b.qp, {.state = hca::QpState::err}, hca::kQpState, now), 0);
  EXPECT_EQ(bind(key, 50), WcStatus::wr_flush_err);
  for (test::Side* side : {&pair.a, &b}) {
    side->qp = side->app->make_qp(hca::QpType::rc, side->cq, side->cq, {8, 8, 1, 1, 0});
  }
  sim::Path path;
  path.dest = 1;
  path.dest_qpn = b.qp.number;
  ASSERT_EQ(pair.a.app->connect(pair.a.qp, path, now), 0);
  path.dest = 0;
  path.dest_qpn = pair.a.qp.number;
  ASSERT_EQ(b.app->connect(b.qp, path, now), 0);
  EXPECT_EQ(bind(key, key + 2, 50), WcStatus::success);
  EXPECT_EQ(write(key + 2, 100, 50), WcStatus::success);
  ASSERT_EQ(host.dealloc_mw(b.app->client(), key), 0);
  std::uint32_t other = alloc(1);
  while (hca::mr_slot(other) != hca::mr_slot(key)) {  // the slot that is free for longest is next
    ASSERT_EQ(host.dealloc_mw(b.app->client(), other), 0);
    other = alloc(1);
  }
  EXPECT_EQ(bind(key, key + 3, 50), WcStatus::mw_bind_err);
}

TEST_F(Window, OneOfTypeTwoIsInvalidatedFirst) {
  const std::uint32_t key = alloc(2);
  EXPECT_EQ(bind(key, 50), WcStatus::success);
  EXPECT_EQ(run(pair.b, {.opcode = WrOpcode::local_inv, .imm = key + 1}), WcStatus::success);
  EXPECT_EQ(last.opcode, WcOpcode::local_inv);
  EXPECT_EQ(bind(key + 1, 60), WcStatus::success);
  EXPECT_EQ(write(key + 2, 100, 60), WcStatus::success);
  EXPECT_EQ(bind(key + 2, 50), WcStatus::mw_bind_err);  // bound still
}

TEST_F(Window, APeerInvalidatesByASend) {
  const std::uint32_t key = alloc(2);
  EXPECT_EQ(bind(key, 50), WcStatus::success);
  pair.expect_recv(7, pair.b.sge(1000, 8));
  const hca::Sge from = pair.a.sge(0, 8);
  EXPECT_EQ(run(pair.a, {.opcode = WrOpcode::send_inv, .sges = {&from, 1}, .imm = key + 1}),
            WcStatus::success);
  const auto got = pair.b.take();
  ASSERT_EQ(got.size(), 1u);
  EXPECT_EQ(got[0].wc_flags & hca::kWcWithInv, hca::kWcWithInv);
  EXPECT_EQ(got[0].imm, key + 1);
  EXPECT_EQ(write(key + 1, 100, 8), WcStatus::rem_access_err);
  const auto& told = pair.cluster.told(1).troubles;
  ASSERT_FALSE(told.empty());
  EXPECT_EQ(told.back().fault, hca::KeyFault::unbound);
}

TEST_F(Window, ASendThatInvalidatesNothingIsRefused) {
  pair.expect_recv(7, pair.b.sge(1000, 8));
  const hca::Sge from = pair.a.sge(0, 8);
  EXPECT_EQ(
      run(pair.a, {.opcode = WrOpcode::send_inv, .sges = {&from, 1}, .imm = pair.b.keys.rkey}),
      WcStatus::rem_access_err);
  EXPECT_EQ(test::statuses(pair.b.take()), std::vector{WcStatus::loc_access_err});
  const auto& told = pair.cluster.told(1).troubles;
  ASSERT_EQ(told.size(), 1u);
  EXPECT_EQ(told[0].kind, hca::TroubleKind::invalidate);
  EXPECT_EQ(told[0].key, pair.b.keys.rkey);
}

TEST_F(Window, BindsThatMayNotBe) {
  const std::uint32_t key = alloc(1);
  const auto closed = pair.b.app->reg(pair.b.bytes.data(), 1000, hca::kAccessLocalWrite);
  hca::WqeExtension e = binding(key + 1, 50);
  e.bind_lkey = closed.lkey;  // a region that allows no windows
  EXPECT_EQ(run(pair.b, {.opcode = WrOpcode::bind_mw,
                         .remote_addr = pair.b.address(100),
                         .rkey = key,
                         .extension = &e}),
            WcStatus::mw_bind_err);
}

TEST_F(Window, OfTheKeyAskedForTheLowestByteCounts) {
  const std::uint32_t key = alloc(2);
  const hca::WqeExtension e = binding(0xabcdef42, 50);
  EXPECT_EQ(run(pair.b, {.opcode = WrOpcode::bind_mw,
                         .remote_addr = pair.b.address(100),
                         .rkey = key,
                         .extension = &e}),
            WcStatus::success);
  EXPECT_EQ(write((key & ~0xffU) | 0x42, 100, 50), WcStatus::success);
}

TEST_F(Window, BeyondTheRegion) { EXPECT_EQ(bind(alloc(1), 2 << 20), WcStatus::mw_bind_err); }

TEST_F(Window, ALateBindWaitsForWhatIsBeforeIt) {
  const std::uint32_t key = alloc(1);
  pair.a.bytes[0] = 42;
  const hca::Sge big = pair.b.sge(0, 100'000);
  const hca::Sge into = pair.a.sge(0, 100'000);
  ASSERT_EQ(pair.a.app->post_recv(pair.a.qp, 1, {&into, 1}), 0);
  const hca::WqeExtension e = binding(key + 1, 50);
  ASSERT_EQ(pair.b.app->post(pair.b.qp, {.sges = {&big, 1}}), 0);
  ASSERT_EQ(pair.b.app->post(pair.b.qp, {.opcode = WrOpcode::bind_mw,
                                         .remote_addr = pair.b.address(100),
                                         .rkey = key,
                                         .extension = &e}),
            0);
  pair.b.app->ring(pair.cluster.now());
  pair.cluster.run();
  const auto done = pair.b.take();
  ASSERT_EQ(test::statuses(done), std::vector(2, WcStatus::success));
  EXPECT_EQ(done[1].opcode, WcOpcode::bind_mw);
}

TEST_F(Window, RegionsAndDomainsAreBusyWithThem) {
  const std::uint32_t key = alloc(2);
  EXPECT_EQ(bind(key, 50), WcStatus::success);
  EXPECT_EQ(host.deregister_mr(pair.b.app->client(), pair.b.keys.lkey), EBUSY);
  EXPECT_EQ(host.dealloc_mw(pair.a.app->client() + 1, key), ENOENT);
  EXPECT_EQ(host.dealloc_mw(pair.b.app->client(), key), 0);
  EXPECT_EQ(host.dealloc_mw(pair.b.app->client(), key), ENOENT);
  EXPECT_EQ(write(key + 1, 100, 8), WcStatus::rem_access_err);
}

TEST_F(Window, WhoIsNotThePeerOfItsQp) {
  const std::uint32_t key = alloc(2);
  EXPECT_EQ(bind(key, 50), WcStatus::success);
  // Another pair of QPs of the same programs and domains.
  const auto mine = pair.a.app->make_qp(hca::QpType::rc, pair.a.cq, pair.a.cq, {8, 8, 1, 1, 0});
  const auto theirs = pair.b.app->make_qp(hca::QpType::rc, pair.b.cq, pair.b.cq, {8, 8, 1, 1, 0});
  sim::Path path;
  path.dest = 1;
  path.dest_qpn = theirs.number;
  pair.a.qp = mine;
  ASSERT_EQ(pair.a.app->connect(pair.a.qp, path, pair.cluster.now()), 0);
  path.dest = 0;
  path.dest_qpn = mine.number;
  pair.b.qp = theirs;
  ASSERT_EQ(pair.b.app->connect(pair.b.qp, path, pair.cluster.now()), 0);
  EXPECT_EQ(write(key + 1, 100, 8), WcStatus::rem_access_err);
}

}  // namespace

// What a node holds back: for how long, for whom, and that nobody is blamed for it.
#include <gtest/gtest.h>

#include "tests/unit/hca/host/pair.h"

namespace {

using namespace test;

// The last words of a QP that has gone leave in one burst with a request whose bytes are gone.
TEST(Held, LastWordsLeaveBesideARequestThatFails) {
  PairOptions options;
  options.mapped = false;
  Pair pair(options);
  hca::Host& host = pair.cluster.host(0);
  sim::Queue other = pair.a.app->make_qp(hca::QpType::rc, pair.a.cq, pair.a.cq, options.capacity);
  sim::Path path;
  path.dest = 1;
  path.dest_qpn = pair.b.qp.number;
  ASSERT_EQ(pair.a.app->connect(other, path, pair.cluster.now()), 0);
  std::vector<std::uint8_t> kept;
  hca::Arrival came{};
  pair.cluster.on_deliver = [&](hca::Arrival& arrival) {
    if (arrival.desc.src != 1) return;
    kept.assign(arrival.bytes, arrival.bytes + arrival.desc.length);
    came = arrival;
    arrival.desc.length = 0;
  };
  const hca::Sge to = pair.a.sge(0, 64);
  ASSERT_EQ(pair.a.app->post_recv(pair.a.qp, 1, {&to, 1}), 0);
  const hca::Sge from = pair.b.sge(0, 64);
  ASSERT_EQ(pair.b.app->post(pair.b.qp, {.sges = {&from, 1}}), 0);
  pair.b.app->ring(pair.cluster.now());
  pair.cluster.run(pair.cluster.now() + 3000);
  ASSERT_FALSE(kept.empty());
  came.bytes = kept.data();
  host.receive({&came, 1}, pair.cluster.now());
  ASSERT_EQ(host.destroy_qp(pair.a.app->client(), pair.a.qp.number), 0);
  pair.cluster.memory().unmap(pair.a.bytes.data(), pair.a.bytes.size());
  const hca::Sge gone = pair.a.sge(0, 64);
  ASSERT_EQ(pair.a.app->post(other, {.sges = {&gone, 1}}), 0);
  pair.a.app->ring(pair.cluster.now());
  const std::size_t before = pair.cluster.sent().size();
  host.advance(pair.cluster.now());
  EXPECT_GT(pair.cluster.sent().size(), before) << "the acknowledgement";
  const auto done = pair.a.take();
  ASSERT_FALSE(done.empty());
  EXPECT_EQ(done.back().status, hca::WcStatus::loc_prot_err);
}

class HeldByTime : public testing::TestWithParam<const char*> {};

// READ responses that only time holds are looked at again when it is over.
TEST_P(HeldByTime, ReadResponsesGoOn) {
  PairOptions options;
  options.host.congestion = GetParam();
  options.host.controls.power_control = false;
  options.path.timeout = 0;  // no repetition would bring it on
  Pair pair(options);
  constexpr emu::NoticeKind kKind = emu::NoticeKind::congestion;
  pair.cluster.host(1).notice({.source = 1, .dest = emu::kAnyDest, .kind = kKind},
                              pair.cluster.now());
  const hca::Sge to = pair.a.sge(0, 612 * 40);
  ASSERT_EQ(pair.post({.opcode = hca::WrOpcode::rdma_read,
                       .sges = {&to, 1},
                       .remote_addr = pair.b.address(0),
                       .rkey = pair.b.keys.rkey}),
            0);
  EXPECT_EQ(pair.run().first.size(), 1U);
}
INSTANTIATE_TEST_SUITE_P(Schemes, HeldByTime, testing::Values("vct1", "vct2"));

// What was sent of a message asked for no answer, and the rest is held here: no silence of the
// peer.
TEST(Held, AMessageHeldInTheMiddleIsNotGivenUp) {
  PairOptions options;
  options.host.congestion = "self_tuned";
  options.host.best_effort_credits = 4;
  options.host.controls.power_control = false;
  options.path.timeout = 8;  // 1 ms
  Pair pair(options);
  hca::Host& host = pair.cluster.host(0);
  pair.expect_recv(1, pair.b.sge(0, 612 * 50));
  const hca::Sge from = pair.a.sge(0, 612 * 50);
  ASSERT_EQ(pair.post({.sges = {&from, 1}}), 0);
  host.set_congestion("credit", hca::CqLayout::global);
  host.advance(pair.cluster.now());
  ASSERT_EQ(pair.cluster.sent().size(), 4U);
  host.set_congestion("self_tuned", hca::CqLayout::global);
  hca::FabricState full;
  full.full_buffers = full.buffers = 100;
  host.fabric_state(full, pair.cluster.now());
  pair.cluster.run(pair.cluster.now() + 400'000);  // 32 ms
  EXPECT_TRUE(pair.a.take().empty());
  EXPECT_EQ(host.counters().timeouts, 0U);
  host.set_congestion("none", hca::CqLayout::global);
  pair.cluster.run();
  const auto done = pair.a.take();
  ASSERT_EQ(done.size(), 1U);
  EXPECT_EQ(done[0].status, hca::WcStatus::success);
}

// Of a group each copy goes to a node of its own, and waits for the way to that.
TEST(Held, AGroupWaitsAsItsNodesDo) {
  hca::HostOptions options;
  options.congestion = "alo";
  options.controls.power_control = false;
  options.useful_ports.assign(8, 1);
  Cluster cluster({}, options, 3);
  Side side;
  side.app = std::make_unique<sim::App>(cluster.host(0));
  side.bytes.resize(4096);
  side.keys = side.app->reg(side.bytes.data(), 4096, kAll);
  side.cq = side.app->make_cq(64);
  const hca::Sge from = side.sge(0, 32);
  hca::WqeExtension route{};
  route.is_global = 1;
  route.hop_limit = 1;
  route.dgid[0] = 0xff;
  sim::Send one{.sges = {&from, 1}, .remote_qpn = 5, .remote_qkey = 0x11, .dlid = 2};
  sim::Send all{.sges = {&from, 1}, .remote_qpn = 0xffffff, .remote_qkey = 0x11, .dlid = 0xc101};
  all.extension = &route;
  for (const sim::Send& send : {one, all}) {
    sim::Queue qp = side.app->make_qp(hca::QpType::ud, side.cq, side.cq, {16, 16, 2, 2, 64});
    ASSERT_EQ(side.app->ready_ud(qp, 0x11, cluster.now()), 0);
    const std::uint16_t none[] = {0};
    hca::FabricState state;
    state.free_lanes = none;
    state.lanes = 0xf;  // none of them is free anywhere
    cluster.host(0).set_congestion("alo", hca::CqLayout::global);
    cluster.host(0).fabric_state(state, cluster.now());
    ASSERT_EQ(side.app->post(qp, send), 0);
    side.app->ring(cluster.now());
    cluster.host(0).advance(cluster.now());
    EXPECT_TRUE(cluster.sent().empty()) << send.dlid;
  }
}

}  // namespace

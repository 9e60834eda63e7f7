// What one lane has at the wire leaves the others their part of the port, and who waits for a lane
// waits in order, for as long as it takes, and costs nobody anything.
#include <gtest/gtest.h>

#include "tests/unit/hca/host/lane_net.h"

namespace {

using namespace test;
using hca::WcStatus;
using hca::WrOpcode;

constexpr std::uint32_t kSlots = 64;
constexpr std::size_t kAlone = kSlots / 2;

std::vector<WcStatus> all_success(std::size_t count) {
  return std::vector<WcStatus>(count, WcStatus::success);
}

TEST(LaneRoom, OneThatIsHeldLeavesTheOthersTheirs) {
  LaneNet net(kSlots);
  net.hold_back();
  Connection fast = net.join(sl_of_lane(1));
  EXPECT_EQ(net.cluster.held(0, 0), kAlone);
  net.write(fast, 200);
  net.cluster.run();
  const auto done = net.a.take();
  EXPECT_EQ(test::statuses(done), all_success(1));
  EXPECT_EQ(net.cluster.held(0, 0), kAlone);
  EXPECT_GT(net.cluster.host(0).counters().lane_waits, 0U);
  EXPECT_EQ(net.cluster.host(0).counters().slot_waits, 0U);
  net.let_all_go();
  EXPECT_EQ(test::statuses(net.a.take()), all_success(1));
  EXPECT_TRUE(
      std::equal(net.a.bytes.begin(), net.a.bytes.begin() + 200 * kPayload, net.b.bytes.begin()));
}

// Nothing happens before a packet of the lane leaves, so nobody need look.
TEST(LaneRoom, WhoWaitsForOneIsNotAskedAgain) {
  LaneNet net(kSlots);
  net.hold_back();
  EXPECT_EQ(net.cluster.host(0).next_event(), emu::kNever);
  EXPECT_EQ(net.cluster.host(0).quiet_until(), emu::kNever);
  EXPECT_EQ(net.cluster.host(0).counters().lane_waits, 1U);
}

// Each lane that has more than its part waits; each two have a third.
TEST(LaneRoom, ThoseThatAreHeldHaveEqualParts) {
  LaneNet net(90);
  Connection one = net.join(sl_of_lane(0));
  Connection other = net.join(sl_of_lane(2));
  net.cluster.hold_lanes(0, 0b101);
  net.write(one, 200);
  net.write(other, 200);
  net.cluster.run();
  EXPECT_NEAR(static_cast<double>(net.cluster.held(0, 0)), 30, 8);  // of turns
  EXPECT_NEAR(static_cast<double>(net.cluster.held(0, 2)), 30, 8);
  net.let_all_go();
  EXPECT_EQ(test::statuses(net.a.take()), all_success(2));
}

// A lane is full in the middle of somebody's turn, again and again: the turns stay whole.
TEST(LaneRoom, TurnsGoOnWhereTheyStopped) {
  LaneNet net(kSlots);
  std::vector<Connection> all;
  for (int i = 0; i < 3; ++i) all.push_back(net.join(sl_of_lane(0)));
  net.cluster.hold_lanes(0, 1);
  for (Connection& each : all) net.write(each, 160);
  net.cluster.run();
  for (const std::size_t leave : {5U, 11U, 3U, 20U, 7U, 30U, 1U, 32U, 9U}) {
    net.cluster.let_go(0, 0, leave);
    net.cluster.run();
  }
  net.let_all_go();
  std::vector<std::uint32_t> wanted;
  for (int turn = 0; turn < 10; ++turn) {
    for (const Connection& each : all) wanted.insert(wanted.end(), 16, each.a.number);
  }
  std::vector<std::uint32_t> turns;
  for (const emu::TxDesc& desc : net.cluster.sent()) {
    if (desc.dest == 1) turns.push_back(qp_of(desc));
  }
  EXPECT_EQ(turns, wanted);
  EXPECT_EQ(test::statuses(net.a.take()), all_success(3));
}

// Room comes in bursts: who waits is not woken for each packet that leaves.
TEST(LaneRoom, AFullOneOpensForABurst) {
  LaneNet net(kSlots);
  Connection slow = net.hold_back();
  for (std::size_t left = 1; left <= 4; ++left) {
    EXPECT_EQ(net.handed_on_by(slow.a), kAlone);
    net.cluster.let_go(0, 0, 1);
    net.cluster.run();
  }
  EXPECT_EQ(net.handed_on_by(slow.a), kAlone + 4);
}

TEST(LaneRoom, AcknowledgementsDoNotWait) {
  LaneNet net(kSlots);
  Connection slow = net.hold_back();
  net.write_back(slow, 1);
  net.cluster.run();
  EXPECT_EQ(net.cluster.held(0, 0), kAlone + 1);
  EXPECT_EQ(net.cluster.host(0).counters().acks_sent, 1U);
}

// Load with launch times is handed on long before it leaves: it waits for no lane, fills none, and
// what its QP sends behind it leaves with it.
TEST(LaneRoom, WhatHasALaunchTimeNeitherWaitsNorCounts) {
  LaneNet net(kSlots);
  Connection timed = net.join(sl_of_lane(0));
  Connection slow = net.join(sl_of_lane(0));
  net.cluster.hold_lanes(0, 1);
  const emu::CycleTime time = net.cluster.host(0).options().cycle_time;
  const emu::Cycle soon = net.cluster.now() + 1000;
  net.write(timed, 20, WrOpcode::rdma_write, time.ns(soon));
  net.write(timed, 2);
  net.cluster.host(0).advance(net.cluster.now());
  EXPECT_EQ(net.handed_on_by(timed.a), 22U);
  net.write(slow, 200);
  net.cluster.host(0).advance(net.cluster.now());
  EXPECT_EQ(net.handed_on_by(slow.a), (kSlots - 22) / 2);
  net.write(timed, 3, WrOpcode::rdma_write, time.ns(soon + 100));
  net.cluster.host(0).advance(net.cluster.now());
  EXPECT_EQ(net.handed_on_by(timed.a), 25U);
  net.cluster.run(net.cluster.now() + 2000);
  net.write(timed, 1);
  net.cluster.run(net.cluster.now() + 1);
  EXPECT_EQ(net.handed_on_by(timed.a), 25U) << "its last launch time has passed";
  net.let_all_go();
  EXPECT_EQ(test::statuses(net.a.take()), all_success(5));
}

TEST(LaneRoom, ReadResponsesWaitForTheirsToo) {
  LaneNet net(kSlots);
  Connection slow = net.join(sl_of_lane(0));
  Connection fast = net.join(sl_of_lane(1));
  net.cluster.hold_lanes(1, 1);
  net.write(slow, 200, WrOpcode::rdma_read);
  net.cluster.run();
  EXPECT_EQ(net.cluster.held(1, 0), kAlone);
  net.write(fast, 200, WrOpcode::rdma_read);
  net.write_back(fast, 200);
  net.write(slow, 1);  // its acknowledgement is behind the responses
  net.cluster.run();
  EXPECT_EQ(net.a.take().size(), 1U);
  EXPECT_EQ(net.b.take().size(), 1U);
  EXPECT_EQ(net.cluster.held(1, 0), kAlone);
  net.let_all_go();
  EXPECT_EQ(test::statuses(net.a.take()), all_success(2));
}

// What is read turns out not to be there: the NAK takes its place, but not in the lane's queue.
TEST(LaneRoom, ANakInPlaceOfAResponseDoesNotWait) {
  LaneNet net(600);
  Connection fills = net.join(sl_of_lane(0));
  Connection fails = net.join(sl_of_lane(0));
  std::vector<std::uint8_t> gone(40 * kPayload);
  const hca::MrKeys keys = net.b.app->reg(gone.data(), gone.size(), kAll, false);
  net.cluster.memory().unmap(gone.data(), gone.size());
  net.cluster.hold_lanes(1, 1);
  net.write(fills, 290, WrOpcode::rdma_read);
  net.cluster.run();
  const hca::Sge to = net.a.sge(0, 40 * kPayload);
  ASSERT_EQ(net.a.app->post(fails.a, {.opcode = WrOpcode::rdma_read,
                                      .sges = {&to, 1},
                                      .remote_addr = reinterpret_cast<std::uint64_t>(gone.data()),
                                      .rkey = keys.rkey}),
            0);
  net.a.app->ring(net.cluster.now());
  net.cluster.run();
  EXPECT_EQ(net.cluster.host(1).counters().lane_waits, 1U);
  EXPECT_EQ(net.cluster.host(1).counters().naks_sent, 1U);
  EXPECT_EQ(net.cluster.held(1, 0), 291U);
  net.let_all_go();
  EXPECT_EQ(net.a.take().size(), 2U);
}

// Who reads and who writes on one lane have equal parts of its room, though it opens for twenty
// packets, a turn and the beginning of another.
TEST(LaneRoom, ReadsAndRequestsShareOne) {
  LaneNet net(320);
  Connection read = net.join(sl_of_lane(0));
  Connection write = net.join(sl_of_lane(0));
  net.cluster.hold_lanes(1, 1);
  for (int i = 0; i < 4; ++i) {
    net.write(read, 250, WrOpcode::rdma_read);
    net.write_back(write, 250);
  }
  net.cluster.run();
  const std::size_t before = net.cluster.sent().size();
  for (int i = 0; i < 60; ++i) {
    net.cluster.let_go(1, 0, 20);
    net.cluster.run();
  }
  std::size_t responses = 0;
  std::size_t requests = 0;
  for (std::size_t i = before; i < net.cluster.sent().size(); ++i) {
    const emu::TxDesc& desc = net.cluster.sent()[i];
    if (desc.dest != 0 || desc.flits < 30) continue;
    (qp_of(desc) == read.b.number ? responses : requests) += 1;
  }
  EXPECT_NEAR(static_cast<double>(responses), static_cast<double>(requests), 16);
  net.let_all_go();
  EXPECT_EQ(test::statuses(net.a.take()), all_success(4));
  EXPECT_EQ(test::statuses(net.b.take()), all_success(4));
}

// What they had at the wire is taken off the lane's account when it leaves, whoever is gone.
TEST(LaneRoom, QpsThatEndWhileTheyWait) {
  LaneNet net(kSlots);
  Connection first = net.join(sl_of_lane(0));
  Connection second = net.join(sl_of_lane(0));
  Connection third = net.join(sl_of_lane(0));
  net.cluster.hold_lanes(0, 1);
  for (Connection* each : {&first, &second, &third}) net.write(*each, 40);
  net.cluster.run();
  const std::size_t of_third = net.handed_on_by(third.a);
  ASSERT_EQ(net.cluster.host(0).destroy_qp(net.a.app->client(), first.a.number), 0);
  ASSERT_EQ(net.cluster.host(0).destroy_qp(net.a.app->client(), third.a.number), 0);
  hca::QpAttributes reset{};
  reset.state = hca::QpState::reset;
  ASSERT_EQ(net.a.app->modify(second.a, reset, hca::kQpState, net.cluster.now()), 0);
  ASSERT_EQ(net.b.app->modify(second.b, reset, hca::kQpState, net.cluster.now()), 0);
  net.connect(second, sl_of_lane(0));
  net.write(second, 40);
  net.cluster.run();
  EXPECT_EQ(net.cluster.held(0, 0), kAlone);
  net.cluster.let_go(0, 0);
  net.cluster.run();
  EXPECT_EQ(net.handed_on_by(third.a), of_third);
  EXPECT_EQ(net.cluster.held(0, 0), kAlone) << "half of all slots again";
  net.let_all_go();
  EXPECT_EQ(test::statuses(net.a.take()), all_success(1));
}

// The link is lost and comes back: its lanes are empty. What it says of its former life is nothing.
TEST(LaneRoom, ALinkThatWasLostBeginsAnew) {
  LaneNet net(200);
  Connection slow = net.join(sl_of_lane(0), hca::QpType::uc);
  net.cluster.hold_lanes(0, 1);
  net.write(slow, 250);
  net.cluster.run();
  ASSERT_EQ(net.cluster.held(0, 0), 100U);
  net.cluster.host(0).link_lost(net.cluster.now());
  net.cluster.run();
  EXPECT_EQ(net.cluster.held(0, 0), 200U);
  net.cluster.let_go(0, 0, 100);
  net.cluster.run();
  EXPECT_EQ(net.cluster.held(0, 0), 100U) << "these counted no more, so the others still wait";
  net.let_all_go();
  EXPECT_EQ(net.handed_on_by(slow.a), 250U);
  EXPECT_EQ(test::statuses(net.a.take()), all_success(1));
}

// Datagrams wait for the lane of each: what is behind one that waits keeps its order.
TEST(LaneRoom, DatagramsWaitMessageByMessage) {
  LaneNet net(kSlots);
  net.hold_back();
  sim::Queue mixed = net.a.app->make_qp(hca::QpType::ud, net.a.cq, net.a.cq, {64, 2, 2, 2, 64});
  sim::Queue plain = net.a.app->make_qp(hca::QpType::ud, net.a.cq, net.a.cq, {64, 2, 2, 2, 64});
  for (const sim::Queue& each : {mixed, plain})
    ASSERT_EQ(net.a.app->ready_ud(each, 0x11, net.cluster.now()), 0);
  const hca::Sge sge = net.a.sge(0, 64);
  const auto send = [&](sim::Queue& queue, unsigned lane, std::uint64_t wr_id) {
    ASSERT_EQ(net.a.app->post(queue, {.wr_id = wr_id,
                                      .sges = {&sge, 1},
                                      .remote_qpn = 5,
                                      .remote_qkey = 0x11,
                                      .dlid = emu::lid_of(1),
                                      .sl = sl_of_lane(lane)}),
              0);
  };
  for (std::uint64_t i = 0; i < 6; ++i) send(mixed, i % 2 == 0 ? 1 : 0, i);
  for (std::uint64_t i = 0; i < 6; ++i) send(plain, 2, 10 + i);
  net.a.app->ring(net.cluster.now());
  net.cluster.run();
  EXPECT_EQ(net.handed_on_by(mixed), 1U);
  EXPECT_EQ(net.handed_on_by(plain), 6U);
  net.let_all_go();
  std::vector<std::uint64_t> order;
  for (const hca::Cqe& cqe : net.a.take()) {
    if (cqe.wr_id < 10 && cqe.qp_num == mixed.number) order.push_back(cqe.wr_id);
  }
  EXPECT_EQ(order, (std::vector<std::uint64_t>{0, 1, 2, 3, 4, 5}));
}

// Lane 2 has all credits for node 1; so lane 0 has least at the wire, and may send nothing there.
// Lane 1, to node 2, need not wait for that.
TEST(LaneRoom, TheLaneThatHasLeastAndMayNotSendHoldsUpNobody) {
  LaneNet net(4096, {}, 3);
  ASSERT_TRUE(net.cluster.host(0).set_congestion("credit", hca::CqLayout::separate));
  Connection greedy = net.join(sl_of_lane(2));
  Connection poor = net.join(sl_of_lane(0));
  Connection other = net.join(sl_of_lane(1), hca::QpType::rc, 2);
  net.cluster.hold_lanes(0, 0b111);
  net.write(greedy, 200);
  net.cluster.run();
  const std::size_t credits = net.cluster.held(0, 2);
  EXPECT_EQ(credits, 66U);  // 200 of three destinations
  net.write(poor, 200);
  net.write(other, 200, hca::WrOpcode::rdma_write, 0, &net.c);
  net.cluster.run();
  EXPECT_EQ(net.cluster.held(0, 0), 0U);
  EXPECT_EQ(net.cluster.held(0, 1), credits);
  net.cluster.let_go(0, 1, 5);
  net.cluster.run();
  EXPECT_EQ(net.cluster.held(0, 1), credits);
  net.let_all_go();
  EXPECT_EQ(test::statuses(net.a.take()), all_success(3));
}

// Another scheme meanwhile: nobody is forgotten.
TEST(LaneRoom, SchemesChangeWhileSomebodyWaits) {
  LaneNet net(kSlots);
  net.hold_back();
  Connection fast = net.join(sl_of_lane(1));
  for (const std::string_view scheme : {"credit", "vct1", "none", "self_tuned", "dcqcn"}) {
    ASSERT_TRUE(net.cluster.host(0).set_congestion(scheme, hca::CqLayout::global));
    net.write(fast, 20);
    net.cluster.let_go(0, 0, 10);
    net.cluster.run();
  }
  net.let_all_go();
  EXPECT_EQ(test::statuses(net.a.take()), all_success(6));
}

}  // namespace

// The edge of the fabric over the real engine, with ports that only remember what they were told.
#include "fabric/daemon/edge.h"

#include "fabric/daemon/power.h"
#include "tests/unit/fabric/daemon/edge_world.h"

namespace fabric {
namespace {

TEST_F(EdgeTest, APacketIsInjectedAndDeliveredWithItsTimes) {
  const PacketHandle handle = packet(0, 2, 77);
  memory_.meta(handle).launch_cycle = 1200;
  send(handle);
  run(400);
  ASSERT_EQ(port_.events.size(), 1U);
  EXPECT_EQ(port_.events[0].first, 0);
  EXPECT_EQ(port_.events[0].second.cookie, 77U);
  ASSERT_EQ(port_.deliveries.size(), 1U);
  const auto& delivery = port_.deliveries[0];
  EXPECT_EQ(delivery.node, 2);
  EXPECT_EQ(delivery.packet, handle);
  EXPECT_EQ(delivery.desc.src, 0);
  EXPECT_EQ(delivery.desc.length, 638);
  EXPECT_GE(delivery.desc.head_cycle, 1200U);
  EXPECT_LE(delivery.desc.head_cycle, 1202U);
  EXPECT_GE(delivery.desc.arrival_cycle, delivery.desc.head_cycle + 39);
  EXPECT_EQ(edge_->in_flight(), 0U);
  EXPECT_EQ(edge_->classes()[2].packets, 1U);
}

TEST_F(EdgeTest, PacketsToGroupsAreCountedOnceTheyHavePassedThePort) {
  for (const emu::Lid dlid : {emu::Lid{0xc101}, emu::Lid{3}, emu::kPermissiveLid}) {
    const PacketHandle handle = packet(0, 2, 77);
    std::uint8_t* lrh = memory_.bytes(handle);
    lrh[2] = static_cast<std::uint8_t>(dlid >> 8);
    lrh[3] = static_cast<std::uint8_t>(dlid);
    send(handle);
  }
  EXPECT_EQ(edge_->multicasts(0).sent, 0U);
  run(2000);
  ASSERT_EQ(port_.deliveries.size(), 3U);
  EXPECT_EQ(edge_->multicasts(0).sent, 1U);
  EXPECT_EQ(edge_->multicasts(0).received, 0U);
  EXPECT_EQ(edge_->multicasts(2).sent, 0U);
  EXPECT_EQ(edge_->multicasts(2).received, 1U);
}

TEST_F(EdgeTest, PassThroughTakesNoTime) {
  make(true);
  const PacketHandle handle = packet(0, 2, 77);
  send(handle);
  ASSERT_EQ(port_.deliveries.size(), 1U);
  const emu::RxDesc& desc = port_.deliveries[0].desc;
  EXPECT_EQ(port_.deliveries[0].packet, handle);
  EXPECT_EQ(desc.src, 0);
  EXPECT_EQ(desc.length, 638);
  EXPECT_EQ(desc.head_cycle, network_->now());
  EXPECT_EQ(desc.arrival_cycle, network_->now());
  EXPECT_EQ(port_.events.size(), 0U) << "its sender knows that it has left";
  EXPECT_EQ(edge_->in_flight(), 0U);
  EXPECT_EQ(network_->delivered().size(), 0U) << "nothing for the engine";
}

TEST_F(EdgeTest, PassThroughKeepsLaunchTimesAndTheOrderOfEqualOnes) {
  make(true);
  const emu::Cycle launches[] = {1050, 1020, 1050, 1020, 0};
  for (std::uint64_t i = 0; i < std::size(launches); ++i) {
    const PacketHandle handle = packet(1, 3, i);
    memory_.meta(handle).launch_cycle = launches[i];
    memory_.meta(handle).length = static_cast<std::uint16_t>(100 + i);
    send(handle);
  }
  ASSERT_EQ(port_.deliveries.size(), 1U) << "the one without a launch time";
  EXPECT_EQ(edge_->next_launch(), 1020U);
  network_->skip_to(1019);
  edge_->hand_out();
  EXPECT_EQ(port_.deliveries.size(), 1U);
  network_->skip_to(1500);  // late: it passes when it should have
  edge_->hand_out();
  ASSERT_EQ(port_.deliveries.size(), 5U);
  const std::uint64_t order[] = {4, 1, 3, 0, 2};
  for (std::size_t i = 0; i < 5; ++i) {
    EXPECT_EQ(port_.deliveries[i].desc.length, 100 + order[i]);
    if (i == 0) continue;
    EXPECT_EQ(port_.deliveries[i].desc.arrival_cycle, launches[order[i]]);
  }
  ASSERT_EQ(port_.events.size(), 4U);
  EXPECT_EQ(port_.events[0].second.cookie, 1U);
  EXPECT_EQ(port_.events[0].second.tail_cycle, 1020U);
  EXPECT_EQ(edge_->next_launch(), emu::kNever);
}

TEST_F(EdgeTest, ATrainCountsAsItsPackets) {
  make(true);
  const PacketHandle handle = packet(1, 3, 7);
  memory_.meta(handle).more_packets = 15;
  send(handle);
  ASSERT_EQ(port_.deliveries.size(), 1U);
  EXPECT_EQ(port_.deliveries[0].desc.more_packets, 15);
  const ClassStats& stats =
      edge_->classes()[static_cast<std::size_t>(emu::TrafficClass::best_effort)];
  EXPECT_EQ(stats.packets, 16U);
  EXPECT_EQ(stats.latency_ns.words[0], 16U);
}

TEST_F(EdgeTest, PassThroughLetsNobodyOvertakeWhatIsDue) {
  make(true);
  for (std::uint64_t i = 0; i < 2; ++i) {
    const PacketHandle handle = packet(1, 3, i);
    memory_.meta(handle).launch_cycle = 1050;
    memory_.meta(handle).length = static_cast<std::uint16_t>(100 + i);
    send(handle);
    network_->skip_to(1050);
  }
  const PacketHandle last = packet(1, 3, 2);
  memory_.meta(last).length = 102;
  send(last);
  edge_->hand_out();
  ASSERT_EQ(port_.deliveries.size(), 3U);
  for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(port_.deliveries[i].desc.length, 100 + i);
}

TEST_F(EdgeTest, PassThroughStillAsksTheRoutersOfAReservation) {
  make(true);
  send(control(emu::PacketKind::probe, 1, 2, 5, 40));
  run(400);
  ASSERT_EQ(port_.answers.size(), 1U);
  EXPECT_EQ(admission_->book(0).used_out_bps(2), 40'000'000U);
}

TEST_F(EdgeTest, APacketToANodeThatIsAwayGoesBackToItsPool) {
  send(packet(0, 2, 1));
  edge_->lost(2);
  run(200);
  EXPECT_EQ(port_.deliveries.size(), 0U);
  EXPECT_EQ(edge_->undeliverable(), 1U);
  EXPECT_EQ(memory_.free_count(pool_), 256U);
}

TEST_F(EdgeTest, ANewSessionHearsNothingOfTheOldOnesPackets) {
  send(packet(0, 2, 1));
  send(control(emu::PacketKind::probe, 0, 2, 5, 10));
  edge_->lost(0);
  edge_->attached(0, port_);
  run(400);
  EXPECT_EQ(port_.events.size(), 0U);
  EXPECT_EQ(port_.answers.size(), 0U);
  EXPECT_EQ(port_.deliveries.size(), 1U);  // what had left the HCA arrives
  EXPECT_EQ(admission_->book(0).bookings(), 0U);
}

TEST_F(EdgeTest, AProbeBooksAndIsAnsweredAtItsSourceAndAReleaseGivesBack) {
  send(control(emu::PacketKind::probe, 1, 2, 5, 40));
  run(400);
  ASSERT_EQ(port_.answers.size(), 1U);
  EXPECT_EQ(port_.answers[0].first, 1);
  EXPECT_EQ(port_.answers[0].second.connection, 5U);
  EXPECT_EQ(port_.answers[0].second.verdict, emu::Verdict::ack);
  EXPECT_EQ(admission_->book(0).used_out_bps(2), 40'000'000U);
  EXPECT_EQ(admission_->book(0).used_in_bps(1), 40'000'000U);
  send(control(emu::PacketKind::release, 1, 2, 5, 40));
  run(400);
  EXPECT_EQ(admission_->book(0).bookings(), 0U);
  EXPECT_EQ(port_.answers.size(), 1U);
  EXPECT_EQ(port_.deliveries.size(), 0U);  // nobody sees a release
  EXPECT_EQ(memory_.free_count(pool_), 256U);
}

TEST_F(EdgeTest, ARefusedProbeNamesItsRouter) {
  send(control(emu::PacketKind::probe, 1, 2, 5, 399));
  run(400);
  ASSERT_EQ(port_.answers.size(), 1U);
  EXPECT_EQ(port_.answers[0].second.verdict, emu::Verdict::nack);
  EXPECT_EQ(port_.answers[0].second.rejected_by, 0);
  EXPECT_EQ(admission_->book(0).bookings(), 0U);
}

TEST_F(EdgeTest, WhatALostNodeHadBookedIsReleasedByTheFabric) {
  for (std::uint64_t connection = 1; connection <= 20; ++connection) {
    send(control(emu::PacketKind::probe, 0, 2, connection, 2));
    send(control(emu::PacketKind::probe, 1, 2, connection, 2));
  }
  run(3000);
  EXPECT_EQ(admission_->book(0).bookings(), 40U);
  edge_->lost(0);
  run(3000);
  EXPECT_EQ(admission_->book(0).bookings(), 20U);
  EXPECT_EQ(admission_->book(0).used_in_bps(0), 0U);
  EXPECT_EQ(edge_->in_flight(), 0U);
}

TEST_F(EdgeTest, AProbeUnderWayWhenItsNodeDiesIsReleasedToo) {
  send(control(emu::PacketKind::probe, 0, 2, 9, 10));
  run(10);
  edge_->lost(0);
  run(1000);
  EXPECT_EQ(admission_->book(0).bookings(), 0U);
}

// A node's session ends and begins anew while its probe is under way, or a release that waits for
// its last packet: it asks again under the same id.
TEST_F(EdgeTest, WhatAnOldSessionHasUnderWayLeavesTheNewOnesBooking) {
  send(control(emu::PacketKind::probe, 0, 2, 4, 40));
  run(300);
  const PacketHandle late = control(emu::PacketKind::release, 0, 2, 4, 40);
  memory_.meta(late).launch_cycle = network_->now() + 600;
  send(late);
  send(control(emu::PacketKind::probe, 0, 2, 5, 40));
  run(10);
  edge_->lost(0);
  edge_->attached(0, port_);
  port_.answers.clear();
  send(control(emu::PacketKind::probe, 0, 2, 4, 40));
  send(control(emu::PacketKind::probe, 0, 2, 5, 40));
  run(3000);
  ASSERT_EQ(port_.answers.size(), 2U);
  for (const auto& [node, answer] : port_.answers) EXPECT_EQ(answer.verdict, emu::Verdict::ack);
  EXPECT_EQ(admission_->book(0).bookings(), 2U) << "granted, and nothing booked";
  EXPECT_EQ(memory_.free_count(pool_), 256U);
}

TEST_F(EdgeTest, AReleaseGoesTheWayOfItsProbeAndNeverBeforeIt) {
  make("[network]\ntopology = \"mesh:2x2\"\n", false);
  send(control(emu::PacketKind::probe, 0, 3, 5, 300));
  run(1000);
  ASSERT_EQ(port_.answers.size(), 1U);
  EXPECT_EQ(bookings(), 3U);
  send(control(emu::PacketKind::release, 0, 0, 5, 300));  // to itself: only its own router
  run(1000);
  EXPECT_EQ(bookings(), 0U);
  const PacketHandle late = control(emu::PacketKind::probe, 0, 3, 6, 300);
  memory_.meta(late).launch_cycle = network_->now() + 600;
  send(late);
  send(control(emu::PacketKind::release, 0, 3, 6, 300));
  run(2000);
  EXPECT_EQ(bookings(), 0U);
}

TEST_F(EdgeTest, AConnectionHasOneWay) {
  make("[network]\ntopology = \"mesh:2x2\"\n", false);
  send(control(emu::PacketKind::probe, 0, 3, 5, 300));
  run(1000);
  send(control(emu::PacketKind::probe, 0, 0, 5, 300));
  run(1000);
  ASSERT_EQ(port_.answers.size(), 2U);
  EXPECT_EQ(port_.answers[1].second.verdict, emu::Verdict::nack);
  EXPECT_EQ(port_.answers[1].second.rejected_by, network_->router_of(0));
  EXPECT_EQ(bookings(), 3U) << "as it was";
  edge_->lost(0);
  EXPECT_EQ(bookings(), 0U);
}

// The handshake takes some hundred cycles; whoever dies at whichever of them, nothing stays booked
// and no packet slot is lost. The source: while its probe goes, while the answer comes, while its
// release goes. The destination: the probe comes back as if nothing had been.
TEST_F(EdgeTest, AnyPartyMayDieAtAnyPointOfTheHandshake) {
  const auto finish = [&](emu::NodeId dead) {
    run(1000);
    edge_->attached(dead, port_);
    EXPECT_EQ(admission_->book(0).used_in_bps(0), 0U);
    EXPECT_EQ(admission_->book(0).used_out_bps(2), 0U);
    EXPECT_EQ(edge_->in_flight(), 0U);
    EXPECT_EQ(memory_.free_count(pool_), 256U);
    return admission_->book(0).bookings() == 0;
  };
  std::uint64_t connection = 100;
  std::size_t answered_before_death = 0;
  for (emu::Cycle at = 0; at <= 120; ++at) {
    for (const bool refused : {false, true}) {  // an ACK, or a NACK, is on its way
      port_.answers.clear();
      send(control(emu::PacketKind::probe, 0, 2, ++connection, refused ? 399 : 40));
      step(at);
      answered_before_death += port_.answers.size();
      edge_->lost(0);
      ASSERT_TRUE(finish(0)) << "the source died " << at << " cycles after its probe";
    }
    send(control(emu::PacketKind::probe, 0, 2, ++connection, 40));
    run(300);
    ASSERT_EQ(admission_->book(0).bookings(), 1U);
    send(control(emu::PacketKind::release, 0, 2, connection, 40));
    step(at);
    edge_->lost(0);
    ASSERT_TRUE(finish(0)) << "the source died " << at << " cycles after its release";
    port_.answers.clear();
    send(control(emu::PacketKind::probe, 0, 2, ++connection, 40));
    step(at);
    edge_->lost(2);
    run(1000);
    ASSERT_EQ(port_.answers.size(), 1U) << "the destination died after " << at << " cycles";
    send(control(emu::PacketKind::release, 0, 2, connection, 40));
    ASSERT_TRUE(finish(2)) << "the destination died after " << at << " cycles";
  }
  EXPECT_GT(answered_before_death, 20U) << "some died after the answer, ...";
  EXPECT_LT(answered_before_death, 220U) << "... others before";
}

TEST_F(EdgeTest, ANodeThatProbesWithoutEndIsRefusedNotRemembered) {
  std::uint64_t connection = 0;
  for (std::uint32_t i = 0; i < kBookingsPerNodeMax + 50; i += 50) {
    for (int k = 0; k < 50; ++k) send(control(emu::PacketKind::probe, 0, 2, ++connection, 0));
    run(1200);
  }
  const std::size_t before = port_.answers.size();
  send(control(emu::PacketKind::probe, 0, 2, ++connection, 1));
  run(400);
  ASSERT_EQ(port_.answers.size(), before + 1);
  EXPECT_EQ(port_.answers.back().second.verdict, emu::Verdict::nack);
}

TEST_F(EdgeTest, MoreThanTheWireHalfTakesWaitsAndEntersLater) {
  // The edge holds the rest in order; nothing is lost, whatever the engine's room.
  NetworkSpec spec = network_spec(config_, 1000);
  spec.packets_per_node = 4;
  network_ = std::move(*Network::make(spec, &controls_));
  EdgeOptions options;
  options.cycle_time = config_.network.cycle_time();
  edge_.emplace(*network_, memory_, controls_, options);
  for (emu::NodeId node = 0; node < 4; ++node) edge_->attached(node, port_);
  for (std::uint64_t i = 0; i < 20; ++i) send(packet(0, 1, i));
  EXPECT_EQ(edge_->waiting(), 16U);
  for (int turn = 0; turn < 200; ++turn) {
    run(10);
    edge_->submit(inbox_);
  }
  ASSERT_EQ(port_.deliveries.size(), 20U);
  for (std::uint64_t i = 0; i < 20; ++i) {
    EXPECT_EQ(memory_.meta(port_.deliveries[i].packet).cookie, i);
  }
}

TEST_F(EdgeTest, PowerOfAPacketIsThatOfItsFlits) {
  PowerWindows power(config_.energy, config_.network.cycle_time(), 1.0, network_->now(), 1);
  send(packet(0, 2, 1));
  for (int turn = 0; turn < 300; ++turn) {
    network_->run_until(network_->now() + 10);
    power.add(network_->activity());
    edge_->hand_out();
  }
  power.settle(network_->now());
  // One router: 40 flits, each twice written and read, arbitrated and crossed; no link between
  // routers.
  EXPECT_NEAR(power.router_pj(0), 40 * config_.energy.router_flit_pj(), 1e-6);
  const double window_ns = static_cast<double>(config_.network.cycle_time().ns(500));
  EXPECT_NEAR(power.meter().max_w(), power.router_pj(0) / window_ns * 1e-3, 1e-12);
  EXPECT_EQ(power.meter().windows_above_cap(), 0U);
  EXPECT_NEAR(power.meter().mean_w(), power.meter().max_w() / 6, 1e-9);
}

// What is further ahead than the fabric allows ends the node's session.
TEST(EdgeRules, TheLongestHorizonOfAnHcaIsWithinTheFabrics) {
  ASSERT_FALSE(emu::Config::parse("[hca]\nlaunch_horizon_us = 400001"));
  const auto config = emu::Config::parse("[hca]\nlaunch_horizon_us = 400000");
  ASSERT_TRUE(config) << config.error().message;
  const emu::CycleTime time = config->network.cycle_time();
  EXPECT_GT(edge_rules(*config).horizon_cycles, time.cycle_at(450'000'000));
}

}  // namespace
}  // namespace fabric

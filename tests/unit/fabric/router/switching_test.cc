// What defines preemption, circuits and cut-through, each as one test.
#include "tests/unit/fabric/router/design_net.h"

namespace fabric {
namespace {

// Preemption. Node 0 has a best-effort worm on lane 3 that is stuck behind node 1's, wholly inside
// the router's input buffer; then a real-time message of node 0 on the same lane.
struct Overtaking {
  emu::Cycle best_effort = 0;
  emu::Cycle real_time = 0;
  emu::Cycle launched = 0;
  DesignCounters counters;
};
Overtaking overtake(NetworkSpec spec, emu::NodeId real_time_dest) {
  spec.vc_buf_size = 40;
  auto network = make(spec);
  using emu::TrafficClass;
  // Both cross to node 5 on lane 3; node 1's is first and long.
  EXPECT_TRUE(network->submit(1, packet_to(5, 300, 3, TrafficClass::best_effort)));
  network->step(10);
  EXPECT_TRUE(network->submit(0, packet_to(5, 40, 3, TrafficClass::best_effort)));
  network->step(60);
  Overtaking result;
  result.launched = network->now();
  EXPECT_TRUE(network->submit(0, packet_to(real_time_dest, 20, 3, TrafficClass::real_time)));
  for (const auto& event : drain(*network, 1000)) {
    if (event.traffic_class == TrafficClass::real_time) result.real_time = event.tail_cycle;
    if (event.flits == 40) result.best_effort = event.tail_cycle;
  }
  result.counters = network->design_counters();
  return result;
}

TEST(Preemptive, RealTimeOvertakesAWormInItsLane) {
  // To another node: as if the lane were empty.
  const Overtaking p = overtake(general(RouterKind::preemptive), 6);
  EXPECT_EQ(p.real_time - p.launched, 1U * (4 + 1) + 1 + 19);
  EXPECT_GT(p.best_effort, p.real_time);
  EXPECT_EQ(p.counters.interruptions, 1U);
  EXPECT_EQ(p.counters.dummy_flits, 0U);  // nothing of it had crossed
  // Without preemption it waits for the whole of it.
  const Overtaking np = overtake(general(RouterKind::non_preemptive), 6);
  EXPECT_GT(np.real_time, np.best_effort);
  EXPECT_EQ(np.counters.interruptions, 0U);
}

// A worm of which some flits have crossed is cut by a dummy tail; the rest follows behind a dummy
// header and the message arrives whole (the receiver counts its flits).
TEST(Preemptive, TheRestOfACutWormArrivesIntact) {
  NetworkSpec spec = general(RouterKind::preemptive);
  spec.vc_buf_size = 40;
  spec.topology = TopologyKind::mesh;
  spec.sides = {4, 2};
  auto network = make(spec);
  using emu::TrafficClass;
  // The best-effort worm crosses at half speed, for node 4's crowd shares the crossbar's output.
  EXPECT_TRUE(network->submit(0, packet_to(3, 40, 3, TrafficClass::best_effort)));
  for (const emu::Vl v : {emu::Vl{5}, emu::Vl{6}})
    EXPECT_TRUE(network->submit(0, packet_to(3, 60, v, TrafficClass::real_time)));
  network->step(45);
  EXPECT_TRUE(network->submit(0, packet_to(3, 20, 3, TrafficClass::real_time)));
  EXPECT_TRUE(network->submit(0, packet_to(3, 10, 3, TrafficClass::control)));
  const auto events = drain(*network, 1000);
  ASSERT_EQ(events.size(), 5U);
  EXPECT_EQ(events[4].traffic_class, TrafficClass::best_effort);
  EXPECT_EQ(events[4].flits, 40);
  EXPECT_GE(network->design_counters().dummy_flits, 2U);
  EXPECT_EQ(network->design_counters().dummy_flits % 2, 0U);  // a header for every tail
}

// A lower level never interrupts a higher one, nor does its own.
TEST(Preemptive, OnlyHigherLevelsInterrupt) {
  for (const auto later : {emu::TrafficClass::real_time, emu::TrafficClass::best_effort}) {
    NetworkSpec spec = general(RouterKind::preemptive);
    spec.vc_buf_size = 40;
    auto network = make(spec);
    EXPECT_TRUE(network->submit(1, packet_to(5, 200, 3)));
    network->step(10);
    EXPECT_TRUE(network->submit(0, packet_to(5, 40, 3)));
    network->step(60);
    EXPECT_TRUE(network->submit(0, packet_to(6, 10, 3, later)));
    const auto events = drain(*network, 1000);
    ASSERT_EQ(events.size(), 3U);
    EXPECT_EQ(events[2].flits, 10);
    EXPECT_EQ(network->design_counters().interruptions, 0U);
  }
}

// RN 3.2.2: a best-effort worm holds the output lane that a real-time head wants, while other
// lanes of its input keep it from crossing. Acceleration lets it finish first.
TEST(Preemptive, AccelerationClearsTheOutputLane) {
  const auto real_time_done = [](bool accelerate) {
    NetworkSpec spec = general(RouterKind::preemptive);
    spec.accelerate = accelerate;
    spec.vc_buf_size = 40;
    auto network = make(spec);
    using emu::TrafficClass;
    // Control keeps the worm in its input buffer until the crowd behind it is there.
    EXPECT_TRUE(network->submit(2, packet_to(5, 120, 15, TrafficClass::control)));
    network->step(20);
    EXPECT_TRUE(network->submit(0, packet_to(5, 40, 3, TrafficClass::best_effort)));
    network->step(45);
    for (emu::Vl v = 4; v < 10; ++v)
      for (int i = 0; i < 6; ++i)
        EXPECT_TRUE(network->submit(0, packet_to(6, 40, v, TrafficClass::real_time)));
    network->step(30);
    EXPECT_TRUE(network->submit(1, packet_to(5, 20, 3, TrafficClass::real_time)));
    network->step(3000);
    for (const auto& event : network->delivered())
      if (event.node == 5 && event.traffic_class == TrafficClass::real_time)
        return event.tail_cycle;
    return emu::kNever;
  };
  EXPECT_LT(real_time_done(true) + 100, real_time_done(false));
}

// Circuits. The probe passes five stages a hop, the acceptance a link's delay, the data three
// stages a hop.
TEST(Circuits, ZeroLoadLatencyIsProbeAnswerAndData) {
  for (const int delay : {1, 3}) {
    for (emu::NodeId dest = 0; dest < 5; ++dest) {
      NetworkSpec spec = general(RouterKind::circuit);
      spec.link_delay = delay;
      spec.topology = TopologyKind::mesh;
      spec.sides = {5, 2};
      auto network = make(spec);
      ASSERT_TRUE(network->submit(0, packet_to(dest, 7, 5)));
      const auto events = drain(*network, 300);
      ASSERT_EQ(events.size(), 1U);
      const emu::Cycle hops = dest + 1U;
      const auto d = static_cast<emu::Cycle>(delay);
      const emu::Cycle probe = hops * (4 + d) + d;
      const emu::Cycle answer = (hops + 1) * d;
      const emu::Cycle data = hops * (2 + d) + d + 6;
      EXPECT_EQ(events[0].tail_cycle - events[0].head_cycle, probe + answer + data);
      EXPECT_EQ(network->design_counters().circuits_made, 1U);
    }
  }
}

hca::SendPacket of_stream(hca::SendPacket packet, std::uint16_t stream,
                          emu::PacketKind kind = emu::PacketKind::data) {
  packet.stream = stream;
  packet.kind = kind;
  return packet;
}

// A link has two lanes. Two streams open circuits through it; the probe of a third is refused by
// the router where it is blocked and lets go of the hops behind it; when one of the two is closed,
// the next attempt succeeds.
TEST(Circuits, ABlockedProbeDropsTheConnectionAndFreesItsHops) {
  NetworkSpec spec = general(RouterKind::circuit);
  spec.circuits = 2;
  spec.topology = TopologyKind::mesh;
  spec.sides = {4, 2};
  auto network = make(spec);
  using emu::PacketKind;
  const auto open = [&](emu::NodeId src, std::uint16_t stream, emu::NodeId dest) {
    network->clear_events();
    EXPECT_TRUE(network->submit(src, of_stream(packet_to(dest, 1, 4), stream, PacketKind::probe)));
    network->step(100);
    EXPECT_EQ(network->answers().size(), 1U);
    return network->answers()[0].rejected_by;
  };
  EXPECT_EQ(open(2, 1, 3), emu::kNoRouter);
  EXPECT_EQ(open(2, 2, 3), emu::kNoRouter);
  // From node 0 by routers 0 and 1: both links are free, that from 2 to 3 is not.
  EXPECT_EQ(open(0, 1, 3), 2U);
  EXPECT_EQ(network->design_counters().circuits_dropped, 1U);
  EXPECT_EQ(network->audit(), "");
  // Nothing of it is left: two circuits fit through the hops that it had.
  EXPECT_EQ(open(0, 2, 2), emu::kNoRouter);
  EXPECT_EQ(open(0, 3, 2), emu::kNoRouter);
  // The HCA's own lanes are all taken now.
  EXPECT_EQ(open(0, 4, 4), 0U);
  // Data flows on what is open; a release closes behind itself.
  network->clear_events();
  EXPECT_TRUE(network->submit(2, of_stream(packet_to(3, 30, 4), 1)));
  EXPECT_TRUE(network->submit(2, of_stream(packet_to(3, 5, 4), 1, PacketKind::release)));
  EXPECT_TRUE(network->submit(0, of_stream(packet_to(2, 5, 4), 2, PacketKind::release)));
  network->step(100);
  EXPECT_EQ(network->delivered().size(), 3U);
  EXPECT_EQ(open(0, 1, 3), emu::kNoRouter);
}

// Every message finds its way although most probes are blocked: it asks again.
TEST(Circuits, MessagesWithoutAStreamAskUntilTheyGetOne) {
  NetworkSpec spec = general(RouterKind::circuit);
  spec.circuits = 2;
  auto network = make(spec);
  for (emu::NodeId n = 0; n < 8; ++n)
    for (emu::Vl v = 4; v < 8; ++v) EXPECT_TRUE(network->submit(n, packet_to(0, 20, v)));
  EXPECT_EQ(drain(*network, 4000).size(), 32U);
  const DesignCounters counters = network->design_counters();
  EXPECT_EQ(counters.circuits_made, 32U);
  EXPECT_GT(counters.circuits_dropped, 20U);
  EXPECT_EQ(counters.circuits_asked, counters.circuits_made + counters.circuits_dropped);
}

// The counters of a port have every flit that passed its link, probes too: those that came through
// and those that were refused.
TEST(Circuits, CountersHaveTheFlitsOfProbes) {
  NetworkSpec spec = general(RouterKind::circuit);
  spec.topology = TopologyKind::mesh;
  spec.circuits = 2;
  auto network = make(spec);
  for (int i = 0; i < 8; ++i)
    for (emu::NodeId n = 0; n < 4; ++n)
      EXPECT_TRUE(network->submit(n, packet_to(3 - n, 20, static_cast<emu::Vl>(i))));
  for (int i = 0; i < 8; ++i)
    EXPECT_TRUE(network->submit(0, packet_to(2, 20, static_cast<emu::Vl>(8 + i % 2))));
  EXPECT_EQ(drain(*network, 20'000).size(), 40U);
  EXPECT_GT(network->design_counters().circuits_dropped, 0U);
  const auto flits = [](const std::array<LaneCounters, emu::kVlCount>& lanes) {
    std::uint64_t sum = 0;
    for (const LaneCounters& lane : lanes) sum += lane.flits;
    return sum;
  };
  for (emu::RouterId r = 0; r < network->routers(); ++r) {
    for (int p = 0; p < network->ports(r); ++p) {
      const auto port = static_cast<emu::PortId>(p);
      const PortCounters counters = network->router_counters(r, port);
      EXPECT_EQ(flits(counters.received), network->link_flits(r, port).in);
      EXPECT_EQ(flits(counters.sent), network->link_flits(r, port).out);
    }
  }
  for (emu::NodeId n = 0; n < 4; ++n) {
    const LinkFlits link = network->link_flits(network->router_of(n), network->port_of(n));
    EXPECT_EQ(flits(network->wire_counters(n).sent), link.in);
    EXPECT_EQ(flits(network->wire_counters(n).received), link.out);
  }
}

// MediaWorm needs 24 lanes for its circuits: more than messages can name.
TEST(Circuits, TwentyFourLanes) {
  NetworkSpec spec = general(RouterKind::circuit);
  spec.circuits = 24;
  auto network = make(spec);
  for (std::uint16_t s = 1; s <= 25; ++s)
    EXPECT_TRUE(network->submit(0, of_stream(packet_to(static_cast<emu::NodeId>(1 + s % 7), 1, 4),
                                             s, emu::PacketKind::probe)));
  network->step(200);
  EXPECT_EQ(network->design_counters().circuits_made, 24U);
  EXPECT_EQ(network->design_counters().circuits_dropped, 1U);
}

// Virtual cut-through: a blocked packet is taken in whole by the router where it is blocked, and
// the lane behind it is free for others; a worm keeps it.
TEST(CutThrough, ABlockedPacketIsAbsorbed) {
  const auto upstream_held = [](RouterKind router) {
    NetworkSpec spec = general(router);
    spec.topology = TopologyKind::mesh;
    spec.sides = {3, 2};
    auto network = make(spec);
    // Control keeps the way to node 2 busy; node 0's packet is blocked in router 2.
    for (int i = 0; i < 8; ++i)
      EXPECT_TRUE(network->submit(5, packet_to(2, 40, 15, emu::TrafficClass::control)));
    network->step(20);
    EXPECT_TRUE(network->submit(0, packet_to(2, 40, 5)));
    network->step(100);
    // Flits of it in routers 0 and 1.
    int held = 0;
    for (const emu::RouterId r : {emu::RouterId{0}, emu::RouterId{1}})
      for (emu::PortId p = 0; p < network->ports(r); ++p)
        held += network->occupancy(r, p).input[5] + network->occupancy(r, p).output[5];
    return held;
  };
  EXPECT_EQ(upstream_held(RouterKind::cut_through), 0);
  EXPECT_GT(upstream_held(RouterKind::non_preemptive), 10);
}

// A head leaves only where its whole packet finds room: of two packets of 30 flits for a buffer of
// 40 the second waits until the first has made room.
TEST(CutThrough, AHeadWaitsForRoomForItsWholePacket) {
  const auto flits_there = [](RouterKind router) {
    NetworkSpec spec = general(router);
    spec.vc_buf_size = 40;
    auto network = make(spec);
    for (int i = 0; i < 6; ++i)
      EXPECT_TRUE(network->submit(1, packet_to(5, 40, 15, emu::TrafficClass::control)));
    network->step(20);
    EXPECT_TRUE(network->submit(0, packet_to(5, 30, 3)));
    EXPECT_TRUE(network->submit(0, packet_to(5, 30, 3)));
    network->step(150);
    return static_cast<int>(network->occupancy(0, 0).input[3]);
  };
  EXPECT_GT(flits_there(RouterKind::cut_through), 10);  // more of the first than leaves room for it
  EXPECT_LE(flits_there(RouterKind::cut_through), 30);
  EXPECT_GE(flits_there(RouterKind::non_preemptive), 38);
}

// Cells leave a switch two cycles after they came.
TEST(CellSwitch, ZeroLoadLatencyIsThePipelineFormula) {
  for (const int delay : {1, 3}) {
    for (emu::NodeId dest = 0; dest < 5; ++dest) {
      NetworkSpec spec = general(RouterKind::cell);
      spec.vc_buf_size = 40;
      spec.link_delay = delay;
      spec.topology = TopologyKind::mesh;
      spec.sides = {5, 2};
      auto network = make(spec);
      ASSERT_TRUE(network->submit(0, packet_to(dest, 7, 5)));
      const auto events = drain(*network, 300);
      ASSERT_EQ(events.size(), 1U);
      const emu::Cycle hops = dest + 1U;
      const auto d = static_cast<emu::Cycle>(delay);
      EXPECT_EQ(events[0].tail_cycle - events[0].head_cycle, hops * (2 + d) + d + 6);
    }
  }
}

// Two connections into node 1 share its link cell by cell, in turn: two messages of 50 cells end
// one cycle apart.
TEST(CellSwitch, ConnectionsTakeTurnsCellByCell) {
  NetworkSpec spec = general(RouterKind::cell);
  spec.vc_buf_size = 60;
  spec.flow = FlowKind::link;
  auto network = make(spec);
  ASSERT_TRUE(network->submit(2, packet_to(1, 50, 4)));
  ASSERT_TRUE(network->submit(3, packet_to(1, 50, 4)));
  const auto events = drain(*network, 400);
  ASSERT_EQ(events.size(), 2U);
  EXPECT_EQ(events[1].tail_cycle - events[0].tail_cycle, 1U);
}

// gn.port in small: nodes 1 ... 7 all send to node 0, and node 1 also sends a background stream to
// node 2. With stops and goes to the sources the background keeps its share of node 1's link; with
// credits of links only it is stuck behind cells for node 0.
TEST(CellSwitch, SourceQuenchKeepsBystandersFlowing) {
  const auto background_flits = [](FlowKind flow) {
    NetworkSpec spec = general(RouterKind::cell);
    spec.flow = flow;
    spec.vc_buf_size = 32;
    auto network = make(spec);
    for (int i = 0; i < 60; ++i) {
      for (emu::NodeId n = 1; n < 8; ++n) EXPECT_TRUE(network->submit(n, packet_to(0, 40, 4)));
      EXPECT_TRUE(network->submit(1, packet_to(2, 40, 5)));
    }
    network->step(2400);
    int flits = 0;
    for (const auto& event : network->delivered()) flits += event.node == 2 ? event.flits : 0;
    EXPECT_EQ(network->audit(), "");
    EXPECT_EQ(network->design_counters().quenches > 0, flow == FlowKind::stream);
    return flits;
  };
  EXPECT_GT(background_flits(FlowKind::stream), 1800);
  EXPECT_LT(background_flits(FlowKind::link), 600);
}

// The streams into a congested port get equal parts of it.
// Lanes that keep a ring apart (datelines) are nothing to cells: all share a link's credits.
TEST(CellSwitch, RingsAreRefused) {
  NetworkSpec spec = general(RouterKind::cell);
  spec.topology = TopologyKind::torus;
  spec.sides = {4, 3};
  spec.lanes_of_class = {0xc000, 0x3ff0, 0x000f};
  const auto refused = Network::make(spec);
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("choose routing up_down"), std::string::npos)
      << refused.error().message;
  EXPECT_NE(refused.error().message.find("could deadlock: (0,0) lane"), std::string::npos);
  spec.routing = fabric::RoutingKind::up_down;
  EXPECT_TRUE(Network::make(spec));
}

TEST(CellSwitch, CongestingStreamsShareEqually) {
  NetworkSpec spec = general(RouterKind::cell);
  spec.vc_buf_size = 32;
  auto network = make(spec);
  for (int i = 0; i < 60; ++i)
    for (emu::NodeId n = 1; n < 8; ++n) EXPECT_TRUE(network->submit(n, packet_to(0, 40, 4)));
  network->step(7000);
  std::vector<int> flits(8, 0);
  for (const auto& event : network->delivered()) flits[event.src] += event.flits;
  for (std::size_t n = 1; n < 8; ++n) EXPECT_NEAR(flits[n], 1000, 60) << "node " << n;
}

// gn.slow in small: node 0 takes the end of a message every 20 cycles. Three sources of messages of
// one cell share that rate; node 1's other stream passes the same switch nearly undisturbed, for
// what node 0 does not take is stopped at its sources.
TEST(CellSwitch, ASlowCardTakesMessagesAtItsRate) {
  NetworkSpec spec = general(RouterKind::cell);
  spec.vc_buf_size = 32;
  spec.receive_cycles = 20;
  auto network = make(spec);
  for (int i = 0; i < 200; ++i)
    for (emu::NodeId n = 1; n < 4; ++n) EXPECT_TRUE(network->submit(n, packet_to(0, 1, 4)));
  for (int i = 0; i < 150; ++i) EXPECT_TRUE(network->submit(1, packet_to(4, 40, 5)));
  network->step(4000);
  std::vector<int> messages(8, 0);
  int background_flits = 0;
  for (const auto& event : network->delivered()) {
    if (event.node == 0) ++messages[event.src];
    if (event.node == 4) background_flits += event.flits;
  }
  EXPECT_EQ(network->audit(), "");
  for (std::size_t n = 1; n < 4; ++n) EXPECT_NEAR(messages[n], 4000 / 20 / 3, 4) << "node " << n;
  EXPECT_GT(background_flits, 3800);
}

// Between two messages a slow host stands still for longer than the watchdog waits elsewhere.
TEST(Watchdog, ASlowCardIsNoDeadlock) {
  NetworkSpec spec = general(RouterKind::cell);
  spec.vc_buf_size = 4;
  spec.watchdog_cycles = 100;
  spec.receive_cycles = 700;
  const auto network = make(spec);
  for (int i = 0; i < 40; ++i) EXPECT_TRUE(network->submit(1, packet_to(0, 1, 4)));
  while (!network->idle() && network->now() < 60'000) {
    network->step(50);
    ASSERT_EQ(network->stuck(), "") << "cycle " << network->now();
  }
  EXPECT_EQ(network->delivered().size(), 40U);
}

// Cells have no lanes that could be named.
TEST(Watchdog, SaysNothingOfWhoWaitsWhereNobodyCanBeNamed) {
  NetworkSpec spec = general(RouterKind::cell);
  spec.vc_buf_size = 8;
  spec.watchdog_cycles = 100;
  const auto network = make(spec);
  EXPECT_TRUE(network->submit(1, packet_to(0, 4000, 4)));
  while (network->stuck().empty() && network->now() < 4000) network->step(97);
  EXPECT_TRUE(network->stuck().find(": nothing has ") != std::string::npos) << network->stuck();
  EXPECT_TRUE(network->stuck().ends_with(" cycles")) << network->stuck();
}

}  // namespace
}  // namespace fabric

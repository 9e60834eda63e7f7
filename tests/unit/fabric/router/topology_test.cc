// Topologies and routings in the engine: latency at zero load, load spread over links, the refusal
// of what could deadlock and the watchdog for what does.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <tuple>

#include "emu/base/prng.h"
#include "fabric/router/network.h"
#include "tests/unit/sanitized.h"

namespace fabric {
namespace {

NetworkSpec spec_of(TopologyKind topology, std::vector<int> sides, RoutingKind routing) {
  NetworkSpec spec;
  spec.topology = topology;
  spec.sides = std::move(sides);
  spec.routing = routing;
  spec.arity = 2;
  spec.lanes_of_class = {0xc000, 0x3ff0, 0x000f};
  spec.lane_vtick = default_lane_vticks(spec.lanes_of_class);
  return spec;
}

hca::SendPacket packet_to(emu::NodeId dest, int flits, emu::Vl vl = 5) {
  hca::SendPacket packet;
  packet.dest = dest;
  packet.flits = static_cast<std::uint16_t>(flits);
  packet.vl_in = packet.vl_out = vl;
  return packet;
}

// h routers: tail h (4 + d) + d + N - 1 after the head has left, whatever the shape.
TEST(Topology, ZeroLoadLatencyIsThePipeline) {
  const NetworkSpec specs[] = {
      spec_of(TopologyKind::mesh, {2, 3, 2}, RoutingKind::automatic),
      spec_of(TopologyKind::mesh, {3, 3}, RoutingKind::adaptive),
      spec_of(TopologyKind::torus, {4, 4}, RoutingKind::automatic),
      spec_of(TopologyKind::torus, {3, 3}, RoutingKind::adaptive),
      spec_of(TopologyKind::fat_mesh, {2, 2}, RoutingKind::dor_by_load),
      spec_of(TopologyKind::fat_tree, {}, RoutingKind::up_by_load),
      spec_of(TopologyKind::ary_tree, {}, RoutingKind::automatic),
  };
  for (const NetworkSpec& spec : specs) {
    const auto network = Network::make(spec).value();
    for (emu::NodeId dest = 0; dest < network->nodes(); ++dest) {
      ASSERT_TRUE(network->submit(1, packet_to(dest, 40)));
      network->step(120);
      ASSERT_EQ(network->delivered().size(), 1U);
      const auto& event = network->delivered()[0];
      const auto hops = static_cast<emu::Cycle>(network->hops(1, dest));
      EXPECT_EQ(event.tail_cycle - event.head_cycle, hops * 5 + 40);
      EXPECT_EQ(event.vl, 5) << "whatever lanes it took on the way";
      network->clear_events();
    }
  }
}

// Four nodes of a router send to four of the next: one link carries a flit a cycle, two carry two.
TEST(Topology, ParallelLinksCarryMore) {
  const auto cycles = [](RoutingKind routing, unsigned fixed_classes) {
    NetworkSpec spec = spec_of(TopologyKind::fat_mesh, {2, 2}, routing);
    spec.nodes_per_router = 4;
    spec.fixed_classes = fixed_classes;
    const auto network = Network::make(spec).value();
    // All destinations have the same fixed link.
    for (int i = 0; i < 20; ++i) {
      for (emu::NodeId src = 0; src < 2; ++src) {
        const auto dest = static_cast<emu::NodeId>(4 + 2 * src);
        EXPECT_TRUE(network->submit(src, packet_to(dest, 40, static_cast<emu::Vl>(4 + src))));
      }
    }
    while (!network->idle()) network->step(10);
    EXPECT_EQ(network->delivered().size(), 40U);
    return network->now();
  };
  const emu::Cycle one = cycles(RoutingKind::dimension_order, 0);
  EXPECT_GE(one, 1600U);
  EXPECT_LE(cycles(RoutingKind::dor_by_load, 0), 900U);
  // What admission has booked keeps to its link.
  EXPECT_EQ(cycles(RoutingKind::dor_by_load, 0b100), one);
}

TEST(Topology, AdaptiveGoesRoundWhatIsBusy) {
  NetworkSpec spec = spec_of(TopologyKind::mesh, {3, 3}, RoutingKind::adaptive);
  const auto network = Network::make(spec).value();
  std::set<emu::RouterId> crossed;
  for (int i = 0; i < 12; ++i) {
    EXPECT_TRUE(network->submit(0, packet_to(8, 200, static_cast<emu::Vl>(i % 4))));
  }
  while (!network->idle()) network->step(10);
  for (emu::RouterId r = 0; r < 9; ++r) {
    for (emu::PortId p = 0; p < 5; ++p)
      for (const auto& lane : network->router_counters(r, p).sent)
        if (lane.flits > 0) crossed.insert(r);
  }
  EXPECT_GT(crossed.size(), 5U) << "more than the one way of dimension order";
}

// Duato's condition says that messages wait for escapes only. A free adaptive lane whose next
// buffer has no room is one to wait in: at high load such waits close rings.
TEST(Topology, AdaptiveNeverDeadlocks) {
  for (const TopologyKind topology : {TopologyKind::mesh, TopologyKind::torus}) {
    for (const auto& [router, general, buffer, flits] :
         {std::tuple{RouterKind::non_preemptive, false, 10, 40},
          std::tuple{RouterKind::non_preemptive, true, 16, 4},
          std::tuple{RouterKind::cut_through, true, 16, 4}}) {
      NetworkSpec spec = spec_of(topology, {8, 8}, RoutingKind::adaptive);
      spec.lanes_of_class = {0x8018, 0, 0x0007};
      spec.router = router;
      spec.general_engine = general;
      spec.vc_buf_size = buffer;
      spec.watchdog_cycles = 1000;
      const auto network = Network::make(spec).value();
      emu::Prng random(7);
      for (int i = 0; i < (test::kSanitized ? 400 : 1200) / flits; ++i)
        for (emu::NodeId n = 0; n < 64; ++n)
          EXPECT_TRUE(network->submit(n, packet_to(static_cast<emu::NodeId>(random() % 64), flits,
                                                   static_cast<emu::Vl>(random() % 3))));
      for (int i = 0; i < 100 && !network->idle() && network->stuck().empty(); ++i)
        network->step(1000);
      EXPECT_TRUE(network->idle()) << "router " << static_cast<int>(router) << ", buffers of "
                                   << buffer << ": " << network->stuck();
    }
  }
}

// A node sends on four lanes, one of them control's, which comes last.
TEST(Topology, ControlGoesFirstUnlessItIsScheduled) {
  for (const bool general : {false, true}) {
    for (const bool first : {true, false}) {
      NetworkSpec spec = spec_of(TopologyKind::single, {}, RoutingKind::automatic);
      spec.scheduler = emu::SchedulerKind::round_robin;
      spec.lanes_of_class = {0x0010, 0x000c, 0x0002};
      spec.general_engine = general;
      spec.control_first = first;
      const auto network = Network::make(spec).value();
      for (int vl = 1; vl <= 4; ++vl)
        for (int i = 0; i < 10; ++i)
          EXPECT_TRUE(network->submit(1, packet_to(2, 20, static_cast<emu::Vl>(vl))));
      while (!network->idle()) network->step(10);
      ASSERT_EQ(network->delivered().size(), 40U);
      int control = 0;
      for (std::size_t i = 0; i < 10; ++i) control += network->delivered()[i].vl == 4 ? 1 : 0;
      EXPECT_TRUE(first ? control == 10 : control < 5) << control;
    }
  }
}

TEST(Topology, WhatCouldDeadlockIsRefused) {
  const auto result =
      Network::make(spec_of(TopologyKind::torus, {4, 4}, RoutingKind::dimension_order));
  ASSERT_FALSE(result);
  EXPECT_NE(result.error().message.find("could deadlock: (0,0) lane"), std::string::npos);
}

// A ring whose nodes all send two routers on, on one lane: with datelines everything arrives,
// without everybody holds what the next one needs.
std::unique_ptr<Network> crowded_ring(RoutingKind routing) {
  NetworkSpec spec = spec_of(TopologyKind::torus, {5}, routing);
  spec.check_deadlock = false;
  spec.watchdog_cycles = 2000;
  auto network = Network::make(spec).value();
  for (int i = 0; i < 6; ++i)
    for (emu::NodeId n = 0; n < 5; ++n)
      EXPECT_TRUE(network->submit(n, packet_to(static_cast<emu::NodeId>((n + 2) % 5), 100)));
  network->step(10'000);
  network->step(10'000);
  return network;
}

TEST(Watchdog, NamesTheLanesOfADeadlock) {
  const auto network = crowded_ring(RoutingKind::dimension_order);
  EXPECT_FALSE(network->idle());
  EXPECT_TRUE(network->stuck().starts_with("deadlock: nothing has moved for 2000 cycles: (0) port"))
      << network->stuck();
  EXPECT_NE(network->stuck().find("lane 5 waits for (1) lane 5"), std::string::npos)
      << network->stuck();
}

TEST(Watchdog, IsSilentWhenAllIsWell) {
  const auto network = crowded_ring(RoutingKind::dateline);
  EXPECT_TRUE(network->idle());
  EXPECT_EQ(network->stuck(), "");
  EXPECT_EQ(network->delivered().size(), 30U);
}

// Flits that move for ever and never arrive: a message longer than the watchdog's patience.
TEST(Watchdog, TellsALivelock) {
  NetworkSpec spec = spec_of(TopologyKind::mesh, {2, 2}, RoutingKind::automatic);
  spec.watchdog_cycles = 100;
  const auto network = Network::make(spec).value();
  ASSERT_TRUE(network->submit(0, packet_to(3, 4000)));
  ASSERT_TRUE(network->submit(1, packet_to(3, 3000)));
  std::set<std::string> said;
  for (int i = 0; i < 40; ++i) {
    network->step(97);
    if (!network->stuck().empty()) said.insert(network->stuck().substr(0, 9));
  }
  EXPECT_TRUE(said.contains("livelock:")) << said.size();
}

// Two long messages that share a link: at every look all buffers hold what they held at the last.
TEST(Watchdog, ASteadyFlowIsNoDeadlock) {
  struct Case {
    RouterKind router;
    TopologyKind topology;
    bool general_engine;
  };
  constexpr auto kMesh = TopologyKind::mesh;
  for (const auto& c :
       {Case{RouterKind::traditional, TopologyKind::single, false},
        Case{RouterKind::non_preemptive, kMesh, false}, Case{RouterKind::traditional, kMesh, false},
        Case{RouterKind::traditional, kMesh, true}, Case{RouterKind::cell, kMesh, true}}) {
    const std::vector<int> sides = c.topology == kMesh ? std::vector{2, 2} : std::vector<int>{};
    NetworkSpec spec = spec_of(c.topology, sides, RoutingKind::automatic);
    spec.router = c.router;
    spec.general_engine = c.general_engine;
    spec.watchdog_cycles = 600;
    SCOPED_TRACE(static_cast<int>(c.router) * 10 + static_cast<int>(c.general_engine));
    const auto network = Network::make(spec).value();
    ASSERT_TRUE(network->submit(0, packet_to(3, 4000)));
    ASSERT_TRUE(network->submit(1, packet_to(3, 4000)));
    while (!network->idle()) {
      network->step(50);
      ASSERT_EQ(network->stuck(), "") << "cycle " << network->now();
    }
    EXPECT_EQ(network->delivered().size(), 2U);
  }
}

// What is under way at one look alone has had no time to be stuck.
TEST(Watchdog, CountsNoIdleTime) {
  NetworkSpec spec = spec_of(TopologyKind::mesh, {2, 2}, RoutingKind::automatic);
  spec.watchdog_cycles = 100;
  for (const bool skips : {false, true}) {
    SCOPED_TRACE(skips ? "skipped" : "stepped");
    const auto network = Network::make(spec).value();
    for (emu::Cycle i = 0; i < 300; ++i) {
      ASSERT_TRUE(network->submit(0, packet_to(3, 5)));
      while (!network->idle()) {
        network->step(1);
        ASSERT_EQ(network->stuck(), "") << "message " << i;
      }
      network->clear_events();
      const emu::Cycle begin = network->now() + 1601 + i;
      for (int looked = 0; looked < 150; ++looked) network->step(1);
      if (skips) network->skip_to(begin);
      while (network->now() < begin) network->step(1);
    }
  }
}

}  // namespace
}  // namespace fabric

// Deadlock recovery by one token: a ring that stands still without it, the one message in the
// recovery lanes, the path of the token.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "emu/base/prng.h"
#include "fabric/router/network.h"
#include "fabric/router/recovery_token.h"

namespace fabric {
namespace {

constexpr int kNeverAsks = 1 << 20;
constexpr emu::Vl kRecoveryLane = 0;  // of best effort, lanes 0 ... 2

NetworkSpec torus_spec(std::vector<int> sides, RouterKind router, int recovery_cycles) {
  NetworkSpec spec;
  spec.topology = TopologyKind::torus;
  spec.sides = std::move(sides);
  spec.routing = RoutingKind::recovery;
  spec.recovery_cycles = recovery_cycles;
  spec.router = router;
  spec.vc_buf_size = 16;
  spec.lanes_of_class = {0x8018, 0, 0x0007};
  spec.lane_vtick = default_lane_vticks(spec.lanes_of_class);
  spec.watchdog_cycles = 2000;
  return spec;
}

hca::SendPacket packet_on(std::size_t dest, int flits, std::uint64_t lane) {
  hca::SendPacket packet;
  packet.dest = static_cast<emu::NodeId>(dest);
  packet.flits = static_cast<std::uint16_t>(flits);
  packet.vl_in = packet.vl_out = static_cast<emu::Vl>(lane);
  packet.traffic_class = emu::TrafficClass::best_effort;
  return packet;
}

// Everybody sends two routers on, all the same way round: all adaptive lanes fill up.
std::unique_ptr<Network> crowded_ring(RouterKind router, int recovery_cycles) {
  auto network = Network::make(torus_spec({5}, router, recovery_cycles)).value();
  for (std::size_t i = 0; i < 60; ++i)
    for (std::size_t n = 0; n < 5; ++n)
      EXPECT_TRUE(network->submit(static_cast<emu::NodeId>(n), packet_on((n + 2) % 5, 16, i % 3)));
  for (int i = 0; i < 200 && !network->idle() && network->stuck().empty(); ++i) network->step(100);
  return network;
}

TEST(Recovery, ARingThatStandsStillWithoutTheTokenIsResolved) {
  for (const RouterKind router :
       {RouterKind::non_preemptive, RouterKind::traditional, RouterKind::cut_through}) {
    const auto without = crowded_ring(router, kNeverAsks);
    EXPECT_TRUE(without->stuck().starts_with("deadlock: nothing has moved")) << without->stuck();
    EXPECT_NE(without->stuck().find("lane 1 waits for ("), std::string::npos) << without->stuck();
    EXPECT_EQ(without->design_counters().recoveries, 0U);
    const auto with = crowded_ring(router, 32);
    EXPECT_TRUE(with->idle()) << with->stuck();
    EXPECT_EQ(with->stuck(), "");
    EXPECT_EQ(with->delivered().size(), 300U);
    EXPECT_GT(with->design_counters().recoveries, 0U);
  }
}

// f(router, port) of each end of a link between routers.
template <class F>
void each_link(const Network& network, F&& f) {
  for (int r = 0; r < network.routers(); ++r) {
    const auto router = static_cast<emu::RouterId>(r);
    for (int p = 0; p < network.ports(router); ++p) {
      const auto port = static_cast<emu::PortId>(p);
      if (network.peer(router, port).router != emu::kNoRouter) f(router, port);
    }
  }
}

std::uint64_t flits_in_recovery_lanes(const Network& network) {
  std::uint64_t flits = 0;
  each_link(network, [&](emu::RouterId router, emu::PortId port) {
    const Network::Occupancy at = network.occupancy(router, port);
    flits += at.input[kRecoveryLane] + at.output[kRecoveryLane];
  });
  return flits;
}

std::uint64_t hops_in_recovery_lanes(const Network& network) {
  std::uint64_t packets = 0;
  each_link(network, [&](emu::RouterId router, emu::PortId port) {
    packets += network.router_counters(router, port).sent[kRecoveryLane].packets;
  });
  return packets;
}

// Far past saturation, messages longer than a buffer and shorter: everything arrives, and no more
// flits are ever in the recovery lanes than one message has.
TEST(Recovery, OneMessageIsInTheRecoveryLanes) {
  for (const auto& [router, flits] :
       {std::pair{RouterKind::non_preemptive, 40}, std::pair{RouterKind::non_preemptive, 4},
        std::pair{RouterKind::cut_through, 8}}) {
    const auto network = Network::make(torus_spec({4, 4}, router, 32)).value();
    emu::Prng random(11);
    for (int i = 0; i < 1200 / flits; ++i)
      for (emu::NodeId n = 0; n < 16; ++n)
        EXPECT_TRUE(network->submit(n, packet_on(random() % 16, flits, random() % 3)));
    std::uint64_t most = 0;
    while (!network->idle() && network->now() < 100'000) {
      network->step(1);
      most = std::max(most, flits_in_recovery_lanes(*network));
    }
    EXPECT_TRUE(network->idle());
    EXPECT_EQ(network->audit(), "");
    const std::uint64_t recoveries = network->design_counters().recoveries;
    EXPECT_GT(recoveries, 0U) << flits;
    EXPECT_GT(most, 0U);
    EXPECT_LE(most, static_cast<std::uint64_t>(flits));
    EXPECT_GE(hops_in_recovery_lanes(*network), recoveries);
    EXPECT_LE(hops_in_recovery_lanes(*network), 4 * recoveries) << "four hops are the longest way";
  }
}

// Where the token is, is a matter of the cycle: the order of stepping changes nothing.
TEST(Recovery, TheOrderOfRoutersDoesNotMatter) {
  const auto digest = [](bool backwards) {
    const auto network = Network::make(torus_spec({4, 4}, RouterKind::cut_through, 32)).value();
    std::vector<emu::RouterId> order(16);
    std::iota(order.begin(), order.end(), emu::RouterId{0});
    if (backwards) std::reverse(order.begin(), order.end());
    network->set_step_order(order);
    emu::Prng random(3);
    for (int i = 0; i < 100; ++i)
      for (emu::NodeId n = 0; n < 16; ++n)
        EXPECT_TRUE(network->submit(n, packet_on(random() % 16, 8, random() % 3)));
    while (!network->idle() && network->now() < 100'000) network->step(10);
    EXPECT_TRUE(network->idle());
    EXPECT_GT(network->design_counters().recoveries, 0U);
    return network->digest();
  };
  EXPECT_EQ(digest(false), digest(true));
}

TEST(RecoveryToken, TravelsUntilItIsCapturedAndGoesOnFromTheDestination) {
  RecoveryToken token(5, 100);
  EXPECT_TRUE(token.is_at(0, 100));
  EXPECT_TRUE(token.is_at(3, 103));
  EXPECT_FALSE(token.is_at(2, 103));
  EXPECT_TRUE(token.is_at(1, 106));
  token.capture(7);
  EXPECT_TRUE(token.has(7));
  EXPECT_FALSE(token.is_at(2, 107)) << "somebody has it";
  token.delivered(8, 3, 110);
  EXPECT_TRUE(token.has(7)) << "another message arrived";
  token.delivered(7, 4, 120);
  EXPECT_FALSE(token.has(7));
  EXPECT_FALSE(token.is_at(4, 120)) << "from the next cycle on";
  EXPECT_TRUE(token.is_at(4, 121));
  EXPECT_TRUE(token.is_at(0, 122));
}

std::string refusal(const NetworkSpec& spec) {
  const auto network = Network::make(spec);
  return network ? "" : network.error().message;
}

TEST(Recovery, WhatMakesNoSenseIsRefused) {
  for (const RouterKind router : {RouterKind::preemptive, RouterKind::circuit, RouterKind::cell})
    EXPECT_TRUE(refusal(torus_spec({4, 4}, router, 32)).starts_with("routing recovery: router "));
  NetworkSpec spec = torus_spec({4, 4}, RouterKind::non_preemptive, 32);
  spec.fixed_classes = 0b011;
  EXPECT_TRUE(refusal(spec).starts_with("routing recovery: admission")) << refusal(spec);
  spec = torus_spec({4, 4}, RouterKind::non_preemptive, 32);
  spec.threads = 2;
  EXPECT_TRUE(refusal(spec).starts_with("threads: 2;")) << refusal(spec);
  spec = torus_spec({4, 4}, RouterKind::non_preemptive, 0);
  EXPECT_TRUE(refusal(spec).starts_with("recovery_cycles: 0")) << refusal(spec);
  spec = torus_spec({4, 4}, RouterKind::non_preemptive, 32);
  spec.topology = TopologyKind::fat_tree;
  EXPECT_NE(refusal(spec).find("recovery needs a mesh or torus"), std::string::npos);
  spec = torus_spec({4, 4}, RouterKind::non_preemptive, 32);
  spec.lanes_of_class = {0x8000, 0x7ff0, 0x000f};
  EXPECT_NE(refusal(spec).find("could deadlock"), std::string::npos) << "one lane of control";
  const auto network = Network::make(torus_spec({4, 4}, RouterKind::non_preemptive, 32)).value();
  const LinkEnd down[] = {{0, 1}};
  EXPECT_FALSE(network->set_down(down));
}

}  // namespace
}  // namespace fabric

// PowerHerd: budgets that move between neighbours, and routers that stop when theirs is spent.
#include "fabric/router/power_herd.h"

#include <gtest/gtest.h>

#include "emu/base/prng.h"
#include "fabric/router/network.h"
#include "fabric/topo/shape.h"

namespace {

using fabric::PowerHerd;

fabric::Graph mesh(int side) {
  fabric::Shape shape;
  shape.kind = fabric::TopologyKind::mesh;
  shape.sides = {side, side};
  return *fabric::make_graph(shape);
}

double sum_pj(const PowerHerd& herd, int routers) {
  double sum = 0;
  for (int r = 0; r < routers; ++r) sum += herd.budget_pj(static_cast<emu::RouterId>(r));
  return sum;
}

TEST(PowerHerd, WithoutACapEverythingCrosses) {
  PowerHerd herd({}, mesh(2));
  EXPECT_FALSE(herd.on());
  herd.spend(0, 1);
  EXPECT_TRUE(herd.may_cross(0));
}

TEST(PowerHerd, ARouterStopsWhenItsBudgetIsSpent) {
  PowerHerd herd({.window_pj = 400, .router_flit_pj = 10, .link_flit_pj = 5}, mesh(2));
  // Port 0 is the HCA's; port 1 of routers 0 and 2 leads to a router.
  for (int i = 0; i < 10; ++i) {
    EXPECT_TRUE(herd.may_cross(0)) << i;
    herd.spend(0, 0);
  }
  EXPECT_FALSE(herd.may_cross(0)) << "a quarter of 400 pJ: ten flits of 10";
  EXPECT_TRUE(herd.may_cross(2));
  for (int i = 0; i < 7; ++i) herd.spend(2, 1);
  EXPECT_FALSE(herd.may_cross(2)) << "seven flits with their links: 105";
  herd.window_ends();
  EXPECT_TRUE(herd.may_cross(0));
  EXPECT_EQ(herd.stops(), 2U);
}

// Budgets go from neighbours that have to spare to those that lack; their sum stays the cap.
TEST(PowerHerd, NeighboursShare) {
  PowerHerd herd({.window_pj = 900, .router_flit_pj = 10}, mesh(3));
  for (int window = 0; window < 20; ++window) {
    while (herd.may_cross(4)) herd.spend(4, 0);
    herd.window_ends();
    ASSERT_NEAR(sum_pj(herd, 9), 900, 1e-6);
  }
  EXPECT_GT(herd.budget_pj(4), 300);
  EXPECT_LT(herd.budget_pj(1), 50);
  EXPECT_GE(herd.budget_pj(1), 9.99) << "a tenth of an equal share stays";
  // The hot router moves to the corner: budgets follow.
  for (int window = 0; window < 40; ++window) {
    while (herd.may_cross(0)) herd.spend(0, 0);
    herd.window_ends();
    ASSERT_NEAR(sum_pj(herd, 9), 900, 1e-6);
  }
  EXPECT_GT(herd.budget_pj(0), 200);
  EXPECT_LT(herd.budget_pj(4), 150);
}

// A network under a cap: no 500 cycles above it by more than what a cycle can overshoot, nothing
// lost, and it does less than without.
TEST(PowerHerd, ANetworkKeepsToItsCap) {
  constexpr double kFlitPj = 100;
  const auto run = [](double window_pj, double& largest) {
    fabric::NetworkSpec spec;
    spec.topology = fabric::TopologyKind::mesh;
    spec.sides = {3, 3};
    spec.general_engine = true;
    spec.herd = {.window_pj = window_pj, .router_flit_pj = kFlitPj, .link_flit_pj = 0};
    auto network = std::move(*fabric::Network::make(spec));
    emu::Prng prng(11);
    std::uint64_t delivered = 0;
    for (int turn = 0; turn < 40; ++turn) {
      for (emu::NodeId n = 0; n < 9; ++n) {
        for (int i = 0; i < 8; ++i) {
          hca::SendPacket packet;
          packet.flits = 40;
          packet.dest = static_cast<emu::NodeId>(prng.below(9));
          packet.vl_in = packet.vl_out = static_cast<emu::Vl>(prng.below(4));
          network->submit(n, packet);
        }
      }
      network->step(500);
      double crossed = 0;
      for (const auto& window : network->activity()) crossed += window.crossed;
      largest = std::max(largest, crossed * kFlitPj);
      delivered += network->delivered().size();
      network->clear_events();
    }
    EXPECT_EQ(network->audit(), "");
    EXPECT_EQ(network->stuck(), "");
    return delivered;
  };
  double free_pj = 0;
  const std::uint64_t free = run(0, free_pj);
  double held_pj = 0;
  const double cap_pj = 0.5 * free_pj;
  const std::uint64_t held = run(cap_pj, held_pj);
  EXPECT_LT(held_pj, cap_pj + 9 * 5 * kFlitPj);
  EXPECT_GT(held_pj, 0.6 * cap_pj);
  EXPECT_LT(held, free);
  EXPECT_GT(held, free / 4);
}

}  // namespace

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

// A flit takes 5 pJ to come, 10 to cross and 5 to leave, and `link_pj` for a link behind that.
emu::EnergyTable fives(double link_pj) {
  emu::EnergyTable energy;
  energy.buffer_write_pj = 5;
  energy.buffer_read_pj = 5;
  energy.arbitration_pj = energy.crossbar_pj = 0;
  energy.link_pj_per_bit = link_pj / energy.flit_bits;
  return energy;
}

double taken_pj(const emu::EnergyTable& energy, const fabric::ActivityWindow& window) {
  const auto count = [](std::uint32_t events) { return static_cast<double>(events); };
  return count(window.arrived + window.crossed) * energy.buffer_write_pj +
         count(window.crossed + window.sent) * energy.buffer_read_pj +
         count(window.crossed) * (energy.arbitration_pj + energy.crossbar_pj) +
         count(window.sent_to_routers) * energy.link_flit_pj();
}

TEST(PowerHerd, WithoutACapThereIsNone) { EXPECT_FALSE(PowerHerd({}, mesh(2), {}).on()); }

// Port 0 is the HCA's; port 1 of routers 0 and 2 leads to a router.
TEST(PowerHerd, ARouterStopsWhenItsBudgetIsSpent) {
  constexpr emu::Cycle kLast = 499;
  PowerHerd herd({.window_pj = 4 * 3000, .energy = fives(5)}, mesh(2), {});
  ASSERT_TRUE(herd.strict());
  int crossed = 0;
  for (; herd.may_cross(0, 1, kLast); ++crossed) herd.crossed(0);
  EXPECT_EQ(crossed, 299) << "a quarter of it, ten a flit, less what the HCA may send yet";
  EXPECT_FALSE(herd.may_cross(2, 299, 0)) << "what the HCA may send in the whole window: 2500";
  EXPECT_TRUE(herd.may_cross(2, 299, kLast));
  int sent = 0;
  for (; herd.may_send(2, 1, kLast - 1); ++sent) herd.sent(2, 1, kLast - 1);
  EXPECT_EQ(sent, 199) << "a read, a link and the next router's write";
  herd.window_ends();
  EXPECT_TRUE(herd.may_cross(0, 1, 0));
  EXPECT_EQ(herd.stops(), 2U);
}

// What is on its way when a window ends is written in the next one, and paid for there.
TEST(PowerHerd, TheNextWindowPaysForWhatComesInIt) {
  PowerHerd herd({.window_pj = 4 * 3000, .energy = fives(5)}, mesh(2), {.link_delay = 3});
  herd.sent(0, 1, 496);
  EXPECT_EQ(herd.left_pj(0), 3000 - 15);
  herd.sent(0, 1, 497);
  EXPECT_EQ(herd.left_pj(0), 3000 - 25);
  herd.window_ends();
  EXPECT_EQ(herd.left_pj(0), herd.budget_pj(0) - 5);
}

// Budgets go from neighbours that have to spare to those that lack; their sum stays the cap.
TEST(PowerHerd, NeighboursShare) {
  PowerHerd herd({.window_pj = 90'000, .energy = fives(0)}, mesh(3), {.window_cycles = 50});
  ASSERT_TRUE(herd.strict());
  const auto spend_all = [&](emu::RouterId router) {
    while (herd.may_cross(router, 1, 49)) herd.crossed(router);
  };
  for (int window = 0; window < 20; ++window) {
    spend_all(4);
    herd.window_ends();
    ASSERT_NEAR(sum_pj(herd, 9), 90'000, 1e-6);
  }
  EXPECT_GT(herd.budget_pj(4), 30'000);
  EXPECT_LT(herd.budget_pj(1), 5000);
  EXPECT_GE(herd.budget_pj(1), 999) << "a tenth of an equal share stays";
  // The hot router moves to the corner: budgets follow.
  for (int window = 0; window < 40; ++window) {
    spend_all(0);
    herd.window_ends();
    ASSERT_NEAR(sum_pj(herd, 9), 90'000, 1e-6);
  }
  EXPECT_GT(herd.budget_pj(0), 20'000);
  EXPECT_LT(herd.budget_pj(4), 15'000);
}

// Random loads on every design that has a herd: no window above the cap, which is nearly used up,
// nothing lost, and less done than without. The link delay moves writes into the next window, and
// whole packets in output buffers have their links before them when a window ends.
TEST(PowerHerd, ANetworkKeepsToItsCap) {
  struct Case {
    fabric::RouterKind router;
    fabric::CrossbarKind crossbar;
    int buffer;
    int link_delay;
  };
  using fabric::CrossbarKind;
  using fabric::RouterKind;
  const auto run = [](const Case& c, double window_pj, std::uint64_t seed, double& largest) {
    fabric::NetworkSpec spec;
    spec.topology = fabric::TopologyKind::mesh;
    spec.sides = {3, 3};
    spec.router = c.router;
    spec.crossbar = c.crossbar;
    spec.vc_buf_size = c.buffer;
    spec.link_delay = c.link_delay;
    spec.general_engine = true;
    spec.herd.window_pj = window_pj;
    auto network = std::move(*fabric::Network::make(spec));
    emu::Prng prng(seed);
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
      double window = 0;
      for (const auto& activity : network->activity())
        window += taken_pj(spec.herd.energy, activity);
      largest = std::max(largest, window);
      delivered += network->delivered().size();
      network->clear_events();
    }
    EXPECT_EQ(network->audit(), "");
    EXPECT_EQ(network->stuck(), "");
    return delivered;
  };
  for (const Case& c : {Case{RouterKind::non_preemptive, CrossbarKind::multiplexed, 10, 1},
                        Case{RouterKind::non_preemptive, CrossbarKind::full, 60, 15},
                        Case{RouterKind::traditional, CrossbarKind::multiplexed, 200, 1},
                        Case{RouterKind::preemptive, CrossbarKind::multiplexed, 10, 3},
                        Case{RouterKind::circuit, CrossbarKind::multiplexed, 10, 1},
                        Case{RouterKind::cut_through, CrossbarKind::multiplexed, 40, 1},
                        Case{RouterKind::cut_through, CrossbarKind::multiplexed, 400, 5}}) {
    const std::uint64_t seed = 11;
    SCOPED_TRACE(testing::Message() << "router " << static_cast<int>(c.router) << ", buffer "
                                    << c.buffer << ", seed " << seed);
    double free_pj = 0;
    const std::uint64_t free = run(c, 0, seed, free_pj);
    for (const double part : {0.15, 0.5}) {
      double held_pj = 0;
      const double cap_pj = part * free_pj;
      const std::uint64_t held = run(c, cap_pj, seed, held_pj);
      EXPECT_LE(held_pj, cap_pj * (1 + 1e-9)) << part;
      EXPECT_GT(held_pj, 0.8 * cap_pj) << part;
      EXPECT_LT(held, free) << part;
      EXPECT_GT(static_cast<double>(held), 0.4 * part * static_cast<double>(free)) << part;
    }
  }
}

// Budgets move in idle time too, as much when a caller jumps over it.
TEST(PowerHerd, IdleTimeMayBeJumpedOver) {
  const auto run = [](bool jumps, std::uint64_t seed) {
    fabric::NetworkSpec spec;
    spec.topology = fabric::TopologyKind::mesh;
    spec.sides = {3, 3};
    spec.general_engine = true;
    spec.herd.window_pj = 4e6;
    const auto network = std::move(*fabric::Network::make(spec));
    emu::Prng prng(seed);
    for (int turn = 0; turn < 6; ++turn) {
      const emu::NodeId corner = turn % 2 == 0 ? 8 : 0;
      for (int i = 0; i < 100; ++i) {
        hca::SendPacket packet;
        packet.flits = 40;
        packet.cookie = static_cast<std::uint64_t>(i);
        packet.dest = static_cast<emu::NodeId>(prng.below(9));
        packet.vl_in = packet.vl_out = static_cast<emu::Vl>(prng.below(4));
        network->submit(corner, packet);
      }
      const emu::Cycle next = network->now() + 20'000 + prng.below(10'000);
      jumps ? network->run_until(next) : network->step(next - network->now());
      network->clear_events();
    }
    // And at last long enough for nothing to change any more.
    network->skip_to(network->now() + (emu::Cycle{1} << 40));
    return network->digest();
  };
  for (std::uint64_t seed = 1; seed <= 4; ++seed)
    EXPECT_EQ(run(true, seed), run(false, seed)) << "seed " << seed;
}

// A cap that does not pay what HCAs may send: not every window is below it, the mean is.
TEST(PowerHerd, ACapBelowWhatComesUnasked) {
  const PowerHerd herd({.window_pj = 4 * 1000, .energy = fives(5)}, mesh(2), {});
  EXPECT_FALSE(herd.strict());
}

}  // namespace

#include "fabric/route/deadlock.h"

#include <gtest/gtest.h>

#include "emu/base/prng.h"
#include "tests/unit/fabric/route/torus.h"

namespace fabric {
namespace {

constexpr ClassLanes kOneControlLane = {0x8000, 0x7ff0, 0x000f};

// Each step: some message that holds the one lane can wait for the next. Found anew from the table.
void expect_real(const Graph& graph, const RouteTable& table, const LanePlan& plan,
                 const std::vector<LinkLane>& cycle) {
  ASSERT_GE(cycle.size(), 2U);
  for (std::size_t i = 0; i < cycle.size(); ++i) {
    const LinkLane& holds = cycle[i];
    const LinkLane& wants = cycle[(i + 1) % cycle.size()];
    ASSERT_EQ(graph.routers[holds.router][holds.port].router, wants.router);
    bool found = false;
    for (emu::NodeId dest = 0; dest < graph.nodes.size(); ++dest) {
      for (emu::Vl own = 0; own < emu::kVlCount; ++own) {
        const auto uses = [&](const LinkLane& at) {
          for (const Choice& choice : table.choices(at.router, dest)) {
            if (choice.port == at.port && plan.at(choice.set, own) == at.lane) return true;
          }
          return false;
        };
        found |= uses(holds) && uses(wants);
      }
    }
    EXPECT_TRUE(found) << "step " << i;
  }
}

TEST(Deadlock, EveryShippedCombinationIsFree) {
  const std::vector<Graph> graphs = {make_single(8).value(),
                                     make_mesh(4, 1).value(),
                                     make_mesh(5, 2).value(),
                                     make_grid({.sides = {3, 4, 2}}).value(),
                                     make_grid({.sides = {2, 2}, .links = 2}).value(),
                                     torus({4, 4}),
                                     torus({2, 5}),
                                     torus({3, 4, 3}),
                                     make_fat_tree().value(),
                                     make_ary_tree(4, 3).value(),
                                     make_ary_tree(2, 4).value()};
  for (const Graph& graph : graphs) {
    for (const RoutingKind kind :
         {RoutingKind::automatic, RoutingKind::dimension_order, RoutingKind::dor_by_load,
          RoutingKind::dateline, RoutingKind::up_down, RoutingKind::up_by_load,
          RoutingKind::adaptive, RoutingKind::recovery}) {
      const bool grid = !graph.grid.sides.empty();
      const bool ring = grid && graph.grid.wraps;
      const bool dor = kind == RoutingKind::dimension_order || kind == RoutingKind::dor_by_load;
      const bool adapts = kind == RoutingKind::adaptive || kind == RoutingKind::recovery;
      if (!grid && (dor || adapts)) continue;
      if (ring ? dor : kind == RoutingKind::dateline) continue;
      const auto routes = make_routes(graph, kind, kLanes);
      EXPECT_TRUE(routes) << routes.error().message;
    }
  }
}

TEST(Deadlock, ATorusWithoutDatelinesIsRefusedWithARealCycle) {
  for (const auto& sides : std::vector<std::vector<int>>{{5}, {4, 4}, {3, 5, 3}}) {
    const Graph graph = torus(sides);
    for (const RoutingKind kind : {RoutingKind::dimension_order, RoutingKind::dor_by_load}) {
      const auto table = make_table(graph, kind);
      // Rings of three: nobody goes two steps, so nobody waits.
      const LanePlan plan = make_lane_plan(table->sets(), kLanes);
      const auto cycle = find_cycle(graph, *table, plan, kLanes);
      expect_real(graph, *table, plan, cycle);
      const auto routes = make_routes(graph, kind, kLanes);
      ASSERT_FALSE(routes);
      EXPECT_NE(routes.error().message.find(to_text(graph, cycle)), std::string::npos)
          << routes.error().message;
    }
  }
  EXPECT_TRUE(make_routes(torus({3, 3}), RoutingKind::dimension_order, kLanes));
}

// One lane of control cannot be split at the dateline.
TEST(Deadlock, AClassWithTooFewLanesIsRefused) {
  const Graph graph = torus({4, 4});
  for (const RoutingKind kind :
       {RoutingKind::dateline, RoutingKind::adaptive, RoutingKind::recovery}) {
    const auto routes = make_routes(graph, kind, kOneControlLane);
    ASSERT_FALSE(routes);
    EXPECT_NE(routes.error().message.find("lane 15 ->"), std::string::npos)
        << routes.error().message;
  }
  EXPECT_TRUE(make_routes(make_mesh(4, 1).value(), RoutingKind::adaptive, kOneControlLane));
}

// Recovery lanes go round the torus in dimension order without datelines. That is a ring for a
// class whose messages may wait in them, and none where there is one message at a time.
TEST(Deadlock, RecoveryLanesOfOneMessageAreNoRing) {
  const Graph graph = torus({4, 4});
  const auto table = make_table(graph, RoutingKind::recovery).value();
  const LanePlan plan = make_lane_plan(table.sets(), kLanes);
  EXPECT_TRUE(check_no_deadlock(graph, table, plan, kLanes));
  LanePlan fixed = plan;
  fixed.may_adapt = 0;
  expect_real(graph, table, fixed, find_cycle(graph, table, fixed, kLanes));
}

// Adaptive routing whose escape lanes are themselves a ring.
TEST(Deadlock, AnEscapeThatMayDeadlockIsRefused) {
  const Graph graph = torus({4, 4});
  const auto good = make_table(graph, RoutingKind::adaptive).value();
  RouteTable bad(16, 16);
  for (emu::RouterId r = 0; r < 16; ++r) {
    for (emu::NodeId dest = 0; dest < 16; ++dest) {
      std::vector<Choice> choices(good.choices(r, dest).begin(), good.choices(r, dest).end());
      if (choices[0].set == LaneSet::second) choices[0].set = LaneSet::first;
      bad.set(r, dest, choices);
    }
  }
  const LanePlan plan = make_lane_plan(bad.sets(), kLanes);
  const auto result = check_no_deadlock(graph, bad, plan, kLanes);
  ASSERT_FALSE(result);
  EXPECT_NE(result.error().message.find("could deadlock"), std::string::npos);
}

// Escapes that are free of rings when taken alone, but not when adaptive lanes lead from one to the
// next: dimension order on a mesh with some ways turned to the other dimension.
TEST(Deadlock, EscapesReachedOverAdaptiveLanesCount) {
  const Graph graph = make_mesh(3, 1).value();
  const auto xy = make_table(graph, RoutingKind::adaptive).value();
  const LanePlan plan = make_lane_plan(xy.sets(), kLanes);
  int free_alone_only = 0;
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    emu::Prng random(seed);
    RouteTable mixed(9, 9);
    RouteTable escapes(9, 9);
    for (emu::RouterId r = 0; r < 9; ++r) {
      for (emu::NodeId dest = 0; dest < 9; ++dest) {
        std::vector<Choice> choices(xy.choices(r, dest).begin(), xy.choices(r, dest).end());
        if (choices.size() == 3 && random.below(8) == 0) choices[0].port = choices[2].port;
        mixed.set(r, dest, choices);
        escapes.set(r, dest, {choices.data(), 1});
      }
    }
    const bool alone = check_no_deadlock(graph, escapes, plan, kLanes).has_value();
    const bool together = check_no_deadlock(graph, mixed, plan, kLanes).has_value();
    EXPECT_TRUE(alone || !together) << "seed " << seed;
    free_alone_only += alone && !together;
  }
  EXPECT_GT(free_alone_only, 0);
}

// Everybody goes round the 2 x 2 mesh clockwise: the four links wait for each other.
TEST(Deadlock, ARingIsNamed) {
  const Graph graph = make_mesh(2, 1).value();
  RouteTable table = make_table(graph, RoutingKind::dimension_order).value();
  const emu::RouterId clockwise[4] = {1, 3, 0, 2};
  for (emu::RouterId r = 0; r < 4; ++r) {
    for (emu::PortId p = 1; p < 5; ++p) {
      if (graph.routers[r][p].router != clockwise[r]) continue;
      for (emu::NodeId dest = 0; dest < 4; ++dest)
        if (dest != r) table.set(r, dest, p);
    }
  }
  const LanePlan plan = make_lane_plan(table.sets(), kLanes);
  const auto cycle = find_cycle(graph, table, plan, kLanes);
  EXPECT_EQ(cycle.size(), 4U);
  expect_real(graph, table, plan, cycle);
  const auto result = check_no_deadlock(graph, table, plan, kLanes);
  ASSERT_FALSE(result);
  EXPECT_NE(result.error().message.find("(0,0) lane"), std::string::npos);
}

TEST(Deadlock, WaysThatEndNowhereAreNamed) {
  const Graph graph = make_mesh(2, 1).value();
  const LanePlan plan = make_lane_plan(1, kLanes);
  const RouteTable good = make_table(graph, RoutingKind::dimension_order).value();
  RouteTable circles = good;
  circles.set(1, 3, emu::PortId{2});  // back to router 0, which sends it again
  circles.set(0, 3, emu::PortId{1});
  EXPECT_NE(check_no_deadlock(graph, circles, plan, kLanes).error().message.find("in circles"),
            std::string::npos);
  RouteTable astray = good;
  astray.set(0, 3, emu::PortId{0});  // the HCA of node 0
  EXPECT_NE(check_no_deadlock(graph, astray, plan, kLanes).error().message.find("leads elsewhere"),
            std::string::npos);
}

// Random connected graphs, with parallel links and routers without nodes: always routed, never a
// ring.
TEST(Deadlock, UpDownOnRandomGraphs) {
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    emu::Prng random(seed);
    const int routers = 2 + static_cast<int>(random.below(14));
    Graph graph;
    std::vector<int> next(static_cast<std::size_t>(routers), 0);
    const auto port = [&](int r) { return next[static_cast<std::size_t>(r)]++; };
    for (int r = 0; r < routers; ++r) graph.add_router(fmt::format("r{}", r), 60);
    const auto join = [&](int a, int b) {
      graph.connect(static_cast<emu::RouterId>(a), port(a), static_cast<emu::RouterId>(b), port(b));
    };
    for (int r = 1; r < routers; ++r)
      join(r, static_cast<int>(random.below(static_cast<std::uint32_t>(r))));
    for (int i = 0; i < routers; ++i) {
      const int a = static_cast<int>(random.below(static_cast<std::uint32_t>(routers)));
      const int b = static_cast<int>(random.below(static_cast<std::uint32_t>(routers)));
      if (a != b) join(a, b);
    }
    for (int r = 0; r < routers; ++r)
      if (r == 0 || random.below(3) != 0) graph.add_node(static_cast<emu::RouterId>(r), port(r));
    for (const RoutingKind kind : {RoutingKind::up_down, RoutingKind::up_by_load}) {
      const auto routes = make_routes(graph, kind, kLanes);
      ASSERT_TRUE(routes) << "seed " << seed << ": " << routes.error().message;
    }
  }
}

// Each of two versions alone is safe; messages that keep to the one may wait for those of the
// other.
TEST(Deadlock, VersionsAreCheckedTogether) {
  const Graph ring = torus({4});
  const auto along = [&](int from, int to, int steps_up) {
    const bool up = (to - from + 4) % 4 <= steps_up;
    return static_cast<emu::PortId>(from == to ? 0 : ring.grid.port(0, !up, 0));
  };
  // Version 0 never goes over 3 - 0, version 1 never over 1 - 2.
  RouteTable lines[2] = {RouteTable(4, 4), RouteTable(4, 4)};
  for (int r = 0; r < 4; ++r) {
    for (int n = 0; n < 4; ++n) {
      const auto router = static_cast<emu::RouterId>(r);
      lines[0].set(router, static_cast<Way>(n), along(r, n, n >= r ? 3 : 0));
      const int a = (r + 2) % 4;
      const int b = (n + 2) % 4;
      lines[1].set(router, static_cast<Way>(n), along(r, n, b >= a ? 3 : 0));
    }
  }
  const LanePlan plan = make_lane_plan(lines[0].sets(), kOneControlLane);
  for (const RouteTable& line : lines)
    EXPECT_TRUE(check_no_deadlock(ring, line, plan, kOneControlLane));
  lines[0].put(1, lines[1]);
  ASSERT_EQ(lines[0].versions(), 2U);
  const auto both = check_no_deadlock(ring, lines[0], plan, kOneControlLane);
  ASSERT_FALSE(both);
  EXPECT_NE(both.error().message.find("could deadlock"), std::string::npos);
}

}  // namespace
}  // namespace fabric

// Every routing on every topology that it fits: ways are short, legal and end where they should.
#include "fabric/route/table.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <set>
#include <vector>

#include "emu/base/prng.h"
#include "fabric/route/detour.h"
#include "fabric/route/routing.h"
#include "tests/unit/fabric/route/torus.h"

namespace fabric {
namespace {

int apart(const Grid& grid, int a, int b) {
  int sum = 0;
  for (int d = 0; d < grid.dimensions(); ++d) {
    const int side = grid.sides[static_cast<std::size_t>(d)];
    const int way = std::abs(grid.coordinate(a, d) - grid.coordinate(b, d));
    sum += grid.wraps ? std::min(way, side - way) : way;
  }
  return sum;
}

void expect_shortest(const Graph& graph, const RouteTable& table) {
  for (emu::NodeId src = 0; src < graph.nodes.size(); ++src) {
    for (emu::NodeId dest = 0; dest < graph.nodes.size(); ++dest) {
      const auto hops = path(graph, table, src, dest);
      const int from = graph.nodes[src].router;
      const int to = graph.nodes[dest].router;
      ASSERT_EQ(hops.size(), static_cast<std::size_t>(apart(graph.grid, from, to) + 1));
      EXPECT_EQ(hops.front().in_port, graph.nodes[src].port);
      EXPECT_EQ(hops.back().out_port, graph.nodes[dest].port);
    }
  }
}

TEST(DimensionOrder, TakesTheShortestWayLowestDimensionFirst) {
  for (const auto& grid : {Grid{.sides = {4, 4}, .nodes_per_router = 2}, Grid{.sides = {3, 2, 4}},
                           Grid{.sides = {2, 2, 2, 3}}, Grid{.sides = {6}}}) {
    const Graph graph = make_grid(grid).value();
    const auto routes = make_routes(graph, RoutingKind::automatic, kLanes).value();
    EXPECT_FALSE(routes.table.has_choices());
    expect_shortest(graph, routes.table);
    for (emu::NodeId src = 0; src < graph.nodes.size(); ++src) {
      for (emu::NodeId dest = 0; dest < graph.nodes.size(); ++dest) {
        const auto hops = path(graph, routes.table, src, dest);
        int dimension = 0;
        for (std::size_t i = 0; i + 1 < hops.size(); ++i) {
          const int along = (hops[i].out_port - grid.nodes_per_router) / 2;
          EXPECT_GE(along, dimension);
          dimension = along;
        }
      }
    }
  }
}

TEST(Dateline, ShortestWaysRoundTheRings) {
  for (const auto& sides : std::vector<std::vector<int>>{{2}, {5}, {4, 4}, {3, 4, 5}}) {
    const Graph graph = torus(sides);
    expect_shortest(graph, make_routes(graph, RoutingKind::automatic, kLanes)->table);
  }
}

// On a ring the lanes of the first set lead over the dateline, those of the second never do.
TEST(Dateline, LanesChangeAtTheDateline) {
  const Graph graph = torus({5});
  const auto routes = make_routes(graph, RoutingKind::dateline, kLanes).value();
  const auto set = [&](emu::RouterId at, emu::NodeId dest) {
    return routes.table.choices(at, dest).front().set;
  };
  EXPECT_EQ(set(3, 0), LaneSet::first);  // 3 -> 4 -> 0
  EXPECT_EQ(set(4, 0), LaneSet::first);
  EXPECT_EQ(set(4, 1), LaneSet::first);  // 4 -> 0 -> 1
  EXPECT_EQ(set(0, 1), LaneSet::second);
  EXPECT_EQ(set(1, 4), LaneSet::first);  // 1 -> 0 -> 4
  EXPECT_EQ(set(0, 4), LaneSet::first);
  EXPECT_EQ(set(4, 3), LaneSet::second);
  EXPECT_EQ(set(2, 2), LaneSet::any);
}

TEST(LanePlan, SetsAreDisjointPartsOfEveryClass) {
  const auto lanes_of = [&](const LanePlan& plan, LaneSet set, emu::LaneMask mask) {
    emu::LaneMask found = 0;
    for (emu::Vl v = 0; v < emu::kVlCount; ++v)
      if ((mask >> v) & 1) found = static_cast<emu::LaneMask>(found | 1U << plan.at(set, v));
    return found;
  };
  const LanePlan half = make_lane_plan(0b0111, kLanes);
  EXPECT_EQ(lanes_of(half, LaneSet::first, kLanes[0]), 0x4000);
  EXPECT_EQ(lanes_of(half, LaneSet::second, kLanes[0]), 0x8000);
  EXPECT_EQ(lanes_of(half, LaneSet::first, kLanes[1]), 0x01f0);
  EXPECT_EQ(lanes_of(half, LaneSet::second, kLanes[1]), 0x3e00);
  EXPECT_EQ(lanes_of(half, LaneSet::any, kLanes[1]), kLanes[1]);
  EXPECT_EQ(half.may_adapt, 0);
  const LanePlan duato = make_lane_plan(0b1111, kLanes);
  EXPECT_EQ(lanes_of(duato, LaneSet::first, kLanes[2]), 0x0001);
  EXPECT_EQ(lanes_of(duato, LaneSet::second, kLanes[2]), 0x0002);
  EXPECT_EQ(lanes_of(duato, LaneSet::adaptive, kLanes[2]), 0x000c);
  EXPECT_EQ(duato.may_adapt, kLanes[1] | kLanes[2]) << "two lanes of control are both escapes";
  const LanePlan disha = make_lane_plan(0b11001, kLanes);
  EXPECT_EQ(lanes_of(disha, LaneSet::recovery, kLanes[2]), 0x0001);
  EXPECT_EQ(lanes_of(disha, LaneSet::adaptive, kLanes[2]), 0x000e);
  EXPECT_EQ(disha.may_adapt, 0xffff) << "one recovery lane is enough, on a torus too";
  EXPECT_EQ(disha.adaptive[15], 0x8000);
  for (emu::Vl v = 0; v < 4; ++v) EXPECT_EQ(disha.adaptive[v], 0x000e);
}

TEST(FatMesh, LinksAreSharedByDestinationOrByLoad) {
  const Graph graph = make_grid({.sides = {2, 2}, .nodes_per_router = 4, .links = 2}).value();
  const auto fixed = make_routes(graph, RoutingKind::automatic, kLanes).value();
  const auto by_load = make_routes(graph, RoutingKind::dor_by_load, kLanes).value();
  EXPECT_FALSE(fixed.table.has_choices());
  std::set<emu::PortId> used;
  for (emu::NodeId dest = 4; dest < 8; ++dest) {  // the router to the right of router 0
    used.insert(fixed.table.out_port(0, dest));
    const auto choices = by_load.table.choices(0, dest);
    ASSERT_EQ(choices.size(), 2U);
    EXPECT_EQ(choices[0].port, fixed.table.out_port(0, dest));
    EXPECT_NE(choices[0].port, choices[1].port);
    for (const Choice& choice : choices) EXPECT_EQ(graph.routers[0][choice.port].router, 1);
  }
  EXPECT_EQ(used.size(), 2U);
}

TEST(UpDown, TreesUseEveryLinkUp) {
  for (const Graph& graph : {make_fat_tree().value(), make_ary_tree(4, 3).value()}) {
    const auto routes = make_routes(graph, RoutingKind::automatic, kLanes).value();
    const auto by_load = make_routes(graph, RoutingKind::up_by_load, kLanes).value();
    std::set<std::pair<emu::RouterId, emu::PortId>> up_links;
    for (emu::NodeId src = 0; src < 64; ++src) {
      for (emu::NodeId dest = 0; dest < 64; ++dest) {
        const auto hops = path(graph, routes.table, src, dest);
        bool down = false;
        for (std::size_t i = 0; i + 1 < hops.size(); ++i) {
          const bool up = graph.heights[hops[i + 1].router] > graph.heights[hops[i].router];
          ASSERT_FALSE(up && down) << "up after down";
          down = !up;
          if (up) up_links.insert({hops[i].router, hops[i].out_port});
          // Two middle routers of a pod lead down from a top router of the paper's tree.
          const std::size_t choices = by_load.table.choices(hops[i].router, dest).size();
          EXPECT_TRUE(up ? choices == 4 : choices <= 2) << choices;
        }
        EXPECT_LE(hops.size(), 5U);
        EXPECT_EQ(src / 4 == dest / 4, hops.size() == 1);
      }
    }
    EXPECT_EQ(up_links.size(), 128U) << "every link up of leaves and middle routers";
  }
}

// A graph without any shape: a ring with a chord and routers without nodes.
TEST(UpDown, AnyGraph) {
  Graph graph;
  for (int r = 0; r < 6; ++r) graph.add_router(std::string(1, static_cast<char>('a' + r)), 4);
  for (int r = 0; r < 6; ++r)
    graph.connect(static_cast<emu::RouterId>(r), 0, static_cast<emu::RouterId>((r + 1) % 6), 1);
  graph.connect(0, 2, 3, 2);
  for (const int r : {1, 2, 4, 5}) graph.add_node(static_cast<emu::RouterId>(r), 3);
  const auto routes = make_routes(graph, RoutingKind::automatic, kLanes);
  ASSERT_TRUE(routes) << routes.error().message;
  for (emu::NodeId src = 0; src < 4; ++src)
    for (emu::NodeId dest = 0; dest < 4; ++dest)
      EXPECT_LE(path(graph, routes->table, src, dest).size(), 5U);
}

// More routers that no node can reach than others: the root is not among them.
TEST(UpDown, AnIslandWithoutNodesIsNoCentre) {
  Graph graph;
  for (int r = 0; r < 7; ++r) graph.add_router(std::string(1, static_cast<char>('a' + r)), 3);
  graph.connect(0, 1, 2, 1);  // a and b lower than the router between them
  graph.connect(1, 1, 2, 2);
  for (emu::RouterId r = 3; r < 6; ++r) graph.connect(r, 1, static_cast<emu::RouterId>(r + 1), 0);
  for (emu::RouterId r = 0; r < 3; ++r) graph.add_node(r, 0);
  const auto routes = make_routes(graph, RoutingKind::up_down, kLanes);
  ASSERT_TRUE(routes) << routes.error().message;
  EXPECT_EQ(path(graph, routes->table, 0, 1).size(), 3U);
}

void expect_every_shortest_way(const Graph& graph, RoutingKind kind) {
  const auto routes = make_routes(graph, kind, kLanes).value();
  for (emu::RouterId r = 0; r < 16; ++r) {
    for (emu::NodeId dest = 0; dest < 16; ++dest) {
      if (r == dest) continue;
      const auto choices = routes.table.choices(r, dest);
      EXPECT_NE(choices[0].set, LaneSet::adaptive);
      std::set<emu::PortId> ports;
      for (const Choice& choice : choices.subspan(1)) {
        EXPECT_EQ(choice.set, LaneSet::adaptive);
        ports.insert(choice.port);
      }
      for (emu::PortId p = 1; p < 5; ++p) {
        const bool nearer =
            apart(graph.grid, graph.routers[r][p].router, dest) < apart(graph.grid, r, dest);
        EXPECT_EQ(ports.contains(p), nearer);
      }
    }
  }
}

TEST(Adaptive, OffersEveryShortestWayBehindTheEscape) {
  expect_every_shortest_way(torus({4, 4}), RoutingKind::adaptive);
}

TEST(Recovery, OffersEveryShortestWayBehindTheRecoveryLane) {
  const Graph graph = torus({4, 4});
  expect_every_shortest_way(graph, RoutingKind::recovery);
  const auto routes = make_routes(graph, RoutingKind::recovery, kLanes).value();
  const auto dor = make_table(graph, RoutingKind::dimension_order).value();
  for (emu::RouterId r = 0; r < 16; ++r) {
    for (emu::NodeId dest = 0; dest < 16; ++dest) {
      const Choice fixed = routes.table.choices(r, dest)[0];
      EXPECT_EQ(fixed.port, dor.out_port(r, dest));
      EXPECT_EQ(fixed.set, r == dest ? LaneSet::any : LaneSet::recovery);
    }
  }
}

// As a large graph without any shape has by load: more lists than 16 bits count.
TEST(RouteTable, AHundredThousandListsAreToldApart) {
  constexpr Way kWays = 100'000;
  const auto choices_of = [](Way way) {
    return std::array<Choice, 3>{{{static_cast<emu::PortId>(way % 47)},
                                  {static_cast<emu::PortId>(way / 47 % 47)},
                                  {static_cast<emu::PortId>(way / 47 / 47)}}};
  };
  RouteTable table(1, kWays);
  for (Way way = 0; way < kWays; ++way) table.set(0, way, choices_of(way));
  EXPECT_EQ(table.lists(), kWays);
  for (Way way = 0; way < kWays; ++way)
    ASSERT_TRUE(std::ranges::equal(table.choices(0, way), choices_of(way))) << way;
}

void expect_same_choices(const RouteTable& table, std::size_t version, const RouteTable& other) {
  for (emu::RouterId r = 0; r < 40; ++r)
    for (Way dest = 0; dest < 64; ++dest)
      ASSERT_TRUE(std::ranges::equal(table.choices(r, table.first_way(version) + dest),
                                     other.choices(r, dest)))
          << "version " << version << " router " << r << " destination " << dest;
}

// Links fail and come back for ever: lists that no version has any more are gone.
TEST(RouteTable, AReplacedVersionLeavesNothingBehind) {
  constexpr std::uint64_t kSeed = 5;
  SCOPED_TRACE(testing::Message() << "seed " << kSeed);
  emu::Prng random(kSeed);
  const Graph graph = make_fat_tree().value();
  const RouteTable whole = make_table(graph, RoutingKind::up_by_load).value();
  const auto some_detour = [&] {
    for (;;) {
      std::vector<LinkEnd> down;
      while (down.size() < 5) {
        const LinkEnd link = {static_cast<emu::RouterId>(random.below(40)),
                              static_cast<emu::PortId>(random.below(8))};
        if (graph.routers[link.router][link.port].router != kNobody) down.push_back(link);
      }
      if (auto made = make_detour(graph, whole, RoutingKind::up_by_load, down)) return *made;
    }
  };
  RouteTable table = whole;
  RouteTable first = some_detour();
  table.put(1, first);
  for (int i = 0; i < 50; ++i) {
    const RouteTable second = some_detour();
    table.put(2, second);
    RouteTable fresh = whole;
    fresh.put(1, first);
    fresh.put(2, second);
    ASSERT_EQ(table.lists(), fresh.lists()) << "replacement " << i;
    EXPECT_EQ(table.sets(), fresh.sets());
    expect_same_choices(table, 0, whole);
    expect_same_choices(table, 1, first);
    expect_same_choices(table, 2, second);
  }
}

TEST(Routing, WhatDoesNotFitIsRefused) {
  const auto error = [](const Graph& graph, RoutingKind kind) {
    return make_routes(graph, kind, kLanes).error().message;
  };
  EXPECT_NE(error(make_fat_tree().value(), RoutingKind::adaptive).find("needs a mesh"),
            std::string::npos);
  EXPECT_NE(error(make_mesh(4, 1).value(), RoutingKind::dateline).find("needs a torus"),
            std::string::npos);
}

}  // namespace
}  // namespace fabric

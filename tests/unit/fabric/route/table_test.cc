#include "fabric/route/table.h"

#include <gtest/gtest.h>

#include <cstdlib>

namespace fabric {
namespace {

TEST(RouteXy, TakesTheShortestWayAlongXFirst) {
  constexpr int kSide = 4;
  const Graph graph = make_mesh(kSide, 2).value();
  const RouteTable table = route_xy(graph);
  for (emu::NodeId src = 0; src < graph.nodes.size(); ++src) {
    for (emu::NodeId dest = 0; dest < graph.nodes.size(); ++dest) {
      const auto hops = path(graph, table, src, dest);
      const int from = graph.nodes[src].router;
      const int to = graph.nodes[dest].router;
      const int distance =
          std::abs(from % kSide - to % kSide) + std::abs(from / kSide - to / kSide);
      ASSERT_EQ(hops.size(), static_cast<std::size_t>(distance + 1));
      bool along_y = false;
      for (std::size_t i = 1; i < hops.size(); ++i) {
        const bool y_step = hops[i].router % kSide == hops[i - 1].router % kSide;
        EXPECT_FALSE(along_y && !y_step) << "x after y";
        along_y = y_step;
      }
      EXPECT_EQ(hops.front().in_port, graph.nodes[src].port);
      EXPECT_EQ(hops.back().out_port, graph.nodes[dest].port);
    }
  }
}

TEST(Deadlock, XyIsFreeOfRings) {
  EXPECT_TRUE(check_no_deadlock(make_single(8).value(), route_xy(make_single(8).value())));
  for (int side = 2; side <= 5; ++side) {
    const Graph graph = make_mesh(side, 1).value();
    EXPECT_TRUE(check_no_deadlock(graph, route_xy(graph)));
  }
}

// Everybody goes round the 2 x 2 mesh clockwise: the four links wait for each other.
TEST(Deadlock, ARingIsNamed) {
  const Graph graph = make_mesh(2, 1).value();
  RouteTable table = route_xy(graph);
  const emu::RouterId clockwise[4] = {1, 3, 0, 2};
  for (emu::RouterId r = 0; r < 4; ++r) {
    for (emu::PortId p = 1; p < 5; ++p) {
      if (graph.routers[r][p].router != clockwise[r]) continue;
      for (emu::NodeId dest = 0; dest < 4; ++dest)
        if (dest != r) table.set(r, dest, p);
    }
  }
  const auto result = check_no_deadlock(graph, table);
  ASSERT_FALSE(result);
  EXPECT_NE(result.error().message.find("router"), std::string::npos);
}

}  // namespace
}  // namespace fabric

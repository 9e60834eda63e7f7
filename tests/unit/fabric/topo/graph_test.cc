#include "fabric/topo/graph.h"

#include <gtest/gtest.h>

namespace fabric {
namespace {

TEST(Graph, SingleHasANodeAtEveryPort) {
  const Graph graph = make_single(8).value();
  ASSERT_EQ(graph.routers.size(), 1U);
  for (emu::NodeId n = 0; n < 8; ++n) {
    EXPECT_EQ(graph.routers[0][n].node, n);
    EXPECT_EQ(graph.nodes[n].port, n);
  }
}

TEST(Graph, LimitsAreNamed) {
  EXPECT_NE(make_single(9).error().message.find("1 to 8"), std::string::npos);
  EXPECT_FALSE(make_single(0));
  EXPECT_FALSE(make_mesh(1, 1));
  EXPECT_FALSE(make_mesh(9, 1));
  EXPECT_FALSE(make_mesh(4, 3));
  EXPECT_FALSE(make_mesh(8, 2));
}

// Every link leads back; inner routers have all their neighbours.
TEST(Graph, MeshLinksArePairs) {
  for (int side = 2; side <= 5; ++side) {
    for (int each = 1; each <= 2; ++each) {
      const Graph graph = make_mesh(side, each).value();
      ASSERT_EQ(graph.nodes.size(), static_cast<std::size_t>(side * side * each));
      int links = 0;
      for (std::size_t r = 0; r < graph.routers.size(); ++r) {
        ASSERT_EQ(graph.routers[r].size(), static_cast<std::size_t>(4 + each));
        for (std::size_t p = 0; p < graph.routers[r].size(); ++p) {
          const PortEnd& end = graph.routers[r][p];
          if (end.router == kNobody) continue;
          ++links;
          const PortEnd& back = graph.routers[end.router][end.port];
          EXPECT_EQ(back.router, r);
          EXPECT_EQ(back.port, p);
        }
      }
      EXPECT_EQ(links, 4 * side * (side - 1));
    }
  }
}

}  // namespace
}  // namespace fabric

#include "fabric/topo/graph.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "fabric/topo/shape.h"

namespace fabric {
namespace {

int links_of(const Graph& graph) {
  int ends = 0;
  for (const auto& ports : graph.routers)
    for (const PortEnd& end : ports) ends += end.router != kNobody;
  return ends / 2;
}

// Routers on the shortest way from one router to every other.
std::vector<int> distances(const Graph& graph, emu::RouterId from) {
  std::vector<int> far(graph.routers.size(), -1);
  std::vector<emu::RouterId> queue = {from};
  far[from] = 0;
  for (std::size_t i = 0; i < queue.size(); ++i) {
    for (const PortEnd& end : graph.routers[queue[i]]) {
      if (end.router == kNobody || far[end.router] >= 0) continue;
      far[end.router] = far[queue[i]] + 1;
      queue.push_back(end.router);
    }
  }
  return far;
}

TEST(Graph, SingleHasANodeAtEveryPort) {
  for (const int nodes : {1, 8, 64}) {
    const Graph graph = make_single(nodes).value();
    ASSERT_EQ(graph.routers.size(), 1U);
    ASSERT_EQ(graph.nodes.size(), static_cast<std::size_t>(nodes));
    for (emu::NodeId n = 0; n < nodes; ++n) {
      EXPECT_EQ(graph.routers[0][n].node, n);
      EXPECT_EQ(graph.nodes[n].port, n);
    }
  }
}

TEST(Graph, LimitsAreNamed) {
  EXPECT_NE(make_single(65).error().message.find("1 to 64"), std::string::npos);
  EXPECT_FALSE(make_single(0));
  EXPECT_FALSE(make_mesh(1, 1));
  EXPECT_FALSE(make_mesh(65, 1));
  EXPECT_FALSE(make_mesh(4, 0));
  EXPECT_FALSE(make_grid({}));
  EXPECT_FALSE(make_grid({.sides = {1 << 20, 1 << 20}}));
  EXPECT_NE(make_grid({.sides = {3, 3}, .links = 16}).error().message.find("65 ports"),
            std::string::npos);
  EXPECT_FALSE(make_ary_tree(1, 3));
  EXPECT_FALSE(make_ary_tree(33, 2));
  EXPECT_FALSE(make_ary_tree(4, 0));
  EXPECT_FALSE(make_ary_tree(4, 60));
}

TEST(Graph, MeshLinksArePairs) {
  for (int side = 2; side <= 5; ++side) {
    for (int each = 1; each <= 2; ++each) {
      const Graph graph = make_mesh(side, each).value();
      ASSERT_EQ(graph.nodes.size(), static_cast<std::size_t>(side * side * each));
      for (const auto& ports : graph.routers) EXPECT_EQ(ports.size(), 4U + unsigned(each));
      EXPECT_TRUE(check_graph(graph));
      EXPECT_EQ(links_of(graph), 2 * side * (side - 1));
    }
  }
}

// Neighbours differ by one in one coordinate; a wrap joins the last and the first.
TEST(Graph, GridsOfAnyDimension) {
  const std::vector<std::vector<int>> all = {{5}, {2, 3}, {4, 3, 2}, {2, 2, 2, 3}};
  for (const auto& sides : all) {
    for (const bool wraps : {false, true}) {
      for (const int links : {1, 3}) {
        const Graph graph =
            make_grid({.sides = sides, .nodes_per_router = 2, .links = links, .wraps = wraps})
                .value();
        ASSERT_TRUE(check_graph(graph));
        int expected = 0;
        const int routers = static_cast<int>(graph.routers.size());
        for (const int side : sides) expected += routers / side * (wraps ? side : side - 1) * links;
        EXPECT_EQ(links_of(graph), expected);
        for (int r = 0; r < routers; ++r) {
          for (int d = 0; d < graph.grid.dimensions(); ++d) {
            const int side = sides[static_cast<std::size_t>(d)];
            const int at = graph.grid.coordinate(r, d);
            const PortEnd& up =
                graph.routers[static_cast<std::size_t>(r)]
                             [static_cast<std::size_t>(graph.grid.port(d, false, 0))];
            if (!wraps && at == side - 1) {
              EXPECT_TRUE(up.router == kNobody || graph.grid.one_way(d));
              continue;
            }
            for (int e = 0; e < graph.grid.dimensions(); ++e) {
              const int want = e == d ? (at + 1) % side : graph.grid.coordinate(r, e);
              EXPECT_EQ(graph.grid.coordinate(up.router, e), want);
            }
          }
        }
      }
    }
  }
}

// MediaWorm: 2 x 2 routers of 8 ports, 4 nodes each, two links to each neighbour.
TEST(Graph, FatMeshOfThePaper) {
  const Graph graph = make_grid({.sides = {2, 2}, .nodes_per_router = 4, .links = 2}).value();
  ASSERT_TRUE(check_graph(graph));
  EXPECT_EQ(graph.nodes.size(), 16U);
  EXPECT_EQ(links_of(graph), 8);
  for (const auto& ports : graph.routers) {
    EXPECT_EQ(ports.size(), 8U);
    for (const PortEnd& end : ports) EXPECT_TRUE(end.node != kNoNode || end.router != kNobody);
  }
}

// GigaNet: 40 routers of 8 ports, all of them used; 64 nodes; at most 5 routers on a way.
TEST(Graph, FatTreeOfThePaper) {
  const Graph graph = make_fat_tree().value();
  ASSERT_TRUE(check_graph(graph));
  ASSERT_EQ(graph.routers.size(), 40U);
  ASSERT_EQ(graph.nodes.size(), 64U);
  for (const auto& ports : graph.routers) {
    EXPECT_EQ(ports.size(), 8U);
    for (const PortEnd& end : ports) EXPECT_TRUE(end.node != kNoNode || end.router != kNobody);
  }
  int longest = 0;
  for (emu::RouterId leaf = 0; leaf < 16; ++leaf) {
    const std::vector<int> far = distances(graph, leaf);
    longest = std::max(longest, *std::max_element(far.begin(), far.begin() + 16) + 1);
  }
  EXPECT_EQ(longest, 5);
}

TEST(Graph, AryTrees) {
  for (const auto& [arity, levels] : {std::pair(2, 1), {2, 4}, {4, 3}, {3, 3}, {32, 2}}) {
    const Graph graph = make_ary_tree(arity, levels).value();
    ASSERT_TRUE(check_graph(graph));
    int width = 1;
    for (int l = 1; l < levels; ++l) width *= arity;
    ASSERT_EQ(graph.nodes.size(), static_cast<std::size_t>(width * arity));
    ASSERT_EQ(graph.routers.size(), static_cast<std::size_t>(width * levels));
    EXPECT_EQ(links_of(graph), (levels - 1) * width * arity);
    const std::vector<int> far = distances(graph, 0);
    EXPECT_EQ(*std::max_element(far.begin(), far.begin() + width), 2 * (levels - 1));
    for (std::size_t r = 0; r < graph.routers.size(); ++r) {
      for (const PortEnd& end : graph.routers[r]) {
        if (end.router == kNobody) continue;
        EXPECT_EQ(std::abs(graph.heights[r] - graph.heights[end.router]), 1);
      }
    }
  }
}

TEST(Graph, CheckFindsWhatIsWrong) {
  Graph parted = make_mesh(2, 1).value();
  for (auto& ports : parted.routers)
    for (PortEnd& end : ports) end.router = kNobody;
  EXPECT_NE(check_graph(parted).error().message.find("no way leads from (0,0) to (1,0)"),
            std::string::npos);
  Graph crooked = make_mesh(2, 1).value();
  crooked.routers[0][1].port = 4;
  EXPECT_NE(check_graph(crooked).error().message.find("which leads elsewhere"), std::string::npos);
  EXPECT_FALSE(check_graph(Graph{}));
}

}  // namespace
}  // namespace fabric

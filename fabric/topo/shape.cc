#include "fabric/topo/shape.h"

#include <algorithm>

#include "fabric/topo/file.h"

namespace fabric {

namespace {

std::string grid_name(const Grid& grid, int router) {
  std::string name = "(";
  for (int d = 0; d < grid.dimensions(); ++d) {
    name += fmt::format("{}{}", d == 0 ? "" : ",", grid.coordinate(router, d));
  }
  return name + ")";
}

emu::Result<int> grid_routers(const Grid& grid) {
  if (grid.sides.empty()) return emu::fail("topology: a mesh needs the length of its sides");
  int routers = 1;
  for (const int side : grid.sides) {
    if (side < 2 || side > kRoutersMax / routers) {
      return emu::fail("topology: sides are 2 or longer, with {} routers at most; {} is not",
                       kRoutersMax, side);
    }
    routers *= side;
  }
  if (grid.nodes_per_router < 1 || grid.nodes_per_router * routers > kGraphNodesMax) {
    return emu::fail("nodes_per_router: {} on {} routers is not 1 to {} nodes together",
                     grid.nodes_per_router, routers, kGraphNodesMax);
  }
  if (grid.links < 1) return emu::fail("links: 1 or more between neighbours, not {}", grid.links);
  const int ports = grid.port(grid.dimensions(), false, 0);
  if (ports > kRouterPortsMax) {
    return emu::fail("topology: routers of {} ports; {} are possible", ports, kRouterPortsMax);
  }
  return routers;
}

}  // namespace

emu::Result<Graph> make_single(int nodes) {
  if (nodes < 1 || nodes > kRouterPortsMax) {
    return emu::fail("nodes: a single router takes 1 to {} nodes, not {}", kRouterPortsMax, nodes);
  }
  Graph graph;
  graph.add_router("router 0", nodes);
  for (int n = 0; n < nodes; ++n) graph.add_node(0, n);
  return graph;
}

emu::Result<Graph> make_grid(const Grid& grid) {
  const auto routers = grid_routers(grid);
  if (!routers) return std::unexpected(routers.error());
  Graph graph;
  graph.grid = grid;
  const int ports = grid.port(grid.dimensions(), false, 0);
  for (int r = 0; r < *routers; ++r) {
    graph.add_router(grid_name(grid, r), ports);
    for (int n = 0; n < grid.nodes_per_router; ++n) {
      graph.add_node(static_cast<emu::RouterId>(r), n);
    }
  }
  int stride = 1;
  for (int d = 0; d < grid.dimensions(); ++d) {
    const int side = grid.sides[static_cast<std::size_t>(d)];
    for (int r = 0; r < *routers; ++r) {
      const bool last = grid.coordinate(r, d) == side - 1;
      if (last && !grid.wraps) continue;
      const int up = last ? r - (side - 1) * stride : r + stride;
      for (int link = 0; link < grid.links; ++link) {
        graph.connect(static_cast<emu::RouterId>(r), grid.port(d, false, link),
                      static_cast<emu::RouterId>(up), grid.port(d, true, link));
      }
    }
    stride *= side;
  }
  return graph;
}

emu::Result<Graph> make_mesh(int side, int nodes_per_router) {
  return make_grid({.sides = {side, side}, .nodes_per_router = nodes_per_router});
}

emu::Result<Graph> make_fat_tree() {
  constexpr int kPods = 4;
  constexpr int kWidth = 4;  // routers of a level of a pod, and their links each way
  constexpr int kTops = 8;
  Graph graph;
  for (int leaf = 0; leaf < kPods * kWidth; ++leaf) {
    const emu::RouterId router =
        graph.add_router(fmt::format("leaf {}.{}", leaf / kWidth, leaf % kWidth), 2 * kWidth);
    for (int n = 0; n < kWidth; ++n) graph.add_node(router, n);
  }
  for (int m = 0; m < kPods * kWidth; ++m) {
    graph.add_router(fmt::format("middle {}.{}", m / kWidth, m % kWidth), 2 * kWidth);
  }
  for (int t = 0; t < kTops; ++t) graph.add_router(fmt::format("top {}", t), 2 * kPods);
  const auto id = [](int router) { return static_cast<emu::RouterId>(router); };
  constexpr int kMiddle = kPods * kWidth;
  constexpr int kTop = 2 * kPods * kWidth;
  for (int pod = 0; pod < kPods; ++pod) {
    for (int a = 0; a < kWidth; ++a) {
      const int middle = kMiddle + pod * kWidth + a;
      for (int b = 0; b < kWidth; ++b) {
        graph.connect(id(pod * kWidth + b), kWidth + a, id(middle), b);
        const int top = a / 2 * kWidth + b;
        graph.connect(id(middle), kWidth + b, id(kTop + top), pod * 2 + a % 2);
      }
    }
  }
  for (int r = 0; r < kTop + kTops; ++r) graph.heights.push_back(r / kMiddle);
  return graph;
}

emu::Result<Graph> make_ary_tree(int arity, int levels) {
  if (arity < 2 || 2 * arity > kRouterPortsMax) {
    return emu::fail("topology: a tree's arity is 2 to {}, not {}", kRouterPortsMax / 2, arity);
  }
  if (levels < 1) return emu::fail("topology: a tree has 1 level or more, not {}", levels);
  int width = 1;  // routers of a level
  for (int l = 1; l < levels; ++l) {
    width *= arity;
    if (width * levels > kRoutersMax || width * arity > kGraphNodesMax) {
      return emu::fail("topology: a {}-ary tree of {} levels exceeds {} routers or {} nodes", arity,
                       levels, kRoutersMax, kGraphNodesMax);
    }
  }
  Graph graph;
  for (int l = 0; l < levels; ++l) {
    for (int w = 0; w < width; ++w) {
      // The roots have no links up.
      graph.add_router(fmt::format("level {} router {}", l, w),
                       l + 1 == levels ? arity : 2 * arity);
      graph.heights.push_back(l);
    }
  }
  for (int n = 0; n < width * arity; ++n) {
    graph.add_node(static_cast<emu::RouterId>(n / arity), n % arity);
  }
  // (l, w) and (l + 1, v) are linked where w and v differ in digit l alone; digit 0 is the lowest.
  int stride = 1;
  for (int l = 0; l + 1 < levels; ++l) {
    for (int w = 0; w < width; ++w) {
      const int digit = w / stride % arity;
      for (int up = 0; up < arity; ++up) {
        const int v = w + (up - digit) * stride;
        graph.connect(static_cast<emu::RouterId>(l * width + w), arity + up,
                      static_cast<emu::RouterId>((l + 1) * width + v), digit);
      }
    }
    stride *= arity;
  }
  return graph;
}

emu::Result<Graph> make_graph(const Shape& shape) {
  Grid grid{.sides = shape.sides, .nodes_per_router = shape.nodes_per_router};
  switch (shape.kind) {
    case TopologyKind::single:
      return make_single(shape.nodes);
    case TopologyKind::mesh:
      return make_grid(grid);
    case TopologyKind::torus:
      grid.wraps = true;
      return make_grid(grid);
    case TopologyKind::fat_mesh:
      grid.links = shape.links;
      return make_grid(grid);
    case TopologyKind::fat_tree:
      return make_fat_tree();
    case TopologyKind::ary_tree:
      return make_ary_tree(shape.arity, shape.levels);
    case TopologyKind::file:
      return read_graph(shape.text, shape.source);
  }
  return emu::fail("topology: {} is none", static_cast<int>(shape.kind));
}

}  // namespace fabric

#include "fabric/topo/graph.h"

namespace fabric {

emu::Result<Graph> make_single(int nodes) {
  if (nodes < 1 || nodes > kRouterPortsMax) {
    return emu::fail("nodes: a single router takes 1 to {} nodes, not {}", kRouterPortsMax, nodes);
  }
  Graph graph;
  graph.routers.emplace_back();
  for (int n = 0; n < nodes; ++n) {
    graph.routers[0].push_back(PortEnd{.node = static_cast<emu::NodeId>(n)});
    graph.nodes.push_back({0, static_cast<emu::PortId>(n)});
  }
  return graph;
}

emu::Result<Graph> make_mesh(int side, int nodes_per_router) {
  if (side < 2 || side * side > kRoutersMax) {
    return emu::fail("mesh_k: a mesh has 2 to 8 routers along an edge, not {}", side);
  }
  if (nodes_per_router < 1 || nodes_per_router > 2) {
    return emu::fail("nodes_per_router: 1 or 2, not {}", nodes_per_router);
  }
  if (side * side * nodes_per_router > emu::kNodesMax) {
    return emu::fail("a mesh of {} x {} routers with {} nodes each exceeds {} nodes", side, side,
                     nodes_per_router, emu::kNodesMax);
  }
  Graph graph;
  graph.side = side;
  const auto add_node = [&](int router, int port) {
    const auto node = static_cast<emu::NodeId>(graph.nodes.size());
    graph.nodes.push_back({static_cast<emu::RouterId>(router), static_cast<emu::PortId>(port)});
    return PortEnd{.node = node};
  };
  const auto neighbour = [&](int x, int y, MeshWay back) {
    if (x < 0 || y < 0 || x >= side || y >= side) return PortEnd{};
    return PortEnd{.router = static_cast<emu::RouterId>(y * side + x),
                   .port = static_cast<emu::PortId>(nodes_per_router + static_cast<int>(back))};
  };
  for (int y = 0; y < side; ++y) {
    for (int x = 0; x < side; ++x) {
      std::vector<PortEnd> ports;
      for (int n = 0; n < nodes_per_router; ++n) ports.push_back(add_node(y * side + x, n));
      ports.push_back(neighbour(x + 1, y, MeshWay::x_down));
      ports.push_back(neighbour(x - 1, y, MeshWay::x_up));
      ports.push_back(neighbour(x, y + 1, MeshWay::y_down));
      ports.push_back(neighbour(x, y - 1, MeshWay::y_up));
      graph.routers.push_back(std::move(ports));
    }
  }
  return graph;
}

}  // namespace fabric

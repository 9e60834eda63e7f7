#include "fabric/topo/graph.h"

#include <algorithm>

#include "emu/base/check.h"

namespace fabric {

emu::RouterId Graph::add_router(std::string name, int ports) {
  const auto router = static_cast<emu::RouterId>(routers.size());
  routers.emplace_back(static_cast<std::size_t>(ports));
  names.push_back(std::move(name));
  return router;
}

emu::NodeId Graph::add_node(emu::RouterId router, int port) {
  const auto node = static_cast<emu::NodeId>(nodes.size());
  PortEnd& end = routers[router][static_cast<std::size_t>(port)];
  CHECK(end.node == kNoNode && end.router == kNobody);
  end.node = node;
  nodes.push_back({router, static_cast<emu::PortId>(port)});
  return node;
}

void Graph::connect(emu::RouterId a, int port_a, emu::RouterId b, int port_b) {
  PortEnd& at_a = routers[a][static_cast<std::size_t>(port_a)];
  PortEnd& at_b = routers[b][static_cast<std::size_t>(port_b)];
  CHECK(at_a.node == kNoNode && at_a.router == kNobody);
  CHECK(at_b.node == kNoNode && at_b.router == kNobody);
  at_a = {.router = b, .port = static_cast<emu::PortId>(port_b)};
  at_b = {.router = a, .port = static_cast<emu::PortId>(port_a)};
}

int Graph::ports_max() const {
  std::size_t most = 0;
  for (const auto& ports : routers) most = std::max(most, ports.size());
  return static_cast<int>(most);
}

emu::Result<void> check_graph(const Graph& graph) {
  if (graph.nodes.empty()) return emu::fail("topology: no node is attached to any router");
  for (std::size_t r = 0; r < graph.routers.size(); ++r) {
    for (std::size_t p = 0; p < graph.routers[r].size(); ++p) {
      const PortEnd& end = graph.routers[r][p];
      if (end.router == kNobody) continue;
      const PortEnd& back = graph.routers[end.router][end.port];
      if (back.router != r || back.port != p) {
        return emu::fail("topology: {} port {} leads to {} port {}, which leads elsewhere",
                         graph.names[r], p, graph.names[end.router], end.port);
      }
    }
  }
  std::vector<bool> seen(graph.routers.size(), false);
  std::vector<emu::RouterId> todo = {graph.nodes[0].router};
  seen[todo[0]] = true;
  while (!todo.empty()) {
    const emu::RouterId r = todo.back();
    todo.pop_back();
    for (const PortEnd& end : graph.routers[r]) {
      if (end.router == kNobody || seen[end.router]) continue;
      seen[end.router] = true;
      todo.push_back(end.router);
    }
  }
  for (const NodePlace& place : graph.nodes) {
    if (!seen[place.router]) {
      return emu::fail("topology: no way leads from {} to {}", graph.names[graph.nodes[0].router],
                       graph.names[place.router]);
    }
  }
  return {};
}

}  // namespace fabric

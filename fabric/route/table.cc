#include "fabric/route/table.h"

#include <cstddef>
#include <set>

#include "emu/base/check.h"

namespace fabric {

namespace {

int mesh_port(const Graph& graph, int from, int to, int nodes_per_router) {
  const int fx = from % graph.side;
  const int fy = from / graph.side;
  const int tx = to % graph.side;
  const int ty = to / graph.side;
  const auto way = [&] {
    if (tx > fx) return MeshWay::x_up;
    if (tx < fx) return MeshWay::x_down;
    return ty > fy ? MeshWay::y_up : MeshWay::y_down;
  }();
  return nodes_per_router + static_cast<int>(way);
}

// A link by its sending end.
std::size_t link_of(emu::RouterId router, emu::PortId port) {
  return static_cast<std::size_t>(router) * kRouterPortsMax + port;
}

}  // namespace

RouteTable route_xy(const Graph& graph) {
  const int routers = static_cast<int>(graph.routers.size());
  const int nodes = static_cast<int>(graph.nodes.size());
  RouteTable table(routers, nodes);
  for (int r = 0; r < routers; ++r) {
    for (int n = 0; n < nodes; ++n) {
      const NodePlace& place = graph.nodes[static_cast<std::size_t>(n)];
      const int port =
          place.router == r ? place.port : mesh_port(graph, r, place.router, nodes / routers);
      table.set(static_cast<emu::RouterId>(r), static_cast<emu::NodeId>(n),
                static_cast<emu::PortId>(port));
    }
  }
  return table;
}

std::vector<Hop> path(const Graph& graph, const RouteTable& table, emu::NodeId src,
                      emu::NodeId dest) {
  std::vector<Hop> hops;
  NodePlace at = graph.nodes[src];
  for (;;) {
    CHECK(hops.size() <= graph.routers.size());
    const emu::PortId out = table.out_port(at.router, dest);
    hops.push_back({at.router, at.port, out});
    const PortEnd& end = graph.routers[at.router][out];
    if (end.node == dest) return hops;
    CHECK(end.router != kNobody);
    at = {end.router, end.port};
  }
}

emu::Result<void> check_no_deadlock(const Graph& graph, const RouteTable& table) {
  const std::size_t links = graph.routers.size() * kRouterPortsMax;
  std::vector<std::set<std::size_t>> waits_for(links);
  const auto nodes = static_cast<emu::NodeId>(graph.nodes.size());
  for (emu::NodeId src = 0; src < nodes; ++src) {
    for (emu::NodeId dest = 0; dest < nodes; ++dest) {
      const std::vector<Hop> hops = path(graph, table, src, dest);
      for (std::size_t i = 1; i < hops.size(); ++i) {
        waits_for[link_of(hops[i - 1].router, hops[i - 1].out_port)].insert(
            link_of(hops[i].router, hops[i].out_port));
      }
    }
  }
  // Links that wait for nobody are taken away until none is left, or only rings are.
  bool progress = true;
  std::vector<bool> gone(links, false);
  while (progress) {
    progress = false;
    for (std::size_t link = 0; link < links; ++link) {
      if (gone[link]) continue;
      std::erase_if(waits_for[link], [&](std::size_t next) { return gone[next]; });
      if (!waits_for[link].empty()) continue;
      gone[link] = true;
      progress = true;
    }
  }
  for (std::size_t link = 0; link < links; ++link) {
    if (!gone[link]) {
      return emu::fail("routes wait in a ring through router {} port {}", link / kRouterPortsMax,
                       link % kRouterPortsMax);
    }
  }
  return {};
}

}  // namespace fabric

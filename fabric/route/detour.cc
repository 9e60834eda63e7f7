#include "fabric/route/detour.h"

#include "fabric/route/up_down.h"
#include "fabric/topo/graph.h"

namespace fabric {

emu::Result<RouteTable> make_detour(const Graph& graph, const RouteTable& whole, RoutingKind kind,
                                    std::span<const LinkEnd> down) {
  kind = resolved(graph, kind);
  if (kind != RoutingKind::up_down && kind != RoutingKind::up_by_load) {
    return emu::fail("routing: {} knows no way round a link that is down; up_down does",
                     kRoutingNames[static_cast<std::size_t>(kind)]);
  }
  Graph rest = graph;
  for (const LinkEnd& link : down) {
    if (link.router >= graph.routers.size() || link.port >= graph.routers[link.router].size() ||
        graph.routers[link.router][link.port].router == kNobody) {
      return emu::fail("link {}:{}: leads from no router to another", link.router, link.port);
    }
    const PortEnd& far = graph.routers[link.router][link.port];
    rest.routers[link.router][link.port] = {};
    rest.routers[far.router][far.port] = {};
  }
  auto table = make_up_down_detour(graph, whole, rest, kind);
  if (table) return table;
  std::string links;
  for (const LinkEnd& link : down) links += fmt::format(" {}:{}", link.router, link.port);
  if (auto whole_rest = check_graph(rest); !whole_rest)
    return emu::fail("without the links{}: {}", links, whole_rest.error().message);
  return emu::fail(
      "without the links{}: {} in the order of the whole network, though another way is left: "
      "leave a link of these in service, or start a network without them, which is ordered anew",
      links, table.error().message);
}

}  // namespace fabric

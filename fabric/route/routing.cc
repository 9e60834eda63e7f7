#include "fabric/route/routing.h"

#include "fabric/route/deadlock.h"
#include "fabric/route/grid.h"
#include "fabric/route/up_down.h"

namespace fabric {

RoutingKind resolved(const Graph& graph, RoutingKind kind) {
  if (kind != RoutingKind::automatic) return kind;
  if (graph.grid.sides.empty()) return RoutingKind::up_down;
  return graph.grid.wraps ? RoutingKind::dateline : RoutingKind::dimension_order;
}

emu::Result<RouteTable> make_table(const Graph& graph, RoutingKind kind) {
  kind = resolved(graph, kind);
  if (kind == RoutingKind::up_down || kind == RoutingKind::up_by_load) {
    return make_up_down_table(graph, kind);
  }
  const std::string_view name = kRoutingNames[static_cast<std::size_t>(kind)];
  if (graph.grid.sides.empty()) {
    return emu::fail("routing: {} needs a mesh or torus; up_down and up_by_load fit here", name);
  }
  if (kind == RoutingKind::dateline && !graph.grid.wraps) {
    return emu::fail("routing: dateline needs a torus; dor fits here");
  }
  return make_grid_table(graph, kind);
}

emu::Result<Routes> make_routes(const Graph& graph, RoutingKind kind, const ClassLanes& lanes) {
  auto table = make_table(graph, kind);
  if (!table) return std::unexpected(table.error());
  Routes routes = {std::move(*table), {}};
  routes.lanes = make_lane_plan(routes.table.sets(), lanes);
  if (auto safe = check_no_deadlock(graph, routes.table, routes.lanes, lanes); !safe) {
    return emu::fail("routing {}: {}",
                     kRoutingNames[static_cast<std::size_t>(resolved(graph, kind))],
                     safe.error().message);
  }
  return routes;
}

}  // namespace fabric

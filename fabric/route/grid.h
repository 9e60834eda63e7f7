// Routes on meshes and tori. In: a graph with coordinates. Out: a table, not yet checked. Private
// to this room.
#pragma once

#include "fabric/route/routing.h"

namespace fabric {

// dimension_order, dor_by_load, dateline, adaptive or recovery.
RouteTable make_grid_table(const Graph& graph, RoutingKind kind);

}  // namespace fabric

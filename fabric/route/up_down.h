// Up*/down* routes on any graph (Schroeder et al. 1991): routers are ranked, a message goes up
// towards the lowest rank until a way down leads to its destination, and never up again, so links
// cannot wait in a ring. In: a graph. Out: a table, not yet checked. Private to this room.
#pragma once

#include <vector>

#include "fabric/route/routing.h"

namespace fabric {

// Lower is nearer to the root; of equal rank the lower router is "up". From the heights of a tree,
// or where every link joins neighbouring distances from the HCAs, from those; else distances from
// the router that is nearest to all others.
std::vector<int> make_ranks(const Graph& graph);

// up_down or up_by_load; an error when the graph has no way between two routers that have nodes.
emu::Result<RouteTable> make_up_down_table(const Graph& graph, RoutingKind kind);

}  // namespace fabric

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

// The same for what is left of `graph`: `rest`, with fewer links. Which end of a link is up is that
// of the whole graph, so that messages on ways of before and after cannot wait for each other in a
// ring; and a fixed way of `whole`, the routes of the whole graph, stays where it still is one.
emu::Result<RouteTable> make_up_down_detour(const Graph& graph, const RouteTable& whole,
                                            const Graph& rest, RoutingKind kind);

}  // namespace fabric

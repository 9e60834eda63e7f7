// Ways round links that are out of service. In: the graph, its routes, the links. Out: a table for
// what is left, to be a further version of the routes. Called by fabric/router when a link goes or
// comes back, and by the plain model.
#pragma once

#include <compare>
#include <span>

#include "fabric/route/routing.h"

namespace fabric {

// A link by one of its ends.
struct LinkEnd {
  emu::RouterId router;
  emu::PortId port;
  auto operator<=>(const LinkEnd&) const = default;
};

// Fails where `kind` is none of up_down and up_by_load, where a port leads to no router, where two
// nodes would have no way between them, and where they would have none that goes up, then down in
// the order of the whole graph: each with a message of one line that names it.
emu::Result<RouteTable> make_detour(const Graph& graph, const RouteTable& whole, RoutingKind kind,
                                    std::span<const LinkEnd> down);

}  // namespace fabric

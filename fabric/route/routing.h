// Which ways a message may take. In: a graph, a kind of routing, the lanes of the traffic classes.
// Out: Routes, checked for deadlock, or an error of one line. Called by fabric/router at start and
// by the plain model.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "emu/base/result.h"
#include "emu/lane/policy.h"
#include "fabric/route/lanes.h"
#include "fabric/route/table.h"
#include "fabric/topo/graph.h"

namespace fabric {

enum class RoutingKind : std::uint8_t {
  automatic,        // dateline on a torus, dimension order on another grid, else up_down
  dimension_order,  // lowest dimension first; of parallel links the one of the destination
  dor_by_load,      // the same, of parallel links the one with the least load
  dateline,         // dimension order on a torus, two sets of lanes (Dally and Seitz 1987)
  up_down,          // any graph: up towards the root, then down, never up again (Autonet)
  up_by_load,       // the same, of links as good as each other the one with the least load
  adaptive,         // any shortest way while its lane is free, else the escape lanes' (Duato 1993)
  recovery,         // any shortest way, whoever waits too long gets the one token (Disha 1995)
};
inline constexpr std::array<std::string_view, 8> kRoutingNames = {
    "auto", "dor", "dor_by_load", "dateline", "up_down", "up_by_load", "adaptive", "recovery"};

using ClassLanes = std::array<emu::LaneMask, emu::kClassCount>;

struct Routes {
  RouteTable table;
  LanePlan lanes;
};

// What `automatic` is on this graph; any other kind is itself.
RoutingKind resolved(const Graph& graph, RoutingKind kind);

// Refuses a kind that does not fit the graph and whatever could deadlock (deadlock.h).
emu::Result<Routes> make_routes(const Graph& graph, RoutingKind kind, const ClassLanes& lanes);

// The tables alone, unchecked: a test of the check needs bad ones.
emu::Result<RouteTable> make_table(const Graph& graph, RoutingKind kind);

}  // namespace fabric

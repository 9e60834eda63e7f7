// Can worms wait for each other in a ring? A head that waits holds the lanes behind it, so every
// pair (lane of a link, lane of the next link) that some message may hold and wait for is an edge;
// without a ring of edges nothing can deadlock (Dally and Seitz 1987). A lane that is taken only
// when free is never waited for: with such lanes the ring is sought among the escape lanes,
// reached directly or over adaptive ones (Duato 1993, extended dependency graph). In recovery lanes
// there is one message in the whole network: it waits for nobody, and whoever waits for an adaptive
// lane can become that message (Disha 1995).
#pragma once

#include <string>
#include <vector>

#include "fabric/route/routing.h"

namespace fabric {

// A lane of the link that leaves `router` through `port`.
struct LinkLane {
  emu::RouterId router;
  emu::PortId port;
  emu::Vl lane;
};

// Lanes each of which can be held by a message that waits for the next; the last for the first.
// Empty: there are none.
std::vector<LinkLane> find_cycle(const Graph& graph, const RouteTable& table, const LanePlan& lanes,
                                 const ClassLanes& lanes_of_class);

// "(0,0) lane 4 -> (1,0) lane 4 -> (0,0)": routers and the lanes of the links between them.
std::string to_text(const Graph& graph, const std::vector<LinkLane>& cycle);

// What the names say: every way ends at its destination, the escape ways of adaptive routing
// alone do too, and no ring is found. An error names the cycle.
emu::Result<void> check_no_deadlock(const Graph& graph, const RouteTable& table,
                                    const LanePlan& lanes, const ClassLanes& lanes_of_class);

}  // namespace fabric

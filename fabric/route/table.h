// From a graph to one output port per router and destination. Asked at start by the engine, which
// copies the table, and by whoever wants the path between two nodes (admission, power).
#pragma once

#include <span>
#include <vector>

#include "emu/base/result.h"
#include "fabric/topo/graph.h"

namespace fabric {

struct Hop {
  emu::RouterId router;
  emu::PortId in_port;
  emu::PortId out_port;
};

class RouteTable {
 public:
  RouteTable(int routers, int nodes)
      : nodes_(static_cast<std::size_t>(nodes)),
        out_(static_cast<std::size_t>(routers) * nodes_, 0) {}

  emu::PortId out_port(emu::RouterId router, emu::NodeId dest) const {
    return out_[router * nodes_ + dest];
  }
  void set(emu::RouterId router, emu::NodeId dest, emu::PortId port) {
    out_[router * nodes_ + dest] = port;
  }
  // Output ports of one router by destination.
  std::span<const emu::PortId> of_router(emu::RouterId router) const {
    return {out_.data() + router * nodes_, nodes_};
  }

 private:
  std::size_t nodes_;
  std::vector<emu::PortId> out_;
};

// Straight to the node on its own router; in a mesh first along x, then along y.
RouteTable route_xy(const Graph& graph);

// Every router a packet crosses. Stops with a CHECK when the table leads nowhere.
std::vector<Hop> path(const Graph& graph, const RouteTable& table, emu::NodeId src,
                      emu::NodeId dest);

// Wormholes cannot deadlock when no set of links waits in a ring: an error names a link of the
// ring. A message keeps its lane from router to router, so one graph of links serves all lanes.
emu::Result<void> check_no_deadlock(const Graph& graph, const RouteTable& table);

}  // namespace fabric

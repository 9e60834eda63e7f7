#include "fabric/link/rows.h"

#include <bit>

namespace fabric {

namespace {
std::size_t blocks_for(std::size_t ports) {
  return (ports + emu::kBlockPorts - 1) / emu::kBlockPorts;
}
}  // namespace

LinkRows::LinkRows(const Graph& graph, int delay, int ahead)
    : router_blocks_(blocks_for(graph.routers.size() * emu::kPortsMax)),
      blocks_(router_blocks_ + blocks_for(graph.nodes.size()) + 1),
      mask_(std::bit_ceil(static_cast<std::size_t>(delay + ahead)) - 1),
      delay_(delay),
      links_(blocks_ * (mask_ + 1), emu::LinkBlock{}) {}

emu::LinkPlace LinkRows::port_of(emu::RouterId router, unsigned port) const {
  const std::size_t number = std::size_t{router} * emu::kPortsMax + port;
  return emu::place_of(number / emu::kBlockPorts, number % emu::kBlockPorts);
}
emu::LinkPlace LinkRows::port_of_node(emu::NodeId node) const {
  return emu::place_of(router_blocks_ + node / emu::kBlockPorts, node % emu::kBlockPorts);
}
emu::LinkPlace LinkRows::peer_of(const Graph& graph, emu::RouterId router, unsigned port) const {
  if (port < graph.routers[router].size()) {
    const PortEnd& end = graph.routers[router][port];
    if (end.node != kNoNode) return port_of_node(end.node);
    if (end.router != kNobody) return port_of(end.router, end.port);
  }
  return emu::place_of(blocks_ - 1, port);
}

}  // namespace fabric

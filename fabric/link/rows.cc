#include "fabric/link/rows.h"

#include <bit>

namespace fabric {

LinkRows::LinkRows(const Packing& packing, std::size_t nodes, int delay, int ahead)
    : packing_(packing),
      router_blocks_(packing.blocks().size()),
      blocks_(router_blocks_ + (nodes + emu::kBlockPorts - 1) / emu::kBlockPorts),
      mask_(std::bit_ceil(static_cast<std::size_t>(delay + ahead)) - 1),
      delay_(delay),
      links_(blocks_ * (mask_ + 1), emu::LinkBlock{}) {}

emu::LinkPlace LinkRows::port_of_node(emu::NodeId node) const {
  return emu::place_of(router_blocks_ + node / emu::kBlockPorts, node % emu::kBlockPorts);
}

}  // namespace fabric

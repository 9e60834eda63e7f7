// The links: what is on them for some cycles to come, a row of LinkBlocks per cycle
// (emu/lane/row.h), as many as the delay needs; and where every port's link leads to. The blocks of
// routers come first (packing.h), then those of nodes, one port each.
#pragma once

#include <cstdint>
#include <vector>

#include "emu/lane/row.h"
#include "fabric/link/packing.h"

namespace fabric {

class LinkRows {
 public:
  // Rows for blocks that are stepped up to `ahead` cycles before others.
  LinkRows(const Packing& packing, std::size_t nodes, int delay, int ahead);
  emu::LinkBlock* row(emu::Cycle cycle) { return &links_[(cycle & mask_) * blocks_]; }
  const emu::LinkBlock* row(emu::Cycle cycle) const { return &links_[(cycle & mask_) * blocks_]; }
  int delay() const { return delay_; }

  std::size_t router_blocks() const { return router_blocks_; }
  std::size_t node_blocks() const { return blocks_ - router_blocks_; }
  bool is_router(emu::LinkPlace place) const { return emu::block_of_place(place) < router_blocks_; }

  // Of a port that leads somewhere.
  emu::LinkPlace port_of(emu::RouterId router, unsigned port) const {
    return emu::place_of(packing_.block_of(router), packing_.place(router, port));
  }
  emu::LinkPlace port_of_node(emu::NodeId node) const;
  // What a port leads to.
  emu::LinkPlace peer_of(const PortEnd& end) const {
    return end.node != kNoNode ? port_of_node(end.node) : port_of(end.router, end.port);
  }

 private:
  const Packing& packing_;
  std::size_t router_blocks_;
  std::size_t blocks_;
  std::size_t mask_;
  int delay_;
  std::vector<emu::LinkBlock> links_;
};

}  // namespace fabric

// The links: what is on them for some cycles to come, a row of LinkBlocks per cycle
// (emu/lane/row.h), as many as the delay needs; and where every port's link leads to. Router r has
// the ports r * 8 ... of the rows; node n one, behind those of all routers; ports that lead nowhere
// share the last block.
#pragma once

#include <cstdint>
#include <vector>

#include "emu/lane/row.h"
#include "fabric/topo/graph.h"

namespace fabric {

class LinkRows {
 public:
  // Rows for blocks that are stepped up to `ahead` cycles before others.
  LinkRows(const Graph& graph, int delay, int ahead);
  emu::LinkBlock* row(emu::Cycle cycle) { return &links_[(cycle & mask_) * blocks_]; }
  const emu::LinkBlock* row(emu::Cycle cycle) const { return &links_[(cycle & mask_) * blocks_]; }
  int delay() const { return delay_; }

  std::size_t router_blocks() const { return router_blocks_; }
  std::size_t node_blocks() const { return blocks_ - 1 - router_blocks_; }
  bool is_router(emu::LinkPlace place) const { return emu::block_of_place(place) < router_blocks_; }
  bool is_nowhere(emu::LinkPlace place) const { return emu::block_of_place(place) == blocks_ - 1; }

  emu::LinkPlace port_of(emu::RouterId router, unsigned port) const;
  emu::LinkPlace port_of_node(emu::NodeId node) const;
  // Where the link of a router's port leads to.
  emu::LinkPlace peer_of(const Graph& graph, emu::RouterId router, unsigned port) const;

 private:
  std::size_t router_blocks_;
  std::size_t blocks_;
  std::size_t mask_;
  int delay_;
  std::vector<emu::LinkBlock> links_;
};

}  // namespace fabric

// Which block of 64 ports each router lies in, and where there. Routers come in their order, one
// behind the other, and of each only the ports that lead somewhere: a 4x4 mesh is one block, not
// the two of sixteen routers with eight ports. What lies in a block is stepped together
// (fabric/router/block.h).
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "emu/lane/words.h"
#include "fabric/topo/graph.h"

namespace fabric {

class Packing {
 public:
  // The routers of a block: `ports` of them, from 0 on, are used.
  struct Block {
    emu::RouterId first_router = 0;
    unsigned routers = 0;
    unsigned ports = 0;
  };
  // For so many threads, which share out blocks: if there are few ports, a block has less than 64
  // of them, but so many that what is done for all of a block's ports is worth while.
  Packing(const Graph& graph, int threads);
  // Ports that a block may have where a network has `ports` of them.
  static std::size_t room(std::size_t ports, int threads);

  const std::vector<Block>& blocks() const { return blocks_; }
  std::size_t block_of(emu::RouterId router) const { return of_router_[router].block; }
  // In its block: a router's first port and the one behind its last.
  unsigned first_port(emu::RouterId router) const { return of_router_[router].first; }
  unsigned end_port(emu::RouterId router) const { return of_router_[router].end; }
  // Port `port` of a router in its block; kNowhere: it leads nowhere.
  static constexpr unsigned kNowhere = emu::kBlockPorts;
  unsigned place(emu::RouterId router, unsigned port) const {
    return of_router_[router].place[port];
  }

 private:
  struct Router {
    std::uint32_t block = 0;
    std::uint8_t first = 0;
    std::uint8_t end = 0;
    std::array<std::uint8_t, emu::kPortsMax> place{};
  };
  std::vector<Block> blocks_;
  std::vector<Router> of_router_;
};

}  // namespace fabric

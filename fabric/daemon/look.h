// What congestion schemes want to know of the routers (ALO, Self-Tuned), read off a network. Used
// by the loop of fabricd for its state page and by tools/sim for the HCAs of a run.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

#include "fabric/router/network.h"

namespace fabric {

// Lanes of an output port that nobody uses: nothing in its buffer, nor in the next one's input.
inline std::uint16_t free_lanes(const Network& network, emu::RouterId router, emu::PortId port) {
  const auto own = network.occupancy(router, port);
  const auto next = network.peer(router, port);
  Network::Occupancy behind;
  if (next.router != emu::kNoRouter) behind = network.occupancy(next.router, next.port);
  unsigned lanes = 0;
  for (unsigned v = 0; v < emu::kVlCount; ++v) {
    if (own.output[v] == 0 && behind.input[v] == 0) lanes |= 1U << v;
  }
  return static_cast<std::uint16_t>(lanes);
}

// Output ports of the node's router that the routing may choose for `dest`, a bit each.
inline std::uint64_t useful_ports(const Network& network, emu::NodeId node, emu::NodeId dest) {
  std::uint64_t ports = 0;
  for (const Choice& choice : network.choices(network.router_of(node), dest))
    ports |= std::uint64_t{1} << choice.port;
  return ports;
}

// An occupancy is counted in a byte: a deeper buffer is full when the byte is.
inline bool is_full(std::uint8_t flits, int vc_buf_size) {
  return flits >= std::min<int>(vc_buf_size, std::numeric_limits<std::uint8_t>::max());
}

struct Fullness {
  std::uint32_t full = 0;     // input lanes without room, in all routers
  std::uint32_t buffers = 0;  // input lanes that there are
};
// A link has `num_vcs` lanes.
inline Fullness fullness(const Network& network, int vc_buf_size, std::uint32_t num_vcs) {
  Fullness sum;
  for (int r = 0; r < network.routers(); ++r) {
    const auto router = static_cast<emu::RouterId>(r);
    for (int p = 0; p < network.ports(router); ++p) {
      const auto occupancy = network.occupancy(router, static_cast<emu::PortId>(p));
      for (const auto flits : occupancy.input) sum.full += is_full(flits, vc_buf_size) ? 1 : 0;
      sum.buffers += num_vcs;
    }
  }
  return sum;
}

}  // namespace fabric

// What is on the links into one router or one group of eight HCAs: flits and credits of all its
// ports for one cycle, as lanes. Boxes lie in a wheel of cycles, so that a sender writes
// `link_delay` cycles ahead of the reader and the order of stepping does not matter. Written by the
// sender, read and cleared by the receiver in the cycle of arrival.
#pragma once

#include <cstdint>

#include "emu/lane/planes.h"

namespace emu {

struct alignas(64) Box {
  Lanes8 flits;    // at most one lane a port
  Lanes8 credits;  // at most one lane a port
  // Message whose head is the flit of this port, where `heads` has its bit.
  std::uint32_t head[kPortsMax];
  std::uint32_t heads;
};

// Where the ports of a unit lead: peer unit and its port. A unit is a router or a group of HCAs.
struct Outlet {
  std::uint16_t unit[kPortsMax];
  std::uint8_t port[kPortsMax];
  std::uint8_t connected;  // bit p: port p leads somewhere
  bool aligned;  // port p leads to port p of one and the same unit, which hears nobody else
};

// Nothing arrives.
inline bool quiet(const Box& box) { return !any(box.flits | box.credits); }

// Puts this cycle's flits and credits on the links. `slot` is the wheel's row of the arrival cycle.
inline void emit(Box* slot, const Outlet& out, Lanes8 flits, Lanes8 credits) {
  if (out.aligned) {
    slot[out.unit[0]].flits = flits;
    slot[out.unit[0]].credits = credits;
    return;
  }
  for (unsigned ports = ports_of(flits); ports != 0; ports &= ports - 1) {
    const unsigned p = first_bit(ports);
    slot[out.unit[p]].flits[out.port[p]] = flits[p];
  }
  for (unsigned ports = ports_of(credits); ports != 0; ports &= ports - 1) {
    const unsigned p = first_bit(ports);
    slot[out.unit[p]].credits[out.port[p]] = credits[p];
  }
}

inline void emit_head(Box* slot, const Outlet& out, unsigned port, std::uint32_t message) {
  Box& box = slot[out.unit[port]];
  box.head[out.port[port]] = message;
  box.heads |= 1U << out.port[port];
}

}  // namespace emu

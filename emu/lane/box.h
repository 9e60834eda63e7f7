// What is on the links into one router or one group of eight HCAs: flits and credits of all its
// ports for one cycle, as lanes. Boxes lie in a wheel of cycles, so that a sender writes
// `link_delay` cycles ahead of the reader and the order of stepping does not matter. Written by the
// sender, read and cleared by the receiver in the cycle of arrival.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "emu/lane/planes.h"

namespace emu {

struct alignas(64) Box {
  Lanes8 flits;    // at most one lane a port
  Lanes8 credits;  // at most one lane a port
  // The message that is named with the flit of a port, where `names` has its bit: a router learns
  // it from the head, an HCA from the tail.
  std::uint32_t name[kPortsMax];
  std::uint32_t names;
};

// Where the ports of a unit lead: peer unit and its port. A unit is a router or a group of HCAs.
// The peer of a port that leads nowhere is a box of its own that nobody reads.
struct Outlet {
  std::uint32_t word[kPortsMax];  // bytes from a row's start to the peer's word for flits
  std::uint16_t unit[kPortsMax];
  std::uint8_t port[kPortsMax];
  std::uint8_t connected;  // bit p: port p leads somewhere
  bool aligned;   // port p leads to port p of one and the same unit, which hears nobody else
  Lanes8 to_hca;  // all ones in the words of ports that lead to an HCA
};

// Nothing arrives.
inline bool quiet(const Box& box) { return !any(box.flits | box.credits); }

inline void lead_to(Outlet& outlet, unsigned port, unsigned unit, unsigned peer_port) {
  outlet.unit[port] = static_cast<std::uint16_t>(unit);
  outlet.port[port] = static_cast<std::uint8_t>(peer_port);
  outlet.word[port] = static_cast<std::uint32_t>(unit * sizeof(Box) + offsetof(Box, flits) +
                                                 peer_port * sizeof(std::uint16_t));
}

// Puts this cycle's flits and credits on the links. `slot` is the wheel's row of the arrival cycle.
// Every word has one writer, so words without a flit are written too: no branch.
inline void emit(Box* slot, const Outlet& out, Lanes8 flits, Lanes8 credits) {
  if (out.aligned) {
    slot[out.unit[0]].flits = flits;
    slot[out.unit[0]].credits = credits;
    return;
  }
  auto* row = reinterpret_cast<unsigned char*>(slot);
#pragma GCC unroll 8
  for (unsigned p = 0; p < kPortsMax; ++p) {
    unsigned char* word = row + out.word[p];
    const std::uint16_t pair[2] = {flits[p], credits[p]};
    std::memcpy(word, &pair[0], sizeof pair[0]);
    std::memcpy(word + offsetof(Box, credits) - offsetof(Box, flits), &pair[1], sizeof pair[1]);
  }
}

inline void emit_name(Box* slot, const Outlet& out, unsigned port, std::uint32_t message) {
  Box& box = slot[out.unit[port]];
  box.name[out.port[port]] = message;
  box.names |= 1U << out.port[port];
}

}  // namespace emu

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
  // One more than the message that is named with the flit of a port, 0 where none is: a router
  // learns it from the head, an HCA from the tail. A word of its own for each port, as senders may
  // be stepped by different threads.
  std::uint32_t name[kPortsMax];
};
static_assert(sizeof(Box) == 64, "one cache line a unit and cycle");

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
  slot[out.unit[port]].name[out.port[port]] = message + 1;
}

inline bool has_names(const Box& box) {
  std::uint64_t pair[kPortsMax / 2];
  std::memcpy(&pair, &box.name, sizeof pair);
  return (pair[0] | pair[1] | pair[2] | pair[3]) != 0;
}
// Ports whose flit names a message, a bit each; the message of one of them.
inline unsigned ports_named(const Box& box) {
  using Four = std::int32_t __attribute__((vector_size(16)));
  Four low;
  Four high;
  std::memcpy(&low, &box.name[0], sizeof low);
  std::memcpy(&high, &box.name[kPortsMax / 2], sizeof high);
  const Four bits = ((low != 0) & Four{1, 2, 4, 8}) | ((high != 0) & Four{16, 32, 64, 128});
  std::uint64_t pair[2];
  std::memcpy(&pair, &bits, sizeof pair);
  const std::uint64_t both = pair[0] | pair[1];
  return static_cast<unsigned>(both | both >> 32);
}
inline std::uint32_t named_at(const Box& box, unsigned port) { return box.name[port] - 1; }
inline void clear_names(Box& box) { std::memset(&box.name, 0, sizeof box.name); }

}  // namespace emu

// What the links bring in one cycle to the 64 ports of a block: flits and credits, as lanes. Rows
// of such lie in a wheel of cycles, so that a sender writes `link_delay` cycles ahead of the reader
// and the order of stepping does not matter. Every word has one writer, the port at the other end
// of its link; it is read and cleared by the receiver in the cycle of arrival.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "emu/lane/words.h"

namespace emu {

struct alignas(64) LinkBlock {
  LaneWords flits;    // at most one lane a port
  LaneWords credits;  // at most one lane a port
  // The message that is named with the flit of a port, where `named` is marked: a router learns it
  // from the head, an HCA from the tail.
  std::array<std::uint8_t, kBlockPorts> named;
  std::array<std::uint32_t, kBlockPorts> names;
};

// Where a link leads to: bytes from a row's start to the word for flits of the peer.
using LinkPlace = std::uint32_t;
constexpr LinkPlace place_of(std::size_t block, std::size_t port) {
  return static_cast<LinkPlace>(block * sizeof(LinkBlock) + offsetof(LinkBlock, flits) +
                                port * sizeof(LaneMask));
}
constexpr std::size_t block_of_place(LinkPlace place) { return place / sizeof(LinkBlock); }
constexpr std::size_t port_of_place(LinkPlace place) {
  return (place % sizeof(LinkBlock) - offsetof(LinkBlock, flits)) / sizeof(LaneMask);
}

inline void put_flit(LinkBlock* row, LinkPlace place, LaneMask lane) {
  std::memcpy(reinterpret_cast<std::byte*>(row) + place, &lane, sizeof lane);
}
inline void put_credit(LinkBlock* row, LinkPlace place, LaneMask lane) {
  constexpr std::size_t kApart = offsetof(LinkBlock, credits) - offsetof(LinkBlock, flits);
  std::memcpy(reinterpret_cast<std::byte*>(row) + place + kApart, &lane, sizeof lane);
}
inline void put_name(LinkBlock* row, LinkPlace place, std::uint32_t message) {
  LinkBlock& peer = row[block_of_place(place)];
  peer.names[port_of_place(place)] = message;
  peer.named[port_of_place(place)] = 0x80;
}

}  // namespace emu

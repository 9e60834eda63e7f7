// A packet of PacketKind::subnet in its slot: taken apart, answered, and put together again. Called
// by the edge of the fabric.
#pragma once

#include <cstddef>
#include <span>

#include "emu/base/units.h"
#include "fabric/subnet/agent.h"

namespace fabric {

// The packet is the first `length` bytes of the slot; they are read once, since their sender can
// still write them. Afterwards the slot holds the answer to `source`: addresses and QPs turned
// round, both CRCs new. Where nobody answers it holds the question so, its datagram unchanged.
// Returns the new length; 0: no datagram of the right form, and the slot is as it was.
std::size_t answer_packet(SubnetAgent& agent, std::span<std::byte> slot, std::size_t length,
                          emu::NodeId source);

}  // namespace fabric

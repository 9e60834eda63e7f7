// Everything that the routers of a block remember, as many as have 64 ports together
// (fabric/link/packing.h). Plain data, sized at start; the stages (b1_decode.h ... b5_output.h) are
// functions over it, stepped back to front by block_step.h. Ports are numbered through the block,
// those of a router side by side; lanes as port * 16 + lane. What a cycle asks of every port are
// words of lanes; the rest is touched only where a flit is.
#pragma once

#include <array>
#include <cstdint>

#include "emu/lane/port_bids.h"
#include "emu/lane/port_lanes.h"
#include "emu/lane/row.h"
#include "emu/lane/words.h"
#include "fabric/route/routing.h"
#include "fabric/router/control_hook.h"
#include "fabric/router/network.h"
#include "hca/wire/message.h"

namespace fabric::blocks {

// A lane of a block, or kNoBlockLane.
using BlockLane = std::uint16_t;
inline constexpr BlockLane kNoBlockLane = 0xffff;

// Messages of a lane in their order. Each has at least one flit there, but for the one that is just
// coming or going, so only short ones make more than two.
struct LaneMessages {
  std::array<hca::MessageId, 2> first;
  std::uint8_t count = 0;
  std::uint8_t third = 0;  // its place in the ring of the others

  hca::MessageId front() const { return first[0]; }
  template <std::size_t kRoom>
  void push(hca::MessageId message, std::array<hca::MessageId, kRoom>& others) {
    (count < 2 ? first[count] : others[(third + count - 2U) % kRoom]) = message;
    ++count;
  }
  template <std::size_t kRoom>
  void pop(std::array<hca::MessageId, kRoom>& others) {
    first[0] = first[1];
    if (count-- <= 2) [[likely]]
      return;
    first[1] = others[third];
    third = static_cast<std::uint8_t>((third + 1U) % kRoom);
  }
};

// What heads and tails touch of a lane lies together: in a large network every line of it comes
// from far away.
struct alignas(32) InputMessages : LaneMessages {  // arrived heads whose tail has not crossed
  BlockLane wait_next = kNoBlockLane;  // the next input lane that waits for the same output lane
  std::uint16_t flits = 0;             // of the front message
  LaneCounters traffic;
};
struct alignas(32) OutputMessages : LaneMessages {  // owners, and those whose tail has not left
  BlockLane wait_first = kNoBlockLane;              // input lanes that wait for this one
  BlockLane wait_last = kNoBlockLane;
  LaneCounters traffic;
};
static_assert(sizeof(InputMessages) == 32 && sizeof(OutputMessages) == 32);

// A lane whose head is due in stage 2.
struct UnroutedHead {
  BlockLane lane;
  hca::MessageId message;
  Way way;
};

// Lanes whose heads have something to do.
template <class Entry>
struct LaneList {
  std::array<Entry, emu::kBlockLanes> entry;
  unsigned count = 0;
  void push(const Entry& one) { entry[count++] = one; }
  const Entry* begin() const { return entry.data(); }
  const Entry* end() const { return entry.data() + count; }
};

// Of one router since the energy window began.
struct RouterActivity {
  std::uint32_t heads = 0;
  std::uint32_t in_held = 0;     // flits in its input buffers then
  std::uint32_t out_held = 0;    // and in its output buffers
  std::uint32_t to_routers = 0;  // and sent to other routers before, modulo 2^32
};

// What passing flits touch, but for their stamps.
template <int kPlanes>
struct alignas(64) HotLanes {
  emu::OutputLanes<kPlanes> out;
  emu::InputLanes<kPlanes> in;
  // Input lanes whose front message owns an output lane that has room.
  alignas(64) emu::LaneWords open{};
  std::array<emu::LinkPlace, emu::kBlockPorts> peer{};  // [port] where its link leads to
  std::array<std::uint32_t, emu::kBlockPorts> claim{};  // [output port] stage 4
  std::array<std::uint8_t, emu::kBlockPorts> first{};   // [port] the first one of its router
  std::array<std::uint8_t, emu::kBlockPorts> number{};  // [port] its number at its router
  emu::PortBids bids;                                   // where they want to go, and how urgently
  // [input lane] flits of its front message that have not crossed.
  std::array<std::uint16_t, emu::kBlockLanes> left{};
  // [output lane] flits of its front message that have not left.
  std::array<std::uint16_t, emu::kBlockLanes> leaving{};
  // Of an input lane that owns an output lane: the port of that, one bit of its router's.
  alignas(64) std::array<std::uint8_t, emu::kBlockLanes> way{};
};

// Of eight ports. A cycle touches all of the words and, where a flit is, what is kept by lane.
static_assert(sizeof(HotLanes<4>) / (emu::kBlockPorts / emu::kPortsMax) <= 1600);

template <int kPlanes>
struct Block : HotLanes<kPlanes> {
  std::uint64_t to_hca = 0;  // bit p: port p leads to an HCA
  std::uint32_t inside = 0;  // flits in all buffers
  unsigned ports = 0;

  // Touched at heads and tails only, and where an output lane becomes full.
  std::array<BlockLane, emu::kBlockLanes> owner;  // [output lane] input lane, or kNoBlockLane
  emu::LaneWords owned{};                         // output lanes that have an owner
  // [output port] flits of the messages whose tails have crossed to it, modulo 2^32
  std::array<std::uint32_t, emu::kBlockPorts> tails_crossed{};
  LaneList<UnroutedHead> routing;   // heads that are due in stage 2
  LaneList<BlockLane> arbitrating;  // and in stage 3
  std::array<InputMessages, emu::kBlockLanes> in_messages;
  std::array<OutputMessages, emu::kBlockLanes> out_messages;
  std::array<emu::RouterId, emu::kBlockPorts> router{};  // [port]
  // [first port of a router][number of a port at it] where it is
  std::array<std::array<std::uint8_t, emu::kPortsMax>, emu::kBlockPorts> place{};
  // Cold.
  using Others = std::array<hca::MessageId, 1U << kPlanes>;
  std::array<Others, emu::kBlockLanes> in_others;  // behind the second of a lane
  std::array<Others, emu::kBlockLanes> out_others;
  std::array<RouterActivity, emu::kBlockPorts> activity{};  // [first port of a router]
  // [input port] flits of the running energy window that in.arrived has forgotten, modulo 2^32
  std::array<std::uint32_t, emu::kBlockPorts> arrived_before{};
  std::array<std::uint64_t, emu::kBlockPorts> wait_cycles{};
};

// What the stages of all routers share.
struct BlockWorld {
  hca::MessageTable& messages;
  const Routes& routes;
  ControlHook* hook;  // may be null
  unsigned fixed_classes;
  unsigned buffer;   // flits of a lane
  int alloc_iters;   // rounds of stage 4
  unsigned control;  // lanes that go strictly before all others
  unsigned yields;   // lanes of best effort, if classes have strict priority; else none
};

}  // namespace fabric::blocks

// Everything one router remembers. Plain data, sized at start; the stages (s1_decode.h ...
// s5_output.h) are functions over it, stepped back to front by pipeline.h. "Input lane" and "output
// lane" are written as a slot, lane * 8 + port (emu/lane/planes.h).
#pragma once

#include <array>
#include <bit>
#include <cstdint>

#include "emu/lane/bid.h"
#include "emu/lane/box.h"
#include "emu/lane/planes.h"
#include "fabric/router/choose.h"
#include "fabric/router/control_hook.h"
#include "fabric/router/tail_log.h"
#include "hca/wire/message.h"

namespace fabric {

using emu::lane_slot;
using emu::port_of_slot;
using emu::vl_of_slot;
constexpr std::uint16_t vl_bit(unsigned slot) {
  return static_cast<std::uint16_t>(1U << vl_of_slot(slot));
}

// Messages in the order in which they are in each lane. Each message has at least one flit there,
// but for the one that is just coming or going: 2^kPlanes are enough for a buffer of less.
template <int kPlanes>
struct MessageFifos {
  static constexpr unsigned kRoom = 1U << kPlanes;
  std::array<std::uint8_t, emu::kLaneSlots> first{};
  std::array<std::uint8_t, emu::kLaneSlots> count{};
  std::array<std::array<hca::MessageId, emu::kLaneSlots>, kRoom> id{};

  // Of an empty lane: some message or other.
  hca::MessageId front(unsigned slot) const { return id[first[slot]][slot]; }
  void push(unsigned slot, hca::MessageId message) {
    id[(unsigned{first[slot]} + count[slot]) % kRoom][slot] = message;
    ++count[slot];
  }
  // A lane that is empty starts again in the first place: most need no other, and those of all
  // lanes are together.
  void pop(unsigned slot) {
    const unsigned next = (first[slot] + 1U) % kRoom;
    --count[slot];
    first[slot] = static_cast<std::uint8_t>(count[slot] == 0 ? 0 : next);
  }
  void take_back(unsigned slot) { --count[slot]; }  // the last push
};

// Heads that have something to ask in stage 2 and are known before they are there.
struct LaterHeads {
  struct Entry {
    emu::Cycle cycle;
    LaneIndex in_lane;
  };
  std::array<Entry, emu::kLaneSlots> entry;
  unsigned count = 0;
};

struct LaneTraffic {
  std::uint64_t flits = 0;
  std::uint64_t packets = 0;
};

// A head comes a link's delay after it was heard of and is due in stage 3 two cycles later, at
// most.
inline constexpr unsigned kSoon = 32;

// What passing flits touch.
template <int kPlanes>
struct alignas(64) HotState {
  using Counts = emu::Counts<kPlanes>;
  // Output side, one bit per output lane.
  Counts credits;              // free flits of the next buffer
  Counts out_count;            // flits in the output buffer ...
  emu::Lanes8 out_occupied{};  // ... of the lanes that have any
  emu::Lanes8 out_full{};
  emu::Lanes8 at_head = ~emu::kNoLanes8;  // the next flit that leaves is a head
  emu::Countdown leaving;                 // flits of the leaving message that have not left
  // Input side, one bit per input lane.
  Counts in_count;            // flits in the input buffer ...
  emu::Lanes8 in_occupied{};  // ... of the lanes that have any
  emu::Lanes8 active{};       // the front message owns an output lane
  emu::Lanes8 ready{};        // and that output lane has room
  emu::Lanes8 routing{};      // a head that has something to ask is due in stage 2 ...
  emu::Lanes8 arbitrating{};  // ... and in stage 3
  // [cycle % kSoon] become active when that cycle ends: their heads are known before they are due.
  emu::Lanes8 soon[kSoon]{};
  emu::Lanes8 from[emu::kPortsMax]{};  // [output port] input lanes that own a lane of it
  emu::CountIs<kPlanes> is_full;
  emu::Lanes8 recent_wait{};
  std::uint32_t arrived = 0;  // of the running energy window
  std::uint32_t heads = 0;
  emu::BidRows bids;  // of the flit at the head of each input lane; its way, once it owns a lane
  // Of the front message of an input lane.
  std::array<LaneIndex, emu::kLaneSlots> target{};  // its output lane
  emu::Countdown left;                              // its flits that have not crossed
};

template <int kPlanes>
struct RouterState : HotState<kPlanes> {
  // Touched at heads and tails only.
  std::array<LaneIndex, emu::kLaneSlots> owner{};  // [output lane] input lane, or kNoLane
  // [output lane] first and last input lane in the line for it, behind its owner; [input lane] the
  // next one in that line, and the cycle in which its head is due in stage 3.
  std::array<LaneIndex, emu::kLaneSlots> wait_first{};
  std::array<LaneIndex, emu::kLaneSlots> wait_last{};
  std::array<LaneIndex, emu::kLaneSlots> wait_next{};
  std::array<emu::Cycle, emu::kLaneSlots> due{};
  LaterHeads later;                   // in `routing` later than in the next cycle
  MessageFifos<kPlanes> in_messages;  // arrived heads whose tail has not crossed
  // Owners, and those whose tail has not left; kept among others only.
  MessageFifos<kPlanes> out_messages;
  // Cold.
  Ways ways;
  emu::RouterId id = 0;
  std::uint32_t in_held = 0;     // flits in its input buffers when the energy window began
  std::uint32_t out_held = 0;    // and in its output buffers
  std::uint64_t to_routers = 0;  // flits sent to other routers until then
  std::uint64_t by_hcas = 0;     // and taken from HCAs or sent to them
  std::array<LaneTraffic, emu::kLaneSlots> traffic_in{};
  std::array<LaneTraffic, emu::kLaneSlots> traffic_out{};
  std::array<std::uint64_t, emu::kPortsMax> wait_cycles{};
};

// Where a router is: it may lead to others, or to HCAs alone. Of one that is alone the engine tells
// when heads leave their HCAs, and it tells the engine of tails; else both go by the links.
enum class Site : std::uint8_t { among_others, alone };

// What the stages of all routers share.
struct Surroundings {
  hca::MessageTable& messages;
  ControlHook* hook;        // may be null
  int alloc_iters = 1;      // rounds of stage 4
  bool fixed_ways = false;  // no destination has a choice of ways
  // Alone: who is told of tails; cycles from an HCA to the router; whether credits of HCAs may be
  // late, else none are kept.
  TailLog* tails = nullptr;
  emu::Cycle head_delay = 0;
  bool metered = true;
  emu::Lanes8 yields{};  // lanes of best effort, if classes have strict priority; else none
  bool yield = false;    // there are any
};

}  // namespace fabric

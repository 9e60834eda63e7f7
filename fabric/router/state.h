// Everything one router remembers. Plain data, sized at start; the stages (s1_decode.h ...
// s5_output.h) are functions over it, stepped back to front by pipeline.h. "Input lane" and "output
// lane" are written as an index port * 16 + lane.
#pragma once

#include <array>
#include <cstdint>

#include "emu/lane/box.h"
#include "emu/lane/planes.h"
#include "fabric/router/choose.h"
#include "fabric/router/control_hook.h"
#include "hca/wire/message.h"

namespace fabric {

constexpr unsigned port_of_lane(unsigned index) { return index / emu::kLaneStride; }
constexpr unsigned vl_of_lane(unsigned index) { return index % emu::kLaneStride; }
using emu::lane_slot;
constexpr std::uint16_t vl_bit(unsigned index) {
  return static_cast<std::uint16_t>(1U << vl_of_lane(index));
}

// Messages in the order in which they are in a lane. A lane buffers 15 flits at most and each
// message has at least one of them, but for the one that is just coming or going: 16 are enough.
struct MessageFifo {
  std::array<hca::MessageId, emu::kCountMax + 1> id;
  std::uint8_t first = 0;
  std::uint8_t count = 0;

  hca::MessageId front() const { return id[first]; }
  void push(hca::MessageId message) {
    id[(first + count) % id.size()] = message;
    ++count;
  }
  void pop() {
    first = static_cast<std::uint8_t>((first + 1U) % id.size());
    --count;
  }
};

struct LaneTraffic {
  std::uint64_t flits = 0;
  std::uint64_t packets = 0;
};

struct alignas(64) RouterState {
  // Output side, one bit per output lane.
  emu::Counts credits;    // free flits of the next buffer
  emu::Counts out_count;  // flits in the output buffer
  emu::Lanes8 out_full{};
  emu::Counts head_dist;     // flits in front of the first head in the output lane ...
  emu::Lanes8 head_waits{};  // ... where there is one, or one that will cross next
  emu::Lanes8 turn{};        // round robin of stage 5: lanes above the last one served
  // Input side, one bit per input lane.
  emu::Counts in_count;                // flits in the input buffer
  emu::Lanes8 active{};                // the front message owns an output lane
  emu::Lanes8 ready{};                 // and that output lane has room
  emu::Lanes8 routing{};               // a head is due in stage 2
  emu::Lanes8 arbitrating{};           // a head is due in stage 3
  emu::Lanes8 from[emu::kPortsMax]{};  // [output port] input lanes that own a lane of it
  emu::CountIs is_full;
  std::uint32_t inside = 0;   // flits in its buffers
  std::uint32_t arrived = 0;  // of the running energy window
  std::uint32_t crossed = 0;
  std::uint32_t sent = 0;
  std::uint32_t heads = 0;
  emu::Lanes8 recent_wait{};
  // Of the front message of an input lane.
  std::array<LaneIndex, emu::kLaneSlots> target{};       // its output lane
  std::array<std::uint8_t, emu::kLaneSlots> out_port{};  // and the port of that
  std::array<std::uint16_t, emu::kLaneSlots> left{};     // its flits that have not crossed

  // Touched at heads and tails only.
  std::array<LaneIndex, emu::kLaneSlots> owner{};  // [output lane] input lane, or kNoLane
  // [output lane] first and last input lane that waits for it; [input lane] the next one that
  // waits.
  std::array<LaneIndex, emu::kLaneSlots> wait_first{};
  std::array<LaneIndex, emu::kLaneSlots> wait_last{};
  std::array<LaneIndex, emu::kLaneSlots> wait_next{};
  std::array<MessageFifo, emu::kLaneSlots>
      in_messages{};  // arrived heads whose tail has not crossed
  std::array<MessageFifo, emu::kLaneSlots> out_messages{};  // owners whose head has not left
  // Cold.
  Ways ways;
  emu::RouterId id = 0;
  std::array<LaneTraffic, emu::kLaneSlots> traffic_in{};
  std::array<LaneTraffic, emu::kLaneSlots> traffic_out{};
  std::array<std::uint64_t, emu::kPortsMax> wait_cycles{};
};

// What the stages of all routers share.
struct Surroundings {
  hca::MessageTable& messages;
  ControlHook* hook;  // may be null
};

}  // namespace fabric

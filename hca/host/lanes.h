// The lanes at the HCA: which QPs wait for them here, and what they have at the wire half, where
// the VL arbiter serves them. schedule.cc asks for room, burst.cc tells what was handed on and
// injected.
#pragma once

#include <array>
#include <cstdint>

#include "emu/base/units.h"
#include "emu/wire/message.h"
#include "hca/host/memory.h"

namespace hca {

class HostState;

// A queue of QPs with work of one class and lane: first come, first served.
struct QpQueue {
  std::uint32_t first = kNone;
  std::uint32_t last = kNone;
  std::uint32_t count = 0;
};

// In place of a lane: of what waits for none. Acknowledgements, what has a launch time (its program
// hands it on long before the arbiter may have it), what stays in the node.
inline constexpr std::uint32_t kNoLane = emu::kVlCount;

// All of a class, by the lane at the HCA of their next packet: QPs whose lane is full are passed
// over by a bit. Among the others who came first is first, whatever the lane.
struct LaneQueues {
  std::array<QpQueue, kNoLane + 1> lanes{};
  std::uint32_t queued = 0;  // bit v: QPs wait in lanes[v]
};

// Of a class: what it has at the wire half.
struct LaneStock {
  std::array<std::uint32_t, emu::kVlCount> packets{};  // that wait for the arbiter alone
  std::uint32_t full = 0;                              // bit v: lane v may have no more for now
};

// In a cookie: packets of a train behind the first. What is above is of lanes.cc.
inline constexpr int kCookieMoreShift = 48;
inline constexpr int kCookieMoreBits = 4;
static_assert(emu::kTrainPacketsMax <= 1U << kCookieMoreBits);
inline std::uint32_t packets_of_cookie(std::uint64_t cookie) {
  constexpr std::uint64_t kMore = (1U << kCookieMoreBits) - 1;
  return static_cast<std::uint32_t>(cookie >> kCookieMoreShift & kMore) + 1;
}

// Whether the lane may have one more packet (or train); if not, it is full until open_lanes().
bool has_room(HostState& s, emu::TrafficClass traffic_class, std::uint32_t lane);
// A QP's packet is handed on, and comes back: what its cookie carries meanwhile.
std::uint64_t lane_cookie(HostState& s, const emu::TxDesc& desc, bool in_lane);
void lane_came_back(HostState& s, emu::TrafficClass traffic_class, std::uint64_t cookie);
void open_lanes(HostState& s);   // packets came back: who was full may have room
void empty_lanes(HostState& s);  // all that was handed on is gone

}  // namespace hca

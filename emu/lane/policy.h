// Which scheduler serves the lanes of a crossbar input or of an HCA's link, and what it is given.
// Values only: the schedulers themselves are in stamps.h, turns.h and port_*.h, chosen once at
// start.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "emu/base/units.h"

namespace emu {

inline constexpr int kPortsMax = 8;  // ports of a router, nodes of a group, of the fast engine

// One bit per lane.
using LaneMask = std::uint16_t;

enum class SchedulerKind : std::uint8_t {
  fcfs,           // arrival order at this port
  round_robin,    // one flit a lane in turn
  virtual_clock,  // smallest stamp; Vtick belongs to the lane, debt is carried from message to
                  // message
  fgvc,           // smallest stamp; Vtick comes with the message, the stamp restarts at its header
  wrr,            // the high table alone, one level
  two_level,      // InfiniBand VL arbitration: high and low table, Limit of high priority
  head_of_line,   // virtual_clock, but a flit gets its stamp when it comes to the head of its lane
  fair_queueing,  // smallest finish number F <- max(R, F) + Vtick, R the round of a server that
                  // serves all lanes at once; Vtick belongs to the lane
  fgfq,           // the same; Vtick comes with the message, F restarts at its header
};
inline constexpr int kSchedulerKindCount = 9;
// Whether Vticks belong to lanes.
constexpr bool has_lane_vticks(SchedulerKind kind) {
  return kind == SchedulerKind::virtual_clock || kind == SchedulerKind::head_of_line ||
         kind == SchedulerKind::fair_queueing;
}
// Whether lanes go in turn, by weights or not.
constexpr bool takes_turns(SchedulerKind kind) {
  return kind == SchedulerKind::round_robin || kind == SchedulerKind::wrr ||
         kind == SchedulerKind::two_level;
}
// Whether the 16-bit stamps of stamp.h do it.
constexpr bool goes_by_stamps(SchedulerKind kind) {
  return kind == SchedulerKind::fcfs || kind == SchedulerKind::virtual_clock ||
         kind == SchedulerKind::fgvc || kind == SchedulerKind::head_of_line;
}

// How an entry of a WRR table spends its weight.
enum class PointerKind : std::uint8_t {
  fast,  // one flit, then the next entry, until the weights of all waiting lanes are spent
  slow,  // its whole weight, then the next entry
};

inline constexpr std::uint16_t kLimitUnbounded = 0xffff;
inline constexpr std::uint16_t kWeightMax = 32767;  // what is left of it has a sign

// VL arbitration of one port. Weights are flits by lane, at most kWeightMax, 0: not in the table;
// entries are visited in the order of their lane. A waiting lane that is in no table is served when
// nobody else waits. A lane that has begun its weight and has no flit or no credit keeps what is
// left of it, while others send on what they will have next: until one of them has only one flit of
// that left.
struct VlWeights {
  std::array<std::uint16_t, kVlCount> high{};
  std::array<std::uint16_t, kVlCount> low{};
  // Flits the high table may send in a row while the low one waits; kLimitUnbounded: any number.
  std::uint16_t high_limit = kLimitUnbounded;
  // As InfiniBand has it (7.6.9.2): the turn of the high table ends with a packet, the first that
  // reaches the limit, and then one packet of the low table goes, to its tail; its flits need not
  // follow on each other, and a packet of it that went when nobody of high could is one as well.
  // Else flits are counted: at most high_limit in a row, and then one of the low table (ACP 3.3).
  bool whole_packets = false;
  PointerKind pointer = PointerKind::fast;
};

// Cycles between flits of a lane or message at its rate; the largest means best effort.
using Vtick = std::uint16_t;
inline constexpr Vtick kVtickMax = 32767;

// Of a rate that was booked on a link, which carries a flit a cycle; neither is 0. Rounded up: then
// flits of all lanes fit into the link, and none is later than its stamp says (Zhang,
// VirtualClock). Rounded down, lanes of large rates would have what others have booked.
constexpr Vtick vtick_of(std::uint64_t link_bps, std::uint64_t rate_bps) {
  return static_cast<Vtick>(
      std::clamp<std::uint64_t>((link_bps + rate_bps - 1) / rate_bps, 1, kVtickMax - 1));
}

}  // namespace emu

// The schedulers as the papers say them, written for reading: absolute stamps, lists, no masks. The
// fast ones in emu/lane must choose the same lane in every case.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "emu/base/units.h"
#include "emu/lane/policy.h"

namespace model {

using Stamp = std::int64_t;  // a cycle; may lie before the first

// Stamps live on a 16-bit counter in the hardware: they are at most kHorizon after the arrival, and
// every kPeriod cycles those that lie more than a period back are raised to that age.
inline constexpr Stamp kPeriod = 16384;
inline constexpr Stamp kHorizon = 32767;
Stamp oldest_stamp(emu::Cycle now);

// A lane that could send a flit now. `stamp` of that flit; of no meaning to those who take turns.
struct Waiting {
  emu::Vl lane;
  Stamp stamp;
};
// The choice of a port and how urgent it is against other ports: smaller first.
struct Choice {
  emu::Vl lane;
  Stamp urgency;
};
inline constexpr Stamp kMostUrgent = INT64_MIN;  // lanes of control

class PlainScheduler {
 public:
  virtual ~PlainScheduler() = default;
  // `waiting` is not empty and in the order of lanes.
  virtual Choice choose(const std::vector<Waiting>& waiting) = 0;
  // The last choice was granted.
  virtual void granted(emu::Vl lane) = 0;
};

// Smallest stamp: FCFS, VirtualClock, FGVC differ in the stamps only.
std::unique_ptr<PlainScheduler> make_plain_scheduler(emu::SchedulerKind kind,
                                                     const emu::VlWeights& weights,
                                                     emu::LaneMask control);

// The stamps of one lane.
class PlainClock {
 public:
  PlainClock(emu::SchedulerKind kind, emu::Vtick lane_vtick, emu::Cycle start);
  void set_vtick(emu::Vtick vtick) { vtick_ = vtick; }
  // The head of a message comes: FGVC takes its Vtick and starts afresh.
  void head(emu::Vtick vtick);
  // Stamp of the next flit, which arrived in cycle `arrival`.
  Stamp stamp(emu::Cycle arrival, emu::Cycle now);
  // The clock reached a multiple of kPeriod.
  void age(emu::Cycle now);

 private:
  bool per_message_;
  Stamp vtick_;
  std::optional<Stamp> aux_;
};

}  // namespace model

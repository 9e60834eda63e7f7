// The schedulers as the papers say them, written for reading: absolute stamps, lists, no masks. The
// fast ones in emu/lane must choose the same lane in every case.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "emu/base/units.h"
#include "emu/lane/policy.h"
#include "fabric/router/design.h"

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
  bool first = false;        // of control
  bool accelerated = false;  // preemption: in the way of a higher level
  bool yields = false;       // strict class priority: only when no other can
};
// The choice of a port and how urgent it is against other ports: smaller first.
struct Choice {
  emu::Vl lane;
  Stamp urgency;
};
inline constexpr Stamp kMostUrgent = INT64_MIN;  // lanes of control
inline constexpr Stamp kAccelerated = INT64_MIN + 1;

class PlainScheduler {
 public:
  virtual ~PlainScheduler() = default;
  // `waiting` is not empty and in the order of lanes.
  virtual Choice choose(const std::vector<Waiting>& waiting) = 0;
  // The last choice was granted; `ends`: its flit is the last of a worm.
  virtual void granted(emu::Vl lane, bool ends = false, emu::Cycle now = 0) = 0;
  // Of those that wait the ones that a block in progress lets go.
  virtual std::vector<Waiting> let_go(std::vector<Waiting> waiting, emu::Cycle now) const = 0;
};

struct Blocks {
  int flits = 1;
  bool waits = false;  // the port is its lane's for so many cycles, whether it can send or not
};

// Smallest stamp: FCFS, VirtualClock, FGVC differ in the stamps only.
std::unique_ptr<PlainScheduler> make_plain_scheduler(emu::SchedulerKind kind,
                                                     const emu::VlWeights& weights,
                                                     std::uint32_t control, Blocks blocks = {});

// The stamps that one port gives, lane by lane. tick() is called once for every cycle.
class PlainClock {
 public:
  virtual ~PlainClock() = default;
  virtual void set_vtick(std::size_t lane, emu::Vtick vtick) = 0;
  // The head of a message comes: the fine-grained kinds take its Vtick and start afresh.
  virtual void head(std::size_t lane, emu::Vtick vtick) = 0;
  // Stamp of the next flit, which arrived in cycle `arrival`.
  virtual Stamp stamp(std::size_t lane, emu::Cycle arrival, emu::Cycle now) = 0;
  // Against flits of other ports.
  virtual Stamp urgency(Stamp stamp) const { return stamp; }
  virtual void tick(emu::Cycle) {}
  // What a stamp given before now reads.
  virtual Stamp reread(Stamp stamp) const { return stamp; }
  // Whether stamps have to be read again since the last call.
  bool changed() { return std::exchange(changed_, false); }

 protected:
  bool changed_ = false;
};
std::unique_ptr<PlainClock> make_plain_clock(emu::SchedulerKind kind, fabric::CounterKind counters,
                                             std::size_t lanes, emu::Cycle start);

}  // namespace model

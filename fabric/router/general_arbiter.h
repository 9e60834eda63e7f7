// Which lane of a port goes next: smallest stamp, round robin, or the tables of InfiniBand, with
// lanes of control, accelerated lanes and blocks before any of them. In: a mask of lanes that could
// send. Out: one of them, and how urgent it is against other ports. The model in tests/model must
// choose the same.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <limits>

#include "emu/lane/policy.h"
#include "emu/lane/port_turns.h"
#include "fabric/router/general_flit.h"

namespace fabric::general {

inline constexpr Stamp kControlUrgency = std::numeric_limits<Stamp>::min();
inline constexpr Stamp kAcceleratedUrgency = kControlUrgency + 1;

struct Chosen {
  unsigned lane;
  Stamp urgency;
};

// The lanes of one port that could send a flit now; the others are among `able`.
struct Able {
  LaneBits able;
  LaneBits first;        // of control: before all others, the lowest of them
  LaneBits accelerated;  // then these, in turn
  LaneBits yielding;     // only when no other can: strict class priority

  // Those of `lanes`, without the yielding ones where there are others.
  Able among(LaneBits lanes) const {
    LaneBits some = able & lanes;
    if ((some & ~yielding) != 0) some &= ~yielding;
    return {some, first & some, accelerated & some, yielding};
  }
};

// The first lane of `lanes` behind `last`, going round; `lanes` is not empty.
inline unsigned next_lane(int last, LaneBits lanes) {
  const LaneBits behind = last >= kLanesMax - 1 ? 0 : lanes & (~LaneBits{0} << (last + 1));
  return static_cast<unsigned>(std::countr_zero(behind != 0 ? behind : lanes));
}

// Of `lanes`, not none, the smallest stamp. Without a branch: which is next, nobody can foretell.
template <class StampOf>
Chosen least_by_loop(LaneBits lanes, const StampOf& stamp) {
  Chosen best = {static_cast<unsigned>(std::countr_zero(lanes)), std::numeric_limits<Stamp>::max()};
  for (LaneBits bits = lanes; bits != 0; bits &= bits - 1) {
    const auto lane = static_cast<unsigned>(std::countr_zero(bits));
    const Stamp s = stamp(lane);
    const bool less = s < best.urgency;
    best.lane = less ? lane : best.lane;
    best.urgency = less ? s : best.urgency;
  }
  return best;
}

class Arbiter {
 public:
  // `block_waits`: a block keeps the port for so many cycles, whether its lane can send or not.
  void configure(emu::SchedulerKind kind, int block_flits, bool block_waits) {
    kind_ = kind;
    by_stamps_ = !emu::takes_turns(kind);
    block_flits_ = block_flits;
    block_waits_ = block_waits;
  }
  void set_weights(const emu::VlWeights& weights);

  // Asked only where stamps decide: `stamp(lane)`, the urgency of the lane's first flit, and
  // `least(lanes)`, the smallest of some, of equal ones that of the lowest lane.
  template <class StampOf, class LeastOf>
  Chosen choose(const Able& lanes, const StampOf& stamp, const LeastOf& least) {
    if (lanes.first != 0) {
      choice_ = Choice::control;
      return {static_cast<unsigned>(std::countr_zero(lanes.first)), kControlUrgency};
    }
    if (lanes.accelerated != 0) {
      choice_ = Choice::accelerated;
      return {next_lane(last_accelerated_, lanes.accelerated), kAcceleratedUrgency};
    }
    if (block_left_ > 0 && ((lanes.able >> block_lane_) & 1U) != 0) {
      choice_ = Choice::block;
      return {block_lane_, by_stamps_ ? stamp(block_lane_) : block_urgency_};
    }
    choice_ = Choice::scheduled;
    if (!by_stamps_) return by_turns(lanes.able);
    return least(lanes.able);
  }
  // Of the lanes that could go those that the block in progress lets go: with `block_waits` its
  // own, of control and accelerated ones.
  LaneBits let_go(const Able& lanes, emu::Cycle now) const {
    if (!block_waits_ || block_left_ == 0 || now >= block_until_) return lanes.able;
    return lanes.able & (lanes.first | lanes.accelerated | lane_bit(block_lane_));
  }
  // The last choice was granted; `ends`: with it a worm ends, or a probe goes ahead of one.
  void granted(const Chosen& chosen, bool ends, emu::Cycle now) {
    if (choice_ == Choice::accelerated) last_accelerated_ = static_cast<int>(chosen.lane);
    if (choice_ == Choice::block) --block_left_;
    if (choice_ == Choice::scheduled) {
      if (!by_stamps_) spend(chosen.lane);
      block_table_ = table_;
      block_lane_ = chosen.lane;
      block_urgency_ = chosen.urgency;
      block_left_ = block_flits_ - 1;
      block_until_ = now + static_cast<emu::Cycle>(block_flits_);
    }
    if (!ends) return;
    if (chosen.lane == block_lane_) block_left_ = 0;
    if (choice_ == Choice::scheduled || choice_ == Choice::block) packet_ended(block_table_);
  }

 private:
  enum class Choice : std::uint8_t { control, accelerated, block, scheduled };
  enum class Table : std::uint8_t { high, low, none };
  Chosen by_turns(LaneBits lanes);
  void spend(unsigned lane);
  void packet_ended(Table table);

  emu::SchedulerKind kind_ = emu::SchedulerKind::fcfs;
  bool by_stamps_ = true;
  int block_flits_ = 1;
  bool block_waits_ = false;
  Choice choice_ = Choice::scheduled;
  // A block in progress: flits that its lane may still send without being chosen again.
  int block_left_ = 0;
  unsigned block_lane_ = 0;
  emu::Cycle block_until_ = 0;  // block_waits: the first cycle behind it
  Stamp block_urgency_ = 0;
  Table block_table_ = Table::none;
  int last_accelerated_ = -1;
  int last_ = -1;  // round robin
  emu::PortWeightTable high_;
  emu::PortWeightTable low_;
  bool slow_ = false;  // their pointer
  emu::HighLimit limit_;
  // Of the last choice: its table, and whether the low one waited.
  Table table_ = Table::none;
  bool low_waits_ = false;
};

}  // namespace fabric::general

// Schedulers that take turns: round robin, and the two-level weighted round robin of InfiniBand VL
// arbitration (ACP section 3.3, PAPERS.md section 1). One object serves eight ports, each a word of
// its vectors. Lanes of control go strictly first. `pick` proposes, `granted` is told which of the
// last proposals were taken; how urgent a pick is against other inputs is its key: control 0, high
// table 1, low 2, no table 3. Called by fabric/router stages 1 and 4, and by hca/wire.
#pragma once

#include <array>
#include <cstdint>

#include "emu/lane/bid.h"
#include "emu/lane/slot_words.h"
#include "emu/lane/stamp.h"

namespace emu {

// Lanes above the one that is set: where a turn goes on.
inline Lanes8 lanes_above(Lanes8 lane) { return ~(lane | (lane - spread(1))); }
// The first of `lanes` in turn, of every word that has one.
inline Lanes8 next_lanes(Lanes8 lanes, Lanes8 above) {
  const Lanes8 ahead = lanes & above;
  return lowest_lanes(ahead | (lanes & zero_words(ahead)));
}

// Lanes of control go strictly before all others.
inline Picks control_first(Picks picks, Lanes8 eligible, Lanes8 control) {
  const Lanes8 urgent = lowest_lanes(eligible & control);
  if (!any(urgent)) [[likely]]
    return picks;
  const Lanes8 others = zero_words(urgent);
  return {picks.keys & others, urgent | (picks.lanes & others)};
}

// The parts of a scheduler that only stamps need.
struct Unstamped {
  static constexpr bool kTakesTurns = true;
  void set_vtick(unsigned, unsigned, Vtick) {}
  void head(unsigned, unsigned, Vtick) {}
  template <Isa>
  void arrive(BidRows&, Lanes8, Lanes8, std::uint32_t) {}
  void come_first(BidRows&, Lanes8, std::uint32_t) {}
  template <Isa>
  void leave(BidRows&, Lanes8) {}
  void front(unsigned, unsigned, Cycle, Cycle, Vtick) {}
  void tails(Lanes8) {}
  void age(std::uint64_t) {}
  void age(BidRows&, std::uint64_t) {}
};

class RoundRobin : public Unstamped {
 public:
  void configure(SchedulerKind /*kind*/, const std::array<Vtick, kVlCount>& /*vticks*/,
                 LaneMask control) {
    control_ = spread(control);
  }
  void set_weights(unsigned, const VlWeights&) {}

  Picks pick(Lanes8 eligible) const {
    const Lanes8 none = zero_words(eligible);
    return control_first({none | spread(1), next_lanes(eligible, above_)}, eligible, control_);
  }
  template <Isa>
  Lanes8 pick_lanes(Lanes8 eligible) const {
    return pick(eligible).lanes;
  }
  template <Isa kIsa>
  void granted(Lanes8 lanes) {
    const Lanes8 moves = lanes & ~control_;
    const Lanes8 stay = zero_words(moves);
    above_ = (above_ & stay) | (lanes_above(moves) & ~stay);
  }
  template <Isa kIsa>
  void sent(Lanes8 lanes, Lanes8 /*ended*/, Cycle /*now*/) {
    granted<kIsa>(lanes);
  }

 private:
  Lanes8 above_{};
  Lanes8 control_{};
};

// A table of weights for each of eight ports, and what is left of them.
class WeightTables {
 public:
  void load(unsigned port, const std::array<std::uint16_t, kVlCount>& weights) {
    member_[port] = 0;
    for (unsigned v = 0; v < kVlCount; ++v) {
      weight_.of[lane_slot(port, v)] = weights[v];
      if (weights[v] != 0) member_[port] |= static_cast<LaneMask>(1U << v);
    }
    above_[port] = turn_[port] = 0;
    open_[port] = member_[port];
    refill(port);
  }
  Lanes8 member() const { return member_; }
  // `slow`: words of the ports with a slow pointer.
  Lanes8 pick(Lanes8 waiting, Lanes8 slow) const {
    const Lanes8 paid = waiting & open_;
    const Lanes8 unpaid = zero_words(paid) | slow;
    const Lanes8 goes_on = paid & turn_ & slow;
    const Lanes8 next = next_lanes((paid & ~slow) | (waiting & unpaid), above_);
    return goes_on | (next & zero_words(goes_on));
  }
  template <Isa kIsa>
  void spend(Lanes8 lanes, Lanes8 slow) {
    if (!any(lanes)) return;
    // Ports whose lane has nothing left begin a frame, by a slow pointer the lane alone a turn.
    const Lanes8 frames = ~zero_words(lanes & ~(open_ | slow));
    const Lanes8 fresh = frames | (lanes & slow & ~(turn_ & open_));
    const Lanes8 spent = take_one<kIsa>(lanes, frames, fresh);
    const Lanes8 stay = zero_words(lanes);
    open_ = ((open_ & ~frames) | (member_ & frames) | lanes) & ~spent;
    turn_ = (turn_ & stay) | lanes;
    above_ = (above_ & stay) | (lanes_above(lanes) & ~stay);
  }

 private:
  // The `fresh` lanes, all of the ports that begin a frame, have their weight again; then each of
  // `lanes` one less. Returns those that have nothing left.
  template <Isa kIsa>
  Lanes8 take_one(Lanes8 lanes, [[maybe_unused]] Lanes8 frames, Lanes8 fresh) {
#if defined(__x86_64__)
    if constexpr (kIsa == Isa::avx512) return spend_lanes(left_, weight_, lanes, fresh);
#endif
    if (any(frames)) {
      for (unsigned bits = ports_of(frames); bits != 0; bits &= bits - 1) refill(first_bit(bits));
    }
    const Lanes8 turns = fresh & lanes & ~frames;
    if (any(turns))
      FlitSlots(turns).visit([&](unsigned slot) { left_.of[slot] = weight_.of[slot]; });
    Lanes8 spent = kNoLanes8;
    FlitSlots(lanes).visit([&](unsigned slot) {
      if (--left_.of[slot] == 0) spent |= kOneLane.of[slot];
    });
    return spent;
  }
  void refill(unsigned port) {
    for (unsigned v = 0; v < kVlCount; ++v)
      left_.of[lane_slot(port, v)] = weight_.of[lane_slot(port, v)];
  }
  Lanes8 member_{};  // weight is not 0
  Lanes8 open_{};    // left is not 0
  Lanes8 above_{};   // where the turn goes on
  Lanes8 turn_{};    // lane served last
  SlotWords weight_;
  SlotWords left_;
};

class TwoLevel : public Unstamped {
 public:
  void configure(SchedulerKind kind, const std::array<Vtick, kVlCount>& /*vticks*/,
                 LaneMask control) {
    one_level_ = kind == SchedulerKind::wrr;
    control_ = spread(control);
  }
  void set_weights(unsigned port, const VlWeights& weights) {
    high_.load(port, weights.high);
    low_.load(port, one_level_ ? std::array<std::uint16_t, kVlCount>{} : weights.low);
    limit_[port] = weights.high_limit;  // kLimitUnbounded is longer than any streak
    low_turn_[port] = weights.low_turn;
    low_left_[port] = 0;
    has_turns_ = any(low_turn_ & ~spread(1));
    slow_[port] = weights.pointer == PointerKind::slow ? 0xffff : 0;
    streak_[port] = 0;
  }

  Picks pick(Lanes8 eligible) {
    const Lanes8 high = eligible & high_.member();
    const Lanes8 low = eligible & low_.member();
    const Lanes8 no_high = zero_words(high);
    const Lanes8 no_low = zero_words(low);
    const Lanes8 lows_turn = limit_reached();
    const Lanes8 urgent = eligible & control_;
    const Lanes8 not_urgent = zero_words(urgent);
    take_low_ = ~no_low & (no_high | lows_turn) & not_urgent;
    take_high_ = ~(no_high | take_low_) & not_urgent;
    low_waits_ = ~no_low;
    const Lanes8 no_table = no_high & no_low;
    const Lanes8 lanes = (low_.pick(low, slow_) & take_low_) |
                         (high_.pick(high, slow_) & take_high_) |
                         (lowest_lanes(eligible) & no_table);
    const Lanes8 one = spread(1);
    const Lanes8 keys = (take_high_ & one) | (take_low_ & (one + (no_high & one))) |
                        (no_table & spread(3)) | zero_words(eligible);
    return control_first({keys, lanes}, eligible, control_);
  }
  template <Isa>
  Lanes8 pick_lanes(Lanes8 eligible) {
    return pick(eligible).lanes;
  }
  template <Isa kIsa>
  void granted(Lanes8 lanes) {
    high_.spend<kIsa>(lanes & take_high_, slow_);
    low_.spend<kIsa>(lanes & take_low_, slow_);
    const Lanes8 stay = zero_words(lanes & (take_high_ | take_low_));
    const Lanes8 longer = smaller(streak_ + spread(1), spread(kLongStreak));
    const Lanes8 streak = (streak_ & stay) | (longer & take_high_ & low_waits_ & ~stay);
    streak_ = has_turns_ ? streak | low_turns(~zero_words(lanes & take_low_)) : streak;
  }
  template <Isa kIsa>
  void sent(Lanes8 lanes, Lanes8 /*ended*/, Cycle /*now*/) {
    granted<kIsa>(lanes);
  }

 private:
  static constexpr unsigned kLongStreak = 0xfffe;  // longer than any limit, shorter than none
  Lanes8 limit_reached() const { return reinterpret_cast<Lanes8>(streak_ >= limit_); }
  // At these ports a flit of the low table goes: one of a turn, if one is on or begins. Returns all
  // ones where a turn is on then: a streak that has reached every limit, until the turn has ended.
  Lanes8 low_turns(Lanes8 ports) {
    low_left_ |= low_turn_ & limit_reached() & zero_words(low_left_) & ports;
    low_left_ -= smaller(low_left_, spread(1)) & ports;
    return ~zero_words(low_left_);
  }
  WeightTables high_;
  WeightTables low_;
  Lanes8 streak_{};  // flits of the high table in a row while the low one waited
  Lanes8 limit_ = ~kNoLanes8;
  Lanes8 low_turn_ = spread(1);
  Lanes8 low_left_{};  // of a turn of the low table that has begun
  Lanes8 slow_{};
  // Of the last pick: which table it was from, and whether the low one waited.
  Lanes8 take_high_{};
  Lanes8 take_low_{};
  Lanes8 low_waits_{};
  Lanes8 control_{};
  bool one_level_ = false;
  bool has_turns_ = false;  // of more than one flit at some port
};

}  // namespace emu

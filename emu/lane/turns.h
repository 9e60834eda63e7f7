// Schedulers that take turns: round robin, and the two-level weighted round robin of InfiniBand VL
// arbitration (ACP section 3.3, PAPERS.md section 1). One object serves eight ports, each a word of
// its vectors. Lanes of control go strictly first. `pick` proposes, `granted` is told which of the
// last proposals were taken; how urgent a pick is against other inputs is its key: control 0, high
// table 1, low 2, no table 3. Called by fabric/router stages 1 and 4, and by hca/wire.
#pragma once

#include <algorithm>
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
  static constexpr bool per_message() { return false; }
  void head(unsigned, unsigned, Vtick) {}
  template <Isa>
  void arrive(BidRows&, Lanes8, Lanes8, std::uint32_t) {}
  void come_first(BidRows&, Lanes8, std::uint32_t) {}
  template <Isa>
  void leave(BidRows&, Lanes8) {}
  void front(unsigned, unsigned, Cycle, Cycle, Vtick) {}
  void tail(unsigned) {}
  template <Isa>
  void go_on(Lanes8, Cycle) {}
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
  void sent(Lanes8 lanes, Lanes8 /*ending*/, Cycle /*now*/) {
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
    member_[port] = single_[port] = 0;
    for (unsigned v = 0; v < kVlCount; ++v) {
      weight_.of[lane_slot(port, v)] = left_.of[lane_slot(port, v)] = weights[v];
      if (weights[v] != 0) member_[port] |= static_cast<LaneMask>(1U << v);
      if (weights[v] == 1) single_[port] |= static_cast<LaneMask>(1U << v);
    }
    above_[port] = turn_[port] = begun_[port] = owing_[port] = at_end_[port] = 0;
    open_[port] = member_[port];
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
    const Lanes8 unpaid = lanes & ~(open_ & (turn_ | ~slow));
    const Lanes8 holders = open_ & ((turn_ & slow) | (begun_ & ~slow));
    const Lanes8 owed = unpaid & ~at_end_ & ~zero_words(holders);
    const Lanes8 paid = lanes & ~owed;
    // Ports whose lane has nothing left begin a frame, by a slow pointer the lane alone a turn.
    const Lanes8 frames = ~zero_words(paid & ~(open_ | slow));
    const Lanes8 fresh = frames | (paid & slow & ~(turn_ & open_));
    const Lanes8 spent = take_one<kIsa>(lanes, frames, fresh);
    const Lanes8 stay = zero_words(lanes);
    open_ = ((open_ & ~frames) | (member_ & frames) | paid) & ~spent;
    at_end_ = (at_end_ & ~fresh) | (spent & single_);
    if (any(owed)) at_end_ |= at_end_of(owed);
    begun_ = (begun_ & ~frames) | (owing_ & frames) | lanes;
    owing_ = (owing_ & ~frames) | owed;
    turn_ = (turn_ & zero_words(paid)) | paid;
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
    if (any(turns)) FlitSlots(turns).visit([&](unsigned slot) { refill_slot(slot); });
    Lanes8 spent = kNoLanes8;
    FlitSlots(lanes).visit([&](unsigned slot) {
      if (--left_.of[slot] == 0) spent |= kOneLane.of[slot];
    });
    return spent;
  }
  void refill(unsigned port) {
    for (unsigned bits = begun_[port]; bits != 0; bits &= bits - 1)
      refill_slot(lane_slot(port, first_bit(bits)));
  }
  void refill_slot(unsigned slot) {
    const int owed = std::min<int>(static_cast<std::int16_t>(left_.of[slot]), 0);
    left_.of[slot] = static_cast<std::uint16_t>(weight_.of[slot] + owed);
  }
  // Of these, which have just spent a flit of what they will have.
  Lanes8 at_end_of(Lanes8 owed) const {
    Lanes8 at_end = kNoLanes8;
    FlitSlots(owed).visit([&](unsigned slot) {
      if (static_cast<std::uint16_t>(left_.of[slot] + weight_.of[slot]) == 1)
        at_end |= kOneLane.of[slot];
    });
    return at_end;
  }
  Lanes8 member_{};  // weight is not 0
  Lanes8 single_{};  // weight is 1
  Lanes8 open_{};    // left is more than 0
  // By a fast pointer: left is not the weight; is less than 0.
  Lanes8 begun_{};
  Lanes8 owing_{};
  Lanes8 at_end_{};   // owes all of its next weight but a flit
  Lanes8 above_{};    // where the turn goes on
  Lanes8 turn_{};     // lane served last
  SlotWords weight_;  // at most kWeightMax
  SlotWords left_;    // with a sign: less than 0 is owed
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
    whole_[port] = weights.whole_packets ? 0xffff : 0;
    has_whole_ = any(whole_);
    slow_[port] = weights.pointer == PointerKind::slow ? 0xffff : 0;
    streak_[port] = due_[port] = 0;
  }

  Picks pick(Lanes8 eligible) {
    const Lanes8 high = eligible & high_.member();
    const Lanes8 low = eligible & low_.member();
    const Lanes8 no_high = zero_words(high);
    const Lanes8 no_low = zero_words(low);
    const Lanes8 lows_turn = due_ | (streak_is_long() & ~whole_);
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
    const Lanes8 by_high = lanes & take_high_;
    const Lanes8 by_low = lanes & take_low_;
    high_.spend<kIsa>(by_high, slow_);
    low_.spend<kIsa>(by_low, slow_);
    const Lanes8 longer = smaller(streak_ + spread(1), spread(kLongStreak));
    const Lanes8 counts = ~zero_words(by_high) & low_waits_;
    const Lanes8 stay = (zero_words(by_high | by_low) | whole_) & ~counts;
    streak_ = (streak_ & stay) | (longer & counts);
    if (!has_whole_) return;
    from_high_ = (from_high_ & ~lanes) | by_high;
    from_low_ = (from_low_ & ~lanes) | by_low;
  }
  // Of the flits that were granted in this cycle the tails.
  void ended(Lanes8 tails) {
    if (!has_whole_) return;
    const Lanes8 turns_over = ~zero_words(tails & from_low_) & whole_;
    streak_ &= ~turns_over;
    due_ = (due_ & ~turns_over) | (~zero_words(tails & from_high_) & whole_ & streak_is_long());
  }
  template <Isa kIsa>
  void sent(Lanes8 lanes, Lanes8 /*ending*/, Cycle /*now*/) {
    granted<kIsa>(lanes);
  }
  void tail(unsigned slot) { ended(kOneLane.of[slot]); }

 private:
  static constexpr unsigned kLongStreak = 0xfffe;  // longer than any limit, shorter than none
  Lanes8 streak_is_long() const { return reinterpret_cast<Lanes8>(streak_ >= limit_); }
  WeightTables high_;
  WeightTables low_;
  Lanes8 streak_{};  // flits of the high table in a row while the low one waited
  Lanes8 limit_ = ~kNoLanes8;
  Lanes8 whole_{};  // whole words, as the next two: the Limit counts packets
  Lanes8 due_{};    // there: a packet of the low table goes
  Lanes8 slow_{};
  // The table that a lane's last flit went by.
  Lanes8 from_high_{};
  Lanes8 from_low_{};
  // Of the last pick: which table it was from, and whether the low one waited.
  Lanes8 take_high_{};
  Lanes8 take_low_{};
  Lanes8 low_waits_{};
  Lanes8 control_{};
  bool one_level_ = false;
  bool has_whole_ = false;
};

}  // namespace emu

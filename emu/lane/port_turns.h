// Schedulers that take turns, port by port: round robin, and the two-level weighted round robin of
// InfiniBand VL arbitration (ACP section 3.3, PAPERS.md section 1). What turns.h is to eight ports
// at once; for the ports of a block, most of which have nothing to send in a cycle. `pick` chooses,
// `granted` or `sent` is told when that lane's flit has gone; how urgent a pick is against other
// inputs: control 0, high table 1, low 2, no table 3. Called by fabric/router stages 1 and 4, and
// by hca/wire.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>

#include "emu/lane/policy.h"
#include "emu/lane/words.h"

namespace emu {

// Lanes above this one: where a turn goes on.
constexpr LaneMask lanes_above_of(unsigned vl) { return static_cast<LaneMask>(~1U << vl); }
// The first of `lanes`, which is not empty, in turn.
inline unsigned next_in_turn(unsigned lanes, unsigned above) {
  const unsigned ahead = lanes & above;
  return first_of(ahead != 0 ? ahead : lanes);
}

// The parts of a scheduler that only stamps need.
struct UnstampedPorts {
  static constexpr bool kStampsBids = false;
  void set_vtick(unsigned /*lane*/, Vtick) {}
  void front(unsigned /*lane*/, Cycle /*ready*/, Cycle /*now*/, Vtick) {}
  void fetch(unsigned /*lane*/) const {}
  void age(std::uint64_t /*moved*/) {}
};

class PortTurns : public UnstampedPorts {
 public:
  void configure(SchedulerKind /*kind*/, const std::array<Vtick, kVlCount>& /*vticks*/,
                 LaneMask control) {
    control_ = control;
  }
  void set_weights(unsigned /*port*/, const VlWeights& /*weights*/) {}

  template <Isa>
  PortPick pick(unsigned port, unsigned lanes) const {
    const unsigned urgent = lanes & control_;
    if (urgent != 0) [[unlikely]]
      return {first_of(urgent), 0};
    return {next_in_turn(lanes, above_[port]), 1};
  }
  void granted(unsigned lane) {
    const unsigned vl = vl_of_lane(lane);
    if ((control_ & lane_bit(vl)) == 0) above_[port_of_lane(lane)] = lanes_above_of(vl);
  }
  void sent(unsigned lane, bool /*ended*/, Cycle /*now*/) { granted(lane); }

 private:
  alignas(64) LaneWords above_{};
  unsigned control_ = 0;
};

// A table of weights of one port, and what is left of them.
class PortWeightTable {
 public:
  void load(const std::array<std::uint16_t, kVlCount>& weights) {
    weight_ = weights;
    member_ = above_ = turn_ = begun_ = owing_ = 0;
    for (unsigned vl = 0; vl < kVlCount; ++vl) {
      left_[vl] = static_cast<std::int16_t>(weights[vl]);
      if (weights[vl] != 0) member_ |= lane_bit(vl);
    }
    open_ = member_;
  }
  unsigned member() const { return member_; }
  // Of `waiting`, members, at least one.
  unsigned pick(unsigned waiting, bool slow) const {
    const unsigned paid = waiting & open_;
    if (slow) {
      const unsigned goes_on = paid & turn_;
      return goes_on != 0 ? first_of(goes_on) : next_in_turn(waiting, above_);
    }
    return next_in_turn(paid != 0 ? paid : waiting, above_);
  }
  void spend(unsigned vl, bool slow) {
    const LaneMask lane = lane_bit(vl);
    above_ = lanes_above_of(vl);
    const unsigned paid = slow ? open_ & turn_ : open_;
    if ((paid & lane) == 0) {
      if (owe(vl, slow)) return;
      if (slow) {
        refill(vl);  // the lane's turn begins
      } else {
        begin_frame();
      }
    }
    open_ |= lane;
    begun_ |= lane;
    turn_ = lane;
    take_one(vl);
  }

 private:
  void begin_frame() {
    for (unsigned vl = 0; vl < kVlCount; ++vl) refill(vl);
    open_ = member_;
    begun_ = std::exchange(owing_, 0);
  }
  void refill(unsigned vl) {
    left_[vl] = static_cast<std::int16_t>(weight_[vl] + std::min<int>(left_[vl], 0));
  }
  void take_one(unsigned vl) {
    if (--left_[vl] == 0) open_ &= static_cast<LaneMask>(~lane_bit(vl));
  }
  // The lane sends before one that has weight left and nothing to send now. False: there is none,
  // or this lane has nothing to give of its next weight.
  bool owe(unsigned vl, bool slow) {
    const unsigned holders = open_ & (slow ? turn_ : begun_);
    if (holders == 0 || left_[vl] <= 1 - weight_[vl]) return false;
    take_one(vl);
    begun_ |= lane_bit(vl);
    owing_ |= lane_bit(vl);
    return true;
  }
  std::array<std::uint16_t, kVlCount> weight_{};  // at most kWeightMax
  std::array<std::int16_t, kVlCount> left_{};     // less than 0 is owed
  LaneMask member_ = 0;                           // weight is not 0
  LaneMask open_ = 0;                             // left is more than 0
  // By a fast pointer: left is not the weight; is less than 0.
  LaneMask begun_ = 0;
  LaneMask owing_ = 0;
  LaneMask above_ = 0;  // where the turn goes on
  LaneMask turn_ = 0;   // lane served last
};

// The Limit of high priority of one port: whose turn it is while both tables wait.
class HighLimit {
 public:
  void load(const VlWeights& weights) {
    *this = {};
    if (weights.high_limit != kLimitUnbounded) limit_ = weights.high_limit;
    whole_packets_ = weights.whole_packets;
  }
  bool lows_turn() const { return whole_packets_ ? due_ : streak_ >= limit_; }
  // A flit of the high table goes, of the low one; then, if it was a tail.
  void high_sent(bool low_waits) {
    if (low_waits) {
      streak_ = std::min(streak_ + 1, kLongStreak);
    } else if (!whole_packets_) {
      streak_ = 0;
    }
  }
  void low_sent() {
    if (!whole_packets_) streak_ = 0;
  }
  void high_ended() { due_ |= whole_packets_ && streak_ >= limit_; }
  void low_ended() {
    if (!whole_packets_) return;
    due_ = false;
    streak_ = 0;
  }

 private:
  static constexpr unsigned kLongStreak = 0xfffe;  // longer than any limit, shorter than none
  unsigned streak_ = 0;  // flits of the high table in a row while the low one waited
  unsigned limit_ = kLongStreak + 1;
  bool whole_packets_ = false;  // the Limit counts them
  bool due_ = false;            // there: a packet of the low table goes
};

class PortWeights : public UnstampedPorts {
 public:
  void configure(SchedulerKind kind, const std::array<Vtick, kVlCount>& /*vticks*/,
                 LaneMask control) {
    one_level_ = kind == SchedulerKind::wrr;
    control_ = control;
  }
  void set_weights(unsigned port, const VlWeights& weights) {
    Port& p = port_[port];
    p = {};
    p.high.load(weights.high);
    if (!one_level_) p.low.load(weights.low);
    p.limit.load(weights);
    p.slow = weights.pointer == PointerKind::slow;
  }

  template <Isa>
  PortPick pick(unsigned port, unsigned lanes) {
    Port& p = port_[port];
    p.took = Table::none;
    const unsigned urgent = lanes & control_;
    if (urgent != 0) [[unlikely]]
      return {first_of(urgent), 0};
    const unsigned high = lanes & p.high.member();
    const unsigned low = lanes & p.low.member();
    p.low_waits = low != 0;
    if (low != 0 && (high == 0 || p.limit.lows_turn())) {
      p.took = Table::low;
      return {p.low.pick(low, p.slow), high == 0 ? 2U : 1U};
    }
    if (high != 0) {
      p.took = Table::high;
      return {p.high.pick(high, p.slow), 1};
    }
    return {first_of(lanes), 3};
  }
  void granted(unsigned lane) {
    Port& p = port_[port_of_lane(lane)];
    if (p.took == Table::high) {
      p.high.spend(vl_of_lane(lane), p.slow);
      p.limit.high_sent(p.low_waits);
    } else if (p.took == Table::low) {
      p.low.spend(vl_of_lane(lane), p.slow);
      p.limit.low_sent();
    }
  }
  // The flit of this lane, which was granted last at its port, was a tail.
  void ended(unsigned lane) {
    Port& p = port_[port_of_lane(lane)];
    if (p.took == Table::high) p.limit.high_ended();
    if (p.took == Table::low) p.limit.low_ended();
  }
  void sent(unsigned lane, bool tail, Cycle /*now*/) {
    granted(lane);
    if (tail) ended(lane);
  }

 private:
  enum class Table : std::uint8_t { none, high, low };
  struct Port {
    PortWeightTable high;
    PortWeightTable low;
    HighLimit limit;
    bool slow = false;
    // Of the last pick: which table it was from, and whether the low one waited.
    Table took = Table::none;
    bool low_waits = false;
  };
  std::array<Port, kBlockPorts> port_{};
  unsigned control_ = 0;
  bool one_level_ = false;
};

}  // namespace emu

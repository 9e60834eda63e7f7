// Schedulers that take turns: round robin, and the two-level weighted round robin of InfiniBand VL
// arbitration (ACP section 3.3, PAPERS.md section 1). One object serves eight ports. Lanes of
// control go strictly first. `pick` proposes, `granted` is told that the last proposal of the port
// was taken; how urgent a pick is against other inputs is its key: control 0, high table 1, low 2,
// no table 3. Called by fabric/router stages 1 and 4, and by hca/wire.
#pragma once

#include <array>
#include <cstdint>

#include "emu/lane/stamp.h"

namespace emu {

// Lanes above `lane`: where a turn goes on.
constexpr LaneMask lanes_above(unsigned lane) { return static_cast<LaneMask>(0xfffeU << lane); }
// The first lane of `lanes` in turn; lanes is not empty.
inline unsigned next_lane(LaneMask lanes, LaneMask above) {
  const unsigned ahead = unsigned{lanes} & above;
  return first_bit(ahead != 0 ? ahead : lanes);
}
inline Pick make_pick(unsigned key, unsigned lane) { return Pick{key | lane << 16}; }

// The parts of a scheduler that only stamps need.
struct Unstamped {
  static constexpr bool kStampsArrivals = false;
  static constexpr bool kTakesDummies = false;  // grants of lanes that are not there would count
  void set_vtick(unsigned, unsigned, Vtick) {}
  void head(unsigned, unsigned, Vtick) {}
  void arrive(unsigned, unsigned, std::uint32_t) {}
  void front(unsigned, unsigned, Cycle, Cycle, Vtick) {}
  void age(std::uint64_t) {}
};

class RoundRobin : public Unstamped {
 public:
  void configure(SchedulerKind /*kind*/, const std::array<Vtick, kVlCount>& /*vticks*/,
                 LaneMask control) {
    control_ = control;
  }
  void set_weights(unsigned, const VlWeights&) {}

  template <bool /*kUrgent*/>
  Pick pick(unsigned port, LaneMask eligible) const {
    if (eligible == 0) return kNoPick;
    const auto urgent = static_cast<LaneMask>(eligible & control_);
    if (urgent != 0) return make_pick(0, first_bit(urgent));
    return make_pick(1, next_lane(eligible, above_[port]));
  }
  void granted(unsigned port, unsigned lane) {
    if (((control_ >> lane) & 1U) == 0) above_[port] = lanes_above(lane);
  }
  void granted_slot(unsigned slot) { granted(slot / kLaneStride, slot % kLaneStride); }
  void granted_tail(unsigned port, unsigned lane) { granted(port, lane); }

 private:
  std::array<LaneMask, kPortsMax> above_{};
  LaneMask control_ = 0;
};

// One table of weights and what is left of them.
struct WeightTable {
  std::array<std::uint16_t, kVlCount> weight{};
  std::array<std::uint16_t, kVlCount> left{};
  LaneMask member = 0;  // weight is not 0
  LaneMask open = 0;    // left is not 0
  LaneMask above = 0;   // where the turn goes on
  std::uint8_t turn = 0;

  void load(const std::array<std::uint16_t, kVlCount>& weights) {
    *this = WeightTable{};
    weight = weights;
    for (unsigned v = 0; v < kVlCount; ++v)
      if (weight[v] != 0) member = static_cast<LaneMask>(member | 1U << v);
    refill();
  }
  unsigned pick(LaneMask waiting, PointerKind pointer) const {
    if (pointer == PointerKind::slow && ((waiting & open) >> turn & 1U) != 0) return turn;
    if (pointer == PointerKind::slow) return next_lane(waiting, above);
    const auto paid = static_cast<LaneMask>(waiting & open);
    return next_lane(paid != 0 ? paid : waiting, above);
  }
  void spend(unsigned lane, PointerKind pointer) {
    if (pointer == PointerKind::slow && (lane != turn || left[lane] == 0)) {
      left[lane] = weight[lane];
    } else if (pointer == PointerKind::fast && left[lane] == 0) {
      refill();
    }
    const auto bit = static_cast<LaneMask>(1U << lane);
    left[lane] = static_cast<std::uint16_t>(left[lane] - 1);
    open = static_cast<LaneMask>(left[lane] != 0 ? open | bit : open & ~bit);
    turn = static_cast<std::uint8_t>(lane);
    above = lanes_above(lane);
  }

 private:
  void refill() {
    left = weight;
    open = member;
  }
};

class TwoLevel : public Unstamped {
 public:
  void configure(SchedulerKind kind, const std::array<Vtick, kVlCount>& /*vticks*/,
                 LaneMask control) {
    one_level_ = kind == SchedulerKind::wrr;
    control_ = control;
  }
  void set_weights(unsigned port, const VlWeights& weights) {
    Port& p = ports_[port];
    p.high.load(weights.high);
    p.low.load(one_level_ ? std::array<std::uint16_t, kVlCount>{} : weights.low);
    p.limit = weights.high_limit;
    p.pointer = weights.pointer;
    p.streak = 0;
  }

  template <bool /*kUrgent*/>
  Pick pick(unsigned port, LaneMask eligible) {
    Port& p = ports_[port];
    p.level = Level::none;
    if (eligible == 0) return kNoPick;
    const auto urgent = static_cast<LaneMask>(eligible & control_);
    if (urgent != 0) return make_pick(0, first_bit(urgent));
    const auto high = static_cast<LaneMask>(eligible & p.high.member);
    const auto low = static_cast<LaneMask>(eligible & p.low.member);
    const bool lows_turn = p.limit != kLimitUnbounded && p.streak >= p.limit;
    p.low_waits = low != 0;
    if (low != 0 && (high == 0 || lows_turn)) {
      p.level = Level::low;
      return make_pick(high != 0 ? 1 : 2, p.low.pick(low, p.pointer));
    }
    if (high != 0) {
      p.level = Level::high;
      return make_pick(1, p.high.pick(high, p.pointer));
    }
    return make_pick(3, first_bit(eligible));
  }
  void granted(unsigned port, unsigned lane) {
    Port& p = ports_[port];
    if (p.level == Level::low) {
      p.low.spend(lane, p.pointer);
      p.streak = 0;
    } else if (p.level == Level::high) {
      p.high.spend(lane, p.pointer);
      p.streak = p.low_waits ? p.streak + 1 : 0;
    }
  }
  void granted_slot(unsigned slot) { granted(slot / kLaneStride, slot % kLaneStride); }
  void granted_tail(unsigned port, unsigned lane) { granted(port, lane); }

 private:
  enum class Level : std::uint8_t { none, high, low };
  struct Port {
    WeightTable high;
    WeightTable low;
    std::uint32_t streak = 0;  // flits of the high table in a row while the low one waited
    std::uint8_t limit = kLimitUnbounded;
    PointerKind pointer = PointerKind::fast;
    Level level = Level::none;  // of the last pick
    bool low_waits = false;     // at the last pick
  };
  std::array<Port, kPortsMax> ports_{};
  LaneMask control_ = 0;
  bool one_level_ = false;
};

}  // namespace emu

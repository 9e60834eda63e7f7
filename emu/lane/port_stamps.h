// FCFS, VirtualClock (by arrival or by head of line) and FGVC: the flit with the smallest stamp
// goes first (MW section 3, PAPERS.md section 1). One object serves the ports of a block, inputs of
// routers, where flits are stamped as they arrive, or links of HCAs, where a whole message is there
// at once. FCFS is Vtick 0: the stamp is the arrival. Lanes of control have the stamp 0 and so go
// before all others. Called by fabric/router stages 1 and 4, and by hca/wire.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "emu/lane/port_bids.h"
#include "emu/lane/stamp.h"
#include "emu/lane/words.h"

namespace emu {

// What a lane remembers to stamp its next flit.
struct PortClock {
  std::uint16_t aux = 0;  // auxVC: the stamp of the last flit
  Vtick vtick = 0;
};

// What both places share: the clocks of the lanes, each a PortClock or more than that.
template <class Clock>
class PortClocks {
 public:
  void configure(SchedulerKind kind, const std::array<Vtick, kVlCount>& lane_vtick,
                 LaneMask control) {
    per_message_ = kind == SchedulerKind::fgvc;
    head_of_line_ = kind == SchedulerKind::head_of_line;
    control_ = control;
    for (unsigned i = 0; i < kBlockLanes; ++i)
      set_vtick(i, has_lane_vticks(kind) ? lane_vtick[vl_of_lane(i)] : Vtick{0});
  }
  void set_vtick(unsigned lane, Vtick vtick) { clock_[lane].vtick = vtick; }
  void set_weights(unsigned /*port*/, const VlWeights& /*weights*/) {}

 protected:
  std::uint16_t tick(Clock& clock, std::uint32_t now) {
    return clock.aux = next_stamp(now, clock.aux, clock.vtick);
  }
  // The next flit of a lane gets its stamp.
  std::uint16_t tick(unsigned lane, std::uint32_t now) { return tick(clock_[lane], now); }
  bool is_control(unsigned lane) const { return (control_ >> vl_of_lane(lane) & 1U) != 0; }
  void age_clocks(std::uint64_t moved) {
    for (Clock& clock : clock_) clock.aux = aged_stamp(clock.aux, moved);
  }

  alignas(64) std::array<Clock, kBlockLanes> clock_{};
  unsigned control_ = 0;  // lanes that go strictly before all others
  bool per_message_ = false;
  bool head_of_line_ = false;
};

// At a crossbar input, also the stamps of all flits there: a flit touches one cache line of its
// lane.
template <unsigned kRing>
struct alignas(64) InputClock : PortClock {
  std::uint16_t arrived = 0;    // flits so far, modulo 2^16
  std::uint16_t granted = 0;    // and of those
  std::uint16_t bits = 0xffff;  // of a stamp: none for control
  std::array<std::uint16_t, kRing> stamp{};
};

// At crossbar inputs, for lanes that buffer less than 2^kPlanes flits. The stamp of the first flit
// of each lane is in its bid, which stage 4 compares.
template <int kPlanes>
class InputClocks : public PortClocks<InputClock<1U << kPlanes>> {
  static constexpr unsigned kRing = 1U << kPlanes;
  using Clock = InputClock<kRing>;
  using PortClocks<Clock>::clock_;
  using PortClocks<Clock>::per_message_;
  using PortClocks<Clock>::head_of_line_;
  using PortClocks<Clock>::tick;

 public:
  static constexpr bool kStampsBids = true;

  void configure(SchedulerKind kind, const std::array<Vtick, kVlCount>& lane_vtick,
                 LaneMask control) {
    PortClocks<Clock>::configure(kind, lane_vtick, control);
    for (unsigned lane = 0; lane < kBlockLanes; ++lane)
      clock_[lane].bits = this->is_control(lane) ? 0 : 0xffff;
  }
  bool per_message() const { return per_message_; }
  // The head of a message arrives; arrive() follows for its flit.
  void head(unsigned lane, Vtick vtick) {
    if (!per_message_) return;
    clock_[lane].aux = 0;
    clock_[lane].vtick = vtick;
  }
  // By VirtualClock by head of line: a flit gets its stamp as it becomes first of its lane.
  bool head_of_line() const { return head_of_line_; }
  template <bool kHeadOfLine>
  void arrive(PortBids& bids, unsigned lane, std::uint32_t now) {
    Clock& clock = clock_[lane];
    const unsigned place = clock.arrived++;
    const bool first = clock.granted == place;
    if constexpr (kHeadOfLine) {
      if (first) bids.set_stamp(lane, tick(clock, now) & clock.bits);
    } else {
      const auto stamp = static_cast<std::uint16_t>(tick(clock, now) & clock.bits);
      clock.stamp[place % kRing] = stamp;
      // Whether it is first cannot be predicted: that must not become a branch.
      const std::uint16_t old = bids.stamp(lane);
      bids.set_stamp(lane, __builtin_expect_with_probability(first, 1, 0.5) ? stamp : old);
    }
  }
  // The first flit of the lane has been granted; the next one, if there is one, is first now.
  template <bool kHeadOfLine>
  void granted(PortBids& bids, unsigned lane, std::uint32_t now) {
    Clock& clock = clock_[lane];
    const unsigned place = ++clock.granted;
    if constexpr (kHeadOfLine) {
      if (clock.arrived != place) bids.set_stamp(lane, tick(clock, now) & clock.bits);
    } else {
      // Of a lane that is empty now the stamp is of no meaning.
      bids.set_stamp(lane, clock.stamp[place % kRing]);
    }
  }
  // A flit of the lane is about to be granted.
  void fetch(unsigned lane) const { __builtin_prefetch(&clock_[lane]); }
  void age(PortBids& bids, std::uint64_t moved) {
    this->age_clocks(moved);
    for (unsigned lane = 0; lane < kBlockLanes; ++lane) {
      Clock& clock = clock_[lane];
      bids.set_stamp(lane, aged_stamp(bids.stamp(lane), moved) & clock.bits);
      for (std::uint16_t& stamp : clock.stamp) stamp = aged_stamp(stamp, moved) & clock.bits;
    }
  }
};

// At HCAs' links: all flits of a message arrive when it becomes ready to leave.
class SourceClocks : public PortClocks<PortClock> {
 public:
  template <Isa kIsa>
  PortPick pick(unsigned port, unsigned lanes) const {
    const std::uint16_t* stamps = &stamp_[block_lane(port, 0)];
    const unsigned lane = least_lane<kIsa>(stamps, lanes);
    return {lane, stamps[lane]};
  }
  // A message that became ready in cycle `ready` is now first in its lane.
  void front(unsigned lane, Cycle ready, Cycle now, Vtick vtick) {
    PortClock& clock = clock_[lane];
    if (per_message_) clock.vtick = vtick;
    if (is_control(lane)) {
      stamp_[lane] = limit_[lane] = 0;
      return;
    }
    if (head_of_line_) {
      stamp_[lane] = tick(lane, stamp_now(now));
      return;
    }
    const std::uint32_t before = per_message_ ? 0 : clock.aux;
    const FrontStamp front = front_stamp(ready, now, before, clock.vtick);
    limit_[lane] = front.limit;
    stamp_[lane] = front.stamp;
  }
  // A flit of the lane has left; `ended`: the last of its message.
  void sent(unsigned lane, bool ended, Cycle now) {
    if (head_of_line_) [[unlikely]] {
      if (ended)
        clock_[lane].aux = stamp_[lane];
      else if (!is_control(lane))
        stamp_[lane] = tick(lane, stamp_now(now));
      return;
    }
    // After each flit as after the last, which cannot be predicted: auxVC is read by the next
    // message alone, which brings a stamp of its own.
    clock_[lane].aux = stamp_[lane];
    const unsigned next = stamp_[lane] + unsigned{clock_[lane].vtick};
    stamp_[lane] = static_cast<std::uint16_t>(std::min<unsigned>(next, limit_[lane]));
  }
  void age(std::uint64_t moved) {
    age_clocks(moved);
    for (unsigned lane = 0; lane < kBlockLanes; ++lane) {
      if (is_control(lane)) continue;
      stamp_[lane] = aged_stamp(stamp_[lane], moved);
      limit_[lane] = aged_stamp(limit_[lane], moved);
    }
  }

 private:
  // Of the first flit of each lane.
  alignas(64) std::array<std::uint16_t, kBlockLanes> stamp_{};
  alignas(64) std::array<std::uint16_t, kBlockLanes> limit_{};
};

}  // namespace emu

// FCFS, VirtualClock (by arrival or by head of line) and FGVC: the flit with the smallest stamp
// goes first (MW section 3, PAPERS.md section 1). One object serves the eight inputs of a router,
// where flits are stamped as they arrive, or the links of eight HCAs, where a whole message is
// there at once. FCFS is Vtick 0: the stamp is the arrival. Called by fabric/router stages 1 and 4,
// and by hca/wire.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "emu/lane/bid.h"
#include "emu/lane/stamp.h"

namespace emu {

// What both places share: the clocks of the lanes.
class StampClocks {
 public:
  void configure(SchedulerKind kind, const std::array<Vtick, kVlCount>& lane_vtick,
                 LaneMask control) {
    per_message_ = kind == SchedulerKind::fgvc;
    head_of_line_ = kind == SchedulerKind::head_of_line;
    control_ = spread(control);
    for (unsigned port = 0; port < kPortsMax; ++port)
      for (unsigned lane = 0; lane < kVlCount; ++lane)
        set_vtick(port, lane, has_lane_vticks(kind) ? lane_vtick[lane] : Vtick{0});
  }
  void set_vtick(unsigned port, unsigned lane, Vtick vtick) {
    clock_[lane_slot(port, lane)].vtick = vtick;
  }
  void set_weights(unsigned /*port*/, const VlWeights& /*weights*/) {}
  // Lanes that go strictly before all others.
  Lanes8 control() const { return control_; }

 protected:
  struct Clock {
    std::uint16_t aux = 0;  // auxVC: the stamp of the last flit
    Vtick vtick = 0;
  };
  // The next flit of a lane gets its stamp.
  std::uint16_t tick(unsigned slot, std::uint32_t now) {
    Clock& clock = clock_[slot];
    return clock.aux = next_stamp(now, clock.aux, clock.vtick);
  }
  void age_clocks(BidRows& bids, std::uint64_t moved) {
    for (Clock& clock : clock_) clock.aux = aged_stamp(clock.aux, moved);
    for (unsigned slot = 0; slot < kDummySlot; ++slot)
      bids.set_stamp(slot, aged_stamp(bids.stamp(slot), moved));
  }

  alignas(64) std::array<Clock, kLaneSlots> clock_{};
  Lanes8 control_{};
  bool per_message_ = false;
  bool head_of_line_ = false;
};

// At a crossbar input: every flit gets its stamp when it arrives; that of the flit at the head of a
// lane is in the lane's bid. Lanes buffer less than 2^kPlanes flits.
template <int kPlanes>
class InputStamps : public StampClocks {
 public:
  // Stage 4 asks the bids alone (fabric/router/match.h).
  static constexpr bool kTakesTurns = false;

  // The head of a message arrives; arrive() follows for its flit.
  void head(unsigned port, unsigned lane, Vtick vtick) {
    if (per_message_) clock_[lane_slot(port, lane)] = {.aux = 0, .vtick = vtick};
  }
  // At most one flit a port.
  void arrive(BidRows& bids, Lanes8 flits, std::uint32_t now) {
    if (head_of_line_) return;
    FlitSlots(flits).visit([&](unsigned slot) {
      Ring& ring = ring_[slot];
      const std::uint16_t stamp = tick(slot, now);
      // Of an empty lane it is the first; else the bid is written where nobody looks.
      bids.set_stamp(ring.write == ring.read ? slot : kDummySlot, stamp);
      stamp_[slot][ring.write % kRing] = stamp;
      ++ring.write;
    });
  }
  // Another flit is now first in these lanes, at most two a port.
  void come_first(BidRows& bids, Lanes8 lanes, std::uint32_t now) {
    if (!head_of_line_) return;
    const auto stamp = [&](unsigned slot) { bids.set_stamp(slot, tick(slot, now)); };
    const Lanes8 first = lowest_lanes(lanes);
    FlitSlots(first).visit(stamp);
    FlitSlots(lanes & ~first).visit(stamp);
  }
  // For each flit that was granted, once the crossbar is set.
  void leave(BidRows& bids, unsigned slot) {
    Ring& ring = ring_[slot];
    ++ring.read;
    bids.set_stamp(slot, stamp_[slot][ring.read % kRing]);  // no matter what, of an empty lane
  }
  void age(BidRows& bids, std::uint64_t moved) {
    age_clocks(bids, moved);
    for (auto& lane : stamp_)
      for (auto& stamp : lane) stamp = aged_stamp(stamp, moved);
  }

 private:
  static constexpr unsigned kRing = 1U << kPlanes;
  struct Ring {
    std::uint8_t read = 0;
    std::uint8_t write = 0;
  };
  std::array<Ring, kLaneSlots> ring_{};
  alignas(64) std::array<std::array<std::uint16_t, kRing>, kLaneSlots> stamp_{};
};

// At an HCA's link: all flits of a message arrive when it becomes ready to leave.
class SourceStamps : public StampClocks {
 public:
  // A message that became ready in cycle `ready` is now first in its lane.
  void front(unsigned port, unsigned lane, Cycle ready, Cycle now, Vtick vtick) {
    const unsigned slot = lane_slot(port, lane);
    Clock& clock = clock_[slot];
    if (per_message_) clock.vtick = vtick;
    if (head_of_line_) return bids_.set_stamp(slot, tick(slot, stamp_now(now)));
    const auto behind = static_cast<std::int64_t>(now - ready);
    const std::int64_t arrival = static_cast<std::int64_t>(stamp_now(now)) - behind;
    const std::int64_t base =
        per_message_ ? arrival : std::max(arrival, static_cast<std::int64_t>(clock.aux));
    limit_[slot] = floor_one(arrival + kStampHorizon);
    bids_.set_stamp(slot, floor_one(std::min(base + clock.vtick, arrival + kStampHorizon)));
  }
  template <Isa kIsa>
  Lanes8 pick_lanes(Lanes8 eligible) const {
    const Lanes8 urgent = lowest_lanes(eligible & control_);
    if (any(urgent)) [[unlikely]]
      eligible = urgent | (eligible & zero_words(urgent));
    return smallest_lanes<kIsa>(bids_, eligible);
  }
  // The flits that leave are the last of their messages; before sent().
  void tails(Lanes8 lanes) {
    for (unsigned ports = ports_of(lanes); ports != 0; ports &= ports - 1) {
      const unsigned port = first_bit(ports);
      const unsigned slot = lane_slot(port, first_bit(lanes[port]));
      clock_[slot].aux = bids_.stamp(slot);
    }
  }
  // `ended`: those of `lanes` whose flit was a tail.
  void sent(Lanes8 lanes, Lanes8 ended, Cycle now) {
    if (head_of_line_) {
      FlitSlots(lanes & ~ended).visit([&](unsigned slot) {
        bids_.set_stamp(slot, tick(slot, stamp_now(now)));
      });
      return;
    }
    FlitSlots(lanes).visit([&](unsigned slot) {
      const unsigned next = bids_.stamp(slot) + unsigned{clock_[slot].vtick};
      bids_.set_stamp(slot, static_cast<std::uint16_t>(std::min<unsigned>(next, limit_[slot])));
    });
  }
  void age(std::uint64_t moved) {
    age_clocks(bids_, moved);
    for (auto& limit : limit_) limit = aged_stamp(limit, moved);
  }

 private:
  static std::uint16_t floor_one(std::int64_t stamp) {
    return static_cast<std::uint16_t>(std::max<std::int64_t>(stamp, 1));
  }
  BidRows bids_;  // without a way
  alignas(64) std::array<std::uint16_t, kLaneSlots> limit_{};
};

}  // namespace emu

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
#include "emu/lane/slot_words.h"
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
    vtick_.of[lane_slot(port, lane)] = vtick;
  }
  void set_weights(unsigned /*port*/, const VlWeights& /*weights*/) {}
  // Lanes that go strictly before all others.
  Lanes8 control() const { return control_; }

 protected:
  // The next flit of a lane gets its stamp.
  std::uint16_t tick(unsigned slot, std::uint32_t now) {
    return aux_.of[slot] = next_stamp(now, aux_.of[slot], vtick_.of[slot]);
  }
  void age_clocks(BidRows& bids, std::uint64_t moved) {
    for (std::uint16_t& aux : aux_.of) aux = aged_stamp(aux, moved);
    for (unsigned slot = 0; slot < kDummySlot; ++slot)
      bids.set_stamp(slot, aged_stamp(bids.stamp(slot), moved));
  }

  SlotWords aux_;  // auxVC: the stamp of the last flit
  SlotWords vtick_;
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
  // Of all this the stamps of flits behind the first of their lane: touched one at a time.
  static constexpr std::size_t kBehindBytes = sizeof(Bid) * ((kLaneSlots + 1) << kPlanes);

  InputStamps() {
    for (unsigned slot = 0; slot < kLaneSlots; ++slot) {
      first_.of[slot] = static_cast<std::uint16_t>((slot + 1) * kRing);
      last_.of[slot] = static_cast<std::uint16_t>(first_.of[slot] + kRing - 1);
    }
  }
  bool per_message() const { return per_message_; }
  // The head of a message arrives; arrive() follows for its flit.
  void head(unsigned port, unsigned lane, Vtick vtick) {
    if (!per_message_) return;
    aux_.of[lane_slot(port, lane)] = 0;
    vtick_.of[lane_slot(port, lane)] = vtick;
  }
  // At most one flit a port. `first`: those of them that come to an empty lane.
  template <Isa kIsa>
  void arrive(BidRows& bids, Lanes8 flits, [[maybe_unused]] Lanes8 first, std::uint32_t now) {
    if (head_of_line_) return;
#if defined(__x86_64__)
    if constexpr (kIsa == Isa::avx512) {
      if (several(flits)) return arrive_together(bids, flits, first, now);
    }
#endif
    FlitSlots(flits).visit([&](unsigned slot) {
      const std::uint16_t stamp = tick(slot, now);
      const std::uint16_t place = place_after(last_.of[slot]);
      // Of an empty lane it is the first; else the bid is written where nobody looks.
      bids.set_stamp(place == first_.of[slot] ? slot : kDummySlot, stamp);
      stamp_[place] = Bid{stamp} << kStampShift;
      last_.of[slot] = place;
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
  // For the flits that were granted, once the crossbar is set. What the bid of an empty lane is
  // then is no matter.
  template <Isa kIsa>
  void leave(BidRows& bids, Lanes8 lanes) {
#if defined(__x86_64__)
    if constexpr (kIsa == Isa::avx512) {
      if (several(lanes)) return leave_together(bids, lanes);
    }
#endif
    FlitSlots(lanes).visit([&](unsigned slot) {
      std::uint16_t& place = first_.of[slot];
      place = place_after(place);
      bids.set_stamp(slot, upper_half(stamp_[place]));
    });
  }
  void age(BidRows& bids, std::uint64_t moved) {
    age_clocks(bids, moved);
    for (auto& stamp : stamp_) set_upper_half(stamp, aged_stamp(upper_half(stamp), moved));
  }

 private:
  static constexpr unsigned kRing = 1U << kPlanes;
  static_assert((kLaneSlots + 1) * kRing <= 1 << 16, "a place is a word");
  static constexpr std::uint16_t place_after(unsigned place) {
    return static_cast<std::uint16_t>((place & ~(kRing - 1)) | ((place + 1) & (kRing - 1)));
  }
#if defined(__x86_64__)
  void arrive_together(BidRows& bids, Lanes8 flits, Lanes8 first, std::uint32_t now) {
    const Lanes8 stamps = tick_lanes(aux_, vtick_, flits, now);
    set_stamps(bids, first, stamps);
    put_stamps(stamp_.data(), advance_lanes<kRing>(last_, flits), stamps);
  }
  void leave_together(BidRows& bids, Lanes8 lanes) {
    const Lanes8 places = advance_lanes<kRing>(first_, lanes);
    set_stamps_at(bids, lanes, stamp_.data(), places);
  }
#endif
  // Of each lane a ring of stamps, behind one of nobody: the places of its first and of its last
  // flit. Stamps stand in upper halves, as in bids.
  SlotWords first_;
  SlotWords last_;
  alignas(64) std::array<Bid, std::size_t{kLaneSlots + 1} * kRing> stamp_{};
};

// At an HCA's link: all flits of a message arrive when it becomes ready to leave.
class SourceStamps : public StampClocks {
 public:
  void set_vtick(unsigned port, unsigned lane, Vtick vtick) {
    StampClocks::set_vtick(port, lane, vtick);
    charge_.set(lane_slot(port, lane), vtick);
  }
  void configure(SchedulerKind kind, const std::array<Vtick, kVlCount>& lane_vtick,
                 LaneMask control) {
    StampClocks::configure(kind, lane_vtick, control);
    for (unsigned slot = 0; slot < kLaneSlots; ++slot) charge_.set(slot, vtick_.of[slot]);
  }
  // A message that became ready in cycle `ready` is now first in its lane.
  void front(unsigned port, unsigned lane, Cycle ready, Cycle now, Vtick vtick) {
    const unsigned slot = lane_slot(port, lane);
    if (per_message_) set_vtick(port, lane, vtick);
    if (head_of_line_) return bids_.set_stamp(slot, tick(slot, stamp_now(now)));
    const std::uint32_t clock = per_message_ ? 0 : aux_.of[slot];
    const FrontStamp front = front_stamp(ready, now, clock, vtick_.of[slot]);
    limit_.set(slot, front.limit);
    bids_.set_stamp(slot, front.stamp);
  }
  template <Isa kIsa>
  Lanes8 pick_lanes(Lanes8 eligible) const {
    if (meet(eligible, control_)) [[unlikely]] {
      const Lanes8 urgent = lowest_lanes(eligible & control_);
      eligible = urgent | (eligible & zero_words(urgent));
    }
    return smallest_lanes<kIsa>(bids_, eligible);
  }
  // Flits of `lanes` leave; those that are `ending` are told of by go_on() or tail().
  template <Isa kIsa>
  void sent(Lanes8 lanes, Lanes8 ending, Cycle now) {
    lanes &= ~ending;
    if (head_of_line_) {
      FlitSlots(lanes).visit(
          [&](unsigned slot) { bids_.set_stamp(slot, tick(slot, stamp_now(now))); });
      return;
    }
#if defined(__x86_64__)
    if constexpr (kIsa == Isa::avx512) {
      if (several(lanes)) return charge_lanes(bids_, charge_, limit_, lanes);
    }
#endif
    FlitSlots(lanes).visit([&](unsigned slot) {
      const unsigned next = bids_.stamp(slot) + unsigned{vtick_.of[slot]};
      bids_.set_stamp(slot, static_cast<std::uint16_t>(std::min<unsigned>(next, limit_.get(slot))));
    });
  }
  // Those of the `ending` whose message goes on ...
  template <Isa kIsa>
  void go_on(Lanes8 lanes, Cycle now) {
    sent<kIsa>(lanes, kNoLanes8, now);
  }
  // ... and one that was a tail.
  void tail(unsigned slot) { aux_.of[slot] = bids_.stamp(slot); }
  void age(std::uint64_t moved) {
    age_clocks(bids_, moved);
    for (unsigned slot = 0; slot < kLaneSlots; ++slot)
      limit_.set(slot, aged_stamp(limit_.get(slot), moved));
  }

 private:
  BidRows bids_;  // without a way
  UpperWords limit_;
  UpperWords charge_;  // the Vticks, to be added to bids
};

}  // namespace emu

// FCFS, VirtualClock (by arrival or by head of line) and FGVC: the flit with the smallest stamp
// goes first (MW section 3, PAPERS.md section 1). One object serves the eight inputs of a router,
// where flits are stamped as they arrive, or the links of eight HCAs, where a whole message is
// there at once. FCFS is Vtick 0: the stamp is the arrival. Called by fabric/router stages 1 and 4,
// and by hca/wire.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "emu/lane/stamp.h"

namespace emu {

// Lanes of control go strictly before all others.
inline Picks control_first(Picks picks, Lanes8 eligible, Lanes8 control) {
  const Lanes8 urgent = lowest_lanes(eligible & control);
  if (!any(urgent)) [[likely]]
    return picks;
  const Lanes8 others = zero_words(urgent);
  return {picks.keys & others, urgent | (picks.lanes & others)};
}

// What both places share: the stamp of the flit at the head of every lane.
class StampHeads {
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
    vtick_[lane_slot(port, lane)] = vtick;
  }
  void set_weights(unsigned /*port*/, const VlWeights& /*weights*/) {}

  template <Isa kIsa>
  Picks pick(Lanes8 eligible) const {
    return control_first(smallest_stamps<kIsa>(head_, eligible), eligible, control_);
  }
  // The same when nobody asks how urgent they are.
  template <Isa kIsa>
  Lanes8 pick_lanes(Lanes8 eligible) const {
    if (!any(eligible & (eligible - spread(1)))) return eligible;  // no port has a choice
    return pick<kIsa>(eligible).lanes;
  }

 protected:
  void age_heads(std::uint64_t moved) {
    for (auto& stamp : head_) stamp = aged_stamp(stamp, moved);
    for (auto& stamp : aux_) stamp = aged_stamp(stamp, moved);
  }

  alignas(64) StampRows head_{};
  alignas(64) StampRows aux_{};
  alignas(64) StampRows vtick_{};
  Lanes8 control_{};
  bool per_message_ = false;
  bool head_of_line_ = false;
};

// At a crossbar input: every flit gets its stamp when it arrives. Lanes buffer less than 2^kPlanes
// flits.
template <int kPlanes>
class InputStamps : public StampHeads {
 public:
  // The head of a message arrives; arrive() follows for its flit.
  void head(unsigned port, unsigned lane, Vtick vtick) {
    if (!per_message_) return;
    vtick_[lane_slot(port, lane)] = vtick;
    aux_[lane_slot(port, lane)] = 0;
  }
  // At most one flit a port; those of `fresh` come into an empty lane.
  template <Isa kIsa>
  void arrive(Lanes8 flits, Lanes8 fresh, std::uint32_t now) {
    if (head_of_line_) return;
    const FlitSlots slots(flits);
    if (slots.few()) {
      slots.visit_few([&](unsigned slot) {
        const std::uint16_t stamp = next_stamp(now, aux_[slot], vtick_[slot]);
        aux_[slot] = stamp;
        // Of an empty lane it is the first; else it is written where nobody looks.
        head_[write_[slot] == read_[slot] ? slot : kDummySlot] = stamp;
        keep(slot, stamp);
      });
    } else {
      stamp_arrivals<kIsa>(aux_, head_, vtick_, flits, fresh, now);
      slots.visit_many([&](unsigned slot) { keep(slot, aux_[slot]); });
    }
  }
  // Another flit is now first in these lanes.
  template <Isa kIsa>
  void come_first(Lanes8 lanes, std::uint32_t now) {
    if (head_of_line_) stamp_arrivals<kIsa>(aux_, head_, vtick_, lanes, lanes, now);
  }
  void granted(Lanes8 /*lanes*/) {}
  // For each flit that was granted, once the crossbar is set.
  void leave(unsigned slot) {
    const auto r = static_cast<std::uint8_t>(read_[slot] + 1);
    read_[slot] = r;
    head_[slot] = ring_[slot][r % kRing];  // of no meaning when the lane is now empty
  }
  void age(std::uint64_t moved) {
    age_heads(moved);
    for (auto& ring : ring_)
      for (auto& stamp : ring) stamp = aged_stamp(stamp, moved);
  }

 private:
  void keep(unsigned slot, std::uint16_t stamp) {
    const unsigned w = write_[slot];
    ring_[slot][w % kRing] = stamp;
    write_[slot] = static_cast<std::uint8_t>(w + 1);
  }

  static constexpr unsigned kRing = 1U << kPlanes;
  std::array<std::uint8_t, kLaneSlots> read_{};
  std::array<std::uint8_t, kLaneSlots> write_{};
  alignas(64) std::array<std::array<std::uint16_t, kRing>, kLaneSlots> ring_{};
};

// At an HCA's link: all flits of a message arrive when it becomes ready to leave.
class SourceStamps : public StampHeads {
 public:
  // A message that became ready in cycle `ready` is now first in its lane.
  void front(unsigned port, unsigned lane, Cycle ready, Cycle now, Vtick vtick) {
    const unsigned i = lane_slot(port, lane);
    if (per_message_) vtick_[i] = vtick;
    if (head_of_line_) {
      head_[i] = aux_[i] = next_stamp(stamp_now(now), aux_[i], vtick_[i]);
      return;
    }
    const auto behind = static_cast<std::int64_t>(now - ready);
    const std::int64_t arrival = static_cast<std::int64_t>(stamp_now(now)) - behind;
    const std::int64_t base =
        per_message_ ? arrival : std::max(arrival, static_cast<std::int64_t>(aux_[i]));
    limit_[i] = floor_one(arrival + kStampHorizon);
    head_[i] = floor_one(std::min(base + vtick_[i], arrival + kStampHorizon));
  }
  // The flits that leave are the last of their messages; before sent().
  void tails(Lanes8 lanes) {
    for (unsigned ports = ports_of(lanes); ports != 0; ports &= ports - 1) {
      const unsigned port = first_bit(ports);
      const unsigned slot = lane_slot(port, first_bit(lanes[port]));
      aux_[slot] = head_[slot];
    }
  }
  // `ended`: those of `lanes` whose flit was a tail.
  template <Isa kIsa>
  void sent(Lanes8 lanes, Lanes8 ended, Cycle now) {
    if (head_of_line_) {
      const Lanes8 next = lanes & ~ended;
      return stamp_arrivals<kIsa>(aux_, head_, vtick_, next, next, stamp_now(now));
    }
    const FlitSlots slots(lanes);
    if (!slots.few()) return advance_stamps<kIsa>(head_, vtick_, limit_, lanes);
    slots.visit_few([&](unsigned slot) {
      const unsigned next = head_[slot] + unsigned{vtick_[slot]};
      head_[slot] = static_cast<std::uint16_t>(std::min<unsigned>(next, limit_[slot]));
    });
  }
  void age(std::uint64_t moved) {
    age_heads(moved);
    for (auto& limit : limit_) limit = aged_stamp(limit, moved);
  }

 private:
  static std::uint16_t floor_one(std::int64_t stamp) {
    return static_cast<std::uint16_t>(std::max<std::int64_t>(stamp, 1));
  }
  alignas(64) StampRows limit_{};
};

}  // namespace emu

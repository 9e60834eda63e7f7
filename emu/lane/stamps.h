// FCFS, VirtualClock and FGVC: the flit with the smallest stamp goes first (MW section 3, PAPERS.md
// section 1). One object serves the eight inputs of a router, where flits are stamped as they
// arrive, or the links of eight HCAs, where a whole message is there at once. FCFS is Vtick 0: the
// stamp is the arrival. Called by fabric/router stages 1 and 4, and by hca/wire.
#pragma once

#include <array>
#include <cstdint>

#include "emu/lane/stamp.h"

namespace emu {

// What both places share: the stamp of the flit at the head of every lane.
class StampHeads {
 public:
  static constexpr bool kTakesDummies = true;
  void configure(SchedulerKind kind, const std::array<Vtick, kVlCount>& lane_vtick,
                 LaneMask control) {
    per_message_ = kind == SchedulerKind::fgvc;
    control_ = control;
    for (unsigned port = 0; port < kPortsMax; ++port)
      for (unsigned lane = 0; lane < kVlCount; ++lane)
        vtick_[at(port, lane)] = kind == SchedulerKind::virtual_clock ? lane_vtick[lane] : Vtick{0};
  }
  void set_vtick(unsigned port, unsigned lane, Vtick vtick) { vtick_[at(port, lane)] = vtick; }
  void set_weights(unsigned /*port*/, const VlWeights& /*weights*/) {}

  // `kUrgent`: a lane of control may be among the eligible ones of this cycle.
  template <bool kUrgent>
  Pick pick(unsigned port, LaneMask eligible) const {
    if constexpr (kUrgent) {
      const unsigned urgent = unsigned{eligible} & control_;
      if (urgent != 0) return Pick{first_bit(urgent) << 16};
    }
    return smallest_stamp(&head_[at(port, 0)], eligible);
  }

 protected:
  static constexpr unsigned kLanes = kLaneSlots;
  static constexpr unsigned at(unsigned port, unsigned lane) { return lane_slot(port, lane); }

  void age_heads(std::uint64_t moved) {
    for (unsigned i = 0; i < kLanes; ++i) {
      head_[i] = aged_stamp(head_[i], moved);
      aux_[i] = aged_stamp(aux_[i], moved);
    }
  }

  alignas(16) std::array<std::uint16_t, kLanes> head_{};
  std::array<std::uint16_t, kLanes> aux_{};
  std::array<Vtick, kLanes> vtick_{};
  LaneMask control_ = 0;
  bool per_message_ = false;
};

// At a crossbar input: every flit gets its stamp when it arrives.
class InputStamps : public StampHeads {
 public:
  static constexpr bool kStampsArrivals = true;

  // The head of a message arrives; arrive() follows for its flit.
  void head(unsigned port, unsigned lane, Vtick vtick) {
    if (!per_message_) return;
    vtick_[at(port, lane)] = vtick;
    aux_[at(port, lane)] = 0;
  }
  void arrive(unsigned port, unsigned lane, std::uint32_t now) {
    const unsigned i = at(port, lane);
    const std::uint16_t stamp = next_stamp(now, aux_[i], vtick_[i]);
    aux_[i] = stamp;
    const unsigned w = write_[i];
    ring_[i][w % kRing] = stamp;
    write_[i] = static_cast<std::uint8_t>(w + 1);
    // Of an empty lane it is the first; else it is written where nobody looks. No branch: it would
    // be missed every other time.
    const unsigned behind = static_cast<unsigned>(w != read_[i]);
    head_[i + behind * (at(port, kVlCount) - i)] = stamp;
  }
  void granted(unsigned port, unsigned lane) { granted_slot(at(port, lane)); }
  void granted_slot(unsigned i) {
    const auto r = static_cast<std::uint8_t>(read_[i] + 1);
    read_[i] = r;
    head_[i] = ring_[i][r % kRing];  // of no meaning when the lane is now empty
  }
  void age(std::uint64_t moved) {
    age_heads(moved);
    for (unsigned i = 0; i < kLanes; ++i)
      for (auto& stamp : ring_[i]) stamp = aged_stamp(stamp, moved);
  }

 private:
  static constexpr unsigned kRing = kCountMax + 1;
  std::array<std::uint8_t, kLanes> read_{};
  std::array<std::uint8_t, kLanes> write_{};
  alignas(64) std::array<std::array<std::uint16_t, kRing>, kLanes> ring_{};
};

// At an HCA's link: all flits of a message arrive when it becomes ready to leave.
class SourceStamps : public StampHeads {
 public:
  // A message that became ready in cycle `ready` is now first in its lane.
  void front(unsigned port, unsigned lane, Cycle ready, Cycle now, Vtick vtick) {
    const unsigned i = at(port, lane);
    if (per_message_) vtick_[i] = vtick;
    const auto behind = static_cast<std::int64_t>(now - ready);
    const std::int64_t arrival = static_cast<std::int64_t>(stamp_now(now)) - behind;
    const std::int64_t base =
        per_message_ ? arrival : std::max(arrival, static_cast<std::int64_t>(aux_[i]));
    limit_[i] = floor_one(arrival + kStampHorizon);
    head_[i] = floor_one(std::min(base + vtick_[i], arrival + kStampHorizon));
  }
  void granted(unsigned port, unsigned lane) {
    const unsigned i = at(port, lane);
    const unsigned next = head_[i] + unsigned{vtick_[i]};
    head_[i] = static_cast<std::uint16_t>(std::min<unsigned>(next, limit_[i]));
  }
  // Instead of granted() for the last flit of a message.
  void granted_tail(unsigned port, unsigned lane) { aux_[at(port, lane)] = head_[at(port, lane)]; }
  void age(std::uint64_t moved) {
    age_heads(moved);
    for (auto& limit : limit_) limit = aged_stamp(limit, moved);
  }

 private:
  static std::uint16_t floor_one(std::int64_t stamp) {
    return static_cast<std::uint16_t>(std::max<std::int64_t>(stamp, 1));
  }
  std::array<std::uint16_t, kLanes> limit_{};
};

}  // namespace emu

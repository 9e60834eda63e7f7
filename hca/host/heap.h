// When each QP wants to be looked at again: one time per QP in a binary heap that knows where each
// QP stands, so times move in O(log n) and nothing is ever searched. Sized at start.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "emu/base/units.h"

namespace hca {

class WakeHeap {
 public:
  explicit WakeHeap(std::uint32_t members) : place_(members, kOut), at_(members, emu::kNever) {
    order_.reserve(members);
  }

  bool empty() const { return order_.empty(); }
  emu::Cycle first_time() const { return order_.empty() ? emu::kNever : at_[order_[0]]; }
  std::uint32_t first() const { return order_[0]; }
  emu::Cycle time_of(std::uint32_t member) const { return at_[member]; }

  // kNever takes the member out.
  void set(std::uint32_t member, emu::Cycle time) {
    if (time == emu::kNever) {
      remove(member);
      return;
    }
    if (place_[member] == kOut) {
      place_[member] = static_cast<std::uint32_t>(order_.size());
      order_.push_back(member);
    }
    at_[member] = time;
    sift_up(place_[member]);
    sift_down(place_[member]);
  }
  // Only ever earlier: the common case of several reasons to wake one QP.
  void set_if_earlier(std::uint32_t member, emu::Cycle time) {
    if (time < at_[member]) set(member, time);
  }
  void remove(std::uint32_t member) {
    at_[member] = emu::kNever;
    const std::uint32_t hole = place_[member];
    if (hole == kOut) return;
    place_[member] = kOut;
    const std::uint32_t moved = order_.back();
    order_.pop_back();
    if (moved == member) return;
    order_[hole] = moved;
    place_[moved] = hole;
    sift_up(hole);
    sift_down(place_[moved]);
  }

 private:
  static constexpr std::uint32_t kOut = ~0u;

  bool earlier(std::uint32_t a, std::uint32_t b) const {
    // Ties by number, so that a run does not depend on history.
    return std::pair(at_[order_[a]], order_[a]) < std::pair(at_[order_[b]], order_[b]);
  }
  void exchange(std::uint32_t a, std::uint32_t b) {
    std::swap(order_[a], order_[b]);
    place_[order_[a]] = a;
    place_[order_[b]] = b;
  }
  void sift_up(std::uint32_t i) {
    while (i > 0 && earlier(i, (i - 1) / 2)) {
      exchange(i, (i - 1) / 2);
      i = (i - 1) / 2;
    }
  }
  void sift_down(std::uint32_t i) {
    for (;;) {
      const auto size = static_cast<std::uint32_t>(order_.size());
      std::uint32_t best = i;
      for (std::uint32_t child = 2 * i + 1; child <= 2 * i + 2 && child < size; ++child) {
        if (earlier(child, best)) best = child;
      }
      if (best == i) return;
      exchange(i, best);
      i = best;
    }
  }

  std::vector<std::uint32_t> order_;  // heap of members
  std::vector<std::uint32_t> place_;  // member -> index in order_
  std::vector<emu::Cycle> at_;        // member -> time
};

}  // namespace hca

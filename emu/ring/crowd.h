// Whether a core can be given away for a moment (sched_yield) where others stand in line for it.
// Who works for programs gets it back within microseconds when those in line are the programs it
// works for; strangers keep it for milliseconds. So how long it was away decides whether it is
// given away again: not for a while where that took long, longer each time. Pure state, one a
// thread. Called by Patience (between looks) and emu/daemon (to whom was woken).
#pragma once

#include <algorithm>
#include <cstdint>

namespace emu {

class Crowd {
 public:
  // Longer than all parties of a connection need the core in turn, shorter than what others who
  // look or work keep it for.
  static constexpr std::uint64_t kCrowdedNs = 200'000;
  static constexpr std::uint64_t kAvoidNsMin = 2'000'000;  // one such turn may be chance
  static constexpr std::uint64_t kAvoidNsMax = 1'000'000'000;

  bool lets(std::uint64_t host_ns) const { return host_ns >= not_before_ns_; }

  // The core was given away, and is back.
  void gave(std::uint64_t from_ns, std::uint64_t until_ns) {
    if (until_ns - from_ns < kCrowdedNs) {
      if (until_ns - not_before_ns_ > avoid_ns_) avoid_ns_ = kAvoidNsMin;
      return;
    }
    not_before_ns_ = until_ns + avoid_ns_;
    avoid_ns_ = std::min(avoid_ns_ * 2, kAvoidNsMax);
  }

 private:
  std::uint64_t not_before_ns_ = 0;
  std::uint64_t avoid_ns_ = kAvoidNsMin;
};

}  // namespace emu

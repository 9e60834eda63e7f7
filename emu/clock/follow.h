// Emulated time waits for those who live in it: a process that the host starves would else act late
// in emulated time, and every measurement would be the host's. Each follower (an hcad) publishes
// the cycle up to which it has served; emulated time keeps within a window of the slowest. In: what
// it published, where time stands, host time; out: the cycle for which to wait. Pure state, one
// object per follower, asked once a turn of fabricd's loop.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>

#include "emu/base/units.h"

namespace emu {

// What a follower that sleeps and waits for nothing by itself has served.
inline constexpr Cycle kServedAll = kNever;

struct FollowOptions {
  Cycle window = 0;  // cycles that time may be ahead of a follower; 0: nobody is waited for
  std::uint64_t patience_ns = 200'000'000;
};

class Follower {
 public:
  // Time may go up to the returned cycle for the sake of this follower. `published` is untrusted:
  // the worst that it can do is to stop time for the patience.
  Cycle limit(const FollowOptions& options, Cycle published, Cycle now, std::uint64_t host_ns) {
    const std::uint64_t passed_ns = host_ns - asked_ns_;
    asked_ns_ = host_ns;
    if (options.window == 0) return kNever;
    const Cycle served = served_now(published);
    // Written so that no value can overflow.
    const bool holds = served < now && now - served >= options.window;
    // Not by moving alone: a liar moves, and whoever was starved comes near when it runs.
    if (!holds) stuck_ns_ = 0;
    // Who begins, and who was given up, counts again when it has come near by itself.
    if (!counted_) {
      counted_ = !holds && served != kServedAll;
      if (!counted_) return kNever;
    }
    // A pause of the asking process is nobody's fault: a long gap counts as little.
    if (holds) stuck_ns_ += std::min(passed_ns, kGapNsMost);
    if (stuck_ns_ >= options.patience_ns) {
      counted_ = false;
      ++given_up_;
      return kNever;
    }
    return served > kNever - options.window ? kNever : served + options.window;
  }

  // It was woken at `now`: from here on it has work, until it publishes something new.
  void woken(Cycle published, Cycle now) {
    promise_ = published;
    woken_at_ = now;
  }

  // How often it was given up since the last call.
  std::uint64_t take_given_up() { return std::exchange(given_up_, 0); }

 private:
  static constexpr std::uint64_t kGapNsMost = 10'000'000;

  Cycle served_now(Cycle published) {
    if (woken_at_ == kNever) return published;
    if (published == promise_) return std::min(published, woken_at_);
    woken_at_ = kNever;
    return published;
  }

  Cycle promise_ = 0;
  Cycle woken_at_ = kNever;  // kNever: not since it last published
  std::uint64_t asked_ns_ = 0;
  std::uint64_t stuck_ns_ = 0;
  std::uint64_t given_up_ = 0;
  bool counted_ = false;
};

}  // namespace emu

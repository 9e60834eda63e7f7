// How long to look before sleeping. A wake-up between processes costs tens of microseconds, more
// than a message's whole way when everybody is awake; looking costs a core. So what waits took
// before decides the next one (as the halt polling of Linux KVM does for idle virtual processors):
// who will wait little looks for a while, who will wait long sleeps at once. Waits come in
// patterns, long for a request and then short for what follows from it; as predictors of branches
// do, what came after the same last three waits, long or short, is expected again.
//
// In: host time, once a turn of a loop: found() when the turn had work, look_again() when it had
// none. Whoever looks again gives its core away first (sched_yield), since the one it waits for may
// stand in line for it. Where strangers use the core they keep it for milliseconds then (crowd.h);
// who sleeps is woken in front of them, so looking stops for a while when a turn took so long.
//
// Called by the loops of hcad and fabricd and by hca/verbs, one object each.
#pragma once

#include <cstdint>

#include "emu/ring/crowd.h"

namespace emu {

class Patience {
 public:
  // About what waking the parties of one message's way costs, there and back: longer waits are the
  // world's, not ours.
  static constexpr std::uint64_t kMostNs = 200'000;

  void found(std::uint64_t host_ns) {
    notice_crowd(host_ns);
    if (!waiting_) return;
    waiting_ = false;
    const unsigned is_short = host_ns - since_ns_ <= kMostNs ? 1 : 0;
    expect_short_ = (expect_short_ & ~(1U << recent_)) | is_short << recent_;
    recent_ = (recent_ << 1 | is_short) & kRecentMask;
  }

  // false: sleep.
  bool look_again(std::uint64_t host_ns) {
    notice_crowd(host_ns);
    if (!waiting_) {
      waiting_ = true;
      since_ns_ = host_ns;
    }
    looking_ = ((expect_short_ >> recent_) & 1U) != 0 && crowd_.lets(host_ns) &&
               host_ns - since_ns_ < kMostNs;
    looked_ns_ = host_ns;
    return looking_;
  }

 private:
  // The core was given away for one look.
  void notice_crowd(std::uint64_t host_ns) {
    if (!looking_) return;
    looking_ = false;
    crowd_.gave(looked_ns_, host_ns);
  }

  static constexpr unsigned kRecentMask = 7;

  std::uint64_t since_ns_ = 0;   // of this wait
  std::uint64_t looked_ns_ = 0;  // last
  Crowd crowd_;
  bool waiting_ = false;
  bool looking_ = false;
  unsigned recent_ = 0;  // the last three waits, one bit each: short. The last one is the lowest
  // One bit for each value of recent_. At first: as the last one was.
  unsigned expect_short_ = 0b1010'1010;
};

}  // namespace emu

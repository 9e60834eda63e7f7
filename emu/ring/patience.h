// How long to look before sleeping. A wake-up between processes costs tens of microseconds, more
// than a message's whole way when everybody is awake; looking costs a core. So what the last wait
// took decides the next one (as the halt polling of Linux KVM does for idle virtual processors):
// who waited little looks for a while, who waited long sleeps at once.
//
// In: host time, once a turn of a loop: found() when the turn had work, look_again() when it had
// none. Whoever looks again gives its core away first (sched_yield), since the one it waits for may
// stand in line for it. Where strangers use the core they keep it for milliseconds then; who sleeps
// is woken in front of them, so looking stops for a while when a turn took so long.
//
// Called by the loops of hcad and fabricd and by hca/verbs, one object each.
#pragma once

#include <algorithm>
#include <cstdint>

namespace emu {

class Patience {
 public:
  // About what waking the parties of one message's way costs, there and back: longer waits are the
  // world's, not ours.
  static constexpr std::uint64_t kMostNs = 100'000;
  // Longer than all parties of a connection need the core in turn, shorter than a time slice.
  static constexpr std::uint64_t kCrowdedNs = 700'000;
  static constexpr std::uint64_t kAvoidNsMin = 20'000'000;
  static constexpr std::uint64_t kAvoidNsMax = 1'000'000'000;

  void found(std::uint64_t host_ns) {
    notice_crowd(host_ns);
    if (!waiting_) return;
    waiting_ = false;
    patient_ = host_ns - since_ns_ <= kMostNs && host_ns >= not_before_ns_;
  }

  // false: sleep.
  bool look_again(std::uint64_t host_ns) {
    notice_crowd(host_ns);
    if (!waiting_) {
      waiting_ = true;
      since_ns_ = host_ns;
    }
    looking_ = patient_ && host_ns - since_ns_ < kMostNs;
    looked_ns_ = host_ns;
    return looking_;
  }

 private:
  // The core was given away for one look.
  void notice_crowd(std::uint64_t host_ns) {
    if (!looking_) return;
    looking_ = false;
    if (host_ns - looked_ns_ < kCrowdedNs) {
      if (host_ns - not_before_ns_ > avoid_ns_) avoid_ns_ = kAvoidNsMin;
      return;
    }
    patient_ = false;
    not_before_ns_ = host_ns + avoid_ns_;
    avoid_ns_ = std::min(avoid_ns_ * 2, kAvoidNsMax);
  }

  std::uint64_t since_ns_ = 0;   // of this wait
  std::uint64_t looked_ns_ = 0;  // last
  std::uint64_t not_before_ns_ = 0;
  std::uint64_t avoid_ns_ = kAvoidNsMin;
  bool waiting_ = false;
  bool looking_ = false;
  bool patient_ = false;
};

}  // namespace emu

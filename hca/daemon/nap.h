// Whether the loop naps, and how long, or sleeps until somebody wakes it. In: packets moved, host
// time, emulated time. Steady traffic that is paced by launch times comes whether we look often or
// not: a nap gathers work and spares wake-ups (eight nodes on two cores: half the time of all
// hcads). Traffic that waits for answers, packet by packet or by a window of them, falls to what is
// under way at once a nap: tried for a window, noticed by its rate, and left alone for longer each
// time. Rates are by emulated time where that is the slower one: many nodes on few cores must not
// wake one another more often the less they get done.
#pragma once

#include <algorithm>
#include <cstdint>

namespace hca {

class Naps {
 public:
  static constexpr std::uint64_t kWindowNs = 8'000'000;
  // Below it wake-ups cost little. Half of it is still more than one packet each way a nap.
  static constexpr std::uint64_t kSteadyPerSecond = 12'000;
  // Of the rate without naps; paced traffic swings by less from window to window.
  static constexpr double kPacedShare = 2.0 / 3;
  static constexpr int kProofWindows = 4;  // a rate that has lasted so long under naps is paced
  static constexpr std::uint64_t kDilationMost = 64;  // that counts: a clock may stand still
  static constexpr std::uint64_t kNapNs = 1'000'000;  // emulated, a tenth of the launch horizon
  static constexpr std::uint64_t kLongestNapNs = 4'000'000;  // host time: programs may come
  static constexpr std::uint64_t kPenaltyNsMin = 50'000'000;
  static constexpr std::uint64_t kPenaltyNsMax = 2'000'000'000;

  void count(std::uint64_t packets) { packets_ += packets; }

  // Called once a turn of the loop; true: nap.
  bool nap(std::uint64_t host_ns, std::uint64_t emulated_ns) {
    const std::uint64_t passed_ns = host_ns - start_ns_;
    if (passed_ns < kWindowNs) return napping_;
    const std::uint64_t emulated_passed_ns = emulated_ns - emulated_start_ns_;
    const std::uint64_t slower_ns =
        std::clamp(emulated_passed_ns, passed_ns / kDilationMost, passed_ns);
    const std::uint64_t rate = packets_ * 1'000'000'000 / slower_ns;
    nap_ns_ = std::min(kNapNs * passed_ns / slower_ns, kLongestNapNs);
    start_ns_ = host_ns;
    emulated_start_ns_ = emulated_ns;
    packets_ = 0;
    if (!napping_) {
      napping_ = rate >= kSteadyPerSecond && host_ns >= not_before_ns_;
      windows_ = 0;
      awake_rate_ = static_cast<double>(rate);
    } else if (rate * 2 < kSteadyPerSecond ||
               static_cast<double>(rate) < kPacedShare * awake_rate_) {
      napping_ = false;
      if (windows_ < kProofWindows) {
        not_before_ns_ = host_ns + penalty_ns_;
        penalty_ns_ = std::min(penalty_ns_ * 2, kPenaltyNsMax);
      }
    } else if (++windows_ >= kProofWindows) {
      penalty_ns_ = kPenaltyNsMin;
    }
    return napping_;
  }

  // How long: host time in which about kNapNs of emulated time pass.
  std::uint64_t nap_ns() const { return nap_ns_; }

 private:
  std::uint64_t nap_ns_ = kNapNs;
  std::uint64_t start_ns_ = 0;
  std::uint64_t emulated_start_ns_ = 0;
  std::uint64_t packets_ = 0;
  std::uint64_t not_before_ns_ = 0;
  std::uint64_t penalty_ns_ = kPenaltyNsMin;
  double awake_rate_ = 0;  // packets a second in the window before the naps began
  int windows_ = 0;
  bool napping_ = false;
};

}  // namespace hca

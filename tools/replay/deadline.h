// Frame deadlines as the papers define them (RN section 4, ACP section 6, MW section 5): in come a
// frame's number and the emulated time at which it was complete, out go DMP, DMT, d and sigma_d.
// Called by the sink and by the cluster tests; no I/O, no clock, no allocation.
#pragma once

#include <cmath>
#include <cstdint>
#include <optional>

#include "emu/base/check.h"
#include "emu/base/units.h"

namespace tools {

// Frames per second as a fraction, so that frame k has an exact time and nothing drifts.
struct FrameRate {
  std::uint32_t frames = 30;
  std::uint32_t seconds = 1;

  // Time of `count` frames in nanoseconds, rounded down: 30/1 gives 33'333'333 for one frame.
  constexpr emu::EmuNs ns_of(std::uint64_t count) const {
    return static_cast<emu::EmuNs>(static_cast<emu::WideUint>(count) * 1'000'000'000U * seconds /
                                   frames);
  }
  bool operator==(const FrameRate&) const = default;
};

// What one arrival meant.
struct FrameVerdict {
  emu::EmuNs deadline_ns = 0;
  bool missed = false;
  emu::EmuNs late_ns = 0;  // arrival - deadline if missed, else 0
};

// "The deadline for each frame is determined by adding 33.3 ms to the previous deadline. However,
// if a previous frame missed its deadline, a new deadline is set by adding 33.3 ms to the arrival
// time of the previous frame." The papers leave the first deadline open. It is `first_deadline_ns`
// where the sender's clock is known (33.3 ms after the first frame's time), else the first arrival
// itself.
//
// Frames are numbered in the order in which they are sent. A gap (a frame that its sender dropped)
// moves the deadline by one frame time for each number and has no interval; an arrival with a
// number that is not larger than the last one is a duplicate or overtaken frame: counted, and
// measured by nothing else.
class DeadlineMeter {
 public:
  explicit DeadlineMeter(FrameRate rate = {},
                         std::optional<emu::EmuNs> first_deadline_ns = std::nullopt)
      : rate_(rate), first_deadline_ns_(first_deadline_ns) {
    CHECK(rate.frames > 0 && rate.seconds > 0);
  }

  FrameVerdict arrive(std::uint64_t frame, emu::EmuNs arrival_ns) {
    if (delivered_ > 0 && frame <= last_frame_) {
      ++repeated_;
      return {};
    }
    if (delivered_ == 0) {
      anchor_frame_ = frame;
      anchor_ns_ = first_deadline_ns_.value_or(arrival_ns);
    } else {
      skipped_ += frame - last_frame_ - 1;
      // Unsigned wrap is meant: completion times of one CQ never run backwards, but if a clock did,
      // the interval is negative and must not become 2^64.
      if (frame == last_frame_ + 1)
        add_interval(static_cast<double>(static_cast<std::int64_t>(arrival_ns - last_arrival_ns_)));
    }
    const FrameVerdict verdict = judge(frame, arrival_ns);
    ++delivered_;
    last_frame_ = frame;
    last_arrival_ns_ = arrival_ns;
    return verdict;
  }

  std::uint64_t delivered() const { return delivered_; }
  std::uint64_t missed() const { return missed_; }
  std::uint64_t repeated() const { return repeated_; }  // duplicated or overtaken
  std::uint64_t skipped() const { return skipped_; }    // numbers that never came in between
  std::uint64_t late_ns_total() const { return late_ns_total_; }
  std::uint64_t intervals() const { return intervals_; }

  // Deadline missing probability: missed / delivered.
  double dmp() const {
    return delivered_ == 0 ? 0.0 : static_cast<double>(missed_) / static_cast<double>(delivered_);
  }
  // Deadline missing time: mean lateness of the frames that missed.
  double dmt_ms() const {
    return missed_ == 0 ? 0.0
                        : static_cast<double>(late_ns_total_) / static_cast<double>(missed_) / 1e6;
  }
  // Mean d and standard deviation sigma_d of the time between two successive frames.
  double interval_mean_ms() const { return intervals_ == 0 ? 0.0 : interval_mean_ns_ / 1e6; }
  double interval_sd_ms() const {
    return intervals_ == 0 ? 0.0 : std::sqrt(interval_m2_ / static_cast<double>(intervals_)) / 1e6;
  }

 private:
  FrameVerdict judge(std::uint64_t frame, emu::EmuNs arrival_ns) {
    FrameVerdict verdict;
    verdict.deadline_ns = anchor_ns_ + rate_.ns_of(frame - anchor_frame_);
    if (arrival_ns > verdict.deadline_ns) {
      verdict.missed = true;
      verdict.late_ns = arrival_ns - verdict.deadline_ns;
      ++missed_;
      late_ns_total_ += verdict.late_ns;
      anchor_frame_ = frame;
      anchor_ns_ = arrival_ns;
    }
    return verdict;
  }

  // Welford: one pass, no cancellation over hours of frames.
  void add_interval(double interval_ns) {
    ++intervals_;
    const double delta = interval_ns - interval_mean_ns_;
    interval_mean_ns_ += delta / static_cast<double>(intervals_);
    interval_m2_ += delta * (interval_ns - interval_mean_ns_);
  }

  FrameRate rate_;
  std::optional<emu::EmuNs> first_deadline_ns_;
  std::uint64_t anchor_frame_ = 0;  // the frame whose deadline (or late arrival) is anchor_ns_
  emu::EmuNs anchor_ns_ = 0;
  std::uint64_t last_frame_ = 0;
  emu::EmuNs last_arrival_ns_ = 0;
  std::uint64_t delivered_ = 0;
  std::uint64_t missed_ = 0;
  std::uint64_t repeated_ = 0;
  std::uint64_t skipped_ = 0;
  std::uint64_t late_ns_total_ = 0;
  std::uint64_t intervals_ = 0;
  double interval_mean_ns_ = 0;
  double interval_m2_ = 0;
};

// The input regulator (MW section 4.3): a frame's messages leave at a regular interval, the last
// one `slack_ns` before the frame's time is over, whatever their number. So the time between two
// complete frames does not depend on their sizes, and the network has `slack_ns` until the deadline
// (with the papers' interval T/n the slack would be T/n, 0.1 to 2 ms).
struct LaunchPlan {
  emu::EmuNs launch_ns = 0;   // of the piece's first packet
  std::uint32_t span_ns = 0;  // packet i of the piece's n leaves at launch + i * span / n
};
// The piece of a frame of `packets` packets that begins with packet `first` and has `count` of
// them.
constexpr LaunchPlan plan_launch(emu::EmuNs frame_ns, FrameRate rate, std::uint32_t packets,
                                 std::uint32_t slack_ns, std::uint32_t first, std::uint32_t count) {
  const emu::EmuNs period_ns = rate.ns_of(1);
  const emu::EmuNs usable_ns = period_ns > slack_ns ? period_ns - slack_ns : 0;
  if (packets <= 1) return {frame_ns + usable_ns, 0};
  return {frame_ns + usable_ns * first / (packets - 1),
          static_cast<std::uint32_t>(usable_ns * count / (packets - 1))};
}

}  // namespace tools

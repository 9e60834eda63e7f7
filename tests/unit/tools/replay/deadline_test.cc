// Deadline arithmetic: examples worked by hand from the papers' words, and random arrivals against
// a plain restatement of the rule.
#include "tools/replay/deadline.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "emu/base/prng.h"

namespace tools {
namespace {

constexpr emu::EmuNs kMs = 1'000'000;

TEST(FrameRate, DoesNotDrift) {
  const FrameRate rate;
  EXPECT_EQ(rate.ns_of(1), 33'333'333U);
  EXPECT_EQ(rate.ns_of(3), 100 * kMs);
  EXPECT_EQ(rate.ns_of(30ULL * 3600 * 24 * 365), 365ULL * 24 * 3600 * 1'000'000'000);
}

TEST(DeadlineMeter, PunctualStreamMissesNothing) {
  DeadlineMeter meter;
  for (std::uint64_t k = 0; k < 300; ++k) {
    const FrameVerdict verdict = meter.arrive(k, 7 * kMs + FrameRate{}.ns_of(k));
    EXPECT_FALSE(verdict.missed) << k;
  }
  EXPECT_EQ(meter.delivered(), 300U);
  EXPECT_EQ(meter.dmp(), 0.0);
  EXPECT_EQ(meter.dmt_ms(), 0.0);
  EXPECT_NEAR(meter.interval_mean_ms(), 100.0 / 3, 1e-6);
  EXPECT_NEAR(meter.interval_sd_ms(), 0.0, 1e-6);
}

// Ten frames a second, so that the numbers are round. Arrivals in ms: 0, 100, 230, 330, 420, 531.
TEST(DeadlineMeter, LateFrameMovesTheDeadlinesAfterIt) {
  DeadlineMeter meter({.frames = 10, .seconds = 1});
  EXPECT_FALSE(meter.arrive(0, 0).missed);
  EXPECT_FALSE(meter.arrive(1, 100 * kMs).missed);  // due at 100: on time
  const FrameVerdict late = meter.arrive(2, 230 * kMs);
  EXPECT_TRUE(late.missed);  // due at 200
  EXPECT_EQ(late.deadline_ns, 200 * kMs);
  EXPECT_EQ(late.late_ns, 30 * kMs);
  EXPECT_FALSE(meter.arrive(3, 330 * kMs).missed);  // due at 230 + 100
  EXPECT_FALSE(meter.arrive(4, 420 * kMs).missed);  // due at 430: early does not move deadlines
  const FrameVerdict last = meter.arrive(5, 531 * kMs);
  EXPECT_TRUE(last.missed);  // due at 530
  EXPECT_EQ(last.late_ns, 1 * kMs);
  EXPECT_DOUBLE_EQ(meter.dmp(), 2.0 / 6);
  EXPECT_DOUBLE_EQ(meter.dmt_ms(), 15.5);
  // Intervals 100, 130, 100, 90, 111: mean 106.2, mean of squares 11464.2.
  EXPECT_NEAR(meter.interval_mean_ms(), 106.2, 1e-9);
  EXPECT_NEAR(meter.interval_sd_ms(), std::sqrt(11464.2 - 106.2 * 106.2), 1e-9);
}

TEST(DeadlineMeter, FirstDeadlineMayBeKnown) {
  DeadlineMeter strict({.frames = 10, .seconds = 1}, 90 * kMs);
  const FrameVerdict first = strict.arrive(0, 95 * kMs);
  EXPECT_TRUE(first.missed);
  EXPECT_EQ(first.late_ns, 5 * kMs);
  EXPECT_FALSE(strict.arrive(1, 195 * kMs).missed);  // due at 95 + 100
  DeadlineMeter relaxed({.frames = 10, .seconds = 1}, 96 * kMs);
  EXPECT_FALSE(relaxed.arrive(0, 95 * kMs).missed);
  EXPECT_EQ(relaxed.arrive(1, 195 * kMs).deadline_ns, 196 * kMs);
}

TEST(DeadlineMeter, DroppedFramesMoveTheDeadlineOn) {
  DeadlineMeter meter({.frames = 10, .seconds = 1});
  meter.arrive(0, 0);
  EXPECT_EQ(meter.arrive(4, 399 * kMs).deadline_ns, 400 * kMs);
  EXPECT_EQ(meter.skipped(), 3U);
  EXPECT_EQ(meter.missed(), 0U);
  EXPECT_EQ(meter.intervals(), 0U) << "of frames that follow one another";
  meter.arrive(5, 499 * kMs);
  EXPECT_EQ(meter.intervals(), 1U);
  EXPECT_NEAR(meter.interval_mean_ms(), 100, 1e-9);
}

TEST(DeadlineMeter, RepeatedFramesAreCountedAndMeasuredByNothingElse) {
  DeadlineMeter meter({.frames = 10, .seconds = 1});
  meter.arrive(0, 0);
  meter.arrive(1, 100 * kMs);
  meter.arrive(1, 150 * kMs);
  meter.arrive(0, 160 * kMs);
  meter.arrive(2, 200 * kMs);
  EXPECT_EQ(meter.repeated(), 2U);
  EXPECT_EQ(meter.delivered(), 3U);
  EXPECT_EQ(meter.missed(), 0U);
  EXPECT_NEAR(meter.interval_sd_ms(), 0.0, 1e-9);
}

// The rule once more, kept in doubles and vectors: slow and plain.
struct PlainMeter {
  std::vector<double> late_ms;
  std::vector<double> intervals_ms;
  double previous_deadline = 0;
  double previous_arrival = 0;
  bool previous_missed = false;
  std::uint64_t delivered = 0;

  void arrive(double arrival_ms, double period_ms) {
    double deadline = arrival_ms;
    if (delivered > 0) {
      deadline = (previous_missed ? previous_arrival : previous_deadline) + period_ms;
      intervals_ms.push_back(arrival_ms - previous_arrival);
    }
    previous_missed = arrival_ms > deadline;
    if (previous_missed) late_ms.push_back(arrival_ms - deadline);
    previous_deadline = deadline;
    previous_arrival = arrival_ms;
    ++delivered;
  }
};

double mean_of(const std::vector<double>& values) {
  return values.empty() ? 0
                        : std::accumulate(values.begin(), values.end(), 0.0) /
                              static_cast<double>(values.size());
}

TEST(DeadlineMeter, AgreesWithThePlainRuleOnRandomArrivals) {
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    emu::Prng prng(seed);
    // 40 frames/s: the frame time is a whole number of nanoseconds, so both sums are exact.
    const FrameRate rate{.frames = 40, .seconds = 1};
    DeadlineMeter meter(rate);
    PlainMeter plain;
    emu::EmuNs arrival = 0;
    const std::uint64_t jitter_ns = 1 + prng.below(20'000'000);
    for (std::uint64_t k = 0; k < 500; ++k) {
      const emu::EmuNs due = rate.ns_of(k) + prng.below(static_cast<std::uint32_t>(jitter_ns));
      arrival = std::max(arrival, due);
      meter.arrive(k, arrival);
      plain.arrive(static_cast<double>(arrival) / 1e6, 25.0);
    }
    EXPECT_EQ(meter.missed(), plain.late_ms.size());
    EXPECT_NEAR(meter.dmt_ms(), mean_of(plain.late_ms), 1e-6);
    EXPECT_NEAR(meter.interval_mean_ms(), mean_of(plain.intervals_ms), 1e-6);
    std::vector<double> squares;
    for (const double d : plain.intervals_ms) {
      squares.push_back((d - mean_of(plain.intervals_ms)) * (d - mean_of(plain.intervals_ms)));
    }
    EXPECT_NEAR(meter.interval_sd_ms(), std::sqrt(mean_of(squares)), 1e-6);
    EXPECT_GT(meter.missed(), 0U);  // else the seeds test nothing
  }
}

TEST(PlanLaunch, LastPacketLeavesTheSlackBeforeTheFrameTimeIsOver) {
  const FrameRate rate;
  constexpr emu::EmuNs kStart = 1'000'000;
  constexpr emu::EmuNs kWanted = kStart + 33'333'333 - 500'000;
  for (const std::uint32_t packets : {2U, 3U, 40U, 286U}) {
    const LaunchPlan plan = plan_launch(kStart, rate, packets, 500'000, 0, packets);
    EXPECT_EQ(plan.launch_ns, kStart);
    const std::uint64_t last =
        plan.launch_ns + std::uint64_t{plan.span_ns} * (packets - 1) / packets;
    EXPECT_LE(last, kWanted);
    EXPECT_GE(last + 2, kWanted) << packets;
  }
  EXPECT_EQ(plan_launch(kStart, rate, 1, 500'000, 0, 1).launch_ns, kWanted);
}

TEST(PlanLaunch, PiecesFollowOneAnotherEvenly) {
  const FrameRate rate;
  const LaunchPlan whole = plan_launch(0, rate, 100, 500'000, 0, 100);
  const LaunchPlan second = plan_launch(0, rate, 100, 500'000, 32, 32);
  EXPECT_NEAR(static_cast<double>(second.launch_ns), whole.span_ns * 0.32, 2);
  EXPECT_NEAR(second.span_ns, whole.span_ns * 0.32, 2);
}

}  // namespace
}  // namespace tools

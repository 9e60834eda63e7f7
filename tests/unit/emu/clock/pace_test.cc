// The three clock modes, with host time handed in.
#include "emu/clock/pace.h"

#include <gtest/gtest.h>

#include "emu/base/prng.h"

namespace emu {
namespace {

PaceOptions options(ClockMode mode) {
  PaceOptions o;
  o.mode = mode;
  o.cycle_time.cycle_ps = 320'000;
  o.slack_ns = 20'000'000;
  o.hard_limit_ns = 50'000'000;
  o.quantum_ns = 100'000;
  return o;
}
constexpr std::uint64_t kStart = 5'000'000'000;

// Steps an engine that always keeps up until the pace says it is on time.
Cycle catch_up(Pace& pace, Cycle reached, std::uint64_t host_ns) {
  for (int turn = 0; turn < 100'000; ++turn) {
    const Cycle next = pace.target(reached, host_ns, false);
    if (next == reached) return reached;
    reached = next;
  }
  ADD_FAILURE() << "never caught up";
  return reached;
}

TEST(Pace, AheadOfTimeThereIsNothingToDo) {
  Pace pace(options(ClockMode::elastic), 1000, kStart);
  EXPECT_EQ(pace.target(1000, kStart, true), 1000U);
  EXPECT_EQ(pace.target(1000, kStart + 319, true), 1000U);
  EXPECT_EQ(pace.target(1000, kStart + 320, true), 1001U);
  EXPECT_EQ(pace.due_ns(1001), kStart + 320);
}

TEST(Pace, OneTurnIsAtMostOneQuantum) {
  Pace pace(options(ClockMode::elastic), 0, kStart);
  const Cycle quantum = CycleTime{320'000}.cycle_at(100'000);
  EXPECT_EQ(pace.target(0, kStart + 5'000'000, true), quantum);
}

TEST(Pace, ElasticCatchesUpWithinTheSlack) {
  Pace pace(options(ClockMode::elastic), 0, kStart);
  const Cycle reached = catch_up(pace, 0, kStart + 20'000'000);
  EXPECT_EQ(reached, 20'000'000U / 320);
  EXPECT_EQ(pace.given_up_ns(), 0U);
  EXPECT_GT(pace.lag_max_ns(), 19'000'000U);
}

TEST(Pace, ElasticGivesUpWhatExceedsTheSlack) {
  Pace pace(options(ClockMode::elastic), 0, kStart);
  const Cycle reached = catch_up(pace, 0, kStart + 1'000'000'000);
  // A second passed in one gap; only slack and one quantum of it become emulated time.
  EXPECT_NEAR(static_cast<double>(reached) * 320, 20'100'000, 1000);
  EXPECT_NEAR(static_cast<double>(pace.given_up_ns()), 1e9 - 20'100'000, 1000);
  EXPECT_FALSE(pace.hard_limit_exceeded());
}

TEST(Pace, ElasticDilatesWhenTheEngineIsTooSlow) {
  // The engine needs 2 ns of host time for each emulated ns.
  Pace pace(options(ClockMode::elastic), 0, kStart);
  std::uint64_t host = kStart;
  Cycle reached = 0;
  while (host < kStart + 5'000'000'000) {
    const Cycle next = pace.target(reached, host, true);
    host += next == reached ? 10'000 : (next - reached) * 640;
    reached = next;
  }
  EXPECT_NEAR(pace.dilation().window, 2.0, 0.02);
  EXPECT_NEAR(pace.dilation().overall, 2.0, 0.1);
  EXPECT_LE(pace.lag_ns(), 21'000'000U);
}

TEST(Pace, OnTimeTheDilationIsOne) {
  Pace pace(options(ClockMode::elastic), 77, kStart);
  std::uint64_t host = kStart;
  Cycle reached = 77;
  for (; host < kStart + 3'000'000'000; host += 50'000) reached = pace.target(reached, host, true);
  EXPECT_NEAR(pace.dilation().overall, 1.0, 0.001);
  EXPECT_EQ(pace.lag_max_ns(), 0U);
  EXPECT_EQ(pace.lag_quantile_ns(0.99), 0U);
}

TEST(Pace, RealModeStopsBeyondTheHardLimit) {
  Pace pace(options(ClockMode::real), 0, kStart);
  pace.target(0, kStart + 50'000'000, true);
  EXPECT_FALSE(pace.hard_limit_exceeded());
  pace.target(0, kStart + 50'200'000, true);
  EXPECT_TRUE(pace.hard_limit_exceeded());
  EXPECT_EQ(pace.given_up_ns(), 0U);
}

TEST(Pace, RealModeNeverGivesTimeUp) {
  Pace pace(options(ClockMode::real), 0, kStart);
  EXPECT_EQ(catch_up(pace, 0, kStart + 40'000'000), 40'000'000U / 320);
}

TEST(Pace, VirtualModeRunsAsFastAsThereIsWork) {
  Pace pace(options(ClockMode::virtual_), 0, kStart);
  Cycle reached = 0;
  for (int i = 0; i < 10'000; ++i) reached = pace.target(reached, kStart, true);  // host stands
  EXPECT_EQ(reached, 10'000 * CycleTime{320'000}.cycle_at(100'000));
  // Without work it follows the host from where it is.
  EXPECT_EQ(pace.target(reached, kStart, false), reached);
  EXPECT_EQ(pace.target(reached, kStart + 640, false), reached + 2);
  EXPECT_EQ(pace.lag_max_ns(), 0U);
}

TEST(Pace, AnIdleFabricFollowsAtOnceAndIsNotLate) {
  Pace pace(options(ClockMode::elastic), 0, kStart);
  EXPECT_EQ(pace.idle_target(0, kStart + 1'000'000), 3125U);
  EXPECT_EQ(pace.lag_max_ns(), 0U);
  // Stopped for ten seconds: emulated time does not jump by them.
  const Cycle after = pace.idle_target(3125, kStart + 10'001'000'000);
  EXPECT_LE(after * 320, 1'000'000U + kDozeNsMost + 22'000'000);
  EXPECT_GE(pace.given_up_ns(), 9'900'000'000U);
}

TEST(Pace, TheLongestDozeIsNoLag) {
  Pace pace(options(ClockMode::elastic), 0, kStart);
  (void)pace.idle_target(0, kStart + kDozeNsMost + 1'000'000);
  EXPECT_EQ(pace.lag_max_ns(), 0U);
}

TEST(Pace, WhatCameBeforeTheFirstTurnIsNoLag) {
  Pace pace(options(ClockMode::real), 0, kStart);
  pace.start(0, kStart + 500'000'000);
  EXPECT_EQ(pace.target(0, kStart + 500'000'000, true), 0U);
  EXPECT_FALSE(pace.hard_limit_exceeded());
  EXPECT_EQ(pace.lag_max_ns(), 0U);
}

TEST(Pace, WaitingAtTheLimitIsLag) {
  Pace pace(options(ClockMode::elastic), 0, kStart);
  EXPECT_EQ(pace.target(0, kStart + 1'000'000, true, 100), 100U);
  EXPECT_FALSE(pace.held());
  EXPECT_EQ(pace.target(100, kStart + 10'000'000, true, 100), 100U);
  EXPECT_TRUE(pace.held());
  EXPECT_EQ(pace.target(100, kStart + 12'000'000, true, 40), 100U);  // never back
  EXPECT_EQ(pace.idle_target(100, kStart + 12'000'000, 200), 200U);
  EXPECT_GT(pace.lag_ns(), 9'000'000U);
  EXPECT_GT(pace.target(100, kStart + 12'000'000, true), 100U);
  EXPECT_FALSE(pace.held());
  EXPECT_EQ(pace.held_ns(), 2'000'000U);
}

TEST(Pace, WaitingTooLongEndsRealMode) {
  Pace pace(options(ClockMode::real), 0, kStart);
  for (std::uint64_t ms = 1; ms <= 51; ++ms) pace.target(0, kStart + ms * 1'000'000, true, 0);
  EXPECT_TRUE(pace.hard_limit_exceeded());
}

TEST(Pace, VirtualModeWaitsTooAndIsNeverLate) {
  Pace pace(options(ClockMode::virtual_), 0, kStart);
  EXPECT_EQ(pace.target(0, kStart, true, 10), 10U);
  EXPECT_EQ(pace.target(10, kStart + 5'000'000, true, 10), 10U);
  EXPECT_TRUE(pace.held());
  EXPECT_EQ(pace.lag_max_ns(), 0U);
}

TEST(Pace, NeverRunsBackwardsUnderRandomHostGaps) {
  const std::uint64_t seed = 20261121;
  SCOPED_TRACE(seed);
  Prng prng(seed);
  for (const auto mode : {ClockMode::real, ClockMode::elastic, ClockMode::virtual_}) {
    Pace pace(options(mode), 0, kStart);
    std::uint64_t host = kStart;
    Cycle reached = 0;
    for (int i = 0; i < 50'000; ++i) {
      host += prng.below(100) == 0 ? prng.below(60'000'000) : prng.below(200'000);
      const Cycle next = pace.target(reached, host, prng.below(2) == 0);
      ASSERT_GE(next, reached);
      ASSERT_LE(next - reached, 313U);
      reached = next;
    }
    // Nobody's emulated time outruns the host, virtual mode aside.
    if (mode != ClockMode::virtual_) {
      EXPECT_LE(reached * 320, host - kStart);
    }
  }
}

TEST(Pace, QuantilesOfTheLagAreUpperBounds) {
  Pace pace(options(ClockMode::elastic), 0, kStart);
  std::uint64_t host = kStart;
  Cycle reached = 0;
  for (int i = 0; i < 100; ++i) {
    // Every tenth turn begins 3 ms late, the others 50 us after the last.
    host += i % 10 == 9 ? 3'100'000 : 50'000;
    reached = catch_up(pace, reached, host);
  }
  EXPECT_EQ(pace.lag_quantile_ns(0.0), 0U);
  EXPECT_GE(pace.lag_quantile_ns(1.0), 3'000'000U);
  EXPECT_LE(pace.lag_quantile_ns(1.0), 3'100'000U);
}

}  // namespace
}  // namespace emu

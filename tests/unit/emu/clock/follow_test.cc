// For whom time waits, for how long, and when it stops waiting.
#include "emu/clock/follow.h"

#include <gtest/gtest.h>

#include "emu/base/prng.h"
#include "emu/clock/pace.h"

namespace emu {
namespace {

constexpr std::uint64_t kMs = 1'000'000;
constexpr std::uint64_t kFollowStart = 5'000'000'000;
constexpr FollowOptions kOptions{1000, 200 * kMs};

TEST(Follower, WhoHasNotCaughtUpYetIsNotWaitedFor) {
  Follower follower;
  EXPECT_EQ(follower.limit(kOptions, 0, 50'000, kFollowStart), kNever);
  EXPECT_EQ(follower.limit(kOptions, 49'000, 50'000, kFollowStart), kNever);
  EXPECT_EQ(follower.limit(kOptions, 49'001, 50'000, kFollowStart), 50'001U);
}

TEST(Follower, TimeKeepsWithinTheWindow) {
  Follower follower;
  follower.limit(kOptions, 50'000, 50'000, kFollowStart);
  EXPECT_EQ(follower.limit(kOptions, 50'000, 50'900, kFollowStart + kMs), 51'000U);
  EXPECT_EQ(follower.limit(kOptions, 50'000, 51'000, kFollowStart + 2 * kMs), 51'000U);
  EXPECT_EQ(follower.limit(kOptions, 50'700, 51'000, kFollowStart + 3 * kMs), 51'700U);
}

TEST(Follower, WhoPromisesNothingIsNotWaitedForUntilWoken) {
  Follower follower;
  follower.limit(kOptions, 50'000, 50'000, kFollowStart);
  EXPECT_EQ(follower.limit(kOptions, kServedAll, 60'000, kFollowStart), kNever);
  EXPECT_EQ(follower.limit(kOptions, kNever - 500, 60'000, kFollowStart), kNever);
  EXPECT_EQ(follower.limit(kOptions, kServedAll, 90'000, kFollowStart), kNever);
  follower.woken(kServedAll, 90'000);
  EXPECT_EQ(follower.limit(kOptions, kServedAll, 90'500, kFollowStart), 91'000U);
  // Awake, it says so itself.
  EXPECT_EQ(follower.limit(kOptions, 90'400, 90'500, kFollowStart), 91'400U);
  EXPECT_EQ(follower.limit(kOptions, kServedAll, 90'500, kFollowStart), kNever);
}

TEST(Follower, OneThatIsStuckIsGivenUpOnceAndCountsAgainWhenItIsNear) {
  Follower follower;
  follower.limit(kOptions, 50'000, 50'000, kFollowStart);
  std::uint64_t host = kFollowStart;
  // Not at the limit: no patience is used up.
  for (int i = 0; i < 1000; ++i) follower.limit(kOptions, 50'000, 50'999, host += kMs);
  EXPECT_EQ(follower.take_given_up(), 0U);
  int turns = 0;
  while (follower.limit(kOptions, 50'000, 51'000, host += kMs) != kNever && turns < 1000) ++turns;
  EXPECT_EQ(turns, 199);
  EXPECT_EQ(follower.take_given_up(), 1U);
  EXPECT_EQ(follower.take_given_up(), 0U);
  EXPECT_EQ(follower.limit(kOptions, 50'001, 60'000, host), kNever);  // moves, but far behind
  EXPECT_EQ(follower.limit(kOptions, 59'500, 60'000, host), 60'500U);
}

TEST(Follower, APauseOfTheFabricIsNobodysFault) {
  Follower follower;
  follower.limit(kOptions, 50'000, 50'000, kFollowStart);
  follower.limit(kOptions, 50'000, 51'000, kFollowStart + kMs);
  EXPECT_EQ(follower.limit(kOptions, 50'000, 51'000, kFollowStart + 60'000 * kMs), 51'000U);
  EXPECT_EQ(follower.take_given_up(), 0U);
}

TEST(Follower, AWindowOfNothingWaitsForNobody) {
  Follower follower;
  EXPECT_EQ(follower.limit({0, 200 * kMs}, 50'000, 50'000, kFollowStart), kNever);
  EXPECT_EQ(follower.limit({0, 200 * kMs}, 50'000, 90'000, kFollowStart), kNever);
}

TEST(Follower, AStarvedOneCostsDilationAndIsNeverLeftBehind) {
  // It serves half of host time: 1 ms of emulated time for each 2 ms of the host.
  PaceOptions options;
  options.cycle_time.cycle_ps = 320'000;
  const FollowOptions follow{options.cycle_time.cycle_at(4 * kMs), 200 * kMs};
  Pace pace(options, 0, kFollowStart);
  Follower follower;
  Cycle reached = 0;
  Cycle served = 0;
  std::uint64_t host = kFollowStart;
  for (int turn = 0; turn < 100'000; ++turn, host += 50'000) {
    if (turn % 40 == 0) served = std::min(reached, served + options.cycle_time.cycle_at(kMs));
    const Cycle limit = follower.limit(follow, served, reached, host);
    reached = pace.target(reached, host, true, limit);
    ASSERT_LE(reached, served + follow.window);
  }
  EXPECT_NEAR(pace.dilation().overall, 2.0, 0.05);
  EXPECT_EQ(follower.take_given_up(), 0U);
  EXPECT_GT(pace.held_ns(), 1'000 * kMs);
  EXPECT_GT(pace.given_up_ns(), 2'000 * kMs);
}

TEST(Follower, OneThatMovesWithoutComingNearIsGivenUpLikeOneThatIsStuck) {
  Follower follower;
  follower.limit(kOptions, 50'000, 50'000, kFollowStart);
  std::uint64_t host = kFollowStart;
  int turns = 0;
  while (turns < 1000 &&
         follower.limit(kOptions, 50'000U ^ (turns % 2U), 51'001, host += kMs) != kNever)
    ++turns;
  EXPECT_EQ(turns, 199);
  EXPECT_EQ(follower.take_given_up(), 1U);
}

TEST(Follower, WhateverItWritesTimeGoesOn) {
  const std::uint64_t seed = 11;
  SCOPED_TRACE(seed);
  Prng prng(seed);
  PaceOptions options;
  options.cycle_time.cycle_ps = 320'000;
  const FollowOptions follow{options.cycle_time.cycle_at(4 * kMs), 200 * kMs};
  Pace pace(options, 0, kFollowStart);
  Follower follower;
  Cycle reached = 0;
  Cycle before = 0;
  std::uint64_t host = kFollowStart;
  std::uint64_t word = 0;
  for (int turn = 0; turn < 200'000; ++turn, host += 50'000) {
    // Now and then it jumps anywhere, then stays.
    if (prng.below(1000) == 0) word = prng.below(2) == 0 ? prng() : prng() % (2 * reached + 1);
    if (prng.below(5000) == 0) follower.woken(word, reached);
    reached = pace.target(reached, host, false, follower.limit(follow, word, reached, host));
    ASSERT_GE(reached, before);
    if (turn % 10'000 == 9'999) {  // half a second
      ASSERT_GT(reached, before);
      before = reached;
    }
  }
}

}  // namespace
}  // namespace emu

#include "emu/ring/patience.h"

#include <gtest/gtest.h>

namespace {

using emu::Crowd;
using emu::Patience;

TEST(Patience, SleepsUntilAShortWaitWasSeen) {
  Patience patience;
  EXPECT_FALSE(patience.look_again(1'000));
  EXPECT_FALSE(patience.look_again(2'000));
  patience.found(1'000 + Patience::kMostNs);  // short: from now on it looks
  EXPECT_TRUE(patience.look_again(500'000));
}

TEST(Patience, LooksForAsLongAsShortWaitsTakeThenSleeps) {
  Patience patience;
  (void)patience.look_again(0);
  patience.found(10);
  constexpr std::uint64_t kBegin = 1'000'000;
  EXPECT_TRUE(patience.look_again(kBegin));
  EXPECT_TRUE(patience.look_again(kBegin + Patience::kMostNs - 1));
  EXPECT_FALSE(patience.look_again(kBegin + Patience::kMostNs));
  EXPECT_FALSE(patience.look_again(kBegin + 5 * Patience::kMostNs));
}

TEST(Patience, ALongWaitEndsIt) {
  Patience patience;
  (void)patience.look_again(0);
  patience.found(10);
  (void)patience.look_again(1'000);
  patience.found(1'000 + Patience::kMostNs + 1);
  EXPECT_FALSE(patience.look_again(2'000'000));  // an idle process never looks twice
}

// A request after a long silence, its acknowledgement, the answer: the waits within are looked
// through, the silence is not.
TEST(Patience, LearnsWhichWaitsAreShort) {
  Patience patience;
  std::uint64_t now = 0;
  const auto wait = [&](std::uint64_t wait_ns) {
    const std::uint64_t end = now + wait_ns;
    const bool looks = patience.look_again(now);
    while (now < end && patience.look_again(now)) now += 10'000;
    patience.found(now = end);
    return looks;
  };
  for (int round = 0; round < 3; ++round) {
    (void)wait(3'000'000);
    (void)wait(50'000);
    (void)wait(50'000);
  }
  for (int round = 0; round < 10; ++round) {
    EXPECT_FALSE(wait(3'000'000)) << round;
    EXPECT_TRUE(wait(50'000)) << round;
    EXPECT_TRUE(wait(50'000)) << round;
  }
}

// Somebody else had the core for milliseconds: sleepers come before it, lookers do not.
TEST(Patience, AStrangerOnTheCoreEndsItForAWhileLongerEachTime) {
  Patience patience;
  std::uint64_t now = 0;
  const auto short_waits = [&] {
    for (int i = 0; i < 4; ++i) {
      (void)patience.look_again(now += 1'000);
      patience.found(now += 1'000);
    }
  };
  std::uint64_t avoided_ns = Crowd::kAvoidNsMin;
  for (int i = 0; i < 3; ++i, avoided_ns *= 2) {
    short_waits();
    ASSERT_TRUE(patience.look_again(now += 1'000)) << i;
    patience.found(now += Crowd::kCrowdedNs);
    const std::uint64_t until = now + avoided_ns;
    while (now + 8'000 < until) {
      short_waits();
      ASSERT_FALSE(patience.look_again(now)) << i;
      patience.found(now += avoided_ns / 10);
    }
    now = until;
  }
}

TEST(Patience, OwnLongTurnsAreNoStrangers) {
  Patience patience;
  (void)patience.look_again(0);
  patience.found(10);
  patience.found(10 + 2 * Crowd::kCrowdedNs);  // a turn with much work; nothing was given away
  EXPECT_TRUE(patience.look_again(20 + 2 * Crowd::kCrowdedNs));
}

TEST(Patience, WorkWithoutAWaitChangesNothing) {
  Patience patience;
  (void)patience.look_again(0);
  patience.found(10);
  for (std::uint64_t ns = 10; ns < 10'000'000; ns += 1'000'000) patience.found(ns);
  EXPECT_TRUE(patience.look_again(20'000'000));
}

}  // namespace

#include "emu/clock/doze.h"

#include <gtest/gtest.h>

namespace emu {
namespace {

constexpr std::uint64_t kMillisecond = 1'000'000;

// Who is paced by the clock page is never later than a fifth of the silence before.
TEST(Doze, StepsAreShortBesideTheSilenceBeforeThem) {
  for (std::uint64_t idle = 6 * kMillisecond; idle < 10'000 * kMillisecond; idle += kMillisecond)
    EXPECT_LE(doze_ns(idle), idle / 5) << idle;
}

TEST(Doze, FramesOfVideoAreFollowedByTheMillisecond) {
  EXPECT_EQ(doze_ns(34 * kMillisecond), kMillisecond);
  EXPECT_LT(doze_ns(100 * kMillisecond), 10 * kMillisecond);
  EXPECT_GE(1000 * kMillisecond / doze_ns(3600 * 1000 * kMillisecond), 50U);
}

}  // namespace
}  // namespace emu

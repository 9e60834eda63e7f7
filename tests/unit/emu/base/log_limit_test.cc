#include "emu/base/log_limit.h"

#include <gtest/gtest.h>

namespace {

constexpr std::uint64_t kSecond = 1'000'000'000;

TEST(LogLimit, AFewAtOnceThenOneEachInterval) {
  emu::LogLimit limit(3, 10 * kSecond);
  const std::uint64_t start = 500 * kSecond + 1;
  for (int i = 0; i < 3; ++i) EXPECT_EQ(limit.allow(start), 0u);
  for (int i = 0; i < 1000; ++i) EXPECT_FALSE(limit.allow(start + 1));
  EXPECT_EQ(limit.allow(start + 10 * kSecond), 1000u);
  EXPECT_FALSE(limit.allow(start + 10 * kSecond));
  // A steady stream of complaints: so many lines as intervals.
  int lines = 0;
  std::uint64_t left_out = 0;
  for (std::uint64_t t = 1; t <= 100 * 1000; ++t) {
    const auto said = limit.allow(start + 10 * kSecond + t * kSecond / 1000);
    if (!said) continue;
    ++lines;
    left_out += *said;
  }
  EXPECT_EQ(lines, 10);
  EXPECT_GT(left_out, 90'000u);
}

TEST(LogLimit, QuietBringsThemBackButNotMore) {
  emu::LogLimit limit(3, 10 * kSecond);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(limit.allow(kSecond));
  EXPECT_FALSE(limit.allow(kSecond));
  const std::uint64_t later = 1'000'000 * kSecond;
  EXPECT_EQ(limit.allow(later), 1u);
  for (int i = 0; i < 2; ++i) EXPECT_EQ(limit.allow(later), 0u);
  EXPECT_FALSE(limit.allow(later));
}

}  // namespace

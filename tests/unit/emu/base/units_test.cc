// Cycles and nanoseconds, also where their products need more than 64 bits.
#include "emu/base/units.h"

#include <gtest/gtest.h>

#include "emu/base/prng.h"

namespace emu {
namespace {

TEST(Scaled, IsExactOnBothSidesOf64Bits) {
  constexpr std::uint64_t kMost = ~std::uint64_t{0};
  EXPECT_EQ(scaled(kMost, 1, 0, 1), kMost);
  EXPECT_EQ(scaled(kMost, 1, 1, 2), std::uint64_t{1} << 63) << "the sum alone overflows";
  EXPECT_EQ(scaled(kMost, 1000, 999, 1000), kMost);
  EXPECT_EQ(scaled(std::uint64_t{1} << 63, 4, 0, 8), std::uint64_t{1} << 62);
}

TEST(Scaled, EqualsTheWideDivision) {
  Prng random(7);
  // A number of any length up to so many bits.
  const auto up_to = [&random](unsigned bits) { return random() >> (63 - random.below(bits)); };
  for (int i = 0; i < 100'000; ++i) {
    const std::uint64_t a = up_to(64);
    const std::uint64_t b = 1 + up_to(32);
    const std::uint64_t d = b + up_to(32);  // the result fits
    const std::uint64_t c = up_to(32) % d;
    const auto exact = (static_cast<WideUint>(a) * b + c) / d;
    ASSERT_EQ(scaled(a, b, c, d), static_cast<std::uint64_t>(exact)) << a << ' ' << b << ' ' << d;
  }
}

TEST(CycleTime, GoesThereAndBack) {
  for (const std::uint64_t ps : {320'000U, 333U, 1'000U}) {
    const CycleTime time{ps};
    for (const Cycle c : {Cycle{0}, Cycle{1}, Cycle{1} << 40, Cycle{1} << 54}) {
      EXPECT_EQ(time.cycle_from(time, c), c);
      EXPECT_LE(time.cycle_at(time.ns(c)), c);
      EXPECT_GE(time.cycle_at(time.ns(c) + 1), c) << "the first that does not begin before";
    }
  }
}

}  // namespace
}  // namespace emu

#include "emu/base/huge.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

namespace {

// Across the size from which huge pages are asked for, a vector is a vector.
TEST(HugePages, KeepsWhatAVectorHolds) {
  struct alignas(64) Line {
    std::uint64_t number = 7;
  };
  using Huge = emu::HugePages<Line>;
  constexpr std::size_t kSmall = 10;
  constexpr std::size_t kLarge = 3 * Huge::kHugeBytes / sizeof(Line);
  std::vector<Line, Huge> lines(kSmall);
  for (std::size_t i = 0; i < kSmall; ++i) lines[i].number = i;
  lines.resize(kLarge);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(lines.data()) % Huge::kHugeBytes, 0U);
  for (std::size_t i = 0; i < kLarge; ++i) ASSERT_EQ(lines[i].number, i < kSmall ? i : 7) << i;
  lines.resize(kSmall);
  lines.shrink_to_fit();
  for (std::size_t i = 0; i < kSmall; ++i) ASSERT_EQ(lines[i].number, i);
}

}  // namespace

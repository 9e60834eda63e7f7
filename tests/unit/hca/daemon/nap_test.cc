// When hcad naps: paced traffic is napped over, traffic that waits for its answers is left alone.
#include "hca/daemon/nap.h"

#include <gtest/gtest.h>

namespace hca {
namespace {

constexpr std::uint64_t kSecondNs = 1'000'000'000;

// A second of traffic of so many packets a second awake and napping; the share of turns that nap.
// Emulated time passes so much slower.
double napping_share(Naps& naps, std::uint64_t begin_ns, std::uint64_t awake_rate,
                     std::uint64_t napping_rate, std::uint64_t dilation = 1) {
  constexpr std::uint64_t kTurnNs = 1'000'000;
  int turns = 0;
  int napping = 0;
  bool nap = false;
  for (std::uint64_t t = begin_ns; t < begin_ns + kSecondNs; t += kTurnNs) {
    naps.count((nap ? napping_rate : awake_rate) * kTurnNs / kSecondNs);
    nap = naps.nap(t, t / dilation);
    ++turns;
    napping += nap ? 1 : 0;
  }
  return static_cast<double>(napping) / turns;
}

TEST(Naps, PacedTrafficIsNappedOver) {
  Naps naps;
  EXPECT_GT(napping_share(naps, kSecondNs, 40'000, 40'000), 0.95);
}

TEST(Naps, LittleTrafficIsNot) {
  Naps naps;
  EXPECT_EQ(napping_share(naps, kSecondNs, 8'000, 8'000), 0.0);
}

// Sixteen nodes on two cores: emulated time is ten times slower, and so are packets.
TEST(Naps, PacedTrafficOfASlowClockIsNappedOver) {
  Naps naps;
  EXPECT_GT(napping_share(naps, kSecondNs, 4'000, 4'000, 10), 0.95);
}

TEST(Naps, ANapIsAsLongInEmulatedTime) {
  Naps naps;
  napping_share(naps, kSecondNs, 40'000, 40'000);
  EXPECT_EQ(naps.nap_ns(), Naps::kNapNs);
  napping_share(naps, 2 * kSecondNs, 20'000, 20'000, 2);
  EXPECT_NEAR(static_cast<double>(naps.nap_ns()), 2.0 * Naps::kNapNs, Naps::kNapNs * 0.01);
  napping_share(naps, 3 * kSecondNs, 1'000, 1'000, 40);
  EXPECT_EQ(naps.nap_ns(), Naps::kLongestNapNs);
}

TEST(Naps, AClockThatStandsMakesNoTrafficSteady) {
  Naps naps;
  EXPECT_EQ(napping_share(naps, kSecondNs, 125, 125, kSecondNs), 0.0);
}

TEST(Naps, TrafficThatWaitsForAnswersIsTriedEverMoreRarely) {
  Naps naps;
  const double first = napping_share(naps, kSecondNs, 40'000, 2'000);
  EXPECT_GT(first, 0.0);
  EXPECT_LT(first, 0.1);
  double last = first;
  for (std::uint64_t second = 2; second < 8; ++second) {
    last = napping_share(naps, second * kSecondNs, 40'000, 2'000);
  }
  EXPECT_LE(last, 0.01);
}

// A program that keeps 128 messages under way: a window a nap is far above the least steady rate.
TEST(Naps, TrafficWithAWindowIsLeftAloneToo) {
  Naps naps;
  EXPECT_LT(napping_share(naps, kSecondNs, 250'000, 44'000), 0.1);
  double last = 1;
  for (std::uint64_t second = 2; second < 8; ++second) {
    last = napping_share(naps, second * kSecondNs, 250'000, 44'000);
  }
  EXPECT_LE(last, 0.01);
}

// Frames differ: a slower phase of paced traffic is napped over again at once.
TEST(Naps, PacedTrafficMaySlowDown) {
  Naps naps;
  napping_share(naps, kSecondNs, 60'000, 60'000);
  EXPECT_GT(napping_share(naps, 2 * kSecondNs, 25'000, 25'000), 0.95);
}

TEST(Naps, PacedTrafficAfterAnsweredTrafficIsFoundAgain) {
  Naps naps;
  for (std::uint64_t second = 1; second < 8; ++second) {
    napping_share(naps, second * kSecondNs, 40'000, 2'000);
  }
  napping_share(naps, 8 * kSecondNs, 40'000, 40'000);
  napping_share(naps, 9 * kSecondNs, 40'000, 40'000);
  EXPECT_GT(napping_share(naps, 10 * kSecondNs, 40'000, 40'000), 0.95);
}

TEST(Naps, EndOfTrafficEndsTheNap) {
  Naps naps;
  napping_share(naps, kSecondNs, 40'000, 40'000);
  EXPECT_LT(napping_share(naps, 2 * kSecondNs, 0, 0), 0.02);
}

}  // namespace
}  // namespace hca

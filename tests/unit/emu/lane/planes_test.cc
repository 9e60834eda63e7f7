// Bit planes against plain numbers, and the smallest of 16 stamps against a loop.
#include "emu/lane/planes.h"

#include <gtest/gtest.h>

#include "emu/base/prng.h"
#include "emu/lane/box.h"
#include "emu/lane/stamp.h"

namespace emu {
namespace {

TEST(Planes, CountersCount) {
  Prng random(1);
  Counts counts;
  unsigned plain[kPortsMax][kVlCount] = {};
  const CountIs is_ten(10);
  for (int i = 0; i < 5000; ++i) {
    Lanes8 more{};
    Lanes8 less{};
    for (unsigned p = 0; p < kPortsMax; ++p) {
      const unsigned a = random.below(kVlCount);
      const unsigned b = random.below(kVlCount);
      if (plain[p][a] < 15) {
        more[p] = static_cast<std::uint16_t>(1U << a);
        ++plain[p][a];
      }
      if (plain[p][b] > 0) {
        less[p] = static_cast<std::uint16_t>(1U << b);
        --plain[p][b];
      }
    }
    counts.add_one(more);
    counts.take_one(less);
    for (unsigned p = 0; p < kPortsMax; ++p) {
      for (unsigned v = 0; v < kVlCount; ++v) {
        ASSERT_EQ(counts.get(p, v), plain[p][v]);
        ASSERT_EQ((counts.nonzero()[p] >> v) & 1U, plain[p][v] != 0);
        ASSERT_EQ((is_ten(counts)[p] >> v) & 1U, plain[p][v] == 10);
      }
    }
  }
  counts.set(7, 15, 13);
  EXPECT_EQ(counts.get(7, 15), 13U);
  EXPECT_EQ(counts.get(7, 14), plain[7][14]);
}

TEST(Planes, HorizontalQuestions) {
  Prng random(2);
  for (int i = 0; i < 1000; ++i) {
    Lanes8 a{};
    unsigned ports = 0;
    for (unsigned p = 0; p < kPortsMax; ++p) {
      if (random.below(3) != 0) continue;
      a[p] = static_cast<std::uint16_t>(random());
      ports |= static_cast<unsigned>(a[p] != 0) << p;
    }
    ASSERT_EQ(ports_of(a), ports);
    ASSERT_EQ(any(a), ports != 0);
    unsigned visited = 0;
    each_port(ports, [&](unsigned p) { visited |= (1U << p) & ports; });
    ASSERT_EQ(visited, ports);
  }
}

TEST(Stamp, SmallestOfSixteenLowestOfEquals) {
  Prng random(3);
  alignas(16) std::uint16_t stamps[kVlCount];
  for (int i = 0; i < 20000; ++i) {
    const unsigned spread_of = i % 2 == 0 ? 4 : 65535;
    for (auto& s : stamps) s = static_cast<std::uint16_t>(random.below(spread_of));
    const auto mask = static_cast<LaneMask>(random() & random());
    const Pick pick = smallest_stamp(stamps, mask);
    unsigned best = kNoStamp;
    unsigned lane = 0;
    for (unsigned v = 0; v < kVlCount; ++v) {
      if (((mask >> v) & 1U) == 0 || stamps[v] >= best) continue;
      best = stamps[v];
      lane = v;
    }
    ASSERT_EQ(pick.key(), best);
    ASSERT_EQ(pick.lane(), lane);
  }
}

TEST(Stamp, StaysWithinSixteenBits) {
  EXPECT_EQ(next_stamp(stamp_now(kStampPeriod - 1), 65534, kVtickMax), 65534);
  EXPECT_EQ(next_stamp(100, 0, 14), 114);
  EXPECT_EQ(next_stamp(100, 500, 14), 514);
  EXPECT_EQ(aged_stamp(500, 499), 1);
  EXPECT_EQ(aged_stamp(500, 500), 1);
  EXPECT_EQ(aged_stamp(500, 100), 400);
}

TEST(Box, EmitScattersOverUnits) {
  Box row[3] = {};
  Outlet outlet = {};
  for (unsigned p = 0; p < kPortsMax; ++p) {
    outlet.unit[p] = static_cast<std::uint16_t>(1 + p % 2);
    outlet.port[p] = static_cast<std::uint8_t>(7 - p);
  }
  Lanes8 flits{};
  flits[2] = 0x10;
  flits[5] = 0x8000;
  Lanes8 credits{};
  credits[0] = 1;
  emit(row, outlet, flits, credits);
  emit_head(row, outlet, 5, 77);
  EXPECT_EQ(row[1].flits[5], 0x10);
  EXPECT_EQ(row[2].flits[2], 0x8000);
  EXPECT_EQ(row[1].credits[7], 1);
  EXPECT_EQ(row[2].head[2], 77U);
  EXPECT_EQ(row[2].heads, 1U << 2);
  EXPECT_EQ(row[1].heads, 0U);
}

}  // namespace
}  // namespace emu

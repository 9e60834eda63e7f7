// Bit planes against plain numbers, and the vector loops over bids against plain ones.
#include "emu/lane/planes.h"

#include <gtest/gtest.h>

#include "emu/base/prng.h"
#include "emu/lane/bid.h"
#include "emu/lane/box.h"
#include "emu/lane/stamp.h"

namespace emu {
namespace {

TEST(Planes, CountersCount) {
  Prng random(1);
  Counts<4> counts;
  unsigned plain[kPortsMax][kVlCount] = {};
  const CountIs<4> is_ten(10);
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
    if (i % 2 == 0) {
      counts.add_one(more);
      counts.take_one(less);
    } else {
      counts.change(more, less);
    }
    unsigned sum = 0;
    for (unsigned p = 0; p < kPortsMax; ++p) {
      for (unsigned v = 0; v < kVlCount; ++v) {
        ASSERT_EQ(counts.get(p, v), plain[p][v]);
        ASSERT_EQ((counts.nonzero()[p] >> v) & 1U, plain[p][v] != 0);
        ASSERT_EQ((is_ten(counts)[p] >> v) & 1U, plain[p][v] == 10);
        ASSERT_EQ((counts.is_one()[p] >> v) & 1U, plain[p][v] == 1);
        sum += plain[p][v];
      }
    }
    ASSERT_EQ(counts.sum(), sum);
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
    const Lanes8 one_each = lowest_lanes(a);
    unsigned visited = 0;
    FlitSlots(one_each).visit([&](unsigned slot) {
      if (vl_of_slot(slot) == kVlCount) return;  // a dummy
      EXPECT_EQ(one_each[port_of_slot(slot)], 1U << vl_of_slot(slot));
      visited |= 1U << port_of_slot(slot);
    });
    ASSERT_EQ(visited, ports);
  }
}

TEST(Planes, CountdownTellsTails) {
  Prng random(5);
  Countdown countdown;
  std::array<unsigned, kLaneSlots> left{};
  for (int i = 0; i < 60000; ++i) {
    Lanes8 flits{};
    Lanes8 tails{};
    for (unsigned p = 0; p < kPortsMax; ++p) {
      if (random.below(3) == 0) continue;
      const unsigned lane = random.below(3);
      const unsigned slot = lane_slot(p, lane);
      if (left[slot] == 0) countdown.set(slot, left[slot] = 1 + random.below(200));
      flits[p] = static_cast<std::uint16_t>(1U << lane);
      if (--left[slot] == 0) tails[p] = flits[p];
    }
    const Lanes8 ended = countdown.ended(countdown.take(flits));
    for (unsigned p = 0; p < kPortsMax; ++p) ASSERT_EQ(ended[p], tails[p]) << i;
  }
}

template <Isa kIsa>
void compare_bids() {
  Prng random(3);
  BidRows rows;
  for (int i = 0; i < 4000; ++i) {
    for (unsigned slot = 0; slot < kDummySlot; ++slot)
      rows.set_stamp(slot, static_cast<std::uint16_t>(random.below(i % 2 == 0 ? 4 : 65535)));
    Lanes8 eligible{};
    for (unsigned p = 0; p < kPortsMax; ++p)
      eligible[p] = static_cast<std::uint16_t>(random() & random());
    const Lanes8 picked = smallest_lanes<kIsa>(rows, eligible);
    for (unsigned p = 0; p < kPortsMax; ++p) {
      unsigned lane = kVlCount;
      for (unsigned v = 0; v < kVlCount; ++v) {
        if (((eligible[p] >> v) & 1U) == 0) continue;
        if (lane == kVlCount || rows.stamp(lane_slot(p, v)) < rows.stamp(lane_slot(p, lane)))
          lane = v;
      }
      ASSERT_EQ(picked[p], lane == kVlCount ? 0U : 1U << lane) << i;
    }
  }
}

TEST(Bid, EveryInstructionSetFindsTheSmallest) {
  compare_bids<Isa::base>();
  if (best_isa(Isa::avx512) >= Isa::avx2) compare_bids<Isa::avx2>();
  if (best_isa(Isa::avx512) >= Isa::avx512) compare_bids<Isa::avx512>();
}

TEST(Bid, NamesItsLaneAndItsWay) {
  BidRows rows;
  for (unsigned slot = 0; slot < kDummySlot; ++slot) {
    const unsigned out = (slot * 37 + 5) % kDummySlot;
    rows.set_way(slot, out);
    rows.set_stamp(slot, 0xfffe);
    ASSERT_EQ(lane_of_bid(rows.of[slot]), vl_of_slot(slot));
    ASSERT_EQ(out_slot_of_bid(rows.of[slot]), out);
    ASSERT_EQ(rows.stamp(slot), 0xfffe);
    ASSERT_NE(rows.of[slot], kNoBid);
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
    lead_to(outlet, p, 1 + p % 2, 7 - p);
  }
  Lanes8 flits{};
  flits[2] = 0x10;
  flits[5] = 0x8000;
  Lanes8 credits{};
  credits[0] = 1;
  emit(row, outlet, flits, credits);
  emit_name(row, outlet, 5, 77);
  EXPECT_EQ(row[1].flits[5], 0x10);
  EXPECT_EQ(row[2].flits[2], 0x8000);
  EXPECT_EQ(row[1].credits[7], 1);
  EXPECT_EQ(ports_named(row[2]), 1U << 2);
  EXPECT_EQ(named_at(row[2], 2), 77U);
  EXPECT_FALSE(has_names(row[1]));
}

}  // namespace
}  // namespace emu

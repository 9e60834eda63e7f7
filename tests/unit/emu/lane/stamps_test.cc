// The stamps of eight ports at once, by AVX-512, are those of lanes one by one.
#include "emu/lane/stamps.h"

#include <gtest/gtest.h>

#include <array>

#include "emu/base/prng.h"

namespace emu {
namespace {

#if defined(__x86_64__)

constexpr LaneMask kControl = 0x8000;

std::array<Vtick, kVlCount> random_vticks(Prng& random) {
  std::array<Vtick, kVlCount> vticks{};
  for (Vtick& vtick : vticks)
    vtick = static_cast<Vtick>(random.below(2) == 0 ? random.below(50) : random.below(32768));
  return vticks;
}

// Of most ports one of the lanes that `may` have one.
Lanes8 random_lanes(Prng& random, Lanes8 may, unsigned idle_of_eight) {
  Lanes8 lanes = kNoLanes8;
  for (unsigned port = 0; port < kPortsMax; ++port) {
    const auto lane = static_cast<unsigned>(random.below(kVlCount));
    if (random.below(8) >= idle_of_eight)
      lanes[port] = may[port] & static_cast<std::uint16_t>(1U << lane);
  }
  return lanes;
}

// Inputs with lanes of up to 2^kPlanes - 1 flits.
template <int kPlanes>
void compare_inputs(SchedulerKind kind, std::uint64_t seed) {
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  Prng random(seed);
  const auto vticks = random_vticks(random);
  InputStamps<kPlanes> plain;
  InputStamps<kPlanes> wide;
  plain.configure(kind, vticks, kControl);
  wide.configure(kind, vticks, kControl);
  BidRows bids;
  BidRows wide_bids;
  std::array<unsigned, kLaneSlots> queued{};
  Cycle now = kStampPeriod * 3 - 500;
  for (int i = 0; i < 20000; ++i) {
    const auto idle = static_cast<unsigned>(random.below(9));
    Lanes8 occupied = kNoLanes8;
    Lanes8 roomy = kNoLanes8;
    for (unsigned slot = 0; slot < kDummySlot; ++slot) {
      if (queued[slot] != 0) occupied |= kOneLane.of[slot];
      if (queued[slot] < (1U << kPlanes) - 1) roomy |= kOneLane.of[slot];
    }
    const Lanes8 gone = random_lanes(random, occupied, idle);
    const Lanes8 flits = random_lanes(random, roomy, idle);
    Lanes8 first = flits;
    for (unsigned slot = 0; slot < kDummySlot; ++slot) {
      if (any(gone & kOneLane.of[slot])) --queued[slot];
      if (queued[slot] != 0) first &= ~kOneLane.of[slot];
      if (any(flits & kOneLane.of[slot])) ++queued[slot];
    }
    plain.template leave<Isa::base>(bids, gone);
    wide.template leave<Isa::avx512>(wide_bids, gone);
    plain.template arrive<Isa::base>(bids, flits, first, stamp_now(now));
    wide.template arrive<Isa::avx512>(wide_bids, flits, first, stamp_now(now));
    for (unsigned slot = 0; slot < kDummySlot; ++slot) {
      if (queued[slot] == 0) continue;
      ASSERT_EQ(wide_bids.of[slot], bids.of[slot]) << "event " << i << ", slot " << slot;
    }
    now += 1 + random.below(3);
    if (now / kStampPeriod == (now - 3) / kStampPeriod) continue;
    now += 3;  // not twice
    plain.age(bids, kStampPeriod);
    wide.age(wide_bids, kStampPeriod);
  }
}

void compare_sources(SchedulerKind kind, std::uint64_t seed) {
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  Prng random(seed);
  const auto vticks = random_vticks(random);
  SourceStamps plain;
  SourceStamps wide;
  plain.configure(kind, vticks, kControl);
  wide.configure(kind, vticks, kControl);
  const Cycle now = kStampPeriod * 3 + 1000;
  for (unsigned slot = 0; slot < kDummySlot; ++slot) {
    const Cycle ready = now - random.below(900);
    const auto vtick = static_cast<Vtick>(random.below(3000));
    plain.front(port_of_slot(slot), vl_of_slot(slot), ready, now, vtick);
    wide.front(port_of_slot(slot), vl_of_slot(slot), ready, now, vtick);
  }
  for (int i = 0; i < 5000; ++i) {
    const auto idle = static_cast<unsigned>(random.below(9));
    const Lanes8 sent = random_lanes(random, ~kNoLanes8, idle);
    plain.sent<Isa::base>(sent, kNoLanes8, now);
    wide.sent<Isa::avx512>(sent, kNoLanes8, now);
    Lanes8 eligible;
    for (unsigned port = 0; port < kPortsMax; ++port)
      eligible[port] = static_cast<std::uint16_t>(random.below(1 << kVlCount));
    const Lanes8 differ =
        plain.pick_lanes<Isa::base>(eligible) ^ wide.pick_lanes<Isa::avx512>(eligible);
    ASSERT_FALSE(any(differ)) << "event " << i;
  }
}

TEST(Stamps, EightPortsAtOnceAreAsOneByOne) {
  if (best_isa(Isa::avx512) != Isa::avx512) GTEST_SKIP() << "no AVX-512 here";
  for (const SchedulerKind kind :
       {SchedulerKind::fcfs, SchedulerKind::virtual_clock, SchedulerKind::fgvc}) {
    compare_inputs<4>(kind, 1);
    compare_inputs<7>(kind, 2);
    compare_sources(kind, 3);
  }
}

#endif

}  // namespace
}  // namespace emu

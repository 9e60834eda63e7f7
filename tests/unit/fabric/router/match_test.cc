// The allocator of stage 4 in every instruction set against one written for reading, and that the
// ranks favour nobody.
#include "fabric/router/match.h"

#include <gtest/gtest.h>

#include <optional>

#include "emu/base/prng.h"

namespace fabric {
namespace {

struct Flit {
  unsigned port;
  unsigned lane;
  unsigned stamp;
  unsigned out_slot;
};

// Proposals of one round: of each port the smallest stamp, then the lowest lane.
std::vector<Flit> propose(const std::vector<Flit>& flits, unsigned inputs, unsigned outputs) {
  std::vector<Flit> proposals;
  for (unsigned port = 0; port < emu::kPortsMax; ++port) {
    std::optional<Flit> best;
    for (const Flit& f : flits) {
      if (f.port != port || ((inputs >> port) & 1U) != 0) continue;
      if (((outputs >> emu::port_of_slot(f.out_slot)) & 1U) != 0) continue;
      if (!best || f.stamp < best->stamp || (f.stamp == best->stamp && f.lane < best->lane))
        best = f;
    }
    if (best) proposals.push_back(*best);
  }
  return proposals;
}

std::vector<Flit> plain_allocate(const std::vector<Flit>& flits, int rounds, emu::Cycle now) {
  std::vector<Flit> granted;
  unsigned inputs = 0;
  unsigned outputs = 0;
  for (int round = 0; round < rounds; ++round) {
    const std::vector<Flit> proposals = propose(flits, inputs, outputs);
    for (const Flit& f : proposals) {
      const auto& ranks = kPortRanks.of[now % 64];
      bool wins = true;
      for (const Flit& g : proposals) {
        if (emu::port_of_slot(g.out_slot) != emu::port_of_slot(f.out_slot)) continue;
        wins &= g.port == f.port || f.stamp < g.stamp ||
                (f.stamp == g.stamp && ranks[f.port] < ranks[g.port]);
      }
      if (!wins) continue;
      granted.push_back(f);
      inputs |= 1U << f.port;
      outputs |= 1U << emu::port_of_slot(f.out_slot);
    }
  }
  return granted;
}

struct Scene {
  emu::BidRows rows;
  emu::Lanes8 eligible{};
  std::vector<Flit> flits;
};

Scene random_scene(emu::Prng& random, int i) {
  Scene scene;
  for (unsigned slot = 0; slot < emu::kDummySlot; ++slot) {
    const unsigned port = emu::port_of_slot(slot);
    const unsigned lane = emu::vl_of_slot(slot);
    const Flit flit = {port, lane, static_cast<unsigned>(random.below(i % 2 == 0 ? 4 : 65535)),
                       static_cast<unsigned>(random.below(emu::kDummySlot))};
    scene.rows.set_stamp(slot, static_cast<std::uint16_t>(flit.stamp));
    scene.rows.set_way(slot, flit.out_slot);
    if (random.below(i % 3 == 0 ? 40 : 4) != 0) continue;
    scene.eligible[port] |= static_cast<std::uint16_t>(1U << lane);
    scene.flits.push_back(flit);
  }
  return scene;
}

template <emu::Isa kIsa>
void compare_allocation() {
  emu::Prng random(11);
  for (int i = 0; i < 6000; ++i) {
    const Scene scene = random_scene(random, i);
    const int rounds = 1 + static_cast<int>(random.below(4));
    const emu::Cycle now = random.below(1000);
    const Crossing crossing = allocate_bids<kIsa>(scene.rows, scene.eligible, rounds, now, [] {});
    Crossing expected = {emu::kNoLanes8, emu::kNoLanes8};
    for (const Flit& f : plain_allocate(scene.flits, rounds, now)) {
      expected.in |= emu::kOneLane.of[emu::lane_slot(f.port, f.lane)];
      expected.out |= emu::kOneLane.of[f.out_slot];
    }
    ASSERT_FALSE(emu::any(crossing.in ^ expected.in)) << i;
    ASSERT_FALSE(emu::any(crossing.out ^ expected.out)) << i;
  }
}

template <emu::Isa kIsa>
void compare_picks() {
  emu::Prng random(12);
  for (int i = 0; i < 6000; ++i) {
    std::vector<Flit> flits;
    emu::BidRows rows;
    emu::Picks picks = {~emu::kNoLanes8, emu::kNoLanes8};
    unsigned taken = 0;
    for (unsigned port = 0; port < emu::kPortsMax; ++port) {
      if (random.below(3) == 0) continue;
      const Flit f = {port, static_cast<unsigned>(random.below(emu::kVlCount)),
                      static_cast<unsigned>(random.below(3)),
                      static_cast<unsigned>(random.below(emu::kDummySlot))};
      flits.push_back(f);
      rows.set_way(emu::lane_slot(port, f.lane), f.out_slot);
      picks.lanes[port] = static_cast<std::uint16_t>(1U << f.lane);
      picks.keys[port] = static_cast<std::uint16_t>(f.stamp);
      taken |= 1U << emu::port_of_slot(f.out_slot);
    }
    const emu::Cycle now = random.below(1000);
    Granted granted;
    grant_picks<kIsa>(granted, rows, picks, now);
    const Crossing crossing = crossing_of<kIsa>(granted.bids, granted.ports);
    const std::vector<Flit> expected = plain_allocate(flits, 1, now);
    unsigned won = 0;
    emu::Lanes8 out = emu::kNoLanes8;
    for (const Flit& f : expected) {
      won |= 1U << f.port;
      out |= emu::kOneLane.of[f.out_slot];
      ASSERT_EQ(crossing.in[f.port], 1U << f.lane) << i;
      ASSERT_EQ(granted.last[f.port], 1U << f.lane) << i;
    }
    ASSERT_FALSE(emu::any(crossing.out ^ out)) << i;
    ASSERT_EQ(granted.ports, won) << i;
    ASSERT_EQ(emu::ports_of(granted.last), won) << i;
    ASSERT_EQ(granted.taken, taken) << i;
    ASSERT_EQ(granted.nobody_lost, expected.size() == flits.size()) << i;
  }
}

template <emu::Isa kIsa>
void compare_both() {
  compare_allocation<kIsa>();
  compare_picks<kIsa>();
}

TEST(Match, EveryInstructionSetAgreesWithPlainRounds) {
  compare_both<emu::Isa::base>();
#if defined(__x86_64__)
  if (emu::best_isa(emu::Isa::avx512) >= emu::Isa::avx2) compare_both<emu::Isa::avx2>();
  if (emu::best_isa(emu::Isa::avx512) >= emu::Isa::avx512) compare_both<emu::Isa::avx512>();
#endif
}

TEST(Match, EachOfTwoPortsGoesFirstHalfOfTheTime) {
  for (unsigned a = 0; a < emu::kPortsMax; ++a) {
    for (unsigned b = 0; b < a; ++b) {
      int first = 0;
      for (const auto& ranks : kPortRanks.of) first += ranks[a] < ranks[b];
      EXPECT_EQ(first, 32) << a << " and " << b;
    }
  }
}

}  // namespace
}  // namespace fabric

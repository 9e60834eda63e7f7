// One round of the allocator against a loop that reads as its definition, for every instruction
// set; and what the number of rounds is worth.
#include "fabric/router/match.h"

#include <gtest/gtest.h>

#include "emu/base/prng.h"

namespace fabric {
namespace {

Matched plain_match(const emu::Picks& picks, const emu::Lanes8* from, emu::Cycle now) {
  Matched matched = {emu::kNoLanes8, emu::kNoLanes8};
  for (unsigned out = 0; out < emu::kPortsMax; ++out) {
    int winner = -1;
    for (unsigned port = 0; port < emu::kPortsMax; ++port) {
      if ((picks.lanes[port] & from[out][port]) == 0) continue;
      const auto urgency = [&](unsigned p) {
        return std::pair(picks.keys[p], kPortRanks.of[now % 64][p]);
      };
      if (winner < 0 || urgency(port) < urgency(static_cast<unsigned>(winner)))
        winner = static_cast<int>(port);
    }
    if (winner < 0) continue;
    matched.won[winner] = picks.lanes[winner];
    matched.blocked |= from[out];
  }
  return matched;
}

template <emu::Isa kIsa>
void compare_matches() {
  emu::Prng random(8);
  for (emu::Cycle now = 0; now < 5000; ++now) {
    alignas(64) emu::Lanes8 from[emu::kPortsMax] = {};
    emu::Picks picks = {~emu::kNoLanes8, emu::kNoLanes8};
    for (unsigned port = 0; port < emu::kPortsMax; ++port) {
      for (unsigned lane = 0; lane < emu::kVlCount; ++lane) {
        if (random.below(3) == 0) continue;
        const auto bit = static_cast<std::uint16_t>(1U << lane);
        from[random.below(emu::kPortsMax)][port] |= bit;
        if (random.below(6) == 0) picks.lanes[port] = bit;
      }
      if (picks.lanes[port] != 0)
        picks.keys[port] = static_cast<std::uint16_t>(random.below(now % 2 == 0 ? 3 : 0xffff));
    }
    const Matched plain = plain_match(picks, from, now);
    const Matched more = match<kIsa, true>(picks, from, now);
    const Matched last = match<kIsa, false>(picks, from, now);
    ASSERT_FALSE(emu::any(more.won ^ plain.won)) << "cycle " << now;
    ASSERT_FALSE(emu::any(more.blocked ^ plain.blocked)) << "cycle " << now;
    ASSERT_FALSE(emu::any(last.won ^ plain.won)) << "cycle " << now;
  }
}

TEST(Match, EveryInstructionSetFollowsTheDefinition) {
  compare_matches<emu::Isa::base>();
  if (emu::best_isa(emu::Isa::avx512) >= emu::Isa::avx2) compare_matches<emu::Isa::avx2>();
  if (emu::best_isa(emu::Isa::avx512) >= emu::Isa::avx512) compare_matches<emu::Isa::avx512>();
}

}  // namespace
}  // namespace fabric

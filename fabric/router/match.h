// One round of the separable allocator of stage 4: of the proposals for one output port the most
// urgent wins, ties by this cycle's ranks. Eight inputs and eight outputs at once, without a
// branch.
#pragma once

#include "emu/lane/stamp.h"
#include "fabric/router/rank.h"

namespace fabric {

struct Matched {
  emu::Lanes8 won;      // picks that won
  emu::Lanes8 blocked;  // lanes that lead to an output port that is now taken, if kMore
};

#if defined(__SSE4_1__)

inline const __m128i* rank_shuffle(const RankShuffles::Bytes& bytes) {
  return reinterpret_cast<const __m128i*>(&bytes);
}
inline __m128i vector_of(emu::Lanes8 lanes) { return reinterpret_cast<__m128i>(lanes); }

// `from`: [output port] lanes that lead to it. `kMore`: another round may follow.
template <emu::Isa kIsa, bool kMore>
inline Matched match(const emu::Picks& picks, const emu::Lanes8* from, emu::Cycle now) {
  const __m128i into = _mm_load_si128(rank_shuffle(kRankShuffles.into[now % 64]));
  const __m128i zero = _mm_setzero_si128();
  const __m128i ranks = _mm_setr_epi16(0, 1, 2, 3, 4, 5, 6, 7);
  // Ports in the order of their ranks: the first of equal keys is the one that minpos finds.
  const __m128i keys = _mm_shuffle_epi8(vector_of(picks.keys), into);
  __m128i won = zero;
  __m128i taken = zero;
#pragma GCC unroll 8
  for (int out = 0; out < emu::kPortsMax; ++out) {
    const __m128i leading = vector_of(from[out]);
    const __m128i others = _mm_cmpeq_epi16(_mm_and_si128(vector_of(picks.lanes), leading), zero);
    const __m128i rest = _mm_shuffle_epi8(others, into);
    const __m128i best = _mm_minpos_epu16(_mm_or_si128(keys, rest));
    const __m128i winner = _mm_cmpeq_epi16(_mm_shuffle_epi8(best, _mm_set1_epi16(0x0302)), ranks);
    won = _mm_or_si128(won, _mm_andnot_si128(rest, winner));
    if constexpr (kMore) {
      const __m128i key = _mm_shuffle_epi8(best, _mm_set1_epi16(0x0100));
      const __m128i nobody = _mm_cmpeq_epi16(key, _mm_set1_epi16(-1));
      taken = _mm_or_si128(taken, _mm_andnot_si128(nobody, leading));
    }
  }
  won = _mm_shuffle_epi8(won, _mm_load_si128(rank_shuffle(kRankShuffles.back[now % 64])));
  return {picks.lanes & reinterpret_cast<emu::Lanes8>(won), reinterpret_cast<emu::Lanes8>(taken)};
}

#else

template <emu::Isa kIsa, bool kMore>
inline Matched match(const emu::Picks& picks, const emu::Lanes8* from, emu::Cycle now) {
  const auto& ranks = kPortRanks.of[now % 64];
  Matched matched = {emu::kNoLanes8, emu::kNoLanes8};
  for (int out = 0; out < emu::kPortsMax; ++out) {
    unsigned best = ~0U;
    unsigned winner = emu::kPortsMax;
    for (unsigned port = 0; port < emu::kPortsMax; ++port) {
      if ((picks.lanes[port] & from[out][port]) == 0) continue;
      const unsigned proposal = unsigned{picks.keys[port]} * emu::kPortsMax + ranks[port];
      if (proposal >= best) continue;
      best = proposal;
      winner = port;
    }
    if (winner == emu::kPortsMax) continue;
    matched.won[winner] = picks.lanes[winner];
    matched.blocked |= from[out];
  }
  return matched;
}

#endif

}  // namespace fabric

#include "fabric/router/match_wide.h"

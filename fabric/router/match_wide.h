// match() with two outputs a vector by AVX2 and four by AVX-512. Included by match.h only.
#pragma once

#include "fabric/router/match.h"

#if defined(__x86_64__) && defined(__SSE4_1__)

namespace fabric {

template <bool kMore>
FLITNET_AVX2 inline Matched match_avx2(const emu::Picks& picks, const emu::Lanes8* from,
                                       emu::Cycle now) {
  const __m128i order = _mm_load_si128(rank_shuffle(kRankShuffles.into[now % 64]));
  const __m256i into = _mm256_broadcastsi128_si256(order);
  const __m256i lanes = _mm256_broadcastsi128_si256(vector_of(picks.lanes));
  const __m256i keys = _mm256_broadcastsi128_si256(_mm_shuffle_epi8(vector_of(picks.keys), order));
  const __m256i ranks = _mm256_broadcastsi128_si256(_mm_setr_epi16(0, 1, 2, 3, 4, 5, 6, 7));
  __m256i won = _mm256_setzero_si256();
  __m256i taken = _mm256_setzero_si256();
#pragma GCC unroll 4
  for (int out = 0; out < emu::kPortsMax; out += 2) {
    const __m256i leading = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(&from[out]));
    const __m256i others =
        _mm256_cmpeq_epi16(_mm256_and_si256(lanes, leading), _mm256_setzero_si256());
    const __m256i rest = _mm256_shuffle_epi8(others, into);
    const __m256i proposals = _mm256_or_si256(keys, rest);
    const __m256i best = _mm256_set_m128i(_mm_minpos_epu16(_mm256_extracti128_si256(proposals, 1)),
                                          _mm_minpos_epu16(_mm256_castsi256_si128(proposals)));
    const __m256i place = _mm256_shuffle_epi8(best, _mm256_set1_epi16(0x0302));
    won = _mm256_or_si256(won, _mm256_andnot_si256(rest, _mm256_cmpeq_epi16(place, ranks)));
    if constexpr (kMore) {
      const __m256i key = _mm256_shuffle_epi8(best, _mm256_set1_epi16(0x0100));
      const __m256i nobody = _mm256_cmpeq_epi16(key, _mm256_set1_epi16(-1));
      taken = _mm256_or_si256(taken, _mm256_andnot_si256(nobody, leading));
    }
  }
  const __m128i winners = _mm_shuffle_epi8(
      emu::fold256(won), _mm_load_si128(rank_shuffle(kRankShuffles.back[now % 64])));
  return {picks.lanes & reinterpret_cast<emu::Lanes8>(winners),
          reinterpret_cast<emu::Lanes8>(emu::fold256(taken))};
}

template <bool kMore>
FLITNET_AVX512 inline Matched match_avx512(const emu::Picks& picks, const emu::Lanes8* from,
                                           emu::Cycle now) {
  const __m128i order = _mm_load_si128(rank_shuffle(kRankShuffles.into[now % 64]));
  const __m512i into = _mm512_broadcast_i32x4(order);
  const __m512i lanes = _mm512_broadcast_i32x4(vector_of(picks.lanes));
  const __m512i keys = _mm512_broadcast_i32x4(_mm_shuffle_epi8(vector_of(picks.keys), order));
  const __m512i ranks = _mm512_broadcast_i32x4(_mm_setr_epi16(0, 1, 2, 3, 4, 5, 6, 7));
  const __m512i ones = _mm512_set1_epi16(-1);
  __m512i won = _mm512_setzero_si512();
  __m512i taken = _mm512_setzero_si512();
#pragma GCC unroll 2
  for (int out = 0; out < emu::kPortsMax; out += 4) {
    const __m512i leading = _mm512_loadu_si512(&from[out]);
    const __m512i others = _mm512_movm_epi16(_mm512_testn_epi16_mask(lanes, leading));
    const __m512i rest = _mm512_shuffle_epi8(others, into);
    const __m512i proposals = _mm512_or_si512(keys, rest);
    __m512i best = _mm512_castsi128_si512(_mm_minpos_epu16(_mm512_castsi512_si128(proposals)));
    best = _mm512_inserti32x4(best, _mm_minpos_epu16(_mm512_extracti32x4_epi32(proposals, 1)), 1);
    best = _mm512_inserti32x4(best, _mm_minpos_epu16(_mm512_extracti32x4_epi32(proposals, 2)), 2);
    best = _mm512_inserti32x4(best, _mm_minpos_epu16(_mm512_extracti32x4_epi32(proposals, 3)), 3);
    const __m512i place = _mm512_shuffle_epi8(best, _mm512_set1_epi16(0x0302));
    // ones - rest: of the winner's word all ones, unless nobody proposed.
    won = _mm512_or_si512(
        won, _mm512_maskz_sub_epi16(_mm512_cmpeq_epi16_mask(place, ranks), ones, rest));
    if constexpr (kMore) {
      const __m512i key = _mm512_shuffle_epi8(best, _mm512_set1_epi16(0x0100));
      taken = _mm512_or_si512(taken,
                              _mm512_maskz_mov_epi16(_mm512_cmpneq_epi16_mask(key, ones), leading));
    }
  }
  const __m256i won_half = _mm256_or_si256(emu::lower_half(won), emu::upper_half(won));
  const __m256i taken_half = _mm256_or_si256(emu::lower_half(taken), emu::upper_half(taken));
  const __m128i winners = _mm_shuffle_epi8(
      emu::fold256(won_half), _mm_load_si128(rank_shuffle(kRankShuffles.back[now % 64])));
  return {picks.lanes & reinterpret_cast<emu::Lanes8>(winners),
          reinterpret_cast<emu::Lanes8>(emu::fold256(taken_half))};
}

template <>
FLITNET_AVX2 inline Matched match<emu::Isa::avx2, true>(const emu::Picks& picks,
                                                        const emu::Lanes8* from, emu::Cycle now) {
  return match_avx2<true>(picks, from, now);
}
template <>
FLITNET_AVX2 inline Matched match<emu::Isa::avx2, false>(const emu::Picks& picks,
                                                         const emu::Lanes8* from, emu::Cycle now) {
  return match_avx2<false>(picks, from, now);
}
template <>
FLITNET_AVX512 inline Matched match<emu::Isa::avx512, true>(const emu::Picks& picks,
                                                            const emu::Lanes8* from,
                                                            emu::Cycle now) {
  return match_avx512<true>(picks, from, now);
}
template <>
FLITNET_AVX512 inline Matched match<emu::Isa::avx512, false>(const emu::Picks& picks,
                                                             const emu::Lanes8* from,
                                                             emu::Cycle now) {
  return match_avx512<false>(picks, from, now);
}

}  // namespace fabric

#endif

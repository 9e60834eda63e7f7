// The three loops of stamp.h over 16 lanes with wider vectors: two lanes at a time by AVX2, four by
// AVX-512, where a mask replaces the blend. Included by stamp.h only.
#pragma once

#include "emu/lane/stamp.h"

#if defined(__x86_64__)

namespace emu {

inline constexpr unsigned kWords256 = 16;
inline constexpr unsigned kWords512 = 32;
inline const void* lane_bits(unsigned lane) { return &kLaneBits.of[lane]; }

FLITNET_AVX2 inline __m256i load256(const std::uint16_t* words) {
  return _mm256_load_si256(reinterpret_cast<const __m256i*>(words));
}
// Not through a deduced __m256i*: deduction drops may_alias, and the compiler would then hold these
// vectors and the stamps for different memory.
FLITNET_AVX2 inline void store256(std::uint16_t* words, __m256i value) {
  _mm256_store_si256(reinterpret_cast<__m256i*>(words), value);
}
// All ones in the words of lanes 2i and 2i + 1 that are not set.
FLITNET_AVX2 inline __m256i unset256(__m256i lanes, unsigned i) {
  const auto bits = _mm256_load_si256(static_cast<const __m256i*>(lane_bits(2 * i)));
  return _mm256_cmpeq_epi16(_mm256_and_si256(lanes, bits), _mm256_setzero_si256());
}
FLITNET_AVX2 inline __m128i fold256(__m256i a) {
  return _mm_or_si128(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1));
}
FLITNET_AVX2 inline __m256i twice(Lanes8 lanes) {
  return _mm256_broadcastsi128_si256(reinterpret_cast<__m128i>(lanes));
}

template <>
FLITNET_AVX2 inline Picks smallest_stamps<Isa::avx2>(const StampRows& stamps, Lanes8 eligible) {
  const __m256i wanted = twice(eligible);
  __m256i stamp[kVlCount / 2];
  __m256i least = _mm256_set1_epi16(-1);
#pragma GCC unroll 8
  for (unsigned i = 0; i < kVlCount / 2; ++i) {
    stamp[i] = _mm256_or_si256(load256(&stamps[i * kWords256]), unset256(wanted, i));
    least = _mm256_min_epu16(least, stamp[i]);
  }
  const __m128i keys =
      _mm_min_epu16(_mm256_castsi256_si128(least), _mm256_extracti128_si256(least, 1));
  const __m256i both = _mm256_broadcastsi128_si256(keys);
  __m256i lanes = _mm256_setzero_si256();
#pragma GCC unroll 8
  for (unsigned i = 0; i < kVlCount / 2; ++i) {
    const auto bits = _mm256_load_si256(static_cast<const __m256i*>(lane_bits(2 * i)));
    lanes = _mm256_or_si256(lanes, _mm256_and_si256(_mm256_cmpeq_epi16(stamp[i], both), bits));
  }
  const auto found = reinterpret_cast<Lanes8>(fold256(lanes));
  return {reinterpret_cast<Lanes8>(keys), lowest_lanes(found & eligible)};
}

template <>
FLITNET_AVX2 inline void stamp_arrivals<Isa::avx2>(StampRows& aux, StampRows& heads,
                                                   const StampRows& vticks, Lanes8 lanes,
                                                   Lanes8 fresh, std::uint32_t now) {
  const __m256i arrive = twice(lanes);
  const __m256i first = twice(fresh);
  const __m256i now16 = _mm256_set1_epi16(static_cast<short>(now));
  const __m256i limit = _mm256_set1_epi16(static_cast<short>(now + kStampHorizon));
#pragma GCC unroll 8
  for (unsigned i = 0; i < kVlCount / 2; ++i) {
    std::uint16_t* a = &aux[i * kWords256];
    std::uint16_t* h = &heads[i * kWords256];
    const __m256i old = load256(a);
    const __m256i later = _mm256_max_epu16(old, now16);
    const __m256i stamp =
        _mm256_min_epu16(_mm256_adds_epu16(later, load256(&vticks[i * kWords256])), limit);
    store256(a, _mm256_blendv_epi8(stamp, old, unset256(arrive, i)));
    store256(h, _mm256_blendv_epi8(stamp, load256(h), unset256(first, i)));
  }
}

template <>
FLITNET_AVX2 inline void advance_stamps<Isa::avx2>(StampRows& stamps, const StampRows& vticks,
                                                   const StampRows& limits, Lanes8 lanes) {
  const __m256i sent = twice(lanes);
#pragma GCC unroll 8
  for (unsigned i = 0; i < kVlCount / 2; ++i) {
    std::uint16_t* s = &stamps[i * kWords256];
    const __m256i old = load256(s);
    const __m256i next = _mm256_min_epu16(_mm256_adds_epu16(old, load256(&vticks[i * kWords256])),
                                          load256(&limits[i * kWords256]));
    store256(s, _mm256_blendv_epi8(next, old, unset256(sent, i)));
  }
}

FLITNET_AVX512 inline __m512i load512(const std::uint16_t* words) {
  return _mm512_load_si512(words);
}
FLITNET_AVX512 inline __m512i fourfold(Lanes8 lanes) {
  return _mm512_broadcast_i32x4(reinterpret_cast<__m128i>(lanes));
}
// Words of lanes 4i ... 4i + 3 that are set.
FLITNET_AVX512 inline __mmask32 set512(__m512i lanes, unsigned i) {
  return _mm512_test_epi16_mask(lanes, _mm512_load_si512(lane_bits(4 * i)));
}
FLITNET_AVX512 inline __m256i lower_half(__m512i a) { return _mm512_castsi512_si256(a); }
FLITNET_AVX512 inline __m256i upper_half(__m512i a) { return _mm512_extracti64x4_epi64(a, 1); }

template <>
FLITNET_AVX512 inline Picks smallest_stamps<Isa::avx512>(const StampRows& stamps, Lanes8 eligible) {
  const __m512i wanted = fourfold(eligible);
  const __m512i none = _mm512_set1_epi16(-1);
  __m512i stamp[kVlCount / 4];
  __m512i least = none;
#pragma GCC unroll 4
  for (unsigned i = 0; i < kVlCount / 4; ++i) {
    stamp[i] = _mm512_mask_mov_epi16(none, set512(wanted, i), load512(&stamps[i * kWords512]));
    least = _mm512_min_epu16(least, stamp[i]);
  }
  const __m256i half = _mm256_min_epu16(lower_half(least), upper_half(least));
  const __m128i keys =
      _mm_min_epu16(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1));
  const __m512i all = _mm512_broadcast_i32x4(keys);
  __m512i lanes = _mm512_setzero_si512();
#pragma GCC unroll 4
  for (unsigned i = 0; i < kVlCount / 4; ++i)
    lanes = _mm512_or_si512(lanes, _mm512_maskz_mov_epi16(_mm512_cmpeq_epi16_mask(stamp[i], all),
                                                          _mm512_load_si512(lane_bits(4 * i))));
  const auto picked =
      reinterpret_cast<Lanes8>(fold256(_mm256_or_si256(lower_half(lanes), upper_half(lanes))));
  return {reinterpret_cast<Lanes8>(keys), lowest_lanes(picked & eligible)};
}

template <>
FLITNET_AVX512 inline void stamp_arrivals<Isa::avx512>(StampRows& aux, StampRows& heads,
                                                       const StampRows& vticks, Lanes8 lanes,
                                                       Lanes8 fresh, std::uint32_t now) {
  const __m512i arrive = fourfold(lanes);
  const __m512i first = fourfold(fresh);
  const __m512i now32 = _mm512_set1_epi16(static_cast<short>(now));
  const __m512i limit = _mm512_set1_epi16(static_cast<short>(now + kStampHorizon));
#pragma GCC unroll 4
  for (unsigned i = 0; i < kVlCount / 4; ++i) {
    std::uint16_t* a = &aux[i * kWords512];
    std::uint16_t* h = &heads[i * kWords512];
    const __m512i old = load512(a);
    const __m512i later = _mm512_max_epu16(old, now32);
    const __m512i stamp =
        _mm512_min_epu16(_mm512_adds_epu16(later, load512(&vticks[i * kWords512])), limit);
    // Whole vectors are stored: a masked store could not be forwarded to the loads that follow.
    _mm512_store_si512(a, _mm512_mask_mov_epi16(old, set512(arrive, i), stamp));
    _mm512_store_si512(h, _mm512_mask_mov_epi16(load512(h), set512(first, i), stamp));
  }
}

template <>
FLITNET_AVX512 inline void advance_stamps<Isa::avx512>(StampRows& stamps, const StampRows& vticks,
                                                       const StampRows& limits, Lanes8 lanes) {
  const __m512i sent = fourfold(lanes);
#pragma GCC unroll 4
  for (unsigned i = 0; i < kVlCount / 4; ++i) {
    std::uint16_t* s = &stamps[i * kWords512];
    const __m512i old = load512(s);
    const __m512i next = _mm512_min_epu16(_mm512_adds_epu16(old, load512(&vticks[i * kWords512])),
                                          load512(&limits[i * kWords512]));
    _mm512_store_si512(s, _mm512_mask_mov_epi16(old, set512(sent, i), next));
  }
}

}  // namespace emu

#endif

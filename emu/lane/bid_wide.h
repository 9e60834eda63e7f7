// The loops of bid.h with vectors: one lane of eight ports at a time by AVX2, two by AVX-512, where
// a mask replaces the blend. Included by bid.h only.
#pragma once

#include "emu/lane/bid.h"

#if defined(__x86_64__)

namespace emu {

// For every lane its bit, once a port.
struct LaneBits32 {
  alignas(64) std::array<Bid, kVlCount * kPortsMax> of;
  constexpr LaneBits32() : of{} {
    for (unsigned slot = 0; slot < of.size(); ++slot) of[slot] = 1U << vl_of_slot(slot);
  }
};
inline constexpr LaneBits32 kLaneBits32;

inline constexpr unsigned kRowsAvx2 = kVlCount;
inline constexpr unsigned kRowsAvx512 = kVlCount / 2;

FLITNET_AVX2 inline __m256i row256(const Bid* words, unsigned row) {
  return _mm256_load_si256(reinterpret_cast<const __m256i*>(words + row * kPortsMax));
}
FLITNET_AVX2 inline __m256i words32(Lanes8 lanes) {
  return _mm256_cvtepu16_epi32(reinterpret_cast<__m128i>(lanes));
}
// All ones where `bits` has none of the bits of `of`.
FLITNET_AVX2 inline __m256i none256(__m256i of, __m256i bits) {
  return _mm256_cmpeq_epi32(_mm256_and_si256(of, bits), _mm256_setzero_si256());
}
// 1 << lane of each bid, as words of 16 bits; 0 in words where `valid` is 0.
FLITNET_AVX2 inline Lanes8 lanes_of_bids(__m256i bids, __m256i valid) {
  const __m256i lane =
      _mm256_and_si256(_mm256_srli_epi32(bids, kBidLaneShift), _mm256_set1_epi32(0xf));
  const __m256i bit = _mm256_and_si256(_mm256_sllv_epi32(_mm256_set1_epi32(1), lane), valid);
  return reinterpret_cast<Lanes8>(
      _mm_packus_epi32(_mm256_castsi256_si128(bit), _mm256_extracti128_si256(bit, 1)));
}
FLITNET_AVX2 inline __m256i valid256(__m256i bids) {
  const __m256i ones = _mm256_set1_epi32(-1);
  return _mm256_xor_si256(_mm256_cmpeq_epi32(bids, ones), ones);
}

template <>
FLITNET_AVX2 inline Lanes8 smallest_lanes<Isa::avx2>(const BidRows& rows, Lanes8 eligible) {
  const __m256i wanted = words32(eligible);
  __m256i least[2] = {_mm256_set1_epi32(-1), _mm256_set1_epi32(-1)};
#pragma GCC unroll 16
  for (unsigned v = 0; v < kRowsAvx2; ++v) {
    const __m256i out = none256(row256(kLaneBits32.of.data(), v), wanted);
    least[v % 2] = _mm256_min_epu32(least[v % 2], _mm256_or_si256(row256(rows.of.data(), v), out));
  }
  const __m256i best = _mm256_min_epu32(least[0], least[1]);
  return lanes_of_bids(best, valid256(best));
}

FLITNET_AVX512 inline __m512i row512(const Bid* words, unsigned row) {
  return _mm512_load_si512(words + row * 2 * kPortsMax);
}
// The bits of the lanes in the upper halves of words of 32 bits, once a port.
struct UpperLaneBits {
  alignas(64) std::array<Bid, kDummySlot> of;
  constexpr UpperLaneBits() : of{} {
    for (unsigned slot = 0; slot < of.size(); ++slot) of[slot] = 1U << vl_of_slot(slot) << 16;
  }
};
inline constexpr UpperLaneBits kUpperLaneBits;
// Eight words as the upper halves of eight words of 32 bits, twice; the lower halves are of no
// meaning.
struct DoubledWords {
  alignas(64) std::array<std::uint16_t, 4 * kPortsMax> of;
  constexpr DoubledWords() : of{} {
    for (unsigned i = 0; i < of.size(); ++i) of[i] = static_cast<std::uint16_t>(i / 2 % kPortsMax);
  }
};
inline constexpr DoubledWords kDoubledWords;
FLITNET_AVX512 inline __m512i upper_words(Lanes8 words) {
  return _mm512_permutexvar_epi16(_mm512_load_si512(kDoubledWords.of.data()),
                                  _mm512_castsi128_si512(reinterpret_cast<__m128i>(words)));
}
// The smaller of what two lanes bid.
FLITNET_AVX512 inline __m256i fold_least(__m512i a) {
  return _mm256_min_epu32(_mm512_castsi512_si256(a), _mm512_extracti64x4_epi64(a, 1));
}
// The same in both halves.
FLITNET_AVX512 inline __m512i least_of_both(__m512i a) {
  return _mm512_min_epu32(a, _mm512_shuffle_i64x2(a, a, 0x4e));
}
// 1 << lane of each bid; upper halves are of no meaning.
FLITNET_AVX512 inline __m256i lane_bits_of(__m256i bids) {
  return _mm256_sllv_epi16(_mm256_set1_epi16(1), _mm256_srli_epi16(bids, kBidLaneShift));
}
// The lower halves of eight words of 32 bits, of those in `valid`; else 0.
FLITNET_AVX512 inline Lanes8 lower_words(__m256i words, __mmask8 valid) {
  const __m256i lower = _mm256_setr_epi16(0, 2, 4, 6, 8, 10, 12, 14, 0, 2, 4, 6, 8, 10, 12, 14);
  return reinterpret_cast<Lanes8>(
      _mm256_castsi256_si128(_mm256_maskz_permutexvar_epi16(valid, lower, words)));
}

template <>
FLITNET_AVX512 inline Lanes8 smallest_lanes<Isa::avx512>(const BidRows& rows, Lanes8 eligible) {
  const __m512i wanted = upper_words(eligible);
  const auto asked = reinterpret_cast<__m128i>(eligible);
  __m512i least[2] = {_mm512_set1_epi32(-1), _mm512_set1_epi32(-1)};
#pragma GCC unroll 8
  for (unsigned i = 0; i < kRowsAvx512; ++i) {
    const __mmask16 in = _mm512_test_epi32_mask(wanted, row512(kUpperLaneBits.of.data(), i));
    least[i % 2] = _mm512_mask_min_epu32(least[i % 2], in, least[i % 2], row512(rows.of.data(), i));
  }
  const __m256i best = fold_least(_mm512_min_epu32(least[0], least[1]));
  return lower_words(lane_bits_of(best), _mm_test_epi16_mask(asked, asked));
}

}  // namespace emu

#endif

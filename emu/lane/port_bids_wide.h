// The least bids of port_bids.h by AVX2 and AVX-512. Included by port_bids.h only.
#pragma once

#include "emu/lane/port_bids.h"

#if defined(__x86_64__)

namespace emu {

FLITNET_AVX2 inline Bid least_of(__m256i bids) {
  __m128i least = _mm_min_epu32(_mm256_castsi256_si128(bids), _mm256_extracti128_si256(bids, 1));
  least = _mm_min_epu32(least, _mm_shuffle_epi32(least, 0x4e));
  least = _mm_min_epu32(least, _mm_shuffle_epi32(least, 0xb1));
  return static_cast<Bid>(_mm_cvtsi128_si32(least));
}

// Eight bids where `lanes` has their bit; else kNoBid.
FLITNET_AVX2 inline __m256i bids_in(const __m256i* bids, __m256i lanes, __m256i bits) {
  const __m256i out = _mm256_cmpeq_epi32(_mm256_and_si256(lanes, bits), _mm256_setzero_si256());
  return _mm256_or_si256(_mm256_load_si256(bids), out);
}
template <>
FLITNET_AVX2 inline Bid least_bid<Isa::avx2>(const PortBids& bids, unsigned port, unsigned lanes) {
  const __m256i low = _mm256_setr_epi32(1, 1 << 1, 1 << 2, 1 << 3, 1 << 4, 1 << 5, 1 << 6, 1 << 7);
  const __m256i all = _mm256_set1_epi32(static_cast<int>(lanes));
  const auto* of = reinterpret_cast<const __m256i*>(&bids.of[block_lane(port, 0)]);
  return least_of(
      _mm256_min_epu32(bids_in(of, all, low), bids_in(of + 1, all, _mm256_slli_epi32(low, 8))));
}

// Of the sixteen bids of a port those of these lanes; kNoBid for all others.
FLITNET_AVX512 inline __m512i bids_in(const Bid* bids, __mmask16 lanes) {
  return _mm512_mask_mov_epi32(_mm512_set1_epi32(-1), lanes, _mm512_load_si512(bids));
}
template <>
FLITNET_AVX512 inline Bid least_bid<Isa::avx512>(const PortBids& bids, unsigned port,
                                                 unsigned lanes) {
  const __m512i in = bids_in(&bids.of[block_lane(port, 0)], static_cast<__mmask16>(lanes));
  return least_of(_mm256_min_epu32(_mm512_castsi512_si256(in), _mm512_extracti64x4_epi64(in, 1)));
}

// The least of the bids of each of `kPorts` ports, of these lanes of each; kNoBid where a port
// has none. Halves of two vectors meet, each of half of the ports, so that the minima of sixteen
// ports stand in their order at last; of two they stand twice four times, of four four times.
template <unsigned kPorts>
FLITNET_AVX512 inline __m512i least_bids(const Bid* bids, LaneMask* lanes) {
  if constexpr (kPorts == 1) {
    return bids_in(bids, _load_mask16(lanes));
  } else {
    constexpr unsigned kHalf = kPorts / 2;
    const __m512i a = least_bids<kHalf>(bids, lanes);
    const __m512i b = least_bids<kHalf>(bids + block_lane(kHalf, 0), lanes + kHalf);
    if constexpr (kPorts == 2)
      return _mm512_min_epu32(_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b));
    if constexpr (kPorts == 4)
      return _mm512_min_epu32(_mm512_unpacklo_epi64(a, b), _mm512_unpackhi_epi64(a, b));
    if constexpr (kPorts == 8)
      return _mm512_min_epu32(_mm512_shuffle_i64x2(a, b, 0x44), _mm512_shuffle_i64x2(a, b, 0xee));
    return _mm512_min_epu32(_mm512_shuffle_i64x2(a, b, 0x88), _mm512_shuffle_i64x2(a, b, 0xdd));
  }
}

}  // namespace emu

#endif

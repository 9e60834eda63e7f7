// The questions of words.h by AVX2 and AVX-512. Included by words.h only.
#pragma once

#include "emu/lane/words.h"

#if defined(__x86_64__)

namespace emu {

FLITNET_AVX2 inline __m256i words256(const std::uint16_t* words) {
  return _mm256_load_si256(reinterpret_cast<const __m256i*>(words));
}
// One bit a word: those that are not all ones.
FLITNET_AVX2 inline std::uint64_t unset256(__m256i words) {
  return _pext_u32(~static_cast<unsigned>(_mm256_movemask_epi8(words)), 0x55555555U);
}

template <>
FLITNET_AVX2 inline std::uint64_t marked_bytes<Isa::avx2>(const std::uint8_t* bytes,
                                                          unsigned ports) {
  std::uint64_t marked = 0;
  for (unsigned i = 0; i < ports; i += 32) {
    const __m256i v = _mm256_load_si256(reinterpret_cast<const __m256i*>(bytes + i));
    marked |= std::uint64_t{static_cast<unsigned>(_mm256_movemask_epi8(v))} << i;
  }
  return marked;
}
template <>
FLITNET_AVX2 inline std::uint64_t common_words<Isa::avx2>(const LaneWords& a, const LaneWords& b,
                                                          unsigned ports) {
  std::uint64_t common = 0;
  for (unsigned i = 0; i < ports; i += 16) {
    const __m256i both = _mm256_and_si256(words256(&a[i]), words256(&b[i]));
    common |= unset256(_mm256_cmpeq_epi16(both, _mm256_setzero_si256())) << i;
  }
  return common;
}
template <>
FLITNET_AVX2 inline unsigned least_lane<Isa::avx2>(const std::uint16_t* numbers, unsigned lanes) {
  const __m256i bits = _mm256_setr_epi16(1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096,
                                         8192, 16384, static_cast<short>(0x8000));
  const __m256i in = _mm256_and_si256(_mm256_set1_epi16(static_cast<short>(lanes)), bits);
  const __m256i out = _mm256_cmpeq_epi16(in, _mm256_setzero_si256());
  const __m256i of = _mm256_or_si256(words256(numbers), out);
  const __m128i half = _mm_min_epu16(_mm256_castsi256_si128(of), _mm256_extracti128_si256(of, 1));
  const __m256i least = _mm256_broadcastw_epi16(_mm_minpos_epu16(half));
  const __m256i same = _mm256_cmpeq_epi16(of, least);
  return first_of(static_cast<unsigned>(_mm256_movemask_epi8(same))) / 2;
}

FLITNET_AVX512 inline __m512i iota512() {
  return _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
}
FLITNET_AVX512 inline __m512i words512(const std::uint16_t* words) {
  return _mm512_load_si512(words);
}

template <>
FLITNET_AVX512 inline std::uint64_t marked_bytes<Isa::avx512>(const std::uint8_t* bytes,
                                                              unsigned /*ports*/) {
  return _mm512_movepi8_mask(_mm512_load_si512(bytes));
}
template <>
FLITNET_AVX512 inline std::uint64_t common_words<Isa::avx512>(const LaneWords& a,
                                                              const LaneWords& b, unsigned ports) {
  std::uint64_t common = 0;
  for (unsigned i = 0; i < ports; i += 32)
    common |= std::uint64_t{_mm512_test_epi16_mask(words512(&a[i]), words512(&b[i]))} << i;
  return common;
}
template <>
class OnlyLanes<Isa::avx512> {
 public:
  FLITNET_AVX512 OnlyLanes(const LaneWords& words, unsigned ports) {
    // The lane is 31 less the zeros above its bit.
    __m512i above =
        _mm512_add_epi32(_mm512_slli_epi32(iota512(), kPortOfLaneShift), _mm512_set1_epi32(31));
    for (unsigned i = 0; i < ports; i += 16) {
      const __m512i zeros = _mm512_lzcnt_epi32(_mm512_cvtepu16_epi32(words256(&words[i])));
      _mm512_store_si512(&of_[i], _mm512_sub_epi32(above, zeros));
      above = _mm512_add_epi32(above, _mm512_set1_epi32(16 * kVlCount));
    }
  }
  unsigned operator[](unsigned port) const { return of_[port]; }

 private:
  alignas(64) std::array<std::uint32_t, kBlockPorts> of_;
};

template <>
FLITNET_AVX512 inline unsigned least_lane<Isa::avx512>(const std::uint16_t* numbers,
                                                       unsigned lanes) {
  const auto in = static_cast<__mmask16>(lanes);
  const __m256i of = _mm256_mask_mov_epi16(_mm256_set1_epi16(-1), in, words256(numbers));
  const __m128i half = _mm_min_epu16(_mm256_castsi256_si128(of), _mm256_extracti128_si256(of, 1));
  const __m256i least = _mm256_broadcastw_epi16(_mm_minpos_epu16(half));
  return first_of(_mm256_mask_cmpeq_epi16_mask(in, of, least));
}

}  // namespace emu

#endif

// The smallest of sixteen numbers, of which only some count: SSE4.1 finds it without a loop, whose
// length nobody could foretell. Used where schedulers compare stamps.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#if defined(__SSE4_1__)
#include <smmintrin.h>
#endif

#include "emu/lane/policy.h"

namespace emu {

// `numbers`: rows of sixteen, aligned to 16 bytes, none of them 0xffff where it counts. `lanes`: of
// each row the lanes that count, no lane in two rows, some lane in one of them. Returns the lane of
// the smallest number, of equal ones the lowest.
template <std::size_t kRows>
inline unsigned least_of_rows(const std::uint16_t* numbers,
                              const std::array<LaneMask, kRows>& lanes) {
#if defined(__SSE4_1__)
  const __m128i ones = _mm_set1_epi16(-1);
  const __m128i low_bits = _mm_setr_epi16(1, 2, 4, 8, 16, 32, 64, 128);
  const __m128i high_bits =
      _mm_setr_epi16(256, 512, 1024, 2048, 4096, 8192, 16384, static_cast<short>(0x8000));
  __m128i low = ones;
  __m128i high = ones;
  const auto* row = reinterpret_cast<const __m128i*>(numbers);
#pragma GCC unroll 4
  for (std::size_t i = 0; i < kRows; ++i) {
    const __m128i in = _mm_set1_epi16(static_cast<short>(lanes[i]));
    const __m128i zero = _mm_setzero_si128();
    const __m128i low_out = _mm_cmpeq_epi16(_mm_and_si128(in, low_bits), zero);
    const __m128i high_out = _mm_cmpeq_epi16(_mm_and_si128(in, high_bits), zero);
    low = _mm_min_epu16(low, _mm_or_si128(_mm_load_si128(row + 2 * i), low_out));
    high = _mm_min_epu16(high, _mm_or_si128(_mm_load_si128(row + 2 * i + 1), high_out));
  }
  const int least = _mm_cvtsi128_si32(_mm_minpos_epu16(_mm_min_epu16(low, high)));
  const __m128i all = _mm_set1_epi16(static_cast<short>(least));
  const __m128i same = _mm_packs_epi16(_mm_cmpeq_epi16(low, all), _mm_cmpeq_epi16(high, all));
  return static_cast<unsigned>(__builtin_ctz(static_cast<unsigned>(_mm_movemask_epi8(same))));
#else
  unsigned least = ~0U;
  for (std::size_t i = 0; i < kRows; ++i)
    for (unsigned rest = lanes[i]; rest != 0; rest &= rest - 1) {
      const auto lane = static_cast<unsigned>(__builtin_ctz(rest));
      const unsigned key = unsigned{numbers[i * kVlCount + lane]} << 4 | lane;
      least = key < least ? key : least;
    }
  return least & 15U;
#endif
}

}  // namespace emu

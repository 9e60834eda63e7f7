// The stamps of FCFS, VirtualClock and FGVC as 16-bit numbers (the papers' hardware form). A stamp
// is counted from an epoch that moves on every kStampPeriod cycles and lies that far behind the
// clock:
//   epoch(t) = t - t mod kStampPeriod - kStampPeriod
// A stamp lies at most kStampHorizon after the arrival of its flit and at least one after the
// epoch, so it fits, and a flit overdue by more than a period or two is as urgent as any other such
// flit. Lanes of control have the stamp 0: strictly first. All ones: no flit.
#pragma once

#include <algorithm>
#include <cstdint>

#include "emu/base/units.h"
#include "emu/lane/planes.h"

namespace emu {

inline constexpr std::uint32_t kStampPeriod = 1U << 14;
inline constexpr std::uint32_t kStampHorizon = kVtickMax;
inline constexpr std::uint16_t kNoStamp = 0xffff;
static_assert(2 * kStampPeriod - 1 + kStampHorizon < kNoStamp, "every stamp fits in 16 bits");

// The clock counted from the epoch: kStampPeriod ... 2 * kStampPeriod - 1.
constexpr std::uint32_t stamp_now(Cycle t) {
  return kStampPeriod + static_cast<std::uint32_t>(t % kStampPeriod);
}

// auxVC <- max(now, auxVC) + Vtick, held below the horizon.
constexpr std::uint16_t next_stamp(std::uint32_t arrival, std::uint32_t aux, std::uint32_t vtick) {
  return static_cast<std::uint16_t>(
      std::min(std::max(arrival, aux) + vtick, arrival + kStampHorizon));
}

// An older stamp seen from an epoch that moved on.
constexpr std::uint16_t aged_stamp(std::uint16_t stamp, std::uint64_t moved) {
  return stamp > moved ? static_cast<std::uint16_t>(stamp - moved) : std::uint16_t{1};
}

// What a scheduler proposes for a port: a lane and how urgent it is. No lane: key kNoStamp.
struct Pick {
  std::uint32_t bits;  // key | lane << 16
  std::uint32_t key() const { return bits & 0xffffU; }
  std::uint32_t lane() const { return bits >> 16; }
};
inline constexpr Pick kNoPick{kNoStamp};

// The eligible lane with the smallest of 16 stamps, the lowest lane of equals. `stamps` is
// 16-aligned.
inline Pick smallest_stamp(const std::uint16_t* stamps, LaneMask eligible) {
#if defined(__SSE4_1__)
  const __m128i low_bits = _mm_setr_epi16(1, 2, 4, 8, 16, 32, 64, 128);
  const __m128i high_bits = _mm_slli_epi16(low_bits, 8);
  const __m128i mask = _mm_set1_epi16(static_cast<short>(eligible));
  const __m128i zero = _mm_setzero_si128();
  const auto* v = reinterpret_cast<const __m128i*>(stamps);
  const __m128i no_low = _mm_cmpeq_epi16(_mm_and_si128(mask, low_bits), zero);
  const __m128i no_high = _mm_cmpeq_epi16(_mm_and_si128(mask, high_bits), zero);
  const auto low = static_cast<std::uint32_t>(
      _mm_cvtsi128_si32(_mm_minpos_epu16(_mm_or_si128(_mm_load_si128(v), no_low))));
  const auto high = static_cast<std::uint32_t>(
      _mm_cvtsi128_si32(_mm_minpos_epu16(_mm_or_si128(_mm_load_si128(v + 1), no_high))));
  return Pick{(high & 0xffffU) < (low & 0xffffU) ? high + (8U << 16) : low};
#else
  Pick best = kNoPick;
  for (unsigned bits = eligible; bits != 0; bits &= bits - 1) {
    const unsigned lane = first_bit(bits);
    if (stamps[lane] < best.key()) best = Pick{stamps[lane] | lane << 16};
  }
  return best;
#endif
}

}  // namespace emu

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

// What a scheduler proposes for each of eight ports: a lane and how urgent it is. No lane: the word
// of `lanes` is 0, the key kNoStamp.
struct Picks {
  Lanes8 keys;
  Lanes8 lanes;  // at most one a word
};

// Of each port the lanes that do not yield, if it has such a one; else all.
inline Lanes8 before_yielding(Lanes8 lanes, Lanes8 yields) {
  const Lanes8 first = lanes & ~yields;
  return first | (lanes & zero_words(first));
}
// The keys by which every pick of a lane that yields is less urgent than any other.
inline constexpr std::uint16_t kYieldingKey = kNoStamp - 1;

// Stamps of all lanes of eight ports: [lane][port].
using StampRows = std::array<std::uint16_t, kLaneSlots>;

inline Lanes8 smaller(Lanes8 a, Lanes8 b) {
#if defined(__SSE4_1__)
  return reinterpret_cast<Lanes8>(
      _mm_min_epu16(reinterpret_cast<__m128i>(a), reinterpret_cast<__m128i>(b)));
#else
  return a < b ? a : b;
#endif
}
inline Lanes8 larger(Lanes8 a, Lanes8 b) {
#if defined(__SSE4_1__)
  return reinterpret_cast<Lanes8>(
      _mm_max_epu16(reinterpret_cast<__m128i>(a), reinterpret_cast<__m128i>(b)));
#else
  return a < b ? b : a;
#endif
}
// Sum, or 65535 where it does not fit.
inline Lanes8 add_saturated(Lanes8 a, Lanes8 b) {
#if defined(__SSE2__)
  return reinterpret_cast<Lanes8>(
      _mm_adds_epu16(reinterpret_cast<__m128i>(a), reinterpret_cast<__m128i>(b)));
#else
  const Lanes8 sum = a + b;
  return sum | reinterpret_cast<Lanes8>(sum < a);
#endif
}

inline Picks let_yield(Picks picks, Lanes8 yields) {
  const Lanes8 firm = zero_words(picks.lanes & yields);
  const Lanes8 none = zero_words(picks.lanes);
  const Lanes8 keys = smaller(picks.keys, spread(kYieldingKey - 1U));
  return {(keys & firm) | (spread(kYieldingKey) & ~firm) | none, picks.lanes};
}

// Of each port the eligible lane with the smallest stamp, the lowest lane of equals.
template <Isa kIsa>
inline Picks smallest_stamps(const StampRows& stamps, Lanes8 eligible) {
  const auto* row = reinterpret_cast<const Lanes8*>(stamps.data());
  Lanes8 keys = ~kNoLanes8;
#pragma GCC unroll 16
  for (unsigned v = 0; v < kVlCount; ++v)
    keys = smaller(keys, row[v] | zero_words(eligible & kLaneBits.of[v]));
  Lanes8 lanes = kNoLanes8;
#pragma GCC unroll 16
  for (unsigned v = 0; v < kVlCount; ++v)
    lanes |= reinterpret_cast<Lanes8>(row[v] == keys) & kLaneBits.of[v];
  return {keys, lowest_lanes(lanes & eligible)};
}

// Flits arrive on `lanes`: aux <- next_stamp(now, aux, vtick), which is also the stamp at the head
// of those lanes that are in `fresh`.
template <Isa kIsa>
inline void stamp_arrivals(StampRows& aux, StampRows& heads, const StampRows& vticks, Lanes8 lanes,
                           Lanes8 fresh, std::uint32_t now) {
  const Lanes8 now8 = spread(now);
  const Lanes8 limit = spread(now + kStampHorizon);
  auto* a = reinterpret_cast<Lanes8*>(aux.data());
  auto* h = reinterpret_cast<Lanes8*>(heads.data());
  const auto* tick = reinterpret_cast<const Lanes8*>(vticks.data());
#pragma GCC unroll 16
  for (unsigned v = 0; v < kVlCount; ++v) {
    const Lanes8 stamp = smaller(add_saturated(larger(a[v], now8), tick[v]), limit);
    const Lanes8 others = zero_words(lanes & kLaneBits.of[v]);
    const Lanes8 behind = zero_words(fresh & kLaneBits.of[v]);
    a[v] = (a[v] & others) | (stamp & ~others);
    h[v] = (h[v] & behind) | (stamp & ~behind);
  }
}

// stamps <- min(stamps + vticks, limits) on `lanes`.
template <Isa kIsa>
inline void advance_stamps(StampRows& stamps, const StampRows& vticks, const StampRows& limits,
                           Lanes8 lanes) {
  auto* s = reinterpret_cast<Lanes8*>(stamps.data());
  const auto* tick = reinterpret_cast<const Lanes8*>(vticks.data());
  const auto* limit = reinterpret_cast<const Lanes8*>(limits.data());
#pragma GCC unroll 16
  for (unsigned v = 0; v < kVlCount; ++v) {
    const Lanes8 next = smaller(add_saturated(s[v], tick[v]), limit[v]);
    const Lanes8 others = zero_words(lanes & kLaneBits.of[v]);
    s[v] = (s[v] & others) | (next & ~others);
  }
}

}  // namespace emu

#include "emu/lane/stamp_wide.h"

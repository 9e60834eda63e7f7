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

// Of the first flit of a message that became ready in cycle `ready` and is now first in its lane at
// an HCA's link: its stamp, and the horizon of the flits behind it. `clock`: the stamp of the flit
// before it, 0 if the lane's clock starts again. Older arrivals than an epoch would all have the
// oldest stamp, and the lowest lane would always go first.
struct FrontStamp {
  std::uint16_t stamp;
  std::uint16_t limit;
};
constexpr FrontStamp front_stamp(Cycle ready, Cycle now, std::uint32_t clock, std::uint32_t vtick) {
  const auto behind = std::min(static_cast<std::int64_t>(now - ready), std::int64_t{kStampPeriod});
  // Numbers of 32 bits, of which g++ takes the larger without a branch, which would be missed.
  const auto arrival = static_cast<std::uint32_t>(stamp_now(now) - behind);
  const std::uint32_t limit = arrival + kStampHorizon;
  const std::uint32_t stamp = std::min(std::max(arrival, clock) + vtick, limit);
  return {static_cast<std::uint16_t>(std::max(stamp, 1U)), static_cast<std::uint16_t>(limit)};
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

inline Lanes8 smaller(Lanes8 a, Lanes8 b) {
#if defined(__SSE4_1__)
  return reinterpret_cast<Lanes8>(
      _mm_min_epu16(reinterpret_cast<__m128i>(a), reinterpret_cast<__m128i>(b)));
#else
  return a < b ? a : b;
#endif
}
inline Picks let_yield(Picks picks, Lanes8 yields) {
  const Lanes8 firm = zero_words(picks.lanes & yields);
  const Lanes8 none = zero_words(picks.lanes);
  const Lanes8 keys = smaller(picks.keys, spread(kYieldingKey - 1U));
  return {(keys & firm) | (spread(kYieldingKey) & ~firm) | none, picks.lanes};
}

}  // namespace emu

// One bit per lane, one 16-bit word per port, eight ports at once: the questions of a whole router
// are answered by a handful of vector instructions (measured 2.7 to 3.5 times faster than scanning
// structs of lanes). Used by the hot loops of fabric/router and hca/wire. GCC vector types compile
// anywhere; only the few horizontal questions below name SSE.
#pragma once

#include <array>
#include <cstdint>

#if defined(__SSE2__)
#include <immintrin.h>
#endif

#include "emu/lane/policy.h"

namespace emu {

inline constexpr int kPortsMax = 8;  // ports of a router, nodes of a wire group: words of a vector

using Lanes8 = std::uint16_t __attribute__((vector_size(16), may_alias));

inline constexpr Lanes8 kNoLanes8 = {0, 0, 0, 0, 0, 0, 0, 0};

inline Lanes8 spread(unsigned word) {
  const auto w = static_cast<std::uint16_t>(word);
  return Lanes8{w, w, w, w, w, w, w, w};
}

// All ones in the words that are zero.
inline Lanes8 zero_words(Lanes8 a) { return reinterpret_cast<Lanes8>(a == kNoLanes8); }

// The lowest set bit of every word.
inline Lanes8 lowest_lanes(Lanes8 a) { return a & (kNoLanes8 - a); }

inline bool any(Lanes8 a) {
#if defined(__SSE4_1__)
  const auto v = reinterpret_cast<__m128i>(a);
  return _mm_testz_si128(v, v) == 0;
#else
  using Wide = std::uint64_t __attribute__((vector_size(16), may_alias));
  const auto w = reinterpret_cast<Wide>(a);
  return (w[0] | w[1]) != 0;
#endif
}

// Bit p is set when word p is not zero.
inline unsigned ports_of(Lanes8 a) {
#if defined(__SSE2__)
  const __m128i zero = _mm_setzero_si128();
  const __m128i empty = _mm_cmpeq_epi16(reinterpret_cast<__m128i>(a), zero);
  return static_cast<unsigned>(_mm_movemask_epi8(_mm_packs_epi16(empty, zero))) ^ 0xffU;
#else
  unsigned ports = 0;
  for (unsigned p = 0; p < kPortsMax; ++p) ports |= static_cast<unsigned>(a[p] != 0) << p;
  return ports;
#endif
}

// The lowest set bit; bits is not 0 (std::countr_zero would pay for that case every time).
inline unsigned first_bit(unsigned bits) { return static_cast<unsigned>(__builtin_ctz(bits)); }

// Calls body(port) for all ports of `ports`. At high load one straight run over all eight is
// cheaper than a loop whose length cannot be predicted; body must then do no harm to a port that is
// not there.
inline constexpr int kManyPorts = 4;
template <class Body>
[[gnu::always_inline]] inline void each_port(unsigned ports, const Body& body) {
  if (__builtin_popcount(ports) >= kManyPorts) {
#pragma GCC unroll 8
    for (unsigned port = 0; port < kPortsMax; ++port) body(port);
  } else {
    for (; ports != 0; ports &= ports - 1) body(first_bit(ports));
  }
}

// The lane of a one-lane word; the dummy lane 16 for an empty word.
inline unsigned lane_or_dummy(unsigned word) { return first_bit(word | 1U << kVlCount); }

// Arrays by port and lane: index port * kLaneStride + lane. Lanes 16 and up are dummies: events of
// a lane that is not there go to them unasked. A multiple of eight keeps a port's 16 lanes loadable
// as vectors.
inline constexpr unsigned kLaneStride = 24;
inline constexpr unsigned kLaneSlots = kPortsMax * kLaneStride;
constexpr unsigned lane_slot(unsigned port, unsigned lane) { return port * kLaneStride + lane; }

// A vector with one lane of one port set; a table, because a narrow store before a wide load
// stalls.
struct OneLane {
  alignas(16) Lanes8 of[kLaneSlots];  // no lane at all for a dummy
  constexpr OneLane() : of{} {
    for (unsigned port = 0; port < kPortsMax; ++port) {
      for (unsigned lane = 0; lane < kVlCount; ++lane) {
        std::uint16_t w[kPortsMax] = {};
        w[port] = static_cast<std::uint16_t>(1U << lane);
        of[lane_slot(port, lane)] = Lanes8{w[0], w[1], w[2], w[3], w[4], w[5], w[6], w[7]};
      }
    }
  }
};
inline constexpr OneLane kOneLane;

// 128 counters of 0 ... 15, bit by bit in planes: adding or taking one on any set of lanes is a
// ripple of four steps for all of them.
inline constexpr int kCountMax = 15;

struct Counts {
  Lanes8 plane[4] = {};

  void add_one(Lanes8 lanes) {
    for (auto& p : plane) {
      const Lanes8 carry = p & lanes;
      p ^= lanes;
      lanes = carry;
    }
  }
  void take_one(Lanes8 lanes) {
    for (auto& p : plane) {
      const Lanes8 borrow = ~p & lanes;
      p ^= lanes;
      lanes = borrow;
    }
  }
  Lanes8 nonzero() const { return (plane[0] | plane[1]) | (plane[2] | plane[3]); }

  unsigned get(unsigned port, unsigned lane) const {
    unsigned value = 0;
    for (unsigned i = 0; i < 4; ++i) value |= ((plane[i][port] >> lane) & 1U) << i;
    return value;
  }
  void set(unsigned port, unsigned lane, unsigned value) {
    const auto bit = static_cast<std::uint16_t>(1U << lane);
    for (unsigned i = 0; i < 4; ++i) {
      const auto others = static_cast<std::uint16_t>(plane[i][port] & ~bit);
      plane[i][port] = (value >> i) & 1U ? static_cast<std::uint16_t>(others | bit) : others;
    }
  }
};

// Asks a Counts which of its counters have one fixed value.
struct CountIs {
  Lanes8 flip[4] = {};
  CountIs() = default;
  explicit CountIs(unsigned value) {
    for (unsigned i = 0; i < 4; ++i) flip[i] = spread((value >> i) & 1U ? 0U : 0xffffU);
  }
  Lanes8 operator()(const Counts& c) const {
    return ((c.plane[0] ^ flip[0]) & (c.plane[1] ^ flip[1])) &
           ((c.plane[2] ^ flip[2]) & (c.plane[3] ^ flip[3]));
  }
};

}  // namespace emu

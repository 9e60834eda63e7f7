// One bit per lane, one 16-bit word per port, eight ports at once: the questions of a whole router
// are answered by a handful of vector instructions (measured 2.7 to 3.5 times faster than scanning
// structs of lanes). Used by the hot loops of fabric/router and hca/wire. GCC vector types compile
// anywhere; only the few horizontal questions below name SSE.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <cstring>

#if defined(__SSE2__)
#include <immintrin.h>
#endif

#include "emu/lane/isa.h"
#include "emu/lane/policy.h"

namespace emu {

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

// They have a bit in common.
inline bool meet(Lanes8 a, Lanes8 b) {
#if defined(__SSE4_1__)
  return _mm_testz_si128(reinterpret_cast<__m128i>(a), reinterpret_cast<__m128i>(b)) == 0;
#else
  return any(a & b);
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

// More than one word is not zero.
inline bool several(Lanes8 a) {
  const unsigned ports = ports_of(a);
  return (ports & (ports - 1)) != 0;
}

// Arrays by port and lane: index lane * 8 + port, so that what a lane number means for all ports
// lies in one vector and the arithmetic of all lanes of all ports is 16 vectors, or 8 or 4 wide
// ones. The row of lane 16 is a dummy: events of a lane that is not there go to it unasked.
inline constexpr unsigned kLaneRows = kVlCount + 1;
inline constexpr unsigned kLaneSlots = kPortsMax * kLaneRows;
inline constexpr unsigned kDummySlot = kPortsMax * kVlCount;
constexpr unsigned lane_slot(unsigned port, unsigned lane) { return lane * kPortsMax + port; }
constexpr unsigned port_of_slot(unsigned slot) { return slot % kPortsMax; }
constexpr unsigned vl_of_slot(unsigned slot) { return slot / kPortsMax; }

// The slot of the lane that is set in each word (at most one a word); of the dummy lane for none.
inline Lanes8 slots_of(Lanes8 one_lane_each) {
#if defined(__SSSE3__)
  // The product's upper four bits tell which bit was set (de Bruijn).
  const Lanes8 number = one_lane_each * spread(0x09af) >> 12;
  const __m128i rows = _mm_setr_epi8(0, 1 * 8, 2 * 8, 5 * 8, 3 * 8, 9 * 8, 6 * 8, 11 * 8, 15 * 8,
                                     4 * 8, 8 * 8, 10 * 8, 14 * 8, 7 * 8, 13 * 8, 12 * 8);
  const __m128i row = _mm_shuffle_epi8(rows, reinterpret_cast<__m128i>(number));
  const Lanes8 dummies = zero_words(one_lane_each) & spread(kVlCount * kPortsMax);
  return (reinterpret_cast<Lanes8>(row) + Lanes8{0, 1, 2, 3, 4, 5, 6, 7}) | dummies;
#else
  Lanes8 slots;
  for (unsigned p = 0; p < kPortsMax; ++p)
    slots[p] =
        static_cast<std::uint16_t>(lane_slot(p, first_bit(one_lane_each[p] | 1U << kVlCount)));
  return slots;
#endif
}

// The slots of the lanes that are set (at most one a word), to be visited one by one. A loop whose
// length cannot be predicted costs more than what it saves: two slots are visited when there are
// few, all eight when there are more. A visit must do no harm to the dummy lane.
class FlitSlots {
 public:
  explicit FlitSlots(Lanes8 one_lane_each) : ports_(ports_of(one_lane_each)) {
    const Lanes8 slots = slots_of(one_lane_each);
    std::memcpy(slot_.data(), &slots, sizeof slots);
    slot_[kPortsMax] = kDummySlot;
  }
  bool few() const { return (others() & (others() - 1)) == 0; }
  template <class Visit>
  [[gnu::always_inline]] void visit_few(const Visit& visit) const {
    visit(unsigned{slot_[first_bit(ports_ | 1U << kPortsMax)]});
    visit(unsigned{slot_[first_bit(others() | 1U << kPortsMax)]});
  }
  template <class Visit>
  [[gnu::always_inline]] void visit_many(const Visit& visit) const {
#pragma GCC unroll 8
    for (unsigned port = 0; port < kPortsMax; ++port) visit(unsigned{slot_[port]});
  }
  template <class Visit>
  [[gnu::always_inline]] void visit(const Visit& visit) const {
    few() ? visit_few(visit) : visit_many(visit);
  }

 private:
  unsigned others() const { return ports_ & (ports_ - 1); }  // but the first
  unsigned ports_;
  alignas(16) std::array<std::uint16_t, kPortsMax + 1> slot_;
};

// A vector with one lane of one port set; a table, because a narrow store before a wide load
// stalls.
struct OneLane {
  alignas(64) Lanes8 of[kLaneSlots];  // no lane at all for a dummy
  constexpr OneLane() : of{} {
    for (unsigned slot = 0; slot < kPortsMax * kVlCount; ++slot) {
      std::uint16_t w[kPortsMax] = {};
      w[port_of_slot(slot)] = static_cast<std::uint16_t>(1U << vl_of_slot(slot));
      of[slot] = Lanes8{w[0], w[1], w[2], w[3], w[4], w[5], w[6], w[7]};
    }
  }
};
inline constexpr OneLane kOneLane;

// 128 counters of 0 ... 2^kPlanes - 1, bit by bit in planes: adding or taking one on any set of
// lanes is a ripple of kPlanes steps for all of them.
template <int kPlanes>
struct Counts {
  static constexpr unsigned kMax = (1U << kPlanes) - 1;
  Lanes8 plane[kPlanes] = {};

  void add_one(Lanes8 lanes) {
#pragma GCC unroll 8
    for (auto& p : plane) {
      const Lanes8 carry = p & lanes;
      p ^= lanes;
      lanes = carry;
    }
  }
  void take_one(Lanes8 lanes) {
#pragma GCC unroll 8
    for (auto& p : plane) {
      const Lanes8 borrow = ~p & lanes;
      p ^= lanes;
      lanes = borrow;
    }
  }
  // One more on `more` and then one less on `less`.
  void change(Lanes8 more, Lanes8 less) {
    Lanes8 moved = more ^ less;
#pragma GCC unroll 8
    for (auto& p : plane) {
      const Lanes8 goes_on = moved & ~(p ^ more);
      p ^= moved;
      moved = goes_on;
    }
  }
  Lanes8 nonzero() const {
    Lanes8 bits = plane[0];
#pragma GCC unroll 8
    for (int i = 1; i < kPlanes; ++i) bits |= plane[i];
    return bits;
  }

  // Of all counters.
  std::uint32_t sum() const {
    std::uint32_t total = 0;
    for (int i = 0; i < kPlanes; ++i) {
      std::array<std::uint64_t, 2> halves;
      std::memcpy(halves.data(), &plane[i], sizeof halves);
      total += static_cast<std::uint32_t>(std::popcount(halves[0]) + std::popcount(halves[1])) << i;
    }
    return total;
  }

  // Of all lanes of a port.
  std::uint32_t sum(unsigned port) const {
    std::uint32_t total = 0;
    for (int i = 0; i < kPlanes; ++i)
      total += static_cast<std::uint32_t>(std::popcount(std::uint16_t{plane[i][port]})) << i;
    return total;
  }

  Lanes8 is_one() const {
    Lanes8 higher = plane[1];
#pragma GCC unroll 8
    for (int i = 2; i < kPlanes; ++i) higher |= plane[i];
    return plane[0] & ~higher;
  }

  unsigned get(unsigned port, unsigned lane) const {
    unsigned value = 0;
    for (unsigned i = 0; i < kPlanes; ++i) value |= ((plane[i][port] >> lane) & 1U) << i;
    return value;
  }
  void set(unsigned port, unsigned lane, unsigned value) {
    const auto bit = static_cast<std::uint16_t>(1U << lane);
    for (unsigned i = 0; i < kPlanes; ++i) {
      const auto others = static_cast<std::uint16_t>(plane[i][port] & ~bit);
      plane[i][port] = (value >> i) & 1U ? static_cast<std::uint16_t>(others | bit) : others;
    }
  }
};

// Asks a Counts which of its counters have one fixed value.
template <int kPlanes>
struct CountIs {
  Lanes8 flip[kPlanes] = {};
  CountIs() = default;
  explicit CountIs(unsigned value) {
    for (unsigned i = 0; i < kPlanes; ++i) flip[i] = spread((value >> i) & 1U ? 0U : 0xffffU);
  }
  Lanes8 operator()(const Counts<kPlanes>& c) const {
    Lanes8 same = c.plane[0] ^ flip[0];
#pragma GCC unroll 8
    for (int i = 1; i < kPlanes; ++i) same &= c.plane[i] ^ flip[i];
    return same;
  }
};

// Counts flits of one message a lane down to its tail, for 128 lanes at once. What does not fit
// into the planes waits in memory.
class Countdown {
 public:
  void set(unsigned slot, unsigned flits) {
    const unsigned near = flits < Counts<kNearPlanes>::kMax ? flits : Counts<kNearPlanes>::kMax;
    rest_[slot] = static_cast<std::uint16_t>(flits - near);
    const Lanes8 lane = kOneLane.of[slot];
    far_ = (far_ & ~lane) | (lane & kNoneOrAll[flits != near]);
#pragma GCC unroll 8
    for (int i = 0; i < kNearPlanes; ++i)
      near_.plane[i] = (near_.plane[i] & ~lane) | (lane & kNoneOrAll[near >> i & 1U]);
  }
  // Flits that have not gone by.
  unsigned left(unsigned slot) const {
    return near_.get(port_of_slot(slot), vl_of_slot(slot)) + rest_[slot];
  }
  // A flit of each of `lanes` has gone by; returns those whose message may have ended with it, to
  // be asked by ended() before the next. They are told by what the counters were: `lanes`, which
  // may be known late, then are not waited for any longer than they must be.
  Lanes8 take(Lanes8 lanes) {
    const Lanes8 last = near_.is_one();
    near_.take_one(lanes);
    return lanes & last;
  }
  // Of the lanes that take() returned those whose message has ended.
  Lanes8 ended(Lanes8 candidates) {
    const Lanes8 go_on = candidates & far_;
    for (unsigned ports = ports_of(go_on); ports != 0; ports &= ports - 1) {
      const unsigned port = first_bit(ports);
      const unsigned slot = lane_slot(port, first_bit(go_on[port]));
      set(slot, rest_[slot]);
    }
    return candidates & ~go_on;
  }

 private:
  static constexpr int kNearPlanes = 6;
  static constexpr Lanes8 kNoneOrAll[2] = {kNoLanes8, ~kNoLanes8};
  Counts<kNearPlanes> near_;
  Lanes8 far_{};  // lanes that have a rest
  std::array<std::uint16_t, kLaneSlots> rest_{};
};

// Planes of a counter for buffers of so many flits: few lanes buffer more than 15.
inline constexpr int kPlanesSmall = 4;
inline constexpr int kPlanesLarge = 7;
inline constexpr int kBufferMax = (1 << kPlanesLarge) - 1;

}  // namespace emu

// Sixty-four ports at once: of the routers of a block, or of its HCAs. A port has a word of one bit
// a lane for each question that a cycle asks of it, and a byte for what its link brings. The
// functions below answer for all ports together with one bit a port, so that a cycle's work is a
// loop over those that have something to do. They exist for each instruction set; results are the
// same. Used by the hot loops of fabric/router and hca/wire.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

#if defined(__SSE2__)
#include <immintrin.h>
#endif

#include "emu/lane/isa.h"
#include "emu/lane/policy.h"

namespace emu {

inline constexpr unsigned kBlockPorts = 64;
inline constexpr unsigned kBlockLanes = kBlockPorts * kVlCount;
// A lane of a block in one number; the lanes of a port lie side by side.
constexpr unsigned block_lane(unsigned port, unsigned lane) { return port * kVlCount + lane; }
constexpr unsigned port_of_lane(unsigned block_lane) { return block_lane / kVlCount; }
inline constexpr unsigned kPortOfLaneShift = std::countr_zero(unsigned{kVlCount});
constexpr unsigned vl_of_lane(unsigned block_lane) { return block_lane % kVlCount; }

using LaneWords = std::array<LaneMask, kBlockPorts>;  // alignas(64) where it is a member

// What a scheduler has chosen of a port's lanes, and how urgent that is against other inputs:
// smaller numbers go first.
struct PortPick {
  unsigned lane;
  unsigned urgency;
};

constexpr LaneMask lane_bit(unsigned lane) { return static_cast<LaneMask>(1U << lane); }
inline void add_lane(LaneMask& word, unsigned lane) {
  word = static_cast<LaneMask>(word | 1U << lane);
}
inline void drop_lane(LaneMask& word, unsigned lane) {
  word = static_cast<LaneMask>(word & ~(1U << lane));
}

// The lowest set bit; bits is not 0 (std::countr_zero would pay for that case every time).
inline unsigned first_of(std::uint64_t bits) {
  return static_cast<unsigned>(__builtin_ctzll(bits));
}

// Bit p: byte p has its highest bit set. `ports` bytes are looked at, rounded up to 32.
template <Isa>
inline std::uint64_t marked_bytes(const std::uint8_t* bytes, unsigned ports) {
  std::uint64_t marked = 0;
#if defined(__SSE2__)
  for (unsigned i = 0; i < ports; i += 16) {
    const __m128i v = _mm_load_si128(reinterpret_cast<const __m128i*>(bytes + i));
    marked |= std::uint64_t{static_cast<unsigned>(_mm_movemask_epi8(v))} << i;
  }
#else
  for (unsigned i = 0; i < ports; ++i) marked |= std::uint64_t{bytes[i]} >> 7 << i;
#endif
  return marked;
}

// Bit p: words a and b of port p have a lane in common. `ports` words, rounded up to 32.
template <Isa>
inline std::uint64_t common_words(const LaneWords& a, const LaneWords& b, unsigned ports) {
  std::uint64_t common = 0;
  for (unsigned i = 0; i < ports; ++i) common |= std::uint64_t{(a[i] & b[i]) != 0} << i;
  return common;
}
// No port has a lane in either.
template <Isa kIsa>
inline bool quiet(const LaneWords& a, const LaneWords& b, unsigned ports) {
  return (common_words<kIsa>(a, a, ports) | common_words<kIsa>(b, b, ports)) == 0;
}
// Of `lanes`, not none, the one with the smallest of 16 numbers, of equal ones the lowest. No
// number is 0xffff.
template <Isa>
inline unsigned least_lane(const std::uint16_t* numbers, unsigned lanes) {
  unsigned least = ~0U;
  for (; lanes != 0; lanes &= lanes - 1) {
    const unsigned lane = first_of(lanes);
    const unsigned key = unsigned{numbers[lane]} << 4 | lane;
    least = key < least ? key : least;
  }
  return least & 15U;
}

// Of words of at most one lane each, the lane of a port as one of the block; of no meaning where a
// word has none. Each word is looked at when it is asked for, or all beforehand.
template <Isa>
class OnlyLanes {
 public:
  OnlyLanes(const LaneWords& words, unsigned /*ports*/) : words_(words) {}
  unsigned operator[](unsigned port) const { return block_lane(port, first_of(words_[port])); }

 private:
  const LaneWords& words_;
};

// The lanes whose byte of 16 has any of these bits.
template <Isa>
inline unsigned lanes_with(const std::uint8_t* bytes, unsigned bits) {
#if defined(__SSE2__)
  const __m128i v = _mm_load_si128(reinterpret_cast<const __m128i*>(bytes));
  const __m128i none =
      _mm_cmpeq_epi8(_mm_and_si128(v, _mm_set1_epi8(static_cast<char>(bits))), _mm_setzero_si128());
  return static_cast<unsigned>(_mm_movemask_epi8(none)) ^ 0xffffU;
#else
  unsigned lanes = 0;
  for (unsigned i = 0; i < kVlCount; ++i) lanes |= unsigned{(bytes[i] & bits) != 0} << i;
  return lanes;
#endif
}

}  // namespace emu

#include "emu/lane/words_wide.h"

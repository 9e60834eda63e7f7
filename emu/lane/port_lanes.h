// The lanes of the ports of a block, bit by bit: counters are planes of words, so that adding or
// taking one on any set of lanes of all ports is a ripple of a few vector steps. One function does
// for all ports what a stage needs and says which ports want more than that: few. Written and read
// by fabric/router. The functions exist for each instruction set; results are the same.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <cstring>

#include "emu/lane/words.h"

namespace emu {

template <int kPlanes>
struct LanePlanes {
  alignas(64) std::array<LaneWords, kPlanes> plane{};

  unsigned get(unsigned port, unsigned lane) const {
    unsigned value = 0;
    for (unsigned k = 0; k < kPlanes; ++k) value |= (plane[k][port] >> lane & 1U) << k;
    return value;
  }
  // Of all lanes of a port.
  std::uint32_t sum(unsigned port) const {
    std::uint32_t total = 0;
    for (unsigned k = 0; k < kPlanes; ++k)
      total += static_cast<std::uint32_t>(std::popcount(plane[k][port])) << k;
    return total;
  }
  void set(unsigned port, unsigned lane, unsigned value) {
    for (unsigned k = 0; k < kPlanes; ++k) {
      drop_lane(plane[k][port], lane);
      plane[k][port] = static_cast<LaneMask>(plane[k][port] | (value >> k & 1U) << lane);
    }
  }
};

template <int kPlanes>
struct OutputLanes {
  alignas(64) LaneWords occupied{};  // have flits
  alignas(64) LaneWords full{};      // have no room
  alignas(64) LaneWords at_head{};   // the next flit that leaves is a head
  alignas(64) LaneWords behind{};    // round robin: lanes above the last one served
  alignas(64) LaneWords recent_wait{};
  // All lanes of a port whose flits take credits, none of one to a sink that always has room.
  alignas(64) LaneWords metered{};
  LanePlanes<kPlanes> credits;  // free flits of the next buffer
  LanePlanes<kPlanes> held;     // flits
};
template <int kPlanes>
struct InputLanes {
  alignas(64) LaneWords queued{};   // have flits
  alignas(64) LaneWords arrived{};  // [port] flits that have come, modulo 2^16
  LanePlanes<kPlanes> held;         // flits
};
// The sending ends of HCAs.
template <int kPlanes>
struct SourceLanes {
  alignas(64) LaneWords waiting{};  // have a message in front
  alignas(64) LaneWords able{};     // and a credit
  alignas(64) LaneWords sent{};     // sent a flit since ready_to_send(): not taken from credits yet
  alignas(64) LaneWords recent_wait{};
  LanePlanes<kPlanes> credits;  // free flits of the router's buffer
};

// What a function leaves to do, a bit a port.
struct Sent {
  std::uint64_t ports = 0;     // a flit leaves
  std::uint64_t unfilled = 0;  // from a lane that was full
  std::uint64_t heads = 0;     // it is a head
};
struct Crossed {
  std::uint64_t filled = 0;    // output ports: a lane has become full
  std::uint64_t arrivals = 0;  // input ports
};
// Lanes that moved a flit in a cycle, at most one of each port.
struct Moved {
  alignas(64) LaneWords arrived;  // from the links into input lanes
  alignas(64) LaneWords sent;     // from output lanes to the links
  alignas(64) LaneWords came;     // into output lanes
  alignas(64) LaneWords gone;     // from input lanes
};

using Words8 = std::uint16_t __attribute__((vector_size(16)));

}  // namespace emu

namespace emu::lanes_base {
#define FLITNET_KERNEL
using WordsWide = std::uint16_t __attribute__((vector_size(16)));
inline std::uint64_t nonzero_words(WordsWide words) {
#if defined(__SSE2__)
  const __m128i zero = _mm_setzero_si128();
  const __m128i empty = _mm_cmpeq_epi16(reinterpret_cast<__m128i>(words), zero);
  return static_cast<unsigned>(_mm_movemask_epi8(_mm_packs_epi16(empty, zero))) ^ 0xffU;
#else
  std::uint64_t bits = 0;
  for (unsigned p = 0; p < 8; ++p) bits |= std::uint64_t{words[p] != 0} << p;
  return bits;
#endif
}
#include "emu/lane/port_lanes.inc"
#undef FLITNET_KERNEL
}  // namespace emu::lanes_base

#if defined(__x86_64__)
namespace emu::lanes_avx2 {
#define FLITNET_KERNEL FLITNET_AVX2
using WordsWide = std::uint16_t __attribute__((vector_size(32)));
using lanes_base::nonzero_words;
FLITNET_AVX2 inline std::uint64_t nonzero_words(WordsWide words) {
  return unset256(_mm256_cmpeq_epi16(reinterpret_cast<__m256i>(words), _mm256_setzero_si256()));
}
#include "emu/lane/port_lanes.inc"
#undef FLITNET_KERNEL
}  // namespace emu::lanes_avx2

namespace emu::lanes_avx512 {
#define FLITNET_KERNEL FLITNET_AVX512
using WordsWide = std::uint16_t __attribute__((vector_size(64)));
FLITNET_AVX512 inline std::uint64_t nonzero_words(Words8 words) {
  const auto v = reinterpret_cast<__m128i>(words);
  return _mm_test_epi16_mask(v, v);
}
FLITNET_AVX512 inline std::uint64_t nonzero_words(WordsWide words) {
  const auto v = reinterpret_cast<__m512i>(words);
  return _mm512_test_epi16_mask(v, v);
}
#include "emu/lane/port_lanes.inc"
#undef FLITNET_KERNEL
}  // namespace emu::lanes_avx512
#endif

namespace emu {

// Stage 5 of all ports: of the lanes with a flit and a credit, `returned` ones included, one sends:
// lanes of control first, the others in turn. `held` and `occupied` wait for account(). Clears
// `returned`, and all but `sent` of `moved`.
template <Isa kIsa, int kPlanes>
Sent send_in_turn(OutputLanes<kPlanes>& o, LaneWords& returned, Moved& moved, unsigned control,
                  unsigned ports) {
#if defined(__x86_64__)
  if constexpr (kIsa == Isa::avx512)
    return lanes_avx512::send_in_turn(o, returned, moved, control, ports);
  if constexpr (kIsa == Isa::avx2)
    return lanes_avx2::send_in_turn(o, returned, moved, control, ports);
#endif
  return lanes_base::send_in_turn(o, returned, moved, control, ports);
}
// Of the waiting lanes those that have a credit, `returned` ones included; bit p: port p has one.
// Clears `returned`.
template <Isa kIsa, int kPlanes>
std::uint64_t ready_to_send(SourceLanes<kPlanes>& s, LaneWords& returned, unsigned ports) {
#if defined(__x86_64__)
  if constexpr (kIsa == Isa::avx512) return lanes_avx512::ready_to_send(s, returned, ports);
  if constexpr (kIsa == Isa::avx2) return lanes_avx2::ready_to_send(s, returned, ports);
#endif
  return lanes_base::ready_to_send(s, returned, ports);
}
// What all stages of a cycle have moved, and the flits from the links: taken to moved.arrived.
template <Isa kIsa, int kPlanes>
Crossed account(OutputLanes<kPlanes>& o, InputLanes<kPlanes>& in, LaneWords& flits, Moved& moved,
                unsigned buffer, unsigned ports) {
#if defined(__x86_64__)
  if constexpr (kIsa == Isa::avx512)
    return lanes_avx512::account(o, in, flits, moved, buffer, ports);
  if constexpr (kIsa == Isa::avx2) return lanes_avx2::account(o, in, flits, moved, buffer, ports);
#endif
  return lanes_base::account(o, in, flits, moved, buffer, ports);
}

}  // namespace emu

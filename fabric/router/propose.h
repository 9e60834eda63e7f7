// What the input ports of a block propose in a round of stage 4: each the least bid of its lanes
// that may cross, for whose output port it makes a claim. Of the claims for one output port the
// smallest wins:
//   stamp (16 bits) | rank (3) | input port (6)
// Here by AVX-512 for all ports of a block at once; b4_cross.h does it port by port.
#pragma once

#include <array>
#include <cstdint>

#include "emu/lane/port_bids.h"
#include "fabric/router/rank.h"

namespace fabric::blocks {

using Claim = std::uint32_t;
inline constexpr Claim kNoClaim = ~Claim{0};
inline constexpr unsigned kRankShift = 6;
inline constexpr unsigned kUrgencyShift = kRankShift + 3;
static_assert(emu::kBlockPorts == 1U << kRankShift);

constexpr unsigned in_port_of(Claim claim) { return claim % emu::kBlockPorts; }

// Of each input port, all of a round.
struct Proposals {
  alignas(64) std::array<Claim, emu::kBlockPorts> claim;
  alignas(64) std::array<std::uint32_t, emu::kBlockPorts> out_port;
  alignas(64) std::array<std::uint32_t, emu::kBlockPorts> in_lane;
  alignas(64) emu::LaneWords lane;      // the same as one bit of its port
  alignas(64) emu::LaneWords out_lane;  // and of its output port
};
using PortNumbers = std::array<std::uint8_t, emu::kBlockPorts>;
using Ranks = std::array<std::uint8_t, emu::kPortsMax>;

#if defined(__x86_64__)
// Sixteen lanes, each as one bit.
FLITNET_AVX512 inline void store_bits(emu::LaneMask* words, __m512i lanes) {
  const __m512i bits = _mm512_sllv_epi32(_mm512_set1_epi32(1), lanes);
  _mm256_store_si256(reinterpret_cast<__m256i*>(words), _mm512_cvtepi32_epi16(bits));
}
// Of sixteen numbers below 64 those of `which`, as bits of 64, in any of eight words.
FLITNET_AVX512 inline __m512i bits_of(__m512i numbers, __mmask16 which) {
  const __m512i one = _mm512_set1_epi64(1);
  const __m512i low = _mm512_cvtepu32_epi64(_mm512_castsi512_si256(numbers));
  const __m512i high = _mm512_cvtepu32_epi64(_mm512_extracti64x4_epi64(numbers, 1));
  return _mm512_or_si512(_mm512_maskz_sllv_epi64(static_cast<__mmask8>(which), one, low),
                         _mm512_maskz_sllv_epi64(static_cast<__mmask8>(which >> 8), one, high));
}
// All `ports` ports at once, of the lanes that are in both words of each; of no meaning where a
// port has none, and so is not in `todo`. `number`: of each port at its router, which has a rank.
// Returns the output ports that `todo` propose, a bit each.
FLITNET_AVX512 inline std::uint64_t propose_all(Proposals& proposals, const emu::PortBids& bids,
                                                const emu::LaneWords& queued,
                                                const emu::LaneWords& open,
                                                const PortNumbers& number, const Ranks& ranks,
                                                unsigned ports, std::uint64_t todo) {
  alignas(64) emu::LaneWords lanes;
  for (unsigned i = 0; i < ports; i += 32)
    _mm512_store_si512(&lanes[i],
                       _mm512_and_si512(emu::words512(&queued[i]), emu::words512(&open[i])));
  const __m128i rank_of = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(ranks.data()));
  const __m512i lane = _mm512_set1_epi32(emu::kVlCount - 1);
  __m512i wanted = _mm512_setzero_si512();
  for (unsigned first = 0; first < ports; first += 16) {
    const __m512i bid = emu::least_bids<16>(&bids.of[emu::block_lane(first, 0)], &lanes[first]);
    const __m128i numbers = _mm_loadu_si128(reinterpret_cast<const __m128i*>(&number[first]));
    const __m512i rank = _mm512_cvtepu8_epi32(_mm_shuffle_epi8(rank_of, numbers));
    const __m512i port =
        _mm512_add_epi32(emu::iota512(), _mm512_set1_epi32(static_cast<int>(first)));
    const __m512i tie = _mm512_or_si512(_mm512_slli_epi32(rank, kRankShift), port);
    constexpr unsigned kDown = emu::kStampShift - kUrgencyShift;
    const __m512i urgency =
        _mm512_and_si512(_mm512_srli_epi32(bid, kDown), _mm512_set1_epi32(0xffff << kUrgencyShift));
    const __m512i out_port = _mm512_and_si512(_mm512_srli_epi32(bid, emu::kPortOfLaneShift),
                                              _mm512_set1_epi32(emu::kBlockPorts - 1));
    const __m512i vl = _mm512_and_si512(_mm512_srli_epi32(bid, emu::kBidLaneShift), lane);
    wanted = _mm512_or_si512(wanted, bits_of(out_port, static_cast<__mmask16>(todo >> first)));
    _mm512_store_si512(&proposals.claim[first], _mm512_or_si512(urgency, tie));
    _mm512_store_si512(&proposals.out_port[first], out_port);
    _mm512_store_si512(&proposals.in_lane[first],
                       _mm512_or_si512(_mm512_slli_epi32(port, emu::kPortOfLaneShift), vl));
    store_bits(&proposals.lane[first], vl);
    store_bits(&proposals.out_lane[first], _mm512_and_si512(bid, lane));
  }
  return static_cast<std::uint64_t>(_mm512_reduce_or_epi64(wanted));
}
#endif

}  // namespace fabric::blocks

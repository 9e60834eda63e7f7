// allocate_bids() and grant_picks() with vectors of eight ports by AVX2, twice eight by AVX-512,
// without a branch within a round. Two inputs claim the same output when their claims differ by
// less than 2^19:
//   claim = output port, one bit (8 bits) | 0 | stamp (16) | rank (3)
// so the smaller of two such is found by one subtraction. Included by match.h only.
#pragma once

#include "fabric/router/match.h"

#if defined(__x86_64__)

namespace fabric {

inline constexpr unsigned kClaimBits = 19;
inline constexpr unsigned kRankBits = 3;

// [n - 1][port]: the port that stands n further, once and twice eight.
struct Rotations {
  alignas(64) std::array<std::array<std::uint32_t, emu::kPortsMax>, 8> of;
  constexpr Rotations() : of{} {
    for (unsigned n = 1; n <= 8; ++n)
      for (unsigned port = 0; port < emu::kPortsMax; ++port)
        of[n - 1][port] = (port + n) % emu::kPortsMax;
  }
};
inline constexpr Rotations kRotations;
// In one vector of sixteen: rotations by n and by n + 4.
struct PairedRotations {
  alignas(64) std::array<std::array<std::uint32_t, 16>, 4> of;
  constexpr PairedRotations() : of{} {
    for (unsigned n = 1; n <= 4; ++n) {
      for (unsigned port = 0; port < 16; ++port)
        of[n - 1][port] = (port + n + (port / 8) * 4) % emu::kPortsMax;
    }
  }
};
inline constexpr PairedRotations kPairedRotations;

FLITNET_AVX2 inline __m256i ranks256(emu::Cycle now) {
  const auto& ranks = kPortRanks.of[now % kPortRanks.of.size()];
  return _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(ranks.data())));
}
FLITNET_AVX2 inline __m256i outputs256(__m256i bids) {
  return _mm256_and_si256(bids, _mm256_set1_epi32(emu::kBidPorts));
}
FLITNET_AVX2 inline __m256i claims256(__m256i bids, __m256i outputs, __m256i ranks) {
  const __m256i urgency = _mm256_slli_epi32(_mm256_srli_epi32(bids, emu::kStampShift), kRankBits);
  return _mm256_or_si256(_mm256_or_si256(urgency, ranks),
                         _mm256_slli_epi32(outputs, kClaimBits + 1));
}
// The bits of all words in every word.
FLITNET_AVX2 inline __m256i united256(__m256i a) {
  a = _mm256_or_si256(a, _mm256_permute4x64_epi64(a, 0x4e));
  a = _mm256_or_si256(a, _mm256_shuffle_epi32(a, 0x4e));
  return _mm256_or_si256(a, _mm256_shuffle_epi32(a, 0xb1));
}
// Sixteen bits that say which of eight words have their highest bit set.
FLITNET_AVX2 inline unsigned ports256(__m256i words) {
  return static_cast<unsigned>(_mm256_movemask_ps(_mm256_castsi256_ps(words)));
}
FLITNET_AVX2 inline __m256i losers256(__m256i claims) {
  const __m256i zero = _mm256_setzero_si256();
  const __m256i below = _mm256_sub_epi32(claims, _mm256_set1_epi32(1));
  __m256i lost = zero;
#pragma GCC unroll 7
  for (unsigned n = 0; n < 7; ++n) {
    const auto turn = _mm256_load_si256(reinterpret_cast<const __m256i*>(&kRotations.of[n]));
    const __m256i ahead = _mm256_sub_epi32(below, _mm256_permutevar8x32_epi32(claims, turn));
    lost = _mm256_or_si256(lost, _mm256_cmpeq_epi32(_mm256_srli_epi32(ahead, kClaimBits), zero));
  }
  return lost;
}

// The bids of what a scheduler has picked; of no meaning where it has picked nothing.
FLITNET_AVX2 inline __m256i bids_of_picks(const emu::BidRows& rows, const emu::Picks& picks) {
  const auto slots = _mm256_cvtepu16_epi32(reinterpret_cast<__m128i>(emu::slots_of(picks.lanes)));
  const __m256i ways =
      _mm256_i32gather_epi32(reinterpret_cast<const int*>(rows.of.data()), slots, sizeof(emu::Bid));
  const __m256i keys = _mm256_cvtepu16_epi32(reinterpret_cast<__m128i>(picks.keys));
  return _mm256_blend_epi16(ways, _mm256_slli_epi32(keys, emu::kStampShift), 0xaa);
}
FLITNET_AVX2 inline unsigned low_bits(__m256i a) {
  return static_cast<unsigned>(_mm_cvtsi128_si32(_mm256_castsi256_si128(a)));
}

template <>
FLITNET_AVX2 inline void grant_picks<emu::Isa::avx2>(Granted& granted, const emu::BidRows& rows,
                                                     const emu::Picks& picks, emu::Cycle now) {
  const __m256i bids = bids_of_picks(rows, picks);
  const __m256i zero = _mm256_setzero_si256();
  const __m256i picked = emu::words32(picks.lanes);
  const __m256i valid = _mm256_cmpgt_epi32(picked, zero);
  const __m256i outputs = _mm256_and_si256(outputs256(bids), valid);
  const __m256i claims = _mm256_and_si256(claims256(bids, outputs, ranks256(now)), valid);
  const __m256i lost = _mm256_and_si256(losers256(claims), valid);
  const __m256i wins = _mm256_andnot_si256(lost, valid);
  auto* all = reinterpret_cast<__m256i*>(granted.bids.of.data());
  _mm256_store_si256(all, _mm256_blendv_epi8(_mm256_load_si256(all), bids, wins));
  const __m256i lanes = _mm256_and_si256(picked, wins);
  granted.last = reinterpret_cast<emu::Lanes8>(
      _mm_packus_epi32(_mm256_castsi256_si128(lanes), _mm256_extracti128_si256(lanes, 1)));
  granted.ports |= ports256(wins);
  granted.taken |= low_bits(united256(outputs));
  granted.nobody_lost = _mm256_testz_si256(lost, lost) != 0;
}

// `won`: bids that were granted, kNoBid where none; `valid`: all ones where one was.
FLITNET_AVX2 inline Crossing crossing256(__m256i won, __m256i valid) {
  const __m256i mask = _mm256_set1_epi32(0x78);
  const __m256i dummy = _mm256_set1_epi32(emu::kDummySlot);
  const __m256i port = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  const __m256i in = _mm256_or_si256(_mm256_and_si256(_mm256_srli_epi32(won, 9), mask), port);
  // The exponent of a power of two is the number of its bit.
  const __m256i power = _mm256_castps_si256(_mm256_cvtepi32_ps(outputs256(won)));
  const __m256i out_port = _mm256_sub_epi32(_mm256_srli_epi32(power, 23), _mm256_set1_epi32(127));
  const __m256i out = _mm256_or_si256(_mm256_and_si256(_mm256_srli_epi32(won, 5), mask), out_port);
  Crossing crossing;
  _mm256_store_si256(reinterpret_cast<__m256i*>(crossing.in_slot.data()),
                     _mm256_blendv_epi8(dummy, in, valid));
  _mm256_store_si256(reinterpret_cast<__m256i*>(crossing.out_slot.data()),
                     _mm256_blendv_epi8(dummy, out, valid));
  crossing.in = emu::lanes_of_bids(won, valid);
  crossing.ports = ports256(valid);
  return crossing;
}

template <>
FLITNET_AVX2 inline Crossing crossing_of<emu::Isa::avx2>(const emu::Bids8& bids, unsigned ports) {
  const __m256i bits = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
  const __m256i valid =
      _mm256_cmpeq_epi32(_mm256_and_si256(_mm256_set1_epi32(static_cast<int>(ports)), bits), bits);
  return crossing256(_mm256_load_si256(reinterpret_cast<const __m256i*>(bids.of.data())), valid);
}

template <>
FLITNET_AVX2 inline Crossing allocate_bids<emu::Isa::avx2>(const emu::BidRows& rows,
                                                           emu::Lanes8 eligible, int rounds,
                                                           emu::Cycle now) {
  const __m256i zero = _mm256_setzero_si256();
  const __m256i none = _mm256_set1_epi32(-1);
  const __m256i wanted = emu::words32(eligible);
  const __m256i ranks = ranks256(now);
  __m256i row[emu::kRowsAvx2];
  __m256i least[2] = {none, none};
#pragma GCC unroll 16
  for (unsigned v = 0; v < emu::kRowsAvx2; ++v) {
    const __m256i out = emu::none256(emu::row256(emu::kLaneBits32.of.data(), v), wanted);
    row[v] = _mm256_or_si256(emu::row256(rows.of.data(), v), out);
    least[v % 2] = _mm256_min_epu32(least[v % 2], row[v]);
  }
  __m256i won = none;
  __m256i valid_won = zero;
  __m256i taken = zero;
  for (int round = 1;; ++round) {
    const __m256i best = _mm256_min_epu32(least[0], least[1]);
    const __m256i valid = _mm256_andnot_si256(valid_won, emu::valid256(best));
    const __m256i outputs = _mm256_and_si256(outputs256(best), valid);
    const __m256i claims = _mm256_and_si256(claims256(best, outputs, ranks), valid);
    const __m256i lost = _mm256_and_si256(losers256(claims), valid);
    const __m256i wins = _mm256_andnot_si256(lost, valid);
    won = _mm256_blendv_epi8(won, best, wins);
    valid_won = _mm256_or_si256(valid_won, wins);
    // Without a loser nobody is left who could propose.
    if (round == rounds || _mm256_testz_si256(lost, lost) != 0) break;
    taken = _mm256_or_si256(taken, united256(outputs));
    least[0] = least[1] = none;
#pragma GCC unroll 16
    for (unsigned v = 0; v < emu::kRowsAvx2; ++v) {
      const __m256i closed = _mm256_cmpgt_epi32(_mm256_and_si256(row[v], taken), zero);
      least[v % 2] = _mm256_min_epu32(least[v % 2], _mm256_or_si256(row[v], closed));
    }
  }
  return crossing256(won, valid_won);
}

FLITNET_AVX512 inline __mmask8 losers512(__m256i claims) {
  const __m512i twice = _mm512_broadcast_i64x4(claims);
  const __m512i below = _mm512_sub_epi32(twice, _mm512_set1_epi32(1));
  const __m512i far = _mm512_set1_epi32(-(1 << kClaimBits));
  unsigned lost = 0;
#pragma GCC unroll 4
  for (unsigned n = 0; n < 4; ++n) {
    const __m512i turn = _mm512_load_si512(&kPairedRotations.of[n]);
    const __m512i ahead = _mm512_sub_epi32(below, _mm512_permutexvar_epi32(turn, twice));
    lost |= _mm512_testn_epi32_mask(ahead, far);
  }
  return static_cast<__mmask8>(lost | lost >> 8);
}

template <>
FLITNET_AVX512 inline void grant_picks<emu::Isa::avx512>(Granted& granted, const emu::BidRows& rows,
                                                         const emu::Picks& picks, emu::Cycle now) {
  const __m256i bids = bids_of_picks(rows, picks);
  const __m256i picked = emu::words32(picks.lanes);
  const __mmask8 valid = _mm256_test_epi32_mask(picked, picked);
  const __m256i outputs = _mm256_maskz_and_epi32(valid, bids, _mm256_set1_epi32(emu::kBidPorts));
  const __m256i claims = _mm256_maskz_mov_epi32(valid, claims256(bids, outputs, ranks256(now)));
  const auto lost = static_cast<__mmask8>(losers512(claims) & valid);
  const auto wins = static_cast<__mmask8>(valid & ~lost);
  auto* all = reinterpret_cast<__m256i*>(granted.bids.of.data());
  _mm256_store_si256(all, _mm256_mask_mov_epi32(_mm256_load_si256(all), wins, bids));
  granted.last =
      reinterpret_cast<emu::Lanes8>(_mm256_cvtepi32_epi16(_mm256_maskz_mov_epi32(wins, picked)));
  granted.ports |= wins;
  granted.taken |= low_bits(united256(outputs));
  granted.nobody_lost = lost == 0;
}

FLITNET_AVX512 inline Crossing crossing512(__m256i won, __mmask8 valid) {
  const __m256i mask = _mm256_set1_epi32(0x78);
  const __m256i dummy = _mm256_set1_epi32(emu::kDummySlot);
  const __m256i port = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  const __m256i out_port =
      _mm256_sub_epi32(_mm256_set1_epi32(31), _mm256_lzcnt_epi32(outputs256(won)));
  Crossing crossing;
  _mm256_store_si256(
      reinterpret_cast<__m256i*>(crossing.in_slot.data()),
      _mm256_mask_or_epi32(dummy, valid, _mm256_and_si256(_mm256_srli_epi32(won, 9), mask), port));
  _mm256_store_si256(
      reinterpret_cast<__m256i*>(crossing.out_slot.data()),
      _mm256_mask_or_epi32(dummy, valid, _mm256_and_si256(_mm256_srli_epi32(won, 5), mask),
                           out_port));
  crossing.in = emu::lanes_of_bids(won, valid);
  crossing.ports = valid;
  return crossing;
}

template <>
FLITNET_AVX512 inline Crossing crossing_of<emu::Isa::avx512>(const emu::Bids8& bids,
                                                             unsigned ports) {
  return crossing512(_mm256_load_si256(reinterpret_cast<const __m256i*>(bids.of.data())),
                     static_cast<__mmask8>(ports));
}

template <>
FLITNET_AVX512 inline Crossing allocate_bids<emu::Isa::avx512>(const emu::BidRows& rows,
                                                               emu::Lanes8 eligible, int rounds,
                                                               emu::Cycle now) {
  const __m512i none = _mm512_set1_epi32(-1);
  const __m512i wanted = emu::words512(eligible);
  const __m256i ranks = ranks256(now);
  __mmask16 open[emu::kRowsAvx512];
  __m512i row[emu::kRowsAvx512];
  __m512i least[2] = {none, none};
#pragma GCC unroll 8
  for (unsigned i = 0; i < emu::kRowsAvx512; ++i) {
    row[i] = emu::row512(rows.of.data(), i);
    open[i] = _mm512_test_epi32_mask(wanted, emu::row512(emu::kLaneBits32.of.data(), i));
    least[i % 2] = _mm512_mask_min_epu32(least[i % 2], open[i], least[i % 2], row[i]);
  }
  __m256i won = _mm512_castsi512_si256(none);
  __mmask8 ports_won = 0;
  __m256i taken = _mm256_setzero_si256();
  for (int round = 1;; ++round) {
    const __m256i best = emu::fold_least(_mm512_min_epu32(least[0], least[1]));
    const auto valid = static_cast<__mmask8>(
        _mm256_cmpneq_epu32_mask(best, _mm512_castsi512_si256(none)) & ~ports_won);
    const __m256i outputs = _mm256_maskz_and_epi32(valid, best, _mm256_set1_epi32(emu::kBidPorts));
    const __m256i claims = _mm256_maskz_mov_epi32(valid, claims256(best, outputs, ranks));
    const auto lost = static_cast<__mmask8>(losers512(claims) & valid);
    const auto wins = static_cast<__mmask8>(valid & ~lost);
    won = _mm256_mask_mov_epi32(won, wins, best);
    ports_won |= wins;
    // Without a loser nobody is left who could propose.
    if (round == rounds || lost == 0) break;
    taken = _mm256_or_si256(taken, united256(outputs));
    const __m512i closed = _mm512_broadcast_i64x4(taken);
    least[0] = least[1] = none;
#pragma GCC unroll 8
    for (unsigned i = 0; i < emu::kRowsAvx512; ++i) {
      const __mmask16 still = _mm512_mask_testn_epi32_mask(open[i], row[i], closed);
      least[i % 2] = _mm512_mask_min_epu32(least[i % 2], still, least[i % 2], row[i]);
    }
  }
  return crossing512(won, ports_won);
}

}  // namespace fabric

#endif

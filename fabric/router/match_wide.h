// allocate_bids() and grant_picks() with vectors of eight ports by AVX2, twice eight by AVX-512,
// without a branch within a round. Two inputs claim the same output when their claims differ by
// less than 2^19:
//   claim = output port, one bit (8 bits) | 0 | stamp (16) | rank (3)
// so the smaller of two such is found by one subtraction. Included by match.h only.
#pragma once

#include "emu/lane/slot_words.h"
#include "fabric/router/match.h"

#if defined(__x86_64__)

namespace fabric {

inline constexpr unsigned kClaimBits = 19;
inline constexpr unsigned kRankBits = 3;
// Where the output port of a claim may be as well: what stands above it in a bid is shifted out.
inline constexpr unsigned kClaimOutputShift = 24;

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
  const __m256i dummy = _mm256_set1_epi32(emu::kDummySlot);
  // The exponent of a power of two is the number of its bit.
  const __m256i power = _mm256_castps_si256(_mm256_cvtepi32_ps(outputs256(won)));
  const __m256i port = _mm256_sub_epi32(_mm256_srli_epi32(power, 23), _mm256_set1_epi32(127));
  const __m256i lane = _mm256_and_si256(_mm256_srli_epi32(won, 5), _mm256_set1_epi32(0x78));
  alignas(32) std::array<std::uint32_t, emu::kPortsMax> out_slot;
  _mm256_store_si256(reinterpret_cast<__m256i*>(out_slot.data()),
                     _mm256_blendv_epi8(dummy, _mm256_or_si256(lane, port), valid));
  Crossing crossing = {emu::lanes_of_bids(won, valid), emu::kNoLanes8};
#pragma GCC unroll 8
  for (const std::uint32_t slot : out_slot) crossing.out |= emu::kOneLane.of[slot];
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

// An input loses when another claim lies below its own, but less than 2^kClaimBits: the same
// output. The nearest below is a minimum: fewer steps that wait for each other than a mask of each
// pair.
FLITNET_AVX512 inline __mmask8 losers512(__m256i claims) {
  const __m256i below = _mm256_sub_epi32(claims, _mm256_set1_epi32(1));
  const __m256i across = _mm256_permute4x64_epi64(claims, 0x4e);
  const __m256i a1 = _mm256_sub_epi32(below, _mm256_shuffle_epi32(claims, 0x39));
  const __m256i a2 = _mm256_sub_epi32(below, _mm256_shuffle_epi32(claims, 0x4e));
  const __m256i a3 = _mm256_sub_epi32(below, _mm256_shuffle_epi32(claims, 0x93));
  const __m256i b0 = _mm256_sub_epi32(below, across);
  const __m256i b1 = _mm256_sub_epi32(below, _mm256_shuffle_epi32(across, 0x39));
  const __m256i b2 = _mm256_sub_epi32(below, _mm256_shuffle_epi32(across, 0x4e));
  const __m256i b3 = _mm256_sub_epi32(below, _mm256_shuffle_epi32(across, 0x93));
  const __m256i own = _mm256_min_epu32(_mm256_min_epu32(a1, a2), _mm256_min_epu32(a3, b0));
  const __m256i other = _mm256_min_epu32(_mm256_min_epu32(b1, b2), b3);
  return _mm256_cmplt_epu32_mask(_mm256_min_epu32(own, other), _mm256_set1_epi32(1 << kClaimBits));
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

// Of four times eight words, which of eight words of 32 bits are 0 ... 3 and 4 ... 7, eight times
// each; as the numbers of their lower halves.
struct SpreadWords {
  alignas(64) std::array<std::array<std::uint16_t, 32>, 2> of;
  constexpr SpreadWords() : of{} {
    for (unsigned i = 0; i < 64; ++i) of[i / 32][i % 32] = static_cast<std::uint16_t>(i / 8 * 2);
  }
};
inline constexpr SpreadWords kSpreadWords;

// The lane that each bid wants at its output port: a square of bids and ports, united over bids.
FLITNET_AVX512 inline emu::Lanes8 outputs_of_bids(__m256i bids, __mmask8 valid) {
  const __m256i lane =
      _mm256_and_si256(_mm256_srli_epi32(bids, emu::kBidOutLaneShift), _mm256_set1_epi32(0xf));
  const __m512i bits =
      _mm512_castsi256_si512(_mm256_maskz_sllv_epi32(valid, _mm256_set1_epi32(1), lane));
  const __m512i columns =
      emu::four_times(emu::Lanes8{1, 1 << 1, 1 << 2, 1 << 3, 1 << 4, 1 << 5, 1 << 6, 1 << 7});
  __m512i out = _mm512_setzero_si512();
#pragma GCC unroll 2
  for (const auto& spread : kSpreadWords.of) {
    const __m512i turn = _mm512_load_si512(spread.data());
    const __m512i ports = _mm512_permutexvar_epi16(turn, _mm512_castsi256_si512(bids));
    const __mmask32 wanted = _mm512_test_epi16_mask(ports, columns);
    out = _mm512_or_si512(out, _mm512_maskz_permutexvar_epi16(wanted, turn, bits));
  }
  return emu::united_words(out);
}
FLITNET_AVX512 inline Crossing crossing512(__m256i won, __mmask8 valid) {
  return {emu::lanes_of_bids(won, valid), outputs_of_bids(won, valid)};
}

template <>
FLITNET_AVX512 inline Crossing crossing_of<emu::Isa::avx512>(const emu::Bids8& bids,
                                                             unsigned ports) {
  return crossing512(_mm256_load_si256(reinterpret_cast<const __m256i*>(bids.of.data())),
                     static_cast<__mmask8>(ports));
}

// The bits of all words in every word, of eight words twice.
FLITNET_AVX512 inline __m512i united512(__m512i a) {
  a = _mm512_or_si512(a, _mm512_shuffle_i64x2(a, a, 0xb1));
  a = _mm512_or_si512(a, _mm512_shuffle_epi32(a, _MM_PERM_BADC));
  return _mm512_or_si512(a, _mm512_shuffle_epi32(a, _MM_PERM_CDAB));
}

template <>
FLITNET_AVX512 inline Crossing allocate_bids<emu::Isa::avx512>(const emu::BidRows& rows,
                                                               emu::Lanes8 eligible, int rounds,
                                                               emu::Cycle now) {
  // Not even a bit of an output port.
  const __m512i none = _mm512_set1_epi32(static_cast<int>(~emu::kBidPorts));
  const __m512i wanted = emu::words512(eligible);
  const __m256i ranks = ranks256(now);
  __m512i row[emu::kRowsAvx512];
  __m512i least[2] = {none, none};
#pragma GCC unroll 8
  for (unsigned i = 0; i < emu::kRowsAvx512; ++i) {
    const __mmask16 open =
        _mm512_test_epi32_mask(wanted, emu::row512(emu::kLaneBits32.of.data(), i));
    row[i] = _mm512_mask_blend_epi32(open, none, emu::row512(rows.of.data(), i));
    least[i % 2] = _mm512_min_epu32(least[i % 2], row[i]);
  }
  __m256i won = _mm512_castsi512_si256(none);
  __mmask8 ports_won = 0;
  __m512i taken = _mm512_setzero_si512();
  for (int round = 1;; ++round) {
    // A port that has won bids no more; what no bid claims is no output port and hurts nobody.
    const __m512i both =
        _mm512_mask_mov_epi32(emu::least_of_both(_mm512_min_epu32(least[0], least[1])),
                              _mm512_kunpackb(ports_won, ports_won), none);
    const __m256i best = _mm512_castsi512_si256(both);
    const __mmask8 valid = _mm256_cmpneq_epu32_mask(best, _mm512_castsi512_si256(none));
    const __m256i urgency = _mm256_and_si256(_mm256_srli_epi32(best, emu::kStampShift - kRankBits),
                                             _mm256_set1_epi32(0xffff << kRankBits));
    const __m256i claims = _mm256_or_si256(_mm256_or_si256(urgency, ranks),
                                           _mm256_slli_epi32(best, kClaimOutputShift));
    const auto lost = static_cast<__mmask8>(losers512(claims) & valid);
    const auto wins = static_cast<__mmask8>(valid & ~lost);
    won = _mm256_mask_mov_epi32(won, wins, best);
    ports_won |= wins;
    // Without a loser nobody is left who could propose.
    if (round == rounds || lost == 0) break;
    taken = _mm512_or_si512(taken,
                            united512(_mm512_and_si512(both, _mm512_set1_epi32(emu::kBidPorts))));
    least[0] = least[1] = none;
#pragma GCC unroll 8
    for (unsigned i = 0; i < emu::kRowsAvx512; ++i) {
      const __mmask16 still = _mm512_testn_epi32_mask(row[i], taken);
      least[i % 2] = _mm512_mask_min_epu32(least[i % 2], still, least[i % 2], row[i]);
    }
  }
  return crossing512(won, ports_won);
}

}  // namespace fabric

#endif

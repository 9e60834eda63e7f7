// Allocator and grant_picks() with vectors of eight ports by AVX2, twice eight by AVX-512,
// without a branch within a round. Two inputs claim the same output when their claims differ by
// less than 2^20:
//   claim = output port, one bit (8 bits) | 0 (4) | stamp (16) | rank (4)
// so the smaller of two such is found by one subtraction. Included by match.h only.
#pragma once

#include <limits>

#include "emu/lane/slot_words.h"
#include "fabric/router/match.h"

#if defined(__x86_64__)

namespace fabric {

inline constexpr unsigned kClaimBits = 20;
inline constexpr unsigned kRankBits = 4;
// A bid turned left by so much has its parts where a claim has them.
inline constexpr int kClaimTurn = kClaimBits + 4 - emu::kBidPortShift;
inline constexpr std::uint32_t kClaimUrgency = 0xffff << kRankBits;
static_assert(emu::kStampShift + kClaimTurn == 32 + kRankBits);

// [n][port]: the port that stands n further in the other half of a vector.
struct Across {
  alignas(64) std::array<std::array<std::uint32_t, emu::kPortsMax>, emu::kPortsMax / 2> of;
  constexpr Across() : of{} {
    for (unsigned n = 0; n < emu::kPortsMax / 2; ++n)
      for (unsigned port = 0; port < emu::kPortsMax; ++port)
        of[n][port] = ((port ^ 4U) & 4U) | ((port + n) & 3U);
  }
};
inline constexpr Across kAcross;
FLITNET_AVX2 inline __m256i ranks256(emu::Cycle now) {
  const auto& ranks = kPortRanks.of[now % kPortRanks.of.size()];
  return _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(ranks.data())));
}
FLITNET_AVX2 inline __m256i outputs256(__m256i bids) {
  return _mm256_and_si256(bids, _mm256_set1_epi32(emu::kBidPorts));
}
FLITNET_AVX2 inline __m256i claims256(__m256i bids, __m256i outputs, __m256i ranks) {
  const __m256i urgency =
      _mm256_and_si256(_mm256_srli_epi32(bids, 32 - kClaimTurn), _mm256_set1_epi32(kClaimUrgency));
  return _mm256_or_si256(_mm256_or_si256(urgency, ranks), _mm256_slli_epi32(outputs, kClaimTurn));
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
FLITNET_AVX2 inline __m256i across256(__m256i words, unsigned n) {
  return _mm256_permutevar8x32_epi32(
      words, _mm256_load_si256(reinterpret_cast<const __m256i*>(kAcross.of[n].data())));
}
// An input loses when another claim lies below its own, but less than 2^kClaimBits: the same
// output. The nearest below is a minimum: fewer steps that wait for each other than asking of each
// pair. Numbers without a sign are compared as if they had one: 2^31 is added to all.
FLITNET_AVX2 inline __m256i losers256(__m256i claims) {
  constexpr int kLeast = std::numeric_limits<int>::min();
  const __m256i below = _mm256_sub_epi32(claims, _mm256_set1_epi32(kLeast + 1));
  const __m256i a1 = _mm256_sub_epi32(below, _mm256_shuffle_epi32(claims, 0x39));
  const __m256i a2 = _mm256_sub_epi32(below, _mm256_shuffle_epi32(claims, 0x4e));
  const __m256i a3 = _mm256_sub_epi32(below, _mm256_shuffle_epi32(claims, 0x93));
  const __m256i b0 = _mm256_sub_epi32(below, across256(claims, 0));
  const __m256i b1 = _mm256_sub_epi32(below, across256(claims, 1));
  const __m256i b2 = _mm256_sub_epi32(below, across256(claims, 2));
  const __m256i b3 = _mm256_sub_epi32(below, across256(claims, 3));
  const __m256i own = _mm256_min_epi32(_mm256_min_epi32(a1, a2), a3);
  const __m256i other = _mm256_min_epi32(_mm256_min_epi32(b0, b1), _mm256_min_epi32(b2, b3));
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(kLeast + (1 << kClaimBits)),
                            _mm256_min_epi32(own, other));
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
  granted.taken |= low_bits(united256(outputs)) >> emu::kBidPortShift;
  granted.nobody_lost = _mm256_testz_si256(lost, lost) != 0;
}

// `won`: bids that were granted, kNoBid where none; `valid`: all ones where one was.
FLITNET_AVX2 inline Crossing crossing256(__m256i won, __m256i valid) {
  const __m256i dummy = _mm256_set1_epi32(emu::kDummySlot);
  // The exponent of a power of two is the number of its bit.
  const __m256i power = _mm256_castps_si256(_mm256_cvtepi32_ps(outputs256(won)));
  const __m256i port =
      _mm256_sub_epi32(_mm256_srli_epi32(power, 23), _mm256_set1_epi32(127 + emu::kBidPortShift));
  const __m256i lane = _mm256_and_si256(_mm256_slli_epi32(won, 3), _mm256_set1_epi32(0x78));
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
struct Allocator<emu::Isa::avx2> {
  template <class Between>
  FLITNET_AVX2 static Crossing run(const emu::BidRows& rows, emu::Lanes8 eligible, int rounds,
                                   emu::Cycle now, const Between& between) {
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
      if (round == 1) between();
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
};

// All ones or zeros say here what a mask register would, for that takes longer to be told and to be
// asked: of what waits for each other in a cycle of one router this is the most.
enum Ternary : int {  // of three bits; the first is the highest of the number
  kAny = 0xfe,
  kFirstOrBothOthers = 0xf8,
  kBothFirstOrThird = 0xea,
  kFirstOrNeither = 0xf1,
  kAnyOfFirstAndThird = 0xa8,
  kFirstOrSecondNotThird = 0xf4,
};
template <Ternary kOf>
FLITNET_AVX512 inline __m256i ternary256(__m256i a, __m256i b, __m256i c) {
  return _mm256_ternarylogic_epi32(a, b, c, kOf);
}
template <Ternary kOf>
FLITNET_AVX512 inline __m512i ternary512(__m512i a, __m512i b, __m512i c) {
  return _mm512_ternarylogic_epi32(a, b, c, kOf);
}

template <>
FLITNET_AVX512 inline void grant_picks<emu::Isa::avx512>(Granted& granted, const emu::BidRows& rows,
                                                         const emu::Picks& picks, emu::Cycle now) {
  grant_picks<emu::Isa::avx2>(granted, rows, picks, now);
}

// Of four times eight words, which of eight words of 32 bits are 0 ... 3, eight times each, as the
// numbers of their lower halves and of their upper ones; and 4 ... 7.
struct SpreadWords {
  alignas(64) std::array<std::array<std::uint16_t, 32>, 4> of;
  constexpr SpreadWords() : of{} {
    for (unsigned i = 0; i < 128; ++i)
      of[i / 32][i % 32] = static_cast<std::uint16_t>((i / 64 * 4 + i % 32 / 8) * 2 + i / 32 % 2);
  }
};
inline constexpr SpreadWords kSpreadWords;

// Of eight words of 32 bits, upper halves: lanes at an output port; lower halves: that port, where
// a bid has it. The lanes by ports: a square of both, united over the words.
FLITNET_AVX512 inline emu::Lanes8 lanes_at_outputs(__m256i words) {
  const __m512i columns = _mm512_slli_epi16(
      emu::four_times(emu::Lanes8{1, 1 << 1, 1 << 2, 1 << 3, 1 << 4, 1 << 5, 1 << 6, 1 << 7}),
      emu::kBidPortShift);
  const __m512i all = _mm512_castsi256_si512(words);
  __m512i out = _mm512_setzero_si512();
#pragma GCC unroll 2
  for (unsigned i = 0; i < 2; ++i) {
    const __m512i ports = _mm512_load_si512(kSpreadWords.of[2 * i].data());
    const __m512i lanes = _mm512_load_si512(kSpreadWords.of[2 * i + 1].data());
    const __mmask32 wanted = _mm512_test_epi16_mask(_mm512_permutexvar_epi16(ports, all), columns);
    out = _mm512_or_si512(out, _mm512_maskz_permutexvar_epi16(wanted, lanes, all));
  }
  return emu::united_words(out);
}
// 1 << output lane of each bid above its output port.
FLITNET_AVX512 inline __m256i ways_of(__m256i bids) {
  const __m256i lanes =
      _mm256_sllv_epi32(_mm256_set1_epi32(1 << 16), _mm256_and_si256(bids, _mm256_set1_epi32(0xf)));
  return ternary256<kFirstOrBothOthers>(lanes, bids, _mm256_set1_epi32(emu::kBidPorts));
}

template <>
FLITNET_AVX512 inline Crossing crossing_of<emu::Isa::avx512>(const emu::Bids8& bids,
                                                             unsigned ports) {
  const __m256i won = _mm256_load_si256(reinterpret_cast<const __m256i*>(bids.of.data()));
  const auto valid = static_cast<__mmask8>(ports);
  return {emu::lower_words(emu::lane_bits_of(won), valid),
          lanes_at_outputs(_mm256_maskz_mov_epi32(valid, ways_of(won)))};
}

// The output ports of all eight bids and those of `more` in every word, of eight words twice.
FLITNET_AVX512 inline __m512i ports_of_bids(__m256i bids, __m512i more) {
  const __m256i three =
      ternary256<kAny>(bids, _mm256_shuffle_epi32(bids, 0x39), _mm256_shuffle_epi32(bids, 0x4e));
  const __m512i four = _mm512_castsi256_si512(
      ternary256<kAny>(three, _mm256_shuffle_epi32(bids, 0x93), _mm512_castsi512_si256(more)));
  return ternary512<kAnyOfFirstAndThird>(_mm512_shuffle_i64x2(four, four, 0),
                                         _mm512_shuffle_i64x2(four, four, 0x55),
                                         _mm512_set1_epi32(emu::kBidPorts));
}

template <>
struct Allocator<emu::Isa::avx512> {
  template <class Between>
  FLITNET_AVX512 static Crossing run(const emu::BidRows& rows, emu::Lanes8 eligible, int rounds,
                                     emu::Cycle now, const Between& between) {
    // Not even a bit of an output port.
    const __m512i none = _mm512_set1_epi32(static_cast<int>(~emu::kBidPorts));
    const __m512i wanted = emu::upper_words(eligible);
    const __m256i ranks = ranks256(now);
    const __m256i zero = _mm256_setzero_si256();
    __m512i row[emu::kRowsAvx512];
    __m512i least[2] = {none, none};
#pragma GCC unroll 8
    for (unsigned i = 0; i < emu::kRowsAvx512; ++i) {
      const __mmask16 open =
          _mm512_test_epi32_mask(wanted, emu::row512(emu::kUpperLaneBits.of.data(), i));
      row[i] = _mm512_mask_blend_epi32(open, none, emu::row512(rows.of.data(), i));
      least[i % 2] = _mm512_min_epu32(least[i % 2], row[i]);
    }
    __m256i held = zero;  // all ones: the port has won
    __m256i in = zero;    // what has been won
    __m256i ways = zero;
    __m512i taken = _mm512_setzero_si512();
    for (int round = 1;; ++round) {
      const __m256i best = emu::fold_least(_mm512_min_epu32(least[0], least[1]));
      // What a port that has won claims, and what no bid claims, is no output port and hurts
      // nobody.
      const __m256i claims = ternary256<kBothFirstOrThird>(
          _mm256_rol_epi32(best, kClaimTurn),
          _mm256_set1_epi32(static_cast<int>(0xffU << (kClaimBits + 4) | kClaimUrgency)),
          _mm256_or_si256(ranks, held));
      const __m256i lost = losers256(claims);
      const __m256i silent =
          _mm256_or_si256(_mm256_cmpeq_epi32(best, _mm512_castsi512_si256(none)), held);
      const __m256i lanes = _mm256_andnot_si256(silent, emu::lane_bits_of(best));
      const __m256i outputs = _mm256_andnot_si256(silent, ways_of(best));
      in = ternary256<kFirstOrSecondNotThird>(in, lanes, lost);
      ways = ternary256<kFirstOrSecondNotThird>(ways, outputs, lost);
      if (round == 1) between();
      // Without a loser nobody is left who could propose.
      if (round == rounds || _mm256_testc_si256(silent, lost) != 0) break;
      taken = ports_of_bids(round == 1 ? best : _mm256_andnot_si256(held, best), taken);
      held = ternary256<kFirstOrNeither>(held, lost, silent);
      least[0] = least[1] = none;
#pragma GCC unroll 8
      for (unsigned i = 0; i < emu::kRowsAvx512; ++i) {
        const __mmask16 still = _mm512_testn_epi32_mask(row[i], taken);
        least[i % 2] = _mm512_mask_min_epu32(least[i % 2], still, least[i % 2], row[i]);
      }
    }
    return {emu::lower_words(in, 0xff), lanes_at_outputs(ways)};
  }
};

}  // namespace fabric

#endif

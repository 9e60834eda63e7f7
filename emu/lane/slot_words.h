// A number for each lane of eight ports, [lane][port] as slots, so that what a flit changes of its
// lane is done for all ports at once: AVX-512 passes over the numbers of all lanes, four lanes a
// vector, and writes those of the lanes that are meant. That is a quarter of what single lanes cost
// one by one, and no narrow store is waited for by a wide load. Used by the schedulers (stamps.h).
#pragma once

#include <array>
#include <cstdint>
#include <cstring>

#include "emu/lane/bid.h"
#include "emu/lane/stamp.h"

namespace emu {

struct alignas(64) SlotWords {
  std::array<std::uint16_t, kLaneSlots> of{};
};
// The same where a bid has its stamp, to be added to it and compared with it.
struct alignas(64) UpperWords {
  std::array<std::uint32_t, kLaneSlots> of{};
  void set(unsigned slot, std::uint16_t word) { of[slot] = std::uint32_t{word} << kStampShift; }
  std::uint16_t get(unsigned slot) const {
    return static_cast<std::uint16_t>(of[slot] >> kStampShift);
  }
};

#if defined(__x86_64__)

// For every lane its bit, once a port.
struct LaneBits16 {
  alignas(64) std::array<std::uint16_t, kDummySlot> of;
  constexpr LaneBits16() : of{} {
    for (unsigned slot = 0; slot < of.size(); ++slot)
      of[slot] = static_cast<std::uint16_t>(1U << vl_of_slot(slot));
  }
};
inline constexpr LaneBits16 kLaneBits16;

inline constexpr unsigned kSlotsOfVector = 32;

// Those of the slots of vector i that are set in `lanes`, four times the same eight words.
FLITNET_AVX512 inline __mmask32 slots512(__m512i lanes, unsigned i) {
  return _mm512_test_epi16_mask(lanes, _mm512_load_si512(&kLaneBits16.of[i * kSlotsOfVector]));
}
FLITNET_AVX512 inline __m512i four_times(Lanes8 lanes) {
  return _mm512_broadcast_i32x4(reinterpret_cast<__m128i>(lanes));
}
// The bits of four times eight words in eight.
FLITNET_AVX512 inline Lanes8 united_words(__m512i a) {
  const __m256i half = _mm256_or_si256(_mm512_castsi512_si256(a), _mm512_extracti64x4_epi64(a, 1));
  return reinterpret_cast<Lanes8>(
      _mm_or_si128(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1)));
}

// A flit of each of `lanes`, at most one a port, gets its stamp: next_stamp(). Returns the stamps,
// a word a port; 0 where there is no flit. Sums beyond 16 bits are beyond the horizon as well.
FLITNET_AVX512 inline Lanes8 tick_lanes(SlotWords& aux, const SlotWords& vtick, Lanes8 lanes,
                                        std::uint32_t now) {
  const __m512i which = four_times(lanes);
  const __m512i arrival = _mm512_set1_epi16(static_cast<short>(now));
  const __m512i limit = _mm512_set1_epi16(static_cast<short>(now + kStampHorizon));
  __m512i stamps = _mm512_setzero_si512();
#pragma GCC unroll 4
  for (unsigned i = 0; i < kDummySlot / kSlotsOfVector; ++i) {
    const __mmask32 mask = slots512(which, i);
    const __m512i base = _mm512_max_epu16(_mm512_load_si512(&aux.of[i * kSlotsOfVector]), arrival);
    const __m512i next = _mm512_adds_epu16(base, _mm512_load_si512(&vtick.of[i * kSlotsOfVector]));
    const __m512i stamp = _mm512_min_epu16(next, limit);
    _mm512_mask_storeu_epi16(&aux.of[i * kSlotsOfVector], mask, stamp);
    stamps = _mm512_mask_mov_epi16(stamps, mask, stamp);
  }
  return united_words(stamps);
}

// Each of `lanes`, at most one a port, goes to the next place of its ring of kRing, a power of two,
// one ring after the other. Returns the places where they are then; 0 where there is no lane.
template <unsigned kRing>
FLITNET_AVX512 inline Lanes8 advance_lanes(SlotWords& place, Lanes8 lanes) {
  const __m512i which = four_times(lanes);
  const __m512i within = _mm512_set1_epi16(static_cast<short>(kRing - 1));
  __m512i places = _mm512_setzero_si512();
#pragma GCC unroll 4
  for (unsigned i = 0; i < kDummySlot / kSlotsOfVector; ++i) {
    const __mmask32 mask = slots512(which, i);
    const __m512i old = _mm512_load_si512(&place.of[i * kSlotsOfVector]);
    const __m512i next =
        _mm512_ternarylogic_epi64(within, _mm512_add_epi16(old, _mm512_set1_epi16(1)), old, 0xca);
    _mm512_mask_storeu_epi16(&place.of[i * kSlotsOfVector], mask, next);
    places = _mm512_mask_mov_epi16(places, mask, next);
  }
  return united_words(places);
}
// The `fresh` lanes have their weight left, but for what they owed: a number below 0; then each of
// `lanes`, at most one a port, one less. Returns those of these that have nothing left.
FLITNET_AVX512 inline Lanes8 spend_lanes(SlotWords& left, const SlotWords& weight, Lanes8 lanes,
                                         Lanes8 fresh) {
  const __m512i which = four_times(lanes);
  const __m512i again = four_times(fresh);
  __m512i spent = _mm512_setzero_si512();
#pragma GCC unroll 4
  for (unsigned i = 0; i < kDummySlot / kSlotsOfVector; ++i) {
    const unsigned at = i * kSlotsOfVector;
    const __mmask32 mask = slots512(which, i);
    const __m512i old = _mm512_load_si512(&left.of[at]);
    const __m512i owed = _mm512_min_epi16(old, _mm512_setzero_si512());
    const __m512i had =
        _mm512_mask_add_epi16(old, slots512(again, i), owed, _mm512_load_si512(&weight.of[at]));
    const __m512i has = _mm512_mask_sub_epi16(had, mask, had, _mm512_set1_epi16(1));
    _mm512_store_si512(&left.of[at], has);
    spent = _mm512_mask_mov_epi16(spent, _mm512_mask_testn_epi16_mask(mask, has, has),
                                  _mm512_load_si512(&kLaneBits16.of[at]));
  }
  return united_words(spent);
}

// The bids of `lanes` get the stamp of their port, an upper half.
FLITNET_AVX512 inline void set_upper_stamps(BidRows& bids, Lanes8 lanes, __m512i stamps) {
  const __m512i which = upper_words(lanes);
#pragma GCC unroll 8
  for (unsigned i = 0; i < kRowsAvx512; ++i) {
    const __mmask32 mask = _mm512_test_epi16_mask(which, row512(kUpperLaneBits.of.data(), i));
    _mm512_mask_storeu_epi16(&bids.of[i * kSlotsOfVector / 2], mask, stamps);
  }
}
FLITNET_AVX512 inline void set_stamps(BidRows& bids, Lanes8 lanes, Lanes8 stamps) {
  set_upper_stamps(bids, lanes, upper_words(stamps));
}
// The same with what stands at these places of an array, upper halves.
FLITNET_AVX512 inline void set_stamps_at(BidRows& bids, Lanes8 lanes, const std::uint32_t* stamps,
                                         Lanes8 places) {
  const __m256i at = _mm256_cvtepu16_epi32(reinterpret_cast<__m128i>(places));
  const __m256i of =
      _mm256_i32gather_epi32(reinterpret_cast<const int*>(stamps), at, sizeof *stamps);
  set_upper_stamps(bids, lanes, _mm512_broadcast_i64x4(of));
}
// Puts stamps, a word a port, at these places of such an array.
FLITNET_AVX512 inline void put_stamps(std::uint32_t* to, Lanes8 places, Lanes8 stamps) {
  alignas(32) std::uint32_t stamp[kPortsMax];
  const __m256i upper =
      _mm256_slli_epi32(_mm256_cvtepu16_epi32(reinterpret_cast<__m128i>(stamps)), kStampShift);
  _mm256_store_si256(reinterpret_cast<__m256i*>(stamp), upper);
  alignas(16) std::uint16_t place[kPortsMax];
  std::memcpy(place, &places, sizeof place);
  // To read words from memory is cheaper than to take them out of vectors, which the compiler would
  // do unasked.
  asm("" : "+m"(stamp), "+m"(place));
#pragma GCC unroll 8
  for (unsigned port = 0; port < kPortsMax; ++port) to[place[port]] = stamp[port];
}
// The stamps in the bids of `lanes` grow by their Vtick, up to their limit.
FLITNET_AVX512 inline void charge_lanes(BidRows& bids, const UpperWords& vtick,
                                        const UpperWords& limit, Lanes8 lanes) {
  const __m512i which = upper_words(lanes);
#pragma GCC unroll 8
  for (unsigned i = 0; i < kRowsAvx512; ++i) {
    const __mmask32 mask = _mm512_test_epi16_mask(which, row512(kUpperLaneBits.of.data(), i));
    const __m512i next = _mm512_adds_epu16(row512(bids.of.data(), i), row512(vtick.of.data(), i));
    _mm512_mask_storeu_epi16(&bids.of[i * kSlotsOfVector / 2], mask,
                             _mm512_min_epu16(next, row512(limit.of.data(), i)));
  }
}

#endif

}  // namespace emu

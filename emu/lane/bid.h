// Bids: for each lane of eight ports one number that says how urgent the flit at its head is and
// where it wants to go, so that the smallest of a port's bids names its lane and its way at once:
//   stamp (16 bits) | lane (4) | output port, one bit (8) | output lane (4)
// Of equal stamps the lower lane is smaller. Written by the schedulers (stamp) and by fabric/router
// stage 3 (way); read by its stage 4 and, without a way, by hca/wire and stage 5. The loops over
// all lanes exist for each instruction set (bid_wide.h); results are the same.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "emu/lane/planes.h"

namespace emu {

static_assert(std::endian::native == std::endian::little, "the halves of a bid are written alone");

using Bid = std::uint32_t;
inline constexpr Bid kNoBid = ~Bid{0};
inline constexpr unsigned kStampShift = 16;
inline constexpr unsigned kBidLaneShift = 12;
inline constexpr unsigned kBidPortShift = 4;
inline constexpr Bid kBidPorts = 0xff << kBidPortShift;

constexpr unsigned lane_of_bid(Bid bid) { return bid >> kBidLaneShift & 0xf; }
// The output port; the bid has a way.
constexpr unsigned out_port_of_bid(Bid bid) {
  return static_cast<unsigned>(std::countr_zero(bid >> kBidPortShift & 0xff));
}
// With the output lane, as a slot.
constexpr unsigned out_slot_of_bid(Bid bid) { return lane_slot(out_port_of_bid(bid), bid & 0xf); }

// The lower half of a bid is its lane and way, the upper one its stamp. A half that was written
// alone should be read alone as well: a wider load waits long for a store just before.
inline void set_lower_half(Bid& bid, std::uint16_t half) { std::memcpy(&bid, &half, sizeof half); }
inline void set_upper_half(Bid& bid, std::uint16_t half) {
  std::memcpy(reinterpret_cast<std::byte*>(&bid) + sizeof half, &half, sizeof half);
}
inline std::uint16_t lower_half(const Bid& bid) {
  std::uint16_t half;
  std::memcpy(&half, &bid, sizeof half);
  return half;
}
inline std::uint16_t upper_half(const Bid& bid) {
  std::uint16_t half;
  std::memcpy(&half, reinterpret_cast<const std::byte*>(&bid) + sizeof half, sizeof half);
  return half;
}

// [lane][port], as slots.
struct alignas(64) BidRows {
  std::array<Bid, kLaneSlots> of;

  constexpr BidRows() : of{} {
    for (unsigned slot = 0; slot < kDummySlot; ++slot)
      of[slot] = static_cast<Bid>(vl_of_slot(slot)) << kBidLaneShift;
  }
  std::uint16_t stamp(unsigned slot) const {
    return static_cast<std::uint16_t>(of[slot] >> kStampShift);
  }
  // A dummy slot takes a stamp as well; nobody reads it.
  void set_stamp(unsigned slot, std::uint16_t stamp) { set_upper_half(of[slot], stamp); }
  void set_way(unsigned slot, unsigned out_slot) {
    const auto way = static_cast<std::uint16_t>(vl_of_slot(slot) << kBidLaneShift |
                                                1U << port_of_slot(out_slot) << kBidPortShift |
                                                vl_of_slot(out_slot));
    set_lower_half(of[slot], way);
  }
};

// One bid a port, or kNoBid.
struct alignas(32) Bids8 {
  std::array<Bid, kPortsMax> of;
};

// Of one port.
inline Bid smallest_bid(const BidRows& rows, unsigned port, unsigned lanes) {
  Bid least = kNoBid;
  for (; lanes != 0; lanes &= lanes - 1)
    least = std::min(least, rows.of[lane_slot(port, first_bit(lanes))]);
  return least;
}

// Of each port the eligible lane with the smallest bid; at most one lane a word.
template <Isa kIsa>
inline Lanes8 smallest_lanes(const BidRows& rows, Lanes8 eligible) {
  Lanes8 lanes = kNoLanes8;
  for (unsigned ports = ports_of(eligible); ports != 0; ports &= ports - 1) {
    const unsigned port = first_bit(ports);
    lanes[port] =
        static_cast<std::uint16_t>(1U << lane_of_bid(smallest_bid(rows, port, eligible[port])));
  }
  return lanes;
}

}  // namespace emu

#include "emu/lane/bid_wide.h"

// Bids of the ports of a block, what bid.h is to eight: for each input lane one number that says
// how urgent the flit at its head is and where it wants to go, so that the smallest of a port's
// bids names its lane and its way at once:
//   stamp (16 bits) | lane (4) | 0 (2) | output lane of the block (10)
// Of equal stamps the lower lane is smaller. Written by the schedulers (stamp) and by fabric/router
// stage 2 (output lane), read by its stage 4. The loops over lanes exist for each instruction set
// (port_bids_wide.h); results are the same.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "emu/lane/words.h"

namespace emu {

static_assert(std::endian::native == std::endian::little, "the halves of a bid are written alone");

using PortBid = std::uint32_t;
inline constexpr PortBid kNoPortBid = ~PortBid{0};
inline constexpr unsigned kPortBidStampShift = 16;
inline constexpr unsigned kPortBidLaneShift = 12;
static_assert(kBlockLanes <= 1U << kPortBidLaneShift);

// Of the input lane, and of the output lane in the block.
constexpr unsigned vl_of_port_bid(PortBid bid) { return bid >> kPortBidLaneShift & 0xf; }
constexpr unsigned out_lane_of_port_bid(PortBid bid) { return bid % kBlockLanes; }

struct alignas(64) PortBids {
  std::array<PortBid, kBlockLanes> of;  // [input lane]

  constexpr PortBids() : of{} {
    for (unsigned lane = 0; lane < kBlockLanes; ++lane)
      of[lane] = static_cast<PortBid>(vl_of_lane(lane)) << kPortBidLaneShift;
  }
  // A half is read alone as well: a load waits long for a store just before of a part of it.
  std::uint16_t stamp(unsigned lane) const { return half(lane, 1); }
  void set_stamp(unsigned lane, std::uint16_t stamp) { set_half(lane, 1, stamp); }
  unsigned out_lane(unsigned lane) const { return out_lane_of_port_bid(half(lane, 0)); }
  void set_out_lane(unsigned lane, unsigned out_lane) {
    set_half(lane, 0, static_cast<std::uint16_t>(vl_of_lane(lane) << kPortBidLaneShift | out_lane));
  }

 private:
  std::uint16_t half(unsigned lane, std::size_t which) const {
    std::uint16_t value;
    std::memcpy(&value, reinterpret_cast<const std::byte*>(&of[lane]) + which * sizeof value,
                sizeof value);
    return value;
  }
  void set_half(unsigned lane, std::size_t which, std::uint16_t value) {
    std::memcpy(reinterpret_cast<std::byte*>(&of[lane]) + which * sizeof value, &value,
                sizeof value);
  }
};

// The least bid of these lanes, not none, of one port.
template <Isa>
inline PortBid least_bid(const PortBids& bids, unsigned port, unsigned lanes) {
  PortBid least = kNoPortBid;
  for (; lanes != 0; lanes &= lanes - 1)
    least = std::min(least, bids.of[block_lane(port, first_of(lanes))]);
  return least;
}

}  // namespace emu

#include "emu/lane/port_bids_wide.h"

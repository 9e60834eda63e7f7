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
#include <cstdint>

#include "emu/lane/bid.h"
#include "emu/lane/words.h"

namespace emu {

static_assert(kBlockLanes <= 1U << kBidLaneShift);

// The output lane of a bid, in the block.
constexpr unsigned out_lane_of_bid(Bid bid) { return bid % kBlockLanes; }
// How urgent it is; the same bid with another urgency.
constexpr unsigned urgency_of_bid(Bid bid) { return bid >> kStampShift; }
constexpr Bid with_urgency(Bid bid, unsigned urgency) {
  return urgency << kStampShift | bid % (1U << kStampShift);
}

struct alignas(64) PortBids {
  std::array<Bid, kBlockLanes> of;  // [input lane]

  constexpr PortBids() : of{} {
    for (unsigned lane = 0; lane < kBlockLanes; ++lane)
      of[lane] = static_cast<Bid>(vl_of_lane(lane)) << kBidLaneShift;
  }
  std::uint16_t stamp(unsigned lane) const { return upper_half(of[lane]); }
  void set_stamp(unsigned lane, std::uint16_t stamp) { set_upper_half(of[lane], stamp); }
  unsigned out_lane(unsigned lane) const { return out_lane_of_bid(lower_half(of[lane])); }
  void set_out_lane(unsigned lane, unsigned out_lane) {
    set_lower_half(of[lane],
                   static_cast<std::uint16_t>(vl_of_lane(lane) << kBidLaneShift | out_lane));
  }
};

// The least bid of these lanes, not none, of one port.
template <Isa>
inline Bid least_bid(const PortBids& bids, unsigned port, unsigned lanes) {
  Bid least = kNoBid;
  for (; lanes != 0; lanes &= lanes - 1)
    least = std::min(least, bids.of[block_lane(port, first_of(lanes))]);
  return least;
}

}  // namespace emu

#include "emu/lane/port_bids_wide.h"

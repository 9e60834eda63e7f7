// What all ports of a block propose at once, against port by port.
#include "fabric/router/propose.h"

#include <gtest/gtest.h>

#include "emu/base/prng.h"

namespace fabric::blocks {
namespace {

#if defined(__x86_64__)
FLITNET_AVX512 void compare(unsigned ports, std::uint64_t seed) {
  SCOPED_TRACE(testing::Message() << ports << " ports, seed " << seed);
  emu::Prng random(seed);
  emu::PortBids bids;
  alignas(64) emu::LaneWords queued{};
  alignas(64) emu::LaneWords open{};
  PortNumbers number{};
  for (int i = 0; i < 300; ++i) {
    for (unsigned lane = 0; lane < emu::kBlockLanes; ++lane) {
      bids.set_stamp(lane,
                     static_cast<std::uint16_t>(random.below(random.below(2) == 0 ? 4 : ~0U)));
      bids.set_out_lane(lane, random.below(emu::kBlockLanes));
    }
    for (unsigned p = 0; p < ports; ++p) {
      queued[p] = static_cast<emu::LaneMask>(random());
      open[p] = static_cast<emu::LaneMask>(random() & random());
      number[p] = static_cast<std::uint8_t>(random.below(emu::kPortsMax));
    }
    const Ranks& ranks = kPortRanks.of[random.below(64)];
    Proposals proposals;
    std::uint64_t todo = 0;  // not all that could
    for (unsigned p = 0; p < ports; ++p)
      todo |= std::uint64_t{(queued[p] & open[p]) != 0 && random.below(4) != 0} << p;
    const std::uint64_t wanted =
        propose_all(proposals, bids, queued, open, number, ranks, ports, todo);
    std::uint64_t proposed = 0;
    for (unsigned p = 0; p < ports; ++p) {
      const unsigned lanes = queued[p] & open[p];
      if (lanes == 0) continue;
      const emu::Bid bid = emu::least_bid<emu::Isa::base>(bids, p, lanes);
      const unsigned lane = emu::block_lane(p, emu::lane_of_bid(bid));
      const unsigned out_lane = bids.out_lane(lane);
      ASSERT_EQ(proposals.in_lane[p], lane) << "port " << p;
      ASSERT_EQ(proposals.lane[p], emu::lane_bit(emu::vl_of_lane(lane)));
      ASSERT_EQ(proposals.out_lane[p], emu::lane_bit(emu::vl_of_lane(out_lane)));
      ASSERT_EQ(proposals.out_port[p], emu::port_of_lane(out_lane));
      if ((todo >> p & 1) != 0) proposed |= std::uint64_t{1} << proposals.out_port[p];
      const Claim claim = proposals.claim[p];
      ASSERT_EQ(in_port_of(claim), p);
      ASSERT_EQ(claim >> kUrgencyShift, bids.stamp(lane));
      ASSERT_EQ(claim >> kRankShift & 7, ranks[number[p]]);
    }
    ASSERT_EQ(wanted, proposed);
  }
}

TEST(Propose, AllPortsAsOneByOne) {
  if (emu::best_isa(emu::Isa::avx512) != emu::Isa::avx512) GTEST_SKIP() << "no AVX-512";
  for (const unsigned ports : {16U, 40U, 64U}) compare(ports, ports);
}
#endif

}  // namespace
}  // namespace fabric::blocks

// Stage 4: the multiplexed crossbar. At most one flit leaves each input port and at most one enters
// each output port. Rounds: every input port that has no grant proposes, by its scheduler, one of
// its lanes that may cross to an output port without a grant; of the proposals for one output the
// most urgent wins, ties by this cycle's ranks; a round ends with every output for which somebody
// has proposed taken; alloc_iters times. In: `queued`, `open`. Out: flits move from input to output
// buffers, credits in the row of their arrival, and the tails among the flits.
#pragma once

#include <algorithm>
#include <bit>

#include "emu/lane/port_bids.h"
#include "emu/lane/stamp.h"
#include "fabric/router/b3_arbitrate.h"
#include "fabric/router/b4_at_once.h"
#include "fabric/router/b5_output.h"
#include "fabric/router/block.h"

namespace fabric::blocks {

// The bid of these lanes, not none, of a port.
template <emu::Isa kIsa, class Block, class Scheduler>
emu::Bid bid_of(const Block& b, Scheduler& scheduler, unsigned port, unsigned lanes) {
  if constexpr (Scheduler::kStampsBids) {
    return emu::least_bid<kIsa>(b.bids, port, lanes);
  } else {
    const emu::PortPick pick = scheduler.template pick<kIsa>(port, lanes);
    return emu::with_urgency(b.bids.of[emu::block_lane(port, pick.lane)], pick.urgency);
  }
}
// The same where some lanes yield to all others.
template <emu::Isa kIsa, class Block, class Scheduler>
emu::Bid yielding_bid_of(const Block& b, Scheduler& scheduler, unsigned port, unsigned lanes,
                         unsigned yields) {
  const unsigned firm = lanes & ~yields;
  const emu::Bid bid = bid_of<kIsa>(b, scheduler, port, firm != 0 ? firm : lanes);
  return emu::with_urgency(
      bid, firm == 0 ? unsigned{emu::kYieldingKey}
                     : std::min<unsigned>(emu::urgency_of_bid(bid), emu::kYieldingKey - 1U));
}

// The lanes of a port that may cross to an output port that is not `taken`.
template <emu::Isa kIsa, class Block>
unsigned lanes_that_may(const Block& b, unsigned port, std::uint64_t taken) {
  const auto gone = static_cast<unsigned>(taken >> b.first[port] & 0xff);
  return b.in.queued[port] & b.open[port] &
         ~emu::lanes_with<kIsa>(&b.way[emu::block_lane(port, 0)], gone);
}
// Those of these ports that have such lanes, and which: `may`. Which they are cannot be predicted:
// all are asked before anything is done about one.
template <emu::Isa kIsa, class Block>
std::uint64_t ports_that_may(const Block& b, emu::LaneWords& may, std::uint64_t ports,
                             std::uint64_t taken) {
  std::uint64_t some = 0;
  for (; ports != 0; ports &= ports - 1) {
    const unsigned port = emu::first_of(ports);
    may[port] = static_cast<emu::LaneMask>(lanes_that_may<kIsa>(b, port, taken));
    some |= std::uint64_t{may[port] != 0} << port;
  }
  return some;
}

// A flit crosses; what that changes is counted later, with what arrives: account(). Returns whether
// it is a tail.
template <class Block, class Scheduler>
bool cross(Block& b, Scheduler& scheduler, unsigned port, unsigned in_lane, emu::Moved& moved,
           emu::LinkBlock* there, std::uint32_t stamp_now) {
  const unsigned out_lane = b.bids.out_lane(in_lane);
  const emu::LaneMask lane = emu::lane_bit(emu::vl_of_lane(in_lane));
  moved.gone[port] = lane;
  moved.came[emu::port_of_lane(out_lane)] = emu::lane_bit(emu::vl_of_lane(out_lane));
  emu::put_credit(there, b.peer[port], lane);
  if constexpr (!Scheduler::kStampsBids) {
    scheduler.granted(in_lane);
  } else if (scheduler.head_of_line()) [[unlikely]] {
    scheduler.template granted<true>(b.bids, in_lane, stamp_now);
  } else {
    scheduler.template granted<false>(b.bids, in_lane, stamp_now);
  }
  if (--b.left[in_lane] != 0) return false;
  if constexpr (requires { scheduler.ended(in_lane); }) scheduler.ended(in_lane);
  return true;
}

// Returns the input ports of which a tail has crossed.
template <emu::Isa kIsa, class Block, class Scheduler>
std::uint64_t stage4_cross(Block& b, Scheduler& scheduler, const BlockWorld& world,
                           emu::Moved& moved, emu::LinkBlock* there, emu::Cycle now) {
  const Ranks& ranks = kPortRanks.of[now % kPortRanks.of.size()];
  const std::uint32_t stamp_now = emu::stamp_now(now);
  std::array<BlockLane, emu::kBlockPorts> proposed;  // [input port]
  alignas(64) emu::LaneWords may;                    // [input port] from the second round on
  std::uint64_t todo = emu::common_words<kIsa>(b.in.queued, b.open, b.ports);
  std::uint64_t taken = 0;  // outputs for which somebody has proposed
  std::uint64_t tails = 0;
  int round = 1;
#if defined(__x86_64__)
  if constexpr (kIsa == emu::Isa::avx512 && Scheduler::kStampsBids) {
    if (many_propose(scheduler, todo, world)) {
      const Round first = cross_at_once(b, scheduler, todo, ranks, moved, there, stamp_now);
      if (world.alloc_iters == 1) return first.tails;
      taken = first.wanted;
      tails = first.tails;
      todo &= ~first.granted;
      ++round;
    }
  }
#endif
  for (; todo != 0; ++round) {
    if (round > 1) todo = ports_that_may<kIsa>(b, may, todo, taken);
    std::uint64_t wanted = 0;
    for (std::uint64_t bits = todo; bits != 0; bits &= bits - 1) {
      const unsigned port = emu::first_of(bits);
      const unsigned lanes = round == 1 ? b.in.queued[port] & b.open[port] : may[port];
      const emu::Bid bid = world.yields == 0
                               ? bid_of<kIsa>(b, scheduler, port, lanes)
                               : yielding_bid_of<kIsa>(b, scheduler, port, lanes, world.yields);
      const unsigned in_lane = emu::block_lane(port, emu::lane_of_bid(bid));
      const unsigned out_port = emu::port_of_lane(emu::out_lane_of_bid(bid));
      const Claim claim = emu::urgency_of_bid(bid) << kUrgencyShift |
                          unsigned{ranks[b.number[port]]} << kRankShift | port;
      scheduler.fetch(in_lane);
      proposed[port] = static_cast<BlockLane>(in_lane);
      b.claim[out_port] = std::min(b.claim[out_port], claim);
      wanted |= std::uint64_t{1} << out_port;
    }
    for (std::uint64_t bits = wanted; bits != 0; bits &= bits - 1) {
      const unsigned out_port = emu::first_of(bits);
      const unsigned port = in_port_of(b.claim[out_port]);
      b.claim[out_port] = kNoClaim;
      todo &= ~(std::uint64_t{1} << port);
      const bool tail = cross(b, scheduler, port, proposed[port], moved, there, stamp_now);
      tails |= std::uint64_t{tail} << port;
    }
    taken |= wanted;
    if (wanted == 0 || round == world.alloc_iters) break;
  }
  return tails;
}

// What has become of the lanes that flits have crossed from (`tails`) and to (`filled`).
template <class Block>
void lanes_crossed(Block& b, std::uint64_t filled, std::uint64_t tails, const emu::Moved& moved,
                   const BlockWorld& world) {
  for (std::uint64_t bits = filled; bits != 0; bits &= bits - 1)
    set_open(b, only_lane(moved.came, emu::first_of(bits)), false);
  for (std::uint64_t bits = tails; bits != 0; bits &= bits - 1)
    release_output_lane(b, only_lane(moved.gone, emu::first_of(bits)), world);
}

}  // namespace fabric::blocks

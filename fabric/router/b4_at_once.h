// The first round of stage 4 (b4_cross.h) for a block in which many ports propose: vectors find all
// bids, for a fixed price, where one port after the other costs more from some thirteen on.
#pragma once

#include <algorithm>
#include <bit>

#include "emu/lane/port_lanes.h"
#include "emu/lane/row.h"
#include "fabric/router/block.h"
#include "fabric/router/propose.h"

namespace fabric::blocks {

// Whether vectors find these ports' bids sooner than port by port.
template <class Scheduler>
bool many_propose(const Scheduler& scheduler, std::uint64_t ports, const BlockWorld& world) {
  constexpr int kMany = 13;  // by measurement, of a mesh
  return std::popcount(ports) >= kMany && world.yields == 0 && !scheduler.head_of_line();
}

// What a round has done, a bit a port.
struct Round {
  std::uint64_t wanted = 0;   // output ports for which somebody has proposed
  std::uint64_t granted = 0;  // input ports
  std::uint64_t tails = 0;    // and of those
};

#if defined(__x86_64__)
// `todo`: input ports that have a lane in `queued` and `open`. What flits that cross leave to do is
// as in cross().
template <class Block, class Scheduler>
FLITNET_AVX512 inline Round cross_at_once(Block& b, Scheduler& scheduler, std::uint64_t todo,
                                          const Ranks& ranks, emu::Moved& moved,
                                          emu::LinkBlock* there, std::uint32_t stamp_now) {
  Proposals proposals;
  // Not by asking `least`: wide loads wait long for the narrow stores just before.
  Round round = {.wanted = propose_all(proposals, b.bids, b.in.queued, b.open, b.number, ranks,
                                       b.ports, todo)};
  alignas(64) std::array<Claim, emu::kBlockPorts> least;  // [output port]
  least.fill(kNoClaim);
  for (std::uint64_t bits = todo; bits != 0; bits &= bits - 1) {
    const unsigned port = emu::first_of(bits);
    scheduler.fetch(proposals.in_lane[port]);
    Claim& claim = least[proposals.out_port[port]];
    claim = std::min(claim, proposals.claim[port]);
  }
  for (std::uint64_t bits = round.wanted; bits != 0; bits &= bits - 1) {
    const unsigned out_port = emu::first_of(bits);
    const unsigned port = in_port_of(least[out_port]);
    const unsigned in_lane = proposals.in_lane[port];
    moved.came[out_port] = proposals.out_lane[port];
    emu::put_credit(there, b.peer[port], proposals.lane[port]);
    scheduler.template granted<false>(b.bids, in_lane, stamp_now);
    round.granted |= std::uint64_t{1} << port;
    round.tails |= std::uint64_t{--b.left[in_lane] == 0} << port;
  }
  for (unsigned i = 0; i < b.ports; i += 32)
    _mm512_store_si512(&moved.gone[i],
                       _mm512_maskz_mov_epi16(static_cast<__mmask32>(round.granted >> i),
                                              emu::words512(&proposals.lane[i])));
  return round;
}
#endif

}  // namespace fabric::blocks

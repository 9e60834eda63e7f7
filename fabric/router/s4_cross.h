// Stage 4: the multiplexed crossbar. At most one flit leaves each input port and at most one enters
// each output port. Rounds: every input port that has no grant proposes, by its scheduler, one of
// its lanes that may cross to an output port without a grant; of the proposals for one output the
// most urgent wins, ties by this cycle's ranks; until nobody can propose. In: in_count, active,
// ready. Out: flits move from input to output buffers, and the tails among them.
#pragma once

#include <bit>
#include <cstring>

#include "emu/lane/stamp.h"
#include "fabric/router/rank.h"
#include "fabric/router/s3_arbitrate.h"
#include "fabric/router/state.h"

namespace fabric {

struct Crossed {
  emu::Lanes8 in{};    // input lanes that gave a flit
  emu::Lanes8 out{};   // output lanes that took one
  unsigned tails = 0;  // input ports whose flit was a tail
};

// A proposal in one number, the most urgent smallest: key, rank, input lane.
inline constexpr unsigned kLaneBits = 8;
inline constexpr unsigned kRankBits = 3;
inline constexpr std::uint32_t kNoProposal = ~0U;
inline unsigned lane_of_proposal(std::uint32_t proposal) { return proposal & 0xffU; }

// One round over `wishes`; returns the wishes that remain.
template <bool kUrgent, class Scheduler>
emu::Lanes8 cross_round(RouterState& r, Scheduler& scheduler, emu::Lanes8 wishes, unsigned ports,
                        const std::array<std::uint8_t, 8>& ranks, Crossed& crossed) {
  std::array<std::uint32_t, emu::kPortsMax> best;  // proposal for an output port
  best.fill(kNoProposal);
  alignas(16) std::array<emu::LaneMask, emu::kPortsMax> wish;
  std::memcpy(wish.data(), &wishes, sizeof wishes);
  unsigned outputs = 0;
  emu::each_port(ports, [&](unsigned port) {
    // Of a port without wishes: less urgent than any other, and counted for no output.
    const emu::Pick pick = scheduler.template pick<kUrgent>(port, wish[port]);
    const unsigned in_lane = lane_slot(port, pick.lane());
    const unsigned out_port = r.out_port[in_lane];
    const std::uint32_t proposal =
        (pick.key() << (kLaneBits + kRankBits)) + (unsigned{ranks[port]} << kLaneBits) + in_lane;
    best[out_port] = std::min(best[out_port], proposal);
    outputs |= static_cast<unsigned>(wish[port] != 0) << out_port;
  });
  emu::Lanes8 blocked = emu::kNoLanes8;
  emu::Lanes8 in = emu::kNoLanes8;
  for (; outputs != 0; outputs &= outputs - 1) {
    const unsigned out_port = emu::first_bit(outputs);
    const unsigned in_lane = lane_of_proposal(best[out_port]);
    scheduler.granted_slot(in_lane);
    in |= emu::kOneLane.of[in_lane];
    crossed.out |= emu::kOneLane.of[r.target[in_lane]];
    blocked |= r.from[out_port];
    if (--r.left[in_lane] == 0) [[unlikely]]
      crossed.tails |= 1U << port_of_lane(in_lane);
  }
  crossed.in |= in;
  return wishes & ~blocked & emu::zero_words(in);
}

template <bool kUrgent, class Scheduler>
void cross_all(RouterState& r, Scheduler& scheduler, emu::Lanes8 wishes, unsigned ports,
               emu::Cycle now, Crossed& crossed) {
  const auto& ranks = port_ranks(now);
  while (ports != 0) {
    wishes = cross_round<kUrgent>(r, scheduler, wishes, ports, ranks, crossed);
    ports = emu::ports_of(wishes);
  }
}

// An output lane got its last free flit, or its first: tell the input lane that owns it.
inline void set_ready(RouterState& r, emu::Lanes8 out_lanes, bool ready) {
  for (unsigned ports = emu::ports_of(out_lanes); ports != 0; ports &= ports - 1) {
    const unsigned port = emu::first_bit(ports);
    const LaneIndex in_lane = r.owner[lane_slot(port, emu::first_bit(out_lanes[port]))];
    if (in_lane == kNoLane) continue;
    const std::uint16_t bit = vl_bit(in_lane);
    auto word = static_cast<std::uint16_t>(r.ready[port_of_lane(in_lane)] & ~bit);
    if (ready) word = static_cast<std::uint16_t>(word | bit);
    r.ready[port_of_lane(in_lane)] = word;
  }
}

// Returns the input lanes that gave a flit: the credits for their senders.
template <class Scheduler>
emu::Lanes8 stage4_cross(RouterState& r, Scheduler& scheduler, emu::Lanes8 control,
                         const hca::MessageTable& messages, emu::Cycle now) {
  const emu::Lanes8 wishes = r.in_count.nonzero() & r.active & r.ready;
  const unsigned ports = emu::ports_of(wishes);
  if (ports == 0) return emu::kNoLanes8;
  Crossed crossed;
  if (emu::any(wishes & control)) {
    cross_all<true>(r, scheduler, wishes, ports, now, crossed);
  } else {
    cross_all<false>(r, scheduler, wishes, ports, now, crossed);
  }
  r.in_count.take_one(crossed.in);
  r.out_count.add_one(crossed.out);
  r.crossed += static_cast<unsigned>(std::popcount(emu::ports_of(crossed.in)));
  r.out_full = r.is_full(r.out_count);
  const emu::Lanes8 filled = r.out_full & crossed.out;
  if (emu::any(filled)) set_ready(r, filled, false);
  for (unsigned bits = crossed.tails; bits != 0; bits &= bits - 1) {
    const unsigned port = emu::first_bit(bits);
    release_output_lane(r, lane_slot(port, emu::first_bit(crossed.in[port])), messages);
  }
  return crossed.in;
}

}  // namespace fabric

// Stage 4: the multiplexed crossbar. At most one flit leaves each input port and at most one enters
// each output port. Rounds: every input port that has no grant proposes, by its scheduler, one of
// its lanes that may cross to an output port without a grant; of the proposals for one output the
// most urgent wins, ties by this cycle's ranks; alloc_iters times. In: in_count, active, ready.
// Out: flits move from input to output buffers, and the tails among them.
#pragma once

#include "emu/lane/stamp.h"
#include "fabric/router/match.h"
#include "fabric/router/s3_arbitrate.h"
#include "fabric/router/state.h"

namespace fabric {

// Returns the input lanes that may give a flit; calls scheduler.granted() round by round.
template <emu::Isa kIsa, class State, class Scheduler>
emu::Lanes8 allocate(State& r, Scheduler& scheduler, emu::Lanes8 wishes, emu::Cycle now,
                     const Surroundings& world) {
  const bool strict = emu::any(world.yields);
  emu::Lanes8 in = emu::kNoLanes8;
  for (int round = 1;; ++round) {
    const emu::Lanes8 able = strict ? emu::before_yielding(wishes, world.yields) : wishes;
    const unsigned ports = emu::ports_of(able);
    if ((ports & (ports - 1)) == 0) {  // nobody contends
      const emu::Lanes8 picked = scheduler.template pick_lanes<kIsa>(able);
      scheduler.granted(picked);
      return in | picked;
    }
    emu::Picks picks = scheduler.template pick<kIsa>(able);
    if (strict) picks = emu::let_yield(picks, world.yields);
    if (round == world.alloc_iters) {
      const emu::Lanes8 won = match<kIsa, false>(picks, r.from, now).won;
      scheduler.granted(won);
      return in | won;
    }
    const Matched matched = match<kIsa, true>(picks, r.from, now);
    scheduler.granted(matched.won);
    in |= matched.won;
    wishes &= ~matched.blocked & emu::zero_words(matched.won);
    if (!emu::any(wishes)) return in;
  }
}

// An output lane got its last free flit, or its first: tell the input lane that owns it.
template <class State>
void set_ready(State& r, emu::Lanes8 out_lanes, bool ready) {
  for (unsigned ports = emu::ports_of(out_lanes); ports != 0; ports &= ports - 1) {
    const unsigned port = emu::first_bit(ports);
    const LaneIndex in_lane = r.owner[lane_slot(port, emu::first_bit(out_lanes[port]))];
    if (in_lane == kNoLane) continue;
    const std::uint16_t bit = vl_bit(in_lane);
    auto word = static_cast<std::uint16_t>(r.ready[port_of_slot(in_lane)] & ~bit);
    if (ready) word = static_cast<std::uint16_t>(word | bit);
    r.ready[port_of_slot(in_lane)] = word;
  }
}

// Returns the input lanes that gave a flit: the credits for their senders. Stage 1 takes them out
// of in_count together with what it adds.
template <emu::Isa kIsa, class State, class Scheduler>
emu::Lanes8 stage4_cross(State& r, Scheduler& scheduler, emu::Lanes8 sent,
                         const Surroundings& world, emu::Cycle now) {
  const emu::Lanes8 wishes = r.in_count.nonzero() & r.active & r.ready;
  if (!emu::any(wishes)) {
    r.out_count.take_one(sent);
    return emu::kNoLanes8;
  }
  const emu::Lanes8 in = allocate<kIsa>(r, scheduler, wishes, now, world);
  emu::Lanes8 out = emu::kNoLanes8;
  emu::FlitSlots(in).visit([&](unsigned in_lane) {
    scheduler.leave(in_lane);
    out |= emu::kOneLane.of[r.target[in_lane]];
  });
  r.out_count.change(out, sent);
  r.out_full = r.is_full(r.out_count);
  const emu::Lanes8 filled = r.out_full & out;
  if (emu::any(filled)) set_ready(r, filled, false);
  const emu::Lanes8 tails = r.left.take(in);
  if (emu::any(tails)) {
    for (unsigned ports = emu::ports_of(tails); ports != 0; ports &= ports - 1) {
      const unsigned port = emu::first_bit(ports);
      release_output_lane(r, lane_slot(port, emu::first_bit(tails[port])), world.messages);
    }
  }
  return in;
}

}  // namespace fabric

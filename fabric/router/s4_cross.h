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

// The input lanes that lead to any of these output ports.
inline emu::Lanes8 lanes_to(const emu::Lanes8* from, unsigned outputs) {
  constexpr emu::Lanes8 kBits = {1, 2, 4, 8, 16, 32, 64, 128};
  const auto chosen = reinterpret_cast<emu::Lanes8>((emu::spread(outputs) & kBits) == kBits);
  emu::Lanes8 lanes = emu::kNoLanes8;
#pragma GCC unroll 8
  for (unsigned out = 0; out < emu::kPortsMax; ++out) lanes |= from[out] & emu::spread(chosen[out]);
  return lanes;
}

// Schedulers that take turns: each round asks them, and tells them which proposals were granted.
template <emu::Isa kIsa, class State, class Scheduler>
Crossing allocate_turns(const State& r, Scheduler& scheduler, emu::Lanes8 wishes,
                        const Surroundings& world, emu::Cycle now) {
  Granted granted;
  for (int round = 1;; ++round) {
    const emu::Lanes8 able = emu::before_yielding(wishes, world.yields);
    emu::Picks picks = scheduler.pick(able);
    if (emu::any(world.yields)) picks = emu::let_yield(picks, world.yields);
    grant_picks<kIsa>(granted, r.bids, picks, now);
    scheduler.template granted<kIsa>(granted.last);
    if (round == world.alloc_iters || granted.nobody_lost)
      return crossing_of<kIsa>(granted.bids, granted.ports);
    wishes &= emu::zero_words(granted.last) & ~lanes_to(r.from, granted.taken);
  }
}

// The input lanes that may give a flit, and where to. `between`: see allocate_bids().
template <emu::Isa kIsa, class State, class Scheduler, class Between>
Crossing allocate(const State& r, Scheduler& scheduler, emu::Lanes8 wishes,
                  const Surroundings& world, emu::Cycle now, const Between& between) {
  if constexpr (Scheduler::kTakesTurns) {
    between();
    return allocate_turns<kIsa>(r, scheduler, wishes, world, now);
  } else {
    const unsigned ports = emu::ports_of(wishes);
    if ((ports & (ports - 1)) == 0) {  // nobody contends; who yields, and how urgent, is no matter
      const unsigned port = emu::first_bit(ports);
      const emu::Lanes8 able = emu::before_yielding(wishes, world.yields);
      between();
      return one_crosses(port, bid_of_lanes(r.bids, port, able[port], scheduler.control()[port]));
    }
    if (world.yield || emu::meet(wishes, scheduler.control())) [[unlikely]] {
      between();
      Crossing crossing;
      emu::apart<kIsa>([&crossing, &r, &scheduler, wishes, &world, now] {
        crossing = allocate_in_order(r.bids, wishes, world.alloc_iters,
                                     {scheduler.control(), world.yields}, now);
      });
      return crossing;
    }
    return allocate_bids<kIsa>(r.bids, wishes, world.alloc_iters, now, between);
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

// The input lanes that gave a flit: the credits for their senders. Stage 1 takes them out of
// in_count together with what it adds.
struct Crossed {
  emu::Lanes8 flits{};
  emu::Lanes8 ending{};  // perhaps tails
};

// `between` and `beside` are called once each and must not touch what this stage needs: what they
// do is worked on while the allocator, a long chain of steps that wait for each other, is.
template <emu::Isa kIsa, class State, class Scheduler, class Multiplexer, class Between,
          class Beside>
Crossed stage4_cross(State& r, Scheduler& scheduler, Multiplexer& multiplexer, emu::Lanes8 sent,
                     const Surroundings& world, emu::Cycle now, const Between& between,
                     const Beside& beside) {
  const emu::Lanes8 wishes = r.in_occupied & r.active & r.ready;
  const bool some = emu::any(wishes);
  Crossing crossing{};
  if (some)
    crossing = allocate<kIsa>(r, scheduler, wishes, world, now, between);
  else
    between();
  beside();
  if (!some) {
    r.out_count.take_one(sent);
    r.out_occupied = r.out_count.nonzero();
    return {};
  }
  const emu::Lanes8 in = crossing.in;
  const emu::Lanes8 out = crossing.out;
  scheduler.template leave<kIsa>(r.bids, in);
  r.out_count.change(out, sent);
  r.out_occupied = r.out_count.nonzero();
  r.out_full = r.is_full(r.out_count);
  multiplexer.template came<kIsa>(out, out & r.out_count.is_one(), now);
  const emu::Lanes8 filled = r.out_full & out;
  if (emu::any(filled)) set_ready(r, filled, false);
  return {in, r.left.take(in)};
}

template <class State, class Scheduler>
void tails_cross(State& r, Scheduler& scheduler, emu::Lanes8 ending, emu::Cycle now,
                 const Surroundings& world) {
  const emu::Lanes8 tails = r.left.ended(ending);
  if constexpr (requires { scheduler.ended(tails); }) scheduler.ended(tails);
  for (unsigned ports = emu::ports_of(tails); ports != 0; ports &= ports - 1) {
    const unsigned port = emu::first_bit(ports);
    release_output_lane(r, lane_slot(port, emu::first_bit(tails[port])), now, world);
  }
}

}  // namespace fabric

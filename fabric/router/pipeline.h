// One cycle of one router: the five stages from back to front, so that a flit moves one stage a
// cycle and what a later stage frees can be used by an earlier one in the same cycle.
#pragma once

#include "fabric/router/s1_decode.h"
#include "fabric/router/s2_route.h"
#include "fabric/router/s3_arbitrate.h"
#include "fabric/router/s4_cross.h"
#include "fabric/router/s5_output.h"
#include "fabric/router/state.h"

namespace fabric {

template <int kPlanes, class Scheduler, class Multiplexer>
struct Router {
  RouterState<kPlanes> state;
  Scheduler scheduler;
  Multiplexer multiplexer;
};

// The first half of a cycle moves flits, without a branch that is hard to predict; the second tells
// of heads and tails, and takes what came in.
struct Moves {
  Output output;
  Crossed crossed;
};
template <emu::Isa kIsa, class Router, class Beside>
Moves move_flits(Router& router, emu::Lanes8 returned, const emu::Outlet& outlet,
                 emu::Lanes8 control, const Surroundings& world, emu::Cycle now,
                 const Beside& beside) {
  auto& r = router.state;
  Moves moves;
  moves.output = stage5_output<kIsa>(r, router.multiplexer, returned, control, outlet);
  moves.crossed = stage4_cross<kIsa>(r, router.scheduler, router.multiplexer, moves.output.flits,
                                     world, now, beside);
  return moves;
}
// False when no flit is in its buffers any more.
template <emu::Isa kIsa, class Router>
bool finish_cycle(Router& router, const Moves& moves, emu::Box& box, emu::Box* next_row,
                  const emu::Outlet& outlet, const Surroundings& world, emu::Cycle now) {
  auto& r = router.state;
  tell_output(r, moves.output, world.messages, next_row, outlet);
  // Whether tails cross is known last of all, and mostly mispredicted: what does not ask comes
  // first.
  const bool busy = stage1_take_in<kIsa>(r, router.scheduler, box, moves.crossed.flits, now, world);
  if (emu::any(moves.crossed.ending)) tails_cross(r, router.scheduler, moves.crossed.ending, world);
  if (emu::any(r.arbitrating)) stage3_arbitrate(r, world.messages);
  r.arbitrating = r.routed;
  r.routed = emu::kNoLanes8;
  if (emu::any(r.routing)) stage2_route(r, world, now);
  if (emu::has_names(box)) decode_heads(r, box, world);
  box.flits = emu::kNoLanes8;
  box.credits = emu::kNoLanes8;
  emu::emit(next_row, outlet, moves.output.flits, moves.crossed.flits);
  return busy;
}

template <emu::Isa kIsa, class Router>
bool step_router(Router& router, emu::Box& box, emu::Box* next_row, const emu::Outlet& outlet,
                 emu::Lanes8 control, const Surroundings& world, emu::Cycle now) {
  const Moves moves = move_flits<kIsa>(router, box.credits, outlet, control, world, now, [] {});
  return finish_cycle<kIsa>(router, moves, box, next_row, outlet, world, now);
}

}  // namespace fabric

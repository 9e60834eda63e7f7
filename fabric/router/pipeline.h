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
template <emu::Isa kIsa, Site kSite, class Router, class Beside>
Moves move_flits(Router& router, const emu::Box& box, const emu::Outlet& outlet,
                 emu::Lanes8 control, const Surroundings& world, emu::Cycle now,
                 const Beside& beside) {
  auto& r = router.state;
  Moves moves;
  moves.output =
      stage5_output<kIsa, kSite>(r, router.multiplexer, box.credits, control, outlet, world);
  moves.crossed = stage4_cross<kIsa>(
      r, router.scheduler, router.multiplexer, moves.output.flits, world, now,
      [&] { stage1_stamp<kIsa>(r, router.scheduler, box, now, world); }, beside);
  return moves;
}
// False when no flit is in its buffers any more.
template <emu::Isa kIsa, Site kSite, class Router>
bool finish_cycle(Router& router, const Moves& moves, emu::Box& box, const Surroundings& world,
                  emu::Cycle now) {
  auto& r = router.state;
  // Whether tails cross is known last of all, and mostly mispredicted: what does not ask comes
  // first.
  const bool named =
      (kSite == Site::among_others || router.scheduler.per_message()) && emu::has_names(box);
  const bool busy = stage1_take_in<kIsa>(r, router.scheduler, box, moves.crossed.flits, now);
  if (emu::any(moves.crossed.ending))
    emu::apart<kIsa>([&r, &scheduler = router.scheduler, ending = moves.crossed.ending, now,
                      &world] { tails_cross(r, scheduler, ending, now, world); });
  if (emu::any(r.arbitrating | r.routing) || r.later.count != 0) {
    emu::apart<kIsa>([&r, now, &world] {
      stage3_arbitrate(r, now, world);
      later_heads_come(r, now);
      stage2_route(r, world, now);
    });
  }
  if (named) {
    if constexpr (kSite == Site::among_others) decode_heads(r, box, now, world);
    emu::clear_names(box);
  }
  become_active(r, now);
  box.flits = emu::kNoLanes8;
  box.credits = emu::kNoLanes8;
  return busy;
}

// A router that may lead to others.
template <emu::Isa kIsa, class Router>
bool step_router(Router& router, emu::Box& box, emu::Box* next_row, const emu::Outlet& outlet,
                 emu::Lanes8 control, const Surroundings& world, emu::Cycle now) {
  constexpr Site kSite = Site::among_others;
  auto& r = router.state;
  const Moves moves = move_flits<kIsa, kSite>(router, box, outlet, control, world, now, [] {});
  if (emu::any(moves.output.heads)) heads_leave(r, moves.output.heads, next_row, outlet);
  if (emu::any(moves.output.ending))
    tails_leave(r, r.leaving.ended(moves.output.ending), world.messages, next_row, outlet);
  const bool busy = finish_cycle<kIsa, kSite>(router, moves, box, world, now);
  emu::emit(next_row, outlet, moves.output.flits, moves.crossed.flits);
  return busy;
}

}  // namespace fabric

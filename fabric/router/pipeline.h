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

// False when no flit is in its buffers any more.
template <emu::Isa kIsa, class Router>
bool step_router(Router& router, emu::Box& box, emu::Box* next_row, const emu::Outlet& outlet,
                 emu::Lanes8 control, const Surroundings& world, emu::Cycle now) {
  auto& r = router.state;
  const emu::Lanes8 sent = stage5_output<kIsa>(r, router.multiplexer, box.credits, control,
                                               world.messages, next_row, outlet);
  const emu::Lanes8 credits =
      stage4_cross<kIsa>(r, router.scheduler, router.multiplexer, sent, world, now);
  if (emu::any(r.arbitrating)) stage3_arbitrate(r, world.messages);
  r.arbitrating = r.routed;
  r.routed = emu::kNoLanes8;
  if (emu::any(r.routing)) stage2_route(r, world, now);
  const bool busy = stage1_decode<kIsa>(r, router.scheduler, box, credits, now, world);
  box.flits = emu::kNoLanes8;
  box.credits = emu::kNoLanes8;
  emu::emit(next_row, outlet, sent, credits);
  return busy;
}

}  // namespace fabric

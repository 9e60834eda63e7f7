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

template <class Scheduler>
struct Router {
  RouterState state;
  Scheduler scheduler;
};

template <class Scheduler>
void step_router(Router<Scheduler>& router, emu::Box& box, emu::Box* next_row,
                 const emu::Outlet& outlet, emu::Lanes8 control, const Surroundings& world,
                 emu::Cycle now) {
  RouterState& r = router.state;
  r.credits.add_one(box.credits);
  const emu::Lanes8 sent = stage5_output(r, control, world.messages, next_row, outlet);
  const emu::Lanes8 credits = stage4_cross(r, router.scheduler, control, world.messages, now);
  if (emu::any(r.arbitrating)) stage3_arbitrate(r);
  if (emu::any(r.routing)) stage2_route(r, world, now);
  stage1_decode(r, router.scheduler, box, now, world.messages);
  box.flits = emu::kNoLanes8;
  box.credits = emu::kNoLanes8;
  emu::emit(next_row, outlet, sent, credits);
}

}  // namespace fabric

// One cycle of eight routers: the five stages from back to front, so that a flit moves one stage a
// cycle and what a later stage frees can be used by an earlier one in the same cycle. Routers meet
// only through rows, so stages of different routers may be done in any order.
#pragma once

#include "fabric/router/b1_decode.h"
#include "fabric/router/b3_arbitrate.h"
#include "fabric/router/b4_cross.h"
#include "fabric/router/b5_output.h"
#include "fabric/router/block.h"

namespace fabric::blocks {

template <int kPlanes, class Scheduler>
struct RouterBlock {
  Block<kPlanes> state;
  Scheduler scheduler;
};

// `here`: of this block; `there`: a row.
template <emu::Isa kIsa, class RouterBlock>
void step_block(RouterBlock& block, emu::LinkBlock& here, emu::LinkBlock* there,
                const BlockWorld& world, emu::Cycle now) {
  auto& b = block.state;
  if (b.inside == 0 && emu::quiet<kIsa>(here.flits, here.credits, b.ports)) return;
  emu::Moved moved;
  stage5_output<kIsa>(b, world, here.credits, moved, there);
  stage4_cross<kIsa>(b, block.scheduler, world, moved, there, now);
  const emu::Crossed crossed =
      emu::account<kIsa>(b.out, b.in, here.flits, moved, world.buffer, b.ports);
  if ((crossed.filled | crossed.tails) != 0) lanes_crossed(b, crossed, moved, world);
  if (b.arbitrating.count != 0) stage3_arbitrate(b, world);
  if (b.routing.count != 0) stage2_route(b, world, now);
  if (crossed.arrivals != 0)
    stage1_decode<kIsa>(b, block.scheduler, crossed.arrivals, world, moved, here, now);
}

}  // namespace fabric::blocks

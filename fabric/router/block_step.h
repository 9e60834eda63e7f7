// One cycle of a block of routers: the five stages from back to front, so that a flit moves one
// stage a cycle and what a later stage frees can be used by an earlier one in the same cycle.
// Routers meet only through rows, so stages of different routers may be done in any order.
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

// Asks for what heads will touch in this cycle, while the stages before theirs are done.
template <class Block, class Scheduler>
[[gnu::noinline]] void fetch_heads(const Block& b, const Scheduler& scheduler, std::uint64_t heads,
                                   const emu::LinkBlock& here, const BlockWorld& world) {
  for (; heads != 0; heads &= heads - 1) {
    const unsigned port = emu::first_of(heads);
    const unsigned in_lane = only_lane(here.flits, port);
    __builtin_prefetch(&b.in_messages[in_lane], 1);
    __builtin_prefetch(&world.messages[here.names[port]]);
    scheduler.fetch(in_lane);
  }
  for (const UnroutedHead& head : b.routing) {
    __builtin_prefetch(&world.messages[head.message]);
    world.routes.table.fetch(b.router[emu::port_of_lane(head.lane)], head.way);
  }
  for (const BlockLane in_lane : b.arbitrating) {
    __builtin_prefetch(&b.in_messages[in_lane], 1);
    __builtin_prefetch(&b.out_messages[b.bids.out_lane(in_lane)], 1);
  }
}

// `here`: of this block; `there`: a row.
template <emu::Isa kIsa, class RouterBlock>
void step_block(RouterBlock& block, emu::LinkBlock& here, emu::LinkBlock* there,
                const BlockWorld& world, emu::Cycle now) {
  auto& b = block.state;
  if (b.inside == 0 && emu::quiet<kIsa>(here.flits, here.credits, b.ports)) return;
  const std::uint64_t heads = emu::marked_bytes<kIsa>(here.named.data(), b.ports);
  if ((heads | b.routing.count | b.arbitrating.count) != 0)
    fetch_heads(b, block.scheduler, heads, here, world);
  emu::Moved moved;
  stage5_output<kIsa>(b, world, here.credits, moved, there);
  const std::uint64_t tails = stage4_cross<kIsa>(b, block.scheduler, world, moved, there, now);
  const emu::Crossed crossed =
      emu::account<kIsa>(b.out, b.in, here.flits, moved, world.buffer, b.ports);
  // What heads and tails do is mostly mispredicted: what does not ask comes first.
  stage1_take_in<kIsa>(b, block.scheduler, crossed.arrivals, heads, world, moved, here, now);
  if ((crossed.filled | tails) != 0) lanes_crossed(b, crossed.filled, tails, moved, world);
  if (b.arbitrating.count != 0) stage3_arbitrate(b, world);
  if (b.routing.count != 0) stage2_route(b, world, now);
  if (heads != 0) decode_heads(b, heads, world, moved, here);
}

}  // namespace fabric::blocks

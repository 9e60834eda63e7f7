// Stage 1: flits come off the links into the input lanes; heads name their message; each flit gets
// its stamp. In: the flits of this cycle's row. Out: in_messages, and `routing` for the next cycle.
#pragma once

#include <bit>

#include "emu/lane/stamp.h"
#include "fabric/router/b3_arbitrate.h"
#include "fabric/router/b5_output.h"
#include "fabric/router/block.h"

namespace fabric::blocks {

template <class Block, class Scheduler>
[[gnu::noinline]] void decode_heads(Block& b, Scheduler& scheduler, std::uint64_t heads,
                                    const BlockWorld& world, const emu::Moved& moved,
                                    emu::LinkBlock& here) {
  for (; heads != 0; heads &= heads - 1) {
    const unsigned port = emu::first_of(heads);
    const unsigned in_lane = only_lane(moved.arrived, port);
    const hca::MessageId id = here.names[port];
    scheduler.head(in_lane, world.messages[id].vtick);
    b.in_messages[in_lane].push(id, b.in_others[in_lane]);
    if (b.in_messages[in_lane].count == 1) bring_to_front(b, in_lane, world);
    here.named[port] = 0;
  }
}

// Bit p: at port p a flit arrives (`flits`), and it is a head (`heads`).
template <class Block, class Scheduler>
void stage1_decode(Block& b, Scheduler& scheduler, std::uint64_t flits, std::uint64_t heads,
                   const BlockWorld& world, const emu::Moved& moved, emu::LinkBlock& here,
                   emu::Cycle now) {
  const std::uint32_t stamp_now = emu::stamp_now(now);
  if (heads != 0) decode_heads(b, scheduler, heads, world, moved, here);
  b.inside += static_cast<unsigned>(std::popcount(flits));
  for (; flits != 0; flits &= flits - 1) {
    const unsigned port = emu::first_of(flits);
    scheduler.arrive(only_lane(moved.arrived, port), stamp_now);
  }
}

}  // namespace fabric::blocks

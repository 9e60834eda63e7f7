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
    b.in_messages.push(in_lane, id);
    if (b.in_messages.count(in_lane) == 1) bring_to_front(b, in_lane, world);
    here.named[port] = 0;
  }
}

// `flits`: bit p: a flit arrives at port p.
template <emu::Isa kIsa, class Block, class Scheduler>
void stage1_decode(Block& b, Scheduler& scheduler, std::uint64_t flits, const BlockWorld& world,
                   const emu::Moved& moved, emu::LinkBlock& here, emu::Cycle now) {
  const std::uint32_t stamp_now = emu::stamp_now(now);
  const std::uint64_t heads = emu::marked_bytes<kIsa>(here.named.data(), b.ports);
  if (heads != 0) decode_heads(b, scheduler, heads, world, moved, here);
  b.inside += static_cast<unsigned>(std::popcount(flits));
  for (; flits != 0; flits &= flits - 1) {
    const unsigned port = emu::first_of(flits);
    ++b.arrived[port];
    scheduler.arrive(only_lane(moved.arrived, port), stamp_now);
  }
}

}  // namespace fabric::blocks

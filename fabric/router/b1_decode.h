// Stage 1: flits come off the links into the input lanes; heads name their message; each flit gets
// its stamp. In: the flits of this cycle's row. Out: in_messages, and `routing` for the next cycle.
#pragma once

#include <bit>

#include "emu/lane/stamp.h"
#include "fabric/router/b3_arbitrate.h"
#include "fabric/router/b5_output.h"
#include "fabric/router/block.h"

namespace fabric::blocks {

template <class Block>
[[gnu::noinline]] void decode_heads(Block& b, std::uint64_t heads, const BlockWorld& world,
                                    const emu::Moved& moved, emu::LinkBlock& here) {
  for (; heads != 0; heads &= heads - 1) {
    const unsigned port = emu::first_of(heads);
    const unsigned in_lane = only_lane(moved.arrived, port);
    b.in_messages[in_lane].push(here.names[port], b.in_others[in_lane]);
    if (b.in_messages[in_lane].count == 1) bring_to_front(b, in_lane, world);
    here.named[port] = 0;
  }
}

// The heads among the flits that arrive bring their Vticks.
template <class Scheduler>
[[gnu::noinline]] void tell_of_heads(Scheduler& scheduler, std::uint64_t heads,
                                     const BlockWorld& world, const emu::Moved& moved,
                                     const emu::LinkBlock& here) {
  for (; heads != 0; heads &= heads - 1) {
    const unsigned port = emu::first_of(heads);
    scheduler.head(only_lane(moved.arrived, port), world.messages[here.names[port]].vtick);
  }
}

template <bool kHeadOfLine, emu::Isa kIsa, class Block, class Scheduler>
void stamp_arrivals(Block& b, Scheduler& scheduler, std::uint64_t flits, const emu::Moved& moved,
                    std::uint32_t stamp_now) {
  const emu::OnlyLanes<kIsa> lanes(moved.arrived, b.ports);
  for (; flits != 0; flits &= flits - 1)
    scheduler.template arrive<kHeadOfLine>(b.bids, lanes[emu::first_of(flits)], stamp_now);
}
// All of a cycle's arrivals but what heads have to say. Bit p: at port p a flit arrives (`flits`),
// and it is a head (`heads`).
template <emu::Isa kIsa, class Block, class Scheduler>
void stage1_take_in(Block& b, Scheduler& scheduler, std::uint64_t flits, std::uint64_t heads,
                    const BlockWorld& world, const emu::Moved& moved, const emu::LinkBlock& here,
                    emu::Cycle now) {
  b.inside += static_cast<unsigned>(std::popcount(flits));
  if constexpr (Scheduler::kStampsBids) {
    const std::uint32_t stamp_now = emu::stamp_now(now);
    if (scheduler.per_message() && heads != 0) tell_of_heads(scheduler, heads, world, moved, here);
    if (scheduler.head_of_line()) [[unlikely]]
      stamp_arrivals<true, kIsa>(b, scheduler, flits, moved, stamp_now);
    else
      stamp_arrivals<false, kIsa>(b, scheduler, flits, moved, stamp_now);
  }
}

}  // namespace fabric::blocks

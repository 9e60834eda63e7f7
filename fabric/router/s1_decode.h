// Stage 1: flits come off the links into the input lanes; heads name their message; each flit gets
// its stamp. In: the box of this cycle. Out: in_count, in_messages, and `routing` for the next
// cycle.
#pragma once

#include "emu/lane/stamp.h"
#include "fabric/router/state.h"

namespace fabric {

// The message is now first in its input lane and has to be routed.
inline void bring_to_front(RouterState& r, unsigned in_lane, const hca::MessageTable& messages) {
  r.left[in_lane] = messages[r.in_messages[in_lane].front()].flits;
  r.routing[port_of_lane(in_lane)] |= vl_bit(in_lane);
}

template <class Scheduler>
void decode_heads(RouterState& r, Scheduler& scheduler, emu::Box& box,
                  const hca::MessageTable& messages) {
  for (unsigned bits = box.heads; bits != 0; bits &= bits - 1) {
    const unsigned port = emu::first_bit(bits);
    const unsigned vl = emu::first_bit(box.flits[port]);
    const unsigned in_lane = lane_slot(port, vl);
    const hca::MessageId id = box.head[port];
    scheduler.head(port, vl, messages[id].vtick);
    r.in_messages[in_lane].push(id);
    if (r.in_messages[in_lane].count == 1) bring_to_front(r, in_lane, messages);
  }
  box.heads = 0;
}

template <class Scheduler>
void stage1_decode(RouterState& r, Scheduler& scheduler, emu::Box& box, emu::Cycle now,
                   const hca::MessageTable& messages) {
  if (box.heads != 0) decode_heads(r, scheduler, box, messages);
  const unsigned ports = emu::ports_of(box.flits);
  r.in_count.add_one(box.flits);
  const auto flits = static_cast<unsigned>(std::popcount(ports));
  r.arrived += flits;
  r.inside += flits;
  if constexpr (Scheduler::kStampsArrivals) {
    const std::uint32_t stamp_now = emu::stamp_now(now);
    emu::each_port(ports, [&](unsigned port) {
      scheduler.arrive(port, emu::lane_or_dummy(box.flits[port]), stamp_now);
    });
  }
}

}  // namespace fabric

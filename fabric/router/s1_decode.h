// Stage 1: flits come off the links into the input lanes; heads name their message; each flit gets
// its stamp. In: the box of this cycle, and the lanes from which a flit has `gone` to stage 4. Out:
// in_count, in_messages, and `routing` for the next cycle.
#pragma once

#include "emu/lane/stamp.h"
#include "fabric/router/state.h"

namespace fabric {

// The message is now first in its input lane and has to be routed.
template <class State>
void bring_to_front(State& r, unsigned in_lane, const hca::MessageTable& messages) {
  r.left.set(in_lane, messages[r.in_messages.front(in_lane)].flits);
  r.routing[port_of_slot(in_lane)] |= vl_bit(in_lane);
}

template <class State, class Scheduler>
void decode_heads(State& r, Scheduler& scheduler, emu::Box& box,
                  const hca::MessageTable& messages) {
  for (unsigned bits = box.heads; bits != 0; bits &= bits - 1) {
    const unsigned port = emu::first_bit(bits);
    const unsigned vl = emu::first_bit(box.flits[port]);
    const unsigned in_lane = lane_slot(port, vl);
    const hca::MessageId id = box.head[port];
    scheduler.head(port, vl, messages[id].vtick);
    r.in_messages.push(in_lane, id);
    if (r.in_messages.count[in_lane] == 1) bring_to_front(r, in_lane, messages);
  }
  box.heads = 0;
}

// False when no flit is in the router's buffers.
template <class State, class Scheduler>
bool stage1_decode(State& r, Scheduler& scheduler, emu::Box& box, emu::Lanes8 gone, emu::Cycle now,
                   const hca::MessageTable& messages) {
  const emu::Lanes8 flits = box.flits;
  const emu::Lanes8 occupied = r.in_count.nonzero() & ~(gone & r.in_count.is_one());
  r.in_count.change(flits, gone);
  if (emu::any(flits)) {
    if (box.heads != 0) decode_heads(r, scheduler, box, messages);
    r.arrived += static_cast<unsigned>(std::popcount(emu::ports_of(flits)));
    scheduler.arrive(r.bids, flits, emu::stamp_now(now));
  }
  scheduler.come_first(r.bids, (flits & ~occupied) | (gone & occupied), emu::stamp_now(now));
  return emu::any(flits | occupied | r.out_count.nonzero());
}

}  // namespace fabric

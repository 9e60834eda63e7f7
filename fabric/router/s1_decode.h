// Stage 1: flits come off the links into the input lanes; heads name their message; each flit gets
// its stamp. In: the box of this cycle, and the lanes from which a flit has `gone` to stage 4. Out:
// in_count, in_messages, and `routing` for the next cycle.
#pragma once

#include "emu/lane/stamp.h"
#include "fabric/router/ask_admission.h"
#include "fabric/router/state.h"

namespace fabric {

// The message is now first in its input lane and has to be routed. Where there is no choice and
// nobody to ask, that needs no work in stage 2, only its cycle.
template <class State>
void bring_to_front(State& r, unsigned in_lane, const Surroundings& world) {
  const hca::Message& message = world.messages[r.in_messages.front(in_lane)];
  r.left.set(in_lane, message.flits);
  if (!world.fixed_ways || asks_admission(world.hook, message)) {
    r.routing[port_of_slot(in_lane)] |= vl_bit(in_lane);
    return;
  }
  r.target[in_lane] =
      static_cast<LaneIndex>(r.ways.out_lane(r.ways.to(message.way).front(), message));
  r.routed[port_of_slot(in_lane)] |= vl_bit(in_lane);
}

template <class State>
void decode_heads(State& r, emu::Box& box, const Surroundings& world) {
  for (unsigned bits = emu::ports_named(box); bits != 0; bits &= bits - 1) {
    const unsigned port = emu::first_bit(bits);
    const unsigned vl = emu::first_bit(box.flits[port]);
    const unsigned in_lane = lane_slot(port, vl);
    const hca::MessageId id = emu::named_at(box, port);
    r.in_messages.push(in_lane, id);
    if (r.in_messages.count[in_lane] == 1) bring_to_front(r, in_lane, world);
  }
  emu::clear_names(box);
}

// The heads among the flits of a box bring their Vticks.
template <class Scheduler>
void tell_of_heads(Scheduler& scheduler, const emu::Box& box, const hca::MessageTable& messages) {
  for (unsigned bits = emu::ports_named(box); bits != 0; bits &= bits - 1) {
    const unsigned port = emu::first_bit(bits);
    scheduler.head(port, emu::first_bit(box.flits[port]), messages[emu::named_at(box, port)].vtick);
  }
}

// All of a cycle's arrivals but their heads. False when no flit is in the router's buffers.
template <emu::Isa kIsa, class State, class Scheduler>
bool stage1_take_in(State& r, Scheduler& scheduler, const emu::Box& box, emu::Lanes8 gone,
                    emu::Cycle now, const Surroundings& world) {
  const emu::Lanes8 flits = box.flits;
  const emu::Lanes8 occupied = r.in_occupied & ~(gone & r.in_count.is_one());
  r.in_count.change(flits, gone);
  r.in_occupied = occupied | flits;
  if (emu::any(flits)) {
    if (scheduler.per_message() && emu::has_names(box))
      tell_of_heads(scheduler, box, world.messages);
    r.arrived += static_cast<unsigned>(std::popcount(emu::ports_of(flits)));
    scheduler.template arrive<kIsa>(r.bids, flits, flits & ~occupied, emu::stamp_now(now));
  }
  scheduler.come_first(r.bids, (flits & ~occupied) | (gone & occupied), emu::stamp_now(now));
  return emu::any(r.in_occupied | r.out_occupied);
}

}  // namespace fabric

// Stage 1: flits come off the links into the input lanes; heads name their message; each flit gets
// its stamp. In: the box of this cycle, and the lanes from which a flit has `gone` to stage 4. Out:
// in_count and in_messages; the head at the front of a lane goes on to stage 3 (s3_arbitrate.h).
#pragma once

#include "emu/lane/stamp.h"
#include "fabric/router/s3_arbitrate.h"
#include "fabric/router/state.h"

namespace fabric {

// The head of a message that comes in `arrival`, while the next stage 2 is that of `next`.
template <class State>
void head_comes(State& r, unsigned in_lane, hca::MessageId id, emu::Cycle arrival, emu::Cycle next,
                const Surroundings& world) {
  r.in_messages.push(in_lane, id);
  if (r.in_messages.count[in_lane] == 1) bring_to_front(r, in_lane, arrival, next, world);
}

template <class State>
void decode_heads(State& r, const emu::Box& box, emu::Cycle now, const Surroundings& world) {
  for (unsigned bits = emu::ports_named(box); bits != 0; bits &= bits - 1) {
    const unsigned port = emu::first_bit(bits);
    const unsigned in_lane = lane_slot(port, emu::first_bit(box.flits[port]));
    head_comes(r, in_lane, emu::named_at(box, port), now, now + 1, world);
  }
}

// The heads among the flits of a box bring their Vticks.
template <class Scheduler>
void tell_of_heads(Scheduler& scheduler, const emu::Box& box, const hca::MessageTable& messages) {
  for (unsigned bits = emu::ports_named(box); bits != 0; bits &= bits - 1) {
    const unsigned port = emu::first_bit(bits);
    scheduler.head(port, emu::first_bit(box.flits[port]), messages[emu::named_at(box, port)].vtick);
  }
}

// The flits of a cycle get their stamps: called within stage 4, when it has read the bids, but
// before any flit has left, so that it is worked on while the allocator is. What comes to a lane
// whose only flit leaves is next there, as if it had come before.
template <emu::Isa kIsa, class State, class Scheduler>
void stage1_stamp(State& r, Scheduler& scheduler, const emu::Box& box, emu::Cycle now,
                  const Surroundings& world) {
  const emu::Lanes8 flits = box.flits;
  if (!emu::any(flits)) return;
  if (scheduler.per_message() && emu::has_names(box)) tell_of_heads(scheduler, box, world.messages);
  scheduler.template arrive<kIsa>(r.bids, flits, flits & ~r.in_occupied, emu::stamp_now(now));
}
// The rest of a cycle's arrivals but what heads have to say. False when no flit is in the router's
// buffers.
template <emu::Isa kIsa, class State, class Scheduler>
bool stage1_take_in(State& r, Scheduler& scheduler, const emu::Box& box, emu::Lanes8 gone,
                    emu::Cycle now) {
  const emu::Lanes8 flits = box.flits;
  const emu::Lanes8 occupied = r.in_occupied & ~(gone & r.in_count.is_one());
  r.in_count.change(flits, gone);
  r.in_occupied = occupied | flits;
  r.arrived += static_cast<unsigned>(std::popcount(emu::ports_of(flits)));
  scheduler.come_first(r.bids, (flits & ~occupied) | (gone & occupied), emu::stamp_now(now));
  return emu::any(r.in_occupied | r.out_occupied);
}

}  // namespace fabric

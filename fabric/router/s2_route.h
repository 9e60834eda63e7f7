// Stage 2: the head at the front of an input lane learns its output lane (choose.h); probes and
// releases ask admission. In: `routing`. Out: `target`, and `arbitrating` for the next cycle.
#pragma once

#include "fabric/router/ask_admission.h"
#include "fabric/router/state.h"

namespace fabric {

// Those that have come by now.
template <class State>
void later_heads_come(State& r, emu::Cycle now) {
  unsigned kept = 0;
  for (unsigned i = 0; i < r.later.count; ++i) {
    const LaterHeads::Entry entry = r.later.entry[i];
    if (entry.cycle == now) {
      r.routing[port_of_slot(entry.in_lane)] |= vl_bit(entry.in_lane);
    } else {
      r.later.entry[kept++] = entry;
    }
  }
  r.later.count = kept;
}

template <class State>
void stage2_route(State& r, const Surroundings& world, emu::Cycle now) {
  emu::Lanes8 claimed = emu::kNoLanes8;
  for (unsigned ports = emu::ports_of(r.routing); ports != 0; ports &= ports - 1) {
    const unsigned port = emu::first_bit(ports);
    for (unsigned lanes = r.routing[port]; lanes != 0; lanes &= lanes - 1) {
      const unsigned in_lane = lane_slot(port, emu::first_bit(lanes));
      hca::Message& message = world.messages[r.in_messages.front(in_lane)];
      const unsigned out_lane = choose_output(r, message, claimed);
      const unsigned out_port = port_of_slot(out_lane);
      r.target[in_lane] = static_cast<LaneIndex>(out_lane);
      if (asks_admission(world.hook, message))
        ask_admission(*world.hook, message,
                      {r.id, port, out_port, now, &r.ways.lanes_to(message.way)});
    }
  }
  r.arbitrating |= r.routing;
  r.routing = emu::kNoLanes8;
}

}  // namespace fabric

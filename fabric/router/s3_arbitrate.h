// Stage 3: a head takes its output lane, which its message holds until the tail has crossed; others
// wait in line, first come first served. In: `arbitrating`, and tails that crossed in this cycle.
// Out: owner, `active`, `ready`, and the message's place in the output lane.
#pragma once

#include "fabric/router/s1_decode.h"
#include "fabric/router/state.h"

namespace fabric {

template <class State>
void take_output_lane(State& r, unsigned in_lane, const hca::MessageTable& messages) {
  const unsigned out_lane = r.target[in_lane];
  const unsigned in_port = port_of_slot(in_lane);
  const unsigned out_port = port_of_slot(out_lane);
  const std::uint16_t in_bit = vl_bit(in_lane);
  const std::uint16_t out_bit = vl_bit(out_lane);
  r.owner[out_lane] = static_cast<LaneIndex>(in_lane);
  r.bids.set_way(in_lane, out_lane);
  r.active[in_port] |= in_bit;
  r.from[out_port][in_port] |= in_bit;
  if ((r.out_full[out_port] & out_bit) == 0) r.ready[in_port] |= in_bit;
  // The whole of the lane's earlier messages has crossed.
  const hca::MessageId id = r.in_messages.front(in_lane);
  r.out_messages.push(out_lane, id);
  if (r.out_messages.count[out_lane] == 1) r.leaving.set(out_lane, messages[id].flits);
  ++r.heads;
}

// The tail of the front message of `in_lane` has crossed: its output lane goes to the first in
// line, the next message of the input lane comes to the front.
template <class State>
void release_output_lane(State& r, unsigned in_lane, const Surroundings& world) {
  const hca::MessageTable& messages = world.messages;
  const unsigned out_lane = r.target[in_lane];
  const unsigned in_port = port_of_slot(in_lane);
  const auto others = static_cast<std::uint16_t>(~vl_bit(in_lane));
  const std::uint16_t flits = messages[r.in_messages.front(in_lane)].flits;
  r.traffic_in[in_lane].flits += flits;
  ++r.traffic_in[in_lane].packets;
  r.traffic_out[out_lane].flits += flits;
  ++r.traffic_out[out_lane].packets;
  r.active[in_port] &= others;
  r.ready[in_port] &= others;
  r.from[port_of_slot(out_lane)][in_port] &= others;
  r.owner[out_lane] = kNoLane;
  r.in_messages.pop(in_lane);
  if (r.in_messages.count[in_lane] != 0) bring_to_front(r, in_lane, world);
  const LaneIndex waiter = r.wait_first[out_lane];
  if (waiter == kNoLane) return;
  r.wait_first[out_lane] = r.wait_next[waiter];
  take_output_lane(r, waiter, messages);
}

template <class State>
void stage3_arbitrate(State& r, const hca::MessageTable& messages) {
  for (unsigned ports = emu::ports_of(r.arbitrating); ports != 0; ports &= ports - 1) {
    const unsigned port = emu::first_bit(ports);
    for (unsigned lanes = r.arbitrating[port]; lanes != 0; lanes &= lanes - 1) {
      const unsigned in_lane = lane_slot(port, emu::first_bit(lanes));
      const unsigned out_lane = r.target[in_lane];
      if (r.owner[out_lane] == kNoLane) {
        take_output_lane(r, in_lane, messages);
        continue;
      }
      const auto me = static_cast<LaneIndex>(in_lane);
      r.wait_next[in_lane] = kNoLane;
      if (r.wait_first[out_lane] == kNoLane) {
        r.wait_first[out_lane] = me;
      } else {
        r.wait_next[r.wait_last[out_lane]] = me;
      }
      r.wait_last[out_lane] = me;
    }
  }
}

}  // namespace fabric

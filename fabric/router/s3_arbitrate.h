// Stage 3: a head takes its output lane, which its message holds until the tail has crossed; others
// wait in line, first come first served, of the same cycle the lower input port, then lane, first.
// Where a head has nothing to ask in stage 2 all that is done as soon as it is known to be next in
// its input lane: it joins the line with the cycle in which it is due, and may be overtaken by
// others that are due before it. So heads are looked at once, not stage by stage. In:
// `arbitrating`, and tails that crossed in this cycle. Out: owner, `soon`, `active`, `ready`, and
// the message's place in the output lane.
// Words of lanes are changed as whole vectors: the next cycle loads them so, and a wide load waits
// long for a narrow store just before.
#pragma once

#include <algorithm>

#include "fabric/router/ask_admission.h"
#include "fabric/router/state.h"

namespace fabric {

template <class State>
bool goes_before(const State& r, unsigned a, unsigned b) {
  if (r.due[a] != r.due[b]) return r.due[a] < r.due[b];
  if (port_of_slot(a) != port_of_slot(b)) return port_of_slot(a) < port_of_slot(b);
  return a < b;
}

template <class State>
void take_output_lane(State& r, unsigned in_lane, emu::Cycle now, const Surroundings& world) {
  const unsigned out_lane = r.target[in_lane];
  const unsigned out_port = port_of_slot(out_lane);
  const emu::Lanes8 lane = emu::kOneLane.of[in_lane];
  r.owner[out_lane] = static_cast<LaneIndex>(in_lane);
  r.bids.set_way(in_lane, out_lane);
  const emu::Cycle due = r.due[in_lane];
  (due < now ? r.active : r.soon[due % kSoon]) |= lane;
  r.from[out_port] |= lane;
  if ((r.out_full[out_port] & vl_bit(out_lane)) == 0) r.ready |= lane;
  ++r.heads;
  if (world.tails != nullptr) return;
  // The whole of the lane's earlier messages has crossed.
  const hca::MessageId id = r.in_messages.front(in_lane);
  r.out_messages.push(out_lane, id);
  if (r.out_messages.count[out_lane] == 1) r.leaving.set(out_lane, world.messages[id].flits);
}

// What take_output_lane() did for a head that is not due yet.
template <class State>
void give_back_output_lane(State& r, unsigned in_lane, const Surroundings& world) {
  const unsigned out_lane = r.target[in_lane];
  const emu::Lanes8 lane = emu::kOneLane.of[in_lane];
  r.owner[out_lane] = kNoLane;
  r.soon[r.due[in_lane] % kSoon] &= ~lane;
  r.from[port_of_slot(out_lane)] &= ~lane;
  r.ready &= ~lane;
  --r.heads;
  if (world.tails == nullptr) r.out_messages.take_back(out_lane);
}

template <class State>
void wait_in_line(State& r, unsigned in_lane) {
  const unsigned out_lane = r.target[in_lane];
  const auto me = static_cast<LaneIndex>(in_lane);
  LaneIndex* link = &r.wait_first[out_lane];
  if (*link != kNoLane && goes_before(r, r.wait_last[out_lane], me))
    link = &r.wait_next[r.wait_last[out_lane]];
  while (*link != kNoLane && goes_before(r, *link, me)) link = &r.wait_next[*link];
  r.wait_next[me] = *link;
  *link = me;
  if (r.wait_next[me] == kNoLane) r.wait_last[out_lane] = me;
}

// The head at the front of `in_lane`, whose `target` is known, is due in cycle `due`.
template <class State>
void join_line(State& r, unsigned in_lane, emu::Cycle due, emu::Cycle now,
               const Surroundings& world) {
  r.due[in_lane] = due;
  const LaneIndex owner = r.owner[r.target[in_lane]];
  if (owner == kNoLane) return take_output_lane(r, in_lane, now, world);
  if (!goes_before(r, in_lane, owner)) [[likely]]
    return wait_in_line(r, in_lane);
  give_back_output_lane(r, owner, world);
  take_output_lane(r, in_lane, now, world);
  wait_in_line(r, owner);
}

// The message that is now first in its input lane comes, or came, in `arrival`; the next stage 2 is
// that of `next`.
template <class State>
void bring_to_front(State& r, unsigned in_lane, emu::Cycle arrival, emu::Cycle next,
                    const Surroundings& world) {
  const hca::Message& message = world.messages[r.in_messages.front(in_lane)];
  const emu::Cycle stage2 = std::max(arrival + 1, next);
  r.left.set(in_lane, message.flits);
  if (world.fixed_ways && !asks_admission(world.hook, message)) [[likely]] {
    r.target[in_lane] =
        static_cast<LaneIndex>(r.ways.out_lane(r.ways.to(message.way).front(), message));
    join_line(r, in_lane, stage2 + 1, next, world);
  } else if (stage2 == next) {
    r.routing[port_of_slot(in_lane)] |= vl_bit(in_lane);
  } else {
    r.later.entry[r.later.count++] = {stage2, static_cast<LaneIndex>(in_lane)};
  }
}

// The tail of the front message of `in_lane` has crossed: its output lane goes to the first in
// line, the next message of the input lane comes to the front.
template <class State>
void release_output_lane(State& r, unsigned in_lane, emu::Cycle now, const Surroundings& world) {
  const hca::MessageTable& messages = world.messages;
  const unsigned out_lane = as_word(r.target[in_lane]);
  const emu::Lanes8 lane = emu::kOneLane.of[in_lane];
  const hca::MessageId id = r.in_messages.front(in_lane);
  const std::uint16_t flits = messages[id].flits;
  if (world.tails != nullptr) {
    const unsigned held = r.out_count.get(port_of_slot(out_lane), vl_of_slot(out_lane));
    world.tails->crossed(now, id, out_lane, held, hca::turns_round(messages[id]));
  }
  r.traffic_in[in_lane].flits += flits;
  ++r.traffic_in[in_lane].packets;
  r.traffic_out[out_lane].flits += flits;
  ++r.traffic_out[out_lane].packets;
  r.active &= ~lane;
  r.ready &= ~lane;
  r.from[port_of_slot(out_lane)] &= ~lane;
  r.owner[out_lane] = kNoLane;
  r.in_messages.pop(in_lane);
  const LaneIndex waiter = r.wait_first[out_lane];
  if (waiter != kNoLane) {
    r.wait_first[out_lane] = r.wait_next[waiter];
    take_output_lane(r, waiter, now, world);
  }
  if (r.in_messages.count[in_lane] == 0) return;
  const emu::Cycle left = messages[r.in_messages.front(in_lane)].head_cycle;
  bring_to_front(r, in_lane, left + world.head_delay, now, world);
}

template <class State>
void stage3_arbitrate(State& r, emu::Cycle now, const Surroundings& world) {
  for (unsigned ports = emu::ports_of(r.arbitrating); ports != 0; ports &= ports - 1) {
    const unsigned port = emu::first_bit(ports);
    for (unsigned lanes = r.arbitrating[port]; lanes != 0; lanes &= lanes - 1)
      join_line(r, lane_slot(port, emu::first_bit(lanes)), now, now, world);
  }
  r.arbitrating = emu::kNoLanes8;
}

// Who was due in this cycle may cross from the next one on.
template <class State>
void become_active(State& r, emu::Cycle now) {
  r.active |= r.soon[now % kSoon];
  r.soon[now % kSoon] = emu::kNoLanes8;
}

}  // namespace fabric

// What an HCA of the general engine does in every cycle.
#pragma once

#include "fabric/router/general_cycle.h"
#include "fabric/router/general_hca.h"

namespace fabric::general {

// Behind every change of what a lane sends next, and of its credits.
template <class Design>
void Hca::show_next(const World& world, unsigned l) {
  const Lane& lane = lanes_[l];
  const DesignRules<Design> design(world);
  const bool waits = (waiting_ & lane_bit(l)) != 0;
  const unsigned room =
      waits && design.cut_through() ? design.room_for(world, next_flit<Design>(world, l)) : 1U;
  const unsigned queue = World::queue_of(l, lane.level);
  const QueueBits others = ready_ & ~queue_bit(queue);
  ready_ = others | QueueBits{waits && lane.credits[lane.level] >= room} << queue;
}

template <class Design>
void Hca::take_credits(const World& world, const Inbox& box) {
  const DesignRules<Design> design(world);
  for (QueueBits bits = box.credits; bits != 0; bits &= bits - 1) {
    const unsigned l = design.lane_of(first_of(bits));
    if (++lanes_[l].credits[design.level_of(first_of(bits))] == 1 || design.cut_through())
      show_next<Design>(world, l);
  }
}

// Which flit of its message comes next. A probe goes before the first, and the data of a circuit
// have neither heads nor tails for routers but for the tail that closes it.
template <class Design>
Flit Hca::next_flit(const World& world, unsigned l) const {
  const Lane& lane = lanes_[l];
  Flit flit = {lane.current, 0, lane.level, 0};
  const bool tail = lane.sent + 1 == lane.flits;
  unsigned marks = 0;
  if (!Design(world).circuits()) {
    if (lane.sent == 0) marks |= Flit::head;
    if (tail) marks |= Flit::tail | Flit::last;
  } else if ((probing_ & lane_bit(l)) != 0) {
    marks = Flit::probe | Flit::head;
  } else if (tail) {
    marks = Flit::last;
    if (closes(world.messages[lane.current], streams_[lane_stream_[l]])) marks |= Flit::tail;
  }
  flit.marks = static_cast<std::uint8_t>(marks);
  return flit;
}

template <class Design>
void Hca::send(World& world, hca::Events& events, emu::Cycle now) {
  const DesignRules<Design> design(world);
  if (world.links.ports_with(unit_) != 0) take_credits<Design>(world, world.links.inbox(unit_, 0));
  if (design.circuits()) {
    take_signals(world, events, now);
    begin_probes(world, events, now);
  }
  if (waiting_ == 0) return;
  const Able lanes = design.able_of(world, ready_);
  const LaneBits open = arbiter_.let_go(lanes, now);
  if (open == 0) {
    ++wait_cycles_;
    return;
  }
  const auto stamp = [&](unsigned lane) { return clock_.urgency(next_.of(lane), now); };
  const auto least = [&](LaneBits some) -> Chosen {
    if (!design.has_words(next_)) return least_by_loop(some, stamp);
    const unsigned lane = next_.least<1>(some);
    return {lane, next_.of(lane)};
  };
  const Chosen chosen = arbiter_.choose(lanes.among(open), stamp, least);
  Lane& lane = lanes_[chosen.lane];
  const Flit flit = next_flit<Design>(world, chosen.lane);
  arbiter_.granted(chosen, flit.ends_block(), now);
  --lane.credits[flit.level];
  world.links.send(unit_, 0, chosen.lane, flit);
  if (flit.is(Flit::probe)) return probe_left(world, events, chosen.lane, now);
  ++lane.sent;
  if (flit.is(Flit::head)) world.messages.depart(lane.current, now);
  if (flit.is(Flit::last)) {
    tail_left(world, events, chosen.lane, now);
  } else {
    show_next<Design>(world, chosen.lane);
    stamp_next(world, chosen.lane, now);
  }
}

inline void Hca::receive(World& world, hca::Events& events, emu::Cycle now) {
  if (world.links.ports_with(unit_) == 0) return;
  Inbox& box = world.links.inbox(unit_, 0);
  if (box.has_flit) {
    world.links.credit(unit_, 0, World::queue_of(box.lane, box.flit.level));
    if (box.flit.is(Flit::probe)) {
      ++received_[box.lane].flits;
      world.signal_back(unit_, 0, box.lane, true, now);
    }
    if (box.flit.is(Flit::last)) tail_arrived(world, events, box.flit.message, box.lane, now);
  }
  Links::clear_box(box);
  world.links.clear_ports(unit_);
}

}  // namespace fabric::general

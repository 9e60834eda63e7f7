#include "fabric/router/general_hca.h"

#include <utility>

#include "fabric/router/general_cycle.h"

namespace fabric::general {

void Hca::configure(unsigned node, unsigned unit, const World& world) {
  node_ = node;
  unit_ = unit;
  for (unsigned v = 0; v < world.lanes; ++v)
    for (unsigned level = 0; level < world.levels; ++level)
      lanes_[v].credits[level] = static_cast<std::uint16_t>(world.spec.vc_buf_size);
  configure_schedulers(clock_, arbiter_, world, world.hca_rules, 1);
  if (world.circuits()) streams_.resize(emu::kVlCount + hca::kStreamsMax);
}

void Hca::ready(World& world, hca::MessageId id, emu::Cycle now) {
  hca::Message& message = world.messages[id];
  message.next = hca::kNoMessage;
  if (world.circuits()) return ready_for_circuit(world, id, now);
  Lane& lane = lanes_[message.vl_in];
  Queue& queue = lane.queue[world.level_of(message)];
  ++backlog_;
  (queue.first == hca::kNoMessage ? queue.first : world.messages[queue.last].next) = id;
  queue.last = id;
  if (lane.current == hca::kNoMessage) bring_to_front(world, message.vl_in, now);
}

void Hca::bring_to_front(World& world, unsigned l, emu::Cycle now) {
  Lane& lane = lanes_[l];
  unsigned level = world.levels;
  while (level > 0 && lane.queue[level - 1].first == hca::kNoMessage) --level;
  if (level == 0) return;
  Queue& queue = lane.queue[level - 1];
  lane.current = queue.first;
  queue.first = world.messages[lane.current].next;
  lane.sent = 0;
  waiting_ |= lane_bit(l);
  clock_.head(l, world.messages[lane.current].vtick, now);
  lane.stamp = stamp_next(world, l, now);
}

// All flits of a message arrive when it becomes ready; where stamps belong to the head of the line
// a flit arrives when it gets there.
Stamp Hca::stamp_next(World& world, unsigned lane, emu::Cycle now) {
  const emu::Cycle arrival =
      world.hca_rules.head_of_line() ? now : world.messages[lanes_[lane].current].launch;
  return clock_.stamp(lane, arrival, now);
}

Able Hca::able(const World& world) const {
  Able lanes;
  for (LaneBits bits = waiting_; bits != 0; bits &= bits - 1) {
    const unsigned l = first_of(bits);
    const unsigned level = world.level_of(world.messages[lanes_[l].current]);
    if (lanes_[l].credits[level] == 0) continue;
    if (world.cut_through() &&
        lanes_[l].credits[level] < world.room_for(next_flit(world, lanes_[l], l)))
      continue;
    world.add(lanes, l, level);
  }
  return lanes;
}

// Which flit of its message comes next. A probe goes before the first, and the data of a circuit
// have neither heads nor tails for routers but for the tail that closes it.
Flit Hca::next_flit(const World& world, const Lane& lane, unsigned l) const {
  const hca::Message& message = world.messages[lane.current];
  Flit flit = {lane.current, 0, static_cast<std::uint8_t>(world.level_of(message)), 0};
  const bool tail = lane.sent + 1 == message.flits;
  unsigned marks = 0;
  if (!world.circuits()) {
    if (lane.sent == 0) marks |= Flit::head;
    if (tail) marks |= Flit::tail | Flit::last;
  } else if ((probing_ & lane_bit(l)) != 0) {
    marks = Flit::probe | Flit::head;
  } else if (tail) {
    marks = Flit::last;
    if (closes(message, streams_[lane_stream_[l]])) marks |= Flit::tail;
  }
  flit.marks = static_cast<std::uint8_t>(marks);
  return flit;
}

void Hca::send(World& world, hca::Events& events, emu::Cycle now) {
  if (world.links.ports_with(unit_, now) != 0) {
    const Inbox& box = world.links.inbox(unit_, 0, now);
    for (unsigned level = 0; level < world.levels; ++level)
      for (LaneBits bits = box.credits[level]; bits != 0; bits &= bits - 1)
        ++lanes_[first_of(bits)].credits[level];
  }
  if (world.circuits()) {
    take_signals(world, events, now);
    begin_probes(world, events, now);
  }
  if (waiting_ == 0) return;
  const Able lanes = able(world);
  const LaneBits open = arbiter_.let_go(lanes, now);
  if (open == 0) {
    ++wait_cycles_;
    return;
  }
  const auto stamp = [&](unsigned lane) { return clock_.urgency(lanes_[lane].stamp, now); };
  const Chosen chosen = arbiter_.choose(lanes.among(open), stamp);
  Lane& lane = lanes_[chosen.lane];
  const Flit flit = next_flit(world, lane, chosen.lane);
  arbiter_.granted(chosen, flit.is(Flit::tail), now);
  --lane.credits[flit.level];
  world.links.send(unit_, 0, chosen.lane, flit, now);
  if (flit.is(Flit::probe)) return probe_left(world, events, chosen.lane, now);
  ++lane.sent;
  if (flit.is(Flit::head)) world.messages.depart(lane.current, now);
  if (flit.is(Flit::last)) {
    tail_left(world, events, chosen.lane, now);
  } else {
    lane.stamp = stamp_next(world, chosen.lane, now);
  }
}

void Hca::tail_left(World& world, hca::Events& events, unsigned l, emu::Cycle now) {
  Lane& lane = lanes_[l];
  const hca::Message& message = world.messages[lane.current];
  --backlog_;
  sent_[l].flits += message.flits;
  ++sent_[l].packets;
  events.tail_left(message, now);
  const bool closed = world.circuits() && closes(message, streams_[lane_stream_[l]]);
  lane.current = hca::kNoMessage;
  waiting_ &= ~lane_bit(l);
  if (closed) {
    circuit_closed(l, now);
  } else if (world.circuits()) {
    begin_message(world, events, l, now);
  } else {
    bring_to_front(world, l, now);
  }
}

void Hca::receive(World& world, hca::Events& events, emu::Cycle now) {
  if (world.links.ports_with(unit_, now) == 0) return;
  const Inbox& box = world.links.inbox(unit_, 0, now);
  if (box.has_flit) {
    world.links.credit(unit_, 0, box.lane, box.flit.level, now);
    if (box.flit.is(Flit::probe)) world.signal_back(unit_, 0, box.lane, true, now);
    if (box.flit.is(Flit::last)) tail_arrived(world, events, box.flit.message, box.lane, now);
  }
  world.links.clear(unit_, now);
}

void Hca::tail_arrived(World& world, hca::Events& events, hca::MessageId id, unsigned lane,
                       emu::Cycle now) {
  hca::Message& message = world.messages[id];
  CHECK(message.dest == node_);
  world.token.delivered(id, world.links.far(unit_, 0).unit, now);
  received_[lane].flits += message.flits;
  ++received_[lane].packets;
  if (events.tail_arrived(id, message, now)) return;
  hca::turn_round(message, world.spec.answer_flits, now);
  message.stream = 0;
  ready(world, id, now);
}

void Hca::age(emu::Cycle now) {
  clock_.age(now);
  for (LaneBits bits = waiting_; bits != 0; bits &= bits - 1)
    lanes_[first_of(bits)].stamp = clock_.aged(lanes_[first_of(bits)].stamp);
}

PortCounters Hca::counters() const {
  PortCounters counters;
  for (std::size_t v = 0; v < kLanesMax; ++v) {
    add(counters.sent[v % emu::kVlCount], sent_[v]);
    add(counters.received[v % emu::kVlCount], received_[v]);
  }
  counters.wait_cycles = wait_cycles_;
  return counters;
}

}  // namespace fabric::general

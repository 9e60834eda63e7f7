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
  const hca::MessageId first = queue.first;
  queue.first = world.messages[first].next;
  clock_.head(l, world.messages[first].vtick, now);
  begin(world, l, first);
  stamp_next(world, l, now);
}

// The first flit of the message is what the lane sends next.
void Hca::begin(World& world, unsigned l, hca::MessageId id) {
  const hca::Message& message = world.messages[id];
  Lane& lane = lanes_[l];
  lane.current = id;
  lane.flits = message.flits;
  lane.sent = 0;
  lane.level = static_cast<std::uint8_t>(world.level_of(message));
  lane.launch = message.launch;
  waiting_ |= lane_bit(l);
  show_next(world, l);
}

// Behind every change of what a lane sends next, and of its credits.
void Hca::show_next(const World& world, unsigned l) {
  const Lane& lane = lanes_[l];
  const bool waits = (waiting_ & lane_bit(l)) != 0;
  const unsigned room = waits && world.cut_through() ? world.room_for(next_flit(world, l)) : 1U;
  const unsigned queue = World::queue_of(l, lane.level);
  const QueueBits others = ready_ & ~queue_bit(queue);
  ready_ = others | QueueBits{waits && lane.credits[lane.level] >= room} << queue;
}

// All flits of a message arrive when it becomes ready; where stamps belong to the head of the line
// a flit arrives when it gets there.
void Hca::stamp_next(const World& world, unsigned l, emu::Cycle now) {
  const emu::Cycle arrival = world.hca_rules.head_of_line() ? now : lanes_[l].launch;
  next_stamp_[l] = clock_.stamp(l, arrival, now);
}

void Hca::take_credits(const World& world, const Inbox& box) {
  for (unsigned level = 0; level < world.levels; ++level) {
    for (LaneBits bits = box.credits[level]; bits != 0; bits &= bits - 1) {
      Lane& lane = lanes_[first_of(bits)];
      if (++lane.credits[level] == 1 || world.cut_through()) show_next(world, first_of(bits));
    }
  }
}

// Which flit of its message comes next. A probe goes before the first, and the data of a circuit
// have neither heads nor tails for routers but for the tail that closes it.
Flit Hca::next_flit(const World& world, unsigned l) const {
  const Lane& lane = lanes_[l];
  Flit flit = {lane.current, 0, lane.level, 0};
  const bool tail = lane.sent + 1 == lane.flits;
  unsigned marks = 0;
  if (!world.circuits()) {
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

void Hca::send(World& world, hca::Events& events, emu::Cycle now) {
  if (world.links.ports_with(unit_, now) != 0)
    take_credits(world, world.links.inbox(unit_, 0, now));
  if (world.circuits()) {
    take_signals(world, events, now);
    begin_probes(world, events, now);
  }
  if (waiting_ == 0) return;
  const Able lanes = world.able_of(ready_);
  const LaneBits open = arbiter_.let_go(lanes, now);
  if (open == 0) {
    ++wait_cycles_;
    return;
  }
  const auto stamp = [&](unsigned lane) { return clock_.urgency(next_stamp_[lane], now); };
  const Chosen chosen = arbiter_.choose(lanes.among(open), stamp);
  Lane& lane = lanes_[chosen.lane];
  const Flit flit = next_flit(world, chosen.lane);
  arbiter_.granted(chosen, flit.is(Flit::tail), now);
  --lane.credits[flit.level];
  world.links.send(unit_, 0, chosen.lane, flit, now);
  if (flit.is(Flit::probe)) return probe_left(world, events, chosen.lane, now);
  ++lane.sent;
  if (flit.is(Flit::head)) world.messages.depart(lane.current, now);
  if (flit.is(Flit::last)) {
    tail_left(world, events, chosen.lane, now);
  } else {
    show_next(world, chosen.lane);
    stamp_next(world, chosen.lane, now);
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
  show_next(world, l);
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
    next_stamp_[first_of(bits)] = clock_.aged(next_stamp_[first_of(bits)]);
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

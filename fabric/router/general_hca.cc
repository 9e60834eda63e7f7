#include "fabric/router/general_hca.h"

#include <utility>

#include "fabric/router/general_hca_step.h"

namespace fabric::general {

void Hca::configure(unsigned node, unsigned unit, const World& world) {
  node_ = node;
  unit_ = unit;
  for (unsigned v = 0; v < world.lanes; ++v)
    for (unsigned level = 0; level < world.levels; ++level)
      lanes_[v].credits[level] = static_cast<std::uint16_t>(world.spec.vc_buf_size);
  configure_schedulers(clock_, arbiter_, world, world.hca_rules, 1);
  next_.configure(clock_, world.spec.start);
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
  begin(world, l, first, now);
  stamp_next(world, l, now);
}

// The first flit of the message is what the lane sends next.
void Hca::begin(World& world, unsigned l, hca::MessageId id, emu::Cycle now) {
  const hca::Message& message = world.messages[id];
  Lane& lane = lanes_[l];
  lane.current = id;
  lane.flits = message.flits;
  lane.sent = 0;
  lane.level = static_cast<std::uint8_t>(world.level_of(message));
  lane.launch = message.launch;
  // Older arrivals would all have the oldest stamp, and the lowest lane would always go first.
  if (clock_.by_epoch() && now > message.launch + emu::kStampPeriod)
    lane.launch = now - emu::kStampPeriod;
  waiting_ |= lane_bit(l);
  show_next<AnyDesign>(world, l);
}

// All flits of a message arrive when it becomes ready; where stamps belong to the head of the line
// a flit arrives when it gets there.
void Hca::stamp_next(const World& world, unsigned l, emu::Cycle now) {
  const emu::Cycle arrival = world.hca_rules.head_of_line() ? now : lanes_[l].launch;
  next_.set(l, clock_.stamp(l, arrival, now));
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
  show_next<AnyDesign>(world, l);
  if (closed) {
    circuit_closed(l, now);
  } else if (world.circuits()) {
    begin_message(world, events, l, now);
  } else {
    bring_to_front(world, l, now);
  }
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
  next_.age(now);
  for (LaneBits bits = waiting_; bits != 0; bits &= bits - 1)
    next_.set(first_of(bits), clock_.aged(next_.of(first_of(bits))));
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

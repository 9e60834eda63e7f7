// Pipelined circuit switching (MediaWorm III.F). A probe, one flit, takes a free lane at every hop
// and waits for none: where all are taken it is refused. Acceptance or refusal goes back on wires
// of its own, a link in a link's delay, a refusal freeing the lanes of the circuit as it passes.
// The flits of a circuit then pass stages 1, 4 and 5 only; the tail that closes it frees its lanes.
// Counters have a probe's flit where it passes or ends; a packet is what comes behind it.
#include <bit>

#include "fabric/router/general_hca_step.h"

namespace fabric::general {

QueueAt pass_signal(Router& router, const World::Signal& signal) {
  Port& out = router.ports[signal.at.port];
  const QueueAt in = out.out[signal.lane].owner;
  CHECK(in != kNoQueue);
  if (signal.accepted) return in;
  InputQueue& q = router.ports[in.port].in[in.queue];
  disown(router, in);
  q.front = Front::idle;
  q.worm_open = false;
  --q.messages;
  return in;
}

void Hca::ready_for_circuit(World& world, hca::MessageId id, emu::Cycle now) {
  Stream& stream = streams_[stream_of(world.messages[id])];
  Queue& queue = stream.queue;
  (queue.first == hca::kNoMessage ? queue.first : world.messages[queue.last].next) = id;
  queue.last = id;
  ++backlog_;
  message_due_ |= stream.state == Stream::State::open;
  if (stream.state != Stream::State::idle) return;
  stream.state = Stream::State::wants;
  stream.since = now;
  ++streams_wanting_;
}

hca::MessageId Hca::pop(World& world, Stream& stream) {
  const hca::MessageId id = stream.queue.first;
  stream.queue.first = world.messages[id].next;
  return id;
}

// Those that have wanted a circuit for longest first, as long as there are lanes; a probe packet
// that finds none is refused at once. A circuit on which nothing was to send begins its next
// message.
void Hca::begin_probes(World& world, hca::Events& events, emu::Cycle now) {
  for (LaneBits bits = message_due_ ? circuits_ & ~waiting_ : 0; bits != 0; bits &= bits - 1) {
    const unsigned l = first_of(bits);
    if (streams_[lane_stream_[l]].state == Stream::State::open)
      begin_message(world, events, l, now);
  }
  message_due_ = false;
  while (streams_wanting_ > 0) {
    Stream* first = nullptr;
    for (Stream& stream : streams_)
      if (stream.state == Stream::State::wants && stream.since <= now &&
          (first == nullptr || stream.since < first->since))
        first = &stream;
    if (first == nullptr) return;
    hca::Message& message = world.messages[first->queue.first];
    const auto lane = static_cast<unsigned>(std::countr_one(circuits_));
    if (lane >= world.lanes && !opens(message)) return;
    ++world.design.circuits_asked;
    if (lane < world.lanes) {
      begin_probe(world, *first, lane, now);
      continue;
    }
    ++world.design.circuits_dropped;
    message.rejected_by = static_cast<emu::RouterId>(world.links.far(unit_, 0).unit);
    answer_open(world, events, *first, now);
    --backlog_;
    if (first->queue.first != hca::kNoMessage) continue;
    first->state = Stream::State::idle;
    --streams_wanting_;
  }
}

void Hca::begin_probe(World& world, Stream& stream, unsigned lane, emu::Cycle now) {
  --streams_wanting_;
  stream.state = Stream::State::probing;
  circuits_ |= lane_bit(lane);
  probing_ |= lane_bit(lane);
  lane_stream_[lane] = static_cast<std::uint8_t>(&stream - streams_.data());
  clock_.head(lane, world.messages[stream.queue.first].vtick, now);
  begin(world, lane, stream.queue.first, now);  // stays there until the answer
  stamp_next(world, lane, now);
}

void Hca::probe_left(World& world, hca::Events& events, unsigned lane, emu::Cycle now) {
  ++sent_[lane].flits;
  world.messages.depart(lanes_[lane].current, now);
  const hca::Message& message = world.messages[lanes_[lane].current];
  probing_ &= ~lane_bit(lane);
  waiting_ &= ~lane_bit(lane);
  show_next<AnyDesign>(world, lane);
  if (!opens(message)) return;
  --backlog_;
  events.injected.push_back({.cookie = message.cookie,
                             .head_cycle = now,
                             .tail_cycle = now,
                             .handle = message.handle,
                             .flits = message.flits,
                             .node = message.src,
                             .traffic_class = message.traffic_class,
                             .kind = message.kind});
}

void Hca::take_signals(World& world, hca::Events& events, emu::Cycle now) {
  for (LaneBits bits = accepted_ | refused_; bits != 0; bits &= bits - 1) {
    const unsigned l = first_of(bits);
    const bool accepted = (accepted_ & lane_bit(l)) != 0;
    Stream& stream = streams_[lane_stream_[l]];
    const bool opened = opens(world.messages[lanes_[l].current]);
    ++(accepted ? world.design.circuits_made : world.design.circuits_dropped);
    lanes_[l].current = hca::kNoMessage;
    if (opened) answer_open(world, events, stream, now);
    if (accepted) {
      stream.state = Stream::State::open;
      stream.stays = opened;
      stream.attempts = 0;
      begin_message(world, events, l, now);
      continue;
    }
    circuit_closed(l, now);
    // Two probes that met half-way do not meet again in step.
    if (!opened) stream.since = now + 16 + (node_ * 7U + stream.attempts++ * 5U) % 32U;
  }
  accepted_ = refused_ = 0;
}

// The next message of an open circuit, if there is one.
void Hca::begin_message(World& world, hca::Events& events, unsigned l, emu::Cycle now) {
  Stream& stream = streams_[lane_stream_[l]];
  while (stream.stays && stream.queue.first != hca::kNoMessage &&
         opens(world.messages[stream.queue.first])) {
    answer_open(world, events, stream, now);  // it is open already
    --backlog_;
  }
  if (stream.queue.first == hca::kNoMessage) return;
  begin(world, l, pop(world, stream), now);
  if (stream.stays) world.messages[lanes_[l].current].head_cycle = now;
  stamp_next(world, l, now);
}

void Hca::circuit_closed(unsigned l, emu::Cycle now) {
  Stream& stream = streams_[lane_stream_[l]];
  circuits_ &= ~lane_bit(l);
  stream.stays = false;
  stream.state = Stream::State::idle;
  if (stream.queue.first == hca::kNoMessage) return;
  stream.state = Stream::State::wants;
  stream.since = now;
  ++streams_wanting_;
}

void Hca::answer_open(World& world, hca::Events& events, Stream& stream, emu::Cycle now) {
  const hca::MessageId id = pop(world, stream);
  const hca::Message& message = world.messages[id];
  events.answers.push_back({.cookie = message.cookie,
                            .cycle = now,
                            .handle = message.handle,
                            .rejected_by = message.rejected_by,
                            .node = message.src,
                            .dest = message.dest});
  events.done.push_back(id);
  --events.live;
  events.last_done = now;
}

}  // namespace fabric::general

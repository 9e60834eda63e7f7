// Pipelined circuit switching: a circuit is an object that knows its hops; acceptance and refusal
// walk back along them.
#include <algorithm>

#include "emu/base/check.h"
#include "tests/model/plain_network.h"

namespace model {

namespace {

// A probe packet of a stream opens its circuit; any other message gets one for itself.
bool opens(const PlainMessage& message) {
  return message.packet.stream != 0 && message.packet.kind == emu::PacketKind::probe &&
         !message.is_answer;
}

}  // namespace

void PlainNetwork::signal(const std::shared_ptr<Circuit>& circuit, std::size_t hops_left,
                          bool accepted) {
  signals_.push_back({arrival(), circuit, hops_left, accepted});
}

void PlainNetwork::pass_signals() {
  at_hcas_.clear();
  for (; !signals_.empty() && signals_.front().arrives <= now_; signals_.pop_front()) {
    const Signal s = signals_.front();
    if (s.hops_left == 0) {
      at_hcas_.push_back(s);
      continue;
    }
    const Circuit::Hop& hop = s.circuit->hops[s.hops_left - 1];
    if (!s.accepted) {
      PlainRouter& router = routers_[hop.router];
      router.ports[static_cast<std::size_t>(hop.out.port)].out[hop.out.lane].owner.reset();
      InputBuffer& buffer = buffer_at(router, hop.in);
      buffer.state = InputBuffer::State::idle;
      buffer.messages.pop_front();
    }
    signal(s.circuit, s.hops_left - 1, s.accepted);
  }
}

// Stage 3: a probe takes the lowest free lane of its output, or is refused.
void PlainNetwork::reserve_lanes(PlainRouter& router) {
  for (std::size_t p = 0; p < router.ports.size(); ++p) {
    for (emu::Vl v = 0; v < lanes_; ++v) {
      InputBuffer& buffer = router.ports[p].in[v][0];
      if (buffer.state != InputBuffer::State::arbitrating) continue;
      const LaneAt me = {static_cast<int>(p), v};
      PlainMessage& message = *buffer.messages.front();
      const std::shared_ptr<Circuit> circuit = buffer.flits.front().circuit;
      PlainPort& out = router.ports[static_cast<std::size_t>(buffer.out.port)];
      std::size_t lane = 0;
      while (lane < lanes_ && out.out[lane].owner) ++lane;
      const bool refused_here = opens(message) && message.rejected_by == router.id;
      if (lane < lanes_ && !refused_here) {
        buffer.out.lane = static_cast<emu::Vl>(lane);
        buffer.state = InputBuffer::State::active;
        out.out[lane].owner = me;
        circuit->hops.push_back({router.id, me, buffer.out});
        continue;
      }
      if (opens(message)) message.rejected_by = router.id;
      buffer.state = InputBuffer::State::idle;
      buffer.flits.pop_front();
      buffer.messages.pop_front();
      router.ports[p].to_me->credits.push_back({arrival(), v, 0});
      signal(circuit, circuit->hops.size(), false);
    }
  }
}

void PlainNetwork::ready_for_circuit(const MessagePtr& message) {
  PlainHca& hca = hcas_[message->src];
  const std::uint16_t own = message->packet.stream;
  PlainStream& stream =
      hca.streams[own == 0 ? message->vl_in : static_cast<std::size_t>(emu::kVlCount) + own - 1U];
  stream.queue.push_back(message);
  if (stream.state != PlainStream::State::idle) return;
  stream.state = PlainStream::State::wants;
  stream.since = now_;
}

void PlainNetwork::begin_probes(PlainHca& hca) {
  for (std::size_t v = 0; v < lanes_; ++v)
    for (const Signal& s : at_hcas_)
      if (s.circuit->source == hca.node && s.circuit->lane == v)
        take_signal(hca, *s.circuit, s.accepted);
  for (std::size_t v = 0; v < lanes_; ++v) {
    const SourceLane& lane = hca.lanes[v];
    if (lane.circuit && !lane.current &&
        hca.streams[lane.circuit->stream].state == PlainStream::State::open)
      begin_message(hca, v);
  }
  for (;;) {
    PlainStream* first = nullptr;
    for (PlainStream& stream : hca.streams)
      if (stream.state == PlainStream::State::wants && stream.since <= now_ &&
          (first == nullptr || stream.since < first->since))
        first = &stream;
    if (first == nullptr) return;
    std::size_t v = 0;
    while (v < lanes_ && hca.lanes[v].circuit) ++v;
    const MessagePtr message = first->queue.front();
    if (v < lanes_) {
      SourceLane& lane = hca.lanes[v];
      first->state = PlainStream::State::probing;
      first->circuit = lane.circuit =
          std::make_shared<Circuit>(Circuit{hca.node,
                                            static_cast<std::size_t>(first - hca.streams.data()),
                                            static_cast<emu::Vl>(v),
                                            opens(*message),
                                            {}});
      lane.current = message;
      lane.current->fronted = now_;
      lane.sent = 0;
      lane.probe_due = true;
      hca.clock->head(v, message->packet.vtick);
      lane.stamp = stamp(hca, v, came(*message));
    } else if (opens(*message)) {
      message->rejected_by = graph_.nodes[hca.node].router;
      answer_open(*first);
      if (first->queue.empty()) first->state = PlainStream::State::idle;
    } else {
      return;
    }
  }
}

void PlainNetwork::probe_left(PlainHca& hca, SourceLane& lane) {
  const MessagePtr message = lane.current;
  message->head_cycle = now_;
  message->ways = ways_;
  lane.probe_due = false;
  lane.silent = true;
  if (!opens(*message)) return;
  injected.push_back({.cookie = message->packet.cookie,
                      .head_cycle = now_,
                      .tail_cycle = now_,
                      .handle = message->packet.handle,
                      .flits = message->packet.flits,
                      .node = hca.node,
                      .traffic_class = message->packet.traffic_class,
                      .kind = message->packet.kind});
}

void PlainNetwork::take_signal(PlainHca& hca, Circuit& circuit, bool accepted) {
  SourceLane& lane = hca.lanes[circuit.lane];
  PlainStream& stream = hca.streams[circuit.stream];
  lane.current = nullptr;
  lane.silent = false;
  if (circuit.stays) answer_open(stream);
  if (accepted) {
    stream.state = PlainStream::State::open;
    stream.attempts = 0;
    begin_message(hca, circuit.lane);
  } else {
    const bool again = !circuit.stays;
    circuit_closed(hca, circuit.lane);
    if (again) stream.since = now_ + 16 + (hca.node * 7U + stream.attempts++ * 5U) % 32;
  }
}

void PlainNetwork::begin_message(PlainHca& hca, std::size_t v) {
  SourceLane& lane = hca.lanes[v];
  PlainStream& stream = hca.streams[lane.circuit->stream];
  const bool stays = lane.circuit->stays;
  while (stays && !stream.queue.empty() && opens(*stream.queue.front())) answer_open(stream);
  if (stream.queue.empty()) return;
  lane.current = stream.queue.front();
  stream.queue.pop_front();
  lane.current->fronted = now_;
  lane.sent = 0;
  if (stays) lane.current->head_cycle = now_;
  lane.stamp = stamp(hca, v, came(*lane.current));
}

void PlainNetwork::circuit_closed(PlainHca& hca, std::size_t v) {
  PlainStream& stream = hca.streams[hca.lanes[v].circuit->stream];
  hca.lanes[v].circuit.reset();
  stream.circuit.reset();
  stream.state = stream.queue.empty() ? PlainStream::State::idle : PlainStream::State::wants;
  stream.since = now_;
}

void PlainNetwork::answer_open(PlainStream& stream) {
  const MessagePtr message = stream.queue.front();
  stream.queue.pop_front();
  answers.push_back({.cookie = message->packet.cookie,
                     .cycle = now_,
                     .handle = message->packet.handle,
                     .rejected_by = message->rejected_by,
                     .node = message->src,
                     .dest = message->dest});
  --live_;
}

}  // namespace model

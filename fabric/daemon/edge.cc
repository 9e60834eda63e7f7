#include "fabric/daemon/edge.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "emu/base/check.h"
#include "emu/packet/build.h"
#include "emu/packet/headers.h"
#include "fabric/subnet/packet.h"

namespace fabric {

// --- probes and releases on their way ---------------------------------------------------------

bool ControlPackets::at_route(const ControlHead& head) {
  CHECK(admission_ != nullptr && head.handle < records_.size() && records_[head.handle].used);
  if (records_[head.handle].lapsed) return false;
  ProbeState& state = records_[head.handle].state;
  if (head.kind == emu::PacketKind::release) {
    admission_->release(head.router, state.body);
    return true;
  }
  admission_->probe(head.router, head.in_port, head.out_port, state, lane_out(head, state.body.vl));
  return state.rejected_by == emu::kNoRouter;
}

std::uint32_t ControlPackets::add(const Record& record) {
  if (free_.empty()) {
    free_.push_back(static_cast<std::uint32_t>(records_.size()));
    records_.emplace_back();
  }
  const std::uint32_t handle = free_.back();
  free_.pop_back();
  records_[handle] = record;
  records_[handle].used = true;
  return handle;
}

ControlPackets::Record ControlPackets::take(std::uint32_t handle) {
  CHECK(handle < records_.size() && records_[handle].used);
  records_[handle].used = false;
  free_.push_back(handle);
  return records_[handle];
}

void ControlPackets::forget(const emu::ProbeBody& body) {
  for (int r = 0; r < admission_->router_count(); ++r)
    admission_->release(static_cast<emu::RouterId>(r), body);
}

void ControlPackets::finish_releases() {
  for (const Record& record : records_) {
    if (record.used && !record.lapsed && record.kind == emu::PacketKind::release)
      forget(record.state.body);
  }
}

void ControlPackets::forget_node(emu::NodeId node) {
  for (Record& record : records_) record.lapsed |= record.state.body.source == node;
  admission_->release_node(node);
}

// --- in ---------------------------------------------------------------------------------------

Edge::Edge(Network& network, PacketMemory& memory, ControlPackets& controls,
           const EdgeOptions& options)
    : network_(network), memory_(memory), controls_(controls), options_(options) {}

void Edge::attached(emu::NodeId node, Port& port) {
  ports_[node] = &port;
  ++epochs_[node];
}

void Edge::lost(emu::NodeId node) {
  ports_[node] = nullptr;
  controls_.forget_node(node);
  connections_[node].clear();
}

void Edge::submit(Inbox& inbox) {
  if (waiting_count_ != 0) retry_waiting();
  for (const PacketHandle packet : inbox.packets) {
    PacketMeta& meta = memory_.meta(packet);
    meta.epoch = epochs_[meta.source];
    if (meta.kind == emu::PacketKind::data) {
      submit_data(packet, meta);
    } else if (meta.kind == emu::PacketKind::subnet) {
      questions_[meta.source].push_back(packet);
    } else {
      submit_control(packet, meta);
    }
  }
  inbox.packets.clear();
  if (has_questions()) answer_questions();
}

void Edge::submit_data(PacketHandle packet, const PacketMeta& meta) {
  if (options_.pass_through) return pass_or_hold(packet, meta);
  hca::SendPacket send;
  send.cookie = meta.cookie;
  send.launch = meta.launch_cycle;
  send.handle = packet;
  send.flits = meta.flits;
  send.dest = meta.dest;
  send.vl_in = meta.vl_in;
  send.vl_out = meta.vl_out;
  send.traffic_class = meta.traffic_class;
  send.vtick = meta.vtick != 0 ? meta.vtick : options_.vtick_of_lane[meta.vl_in];
  enter(meta.source, send);
}

void Edge::pass_or_hold(PacketHandle packet, const PacketMeta& meta) {
  const std::uint64_t order = submitted_++;
  const emu::Cycle now = network_.now();
  // What is due and has not passed yet goes first.
  if (meta.launch_cycle <= now && next_launch() > now) return pass(packet, now);
  held_.push_back({std::max(meta.launch_cycle, now), order, packet});
  std::push_heap(held_.begin(), held_.end());
}

void Edge::pass_due() {
  while (next_launch() <= network_.now()) {
    std::pop_heap(held_.begin(), held_.end());
    const Held held = held_.back();
    held_.pop_back();
    pass(held.packet, held.launch);
  }
}

// What the engine would say of a packet for which no cycle passes.
void Edge::pass(PacketHandle packet, emu::Cycle at) {
  const PacketMeta meta = memory_.meta(packet);
  if (meta.launch_cycle != 0) {
    on_injected({.cookie = meta.cookie,
                 .head_cycle = at,
                 .tail_cycle = at,
                 .handle = packet,
                 .flits = meta.flits,
                 .node = meta.source,
                 .traffic_class = meta.traffic_class,
                 .kind = meta.kind});
  }
  on_delivered({.cookie = meta.cookie,
                .launch = at,
                .head_cycle = at,
                .tail_cycle = at,
                .handle = packet,
                .flits = meta.flits,
                .node = meta.dest,
                .src = meta.source,
                .vl = meta.vl_out,
                .traffic_class = meta.traffic_class,
                .kind = meta.kind});
}

void Edge::answer_questions() {
  for (int i = 0; i < kAnswersPerTurn && has_questions(); ++i) {
    auto next = questions_.upper_bound(answered_);
    if (next == questions_.end()) next = questions_.begin();
    answered_ = next->first;
    const PacketHandle packet = next->second.front();
    next->second.pop_front();
    if (next->second.empty()) questions_.erase(next);
    answer_subnet(packet, memory_.meta(packet));
  }
}

// Takes no time and no room in the fabric: who asks is never far from the subnet's agents.
void Edge::answer_subnet(PacketHandle packet, const PacketMeta& meta) {
  Port* port = current(meta.source, meta.epoch) ? ports_[meta.source] : nullptr;
  const std::span slot(reinterpret_cast<std::byte*>(memory_.bytes(packet)), emu::kPacketBytesMax);
  const std::size_t length = agent_ == nullptr || port == nullptr
                                 ? 0
                                 : answer_packet(*agent_, slot, meta.length, meta.source);
  if (length == 0) {
    ++malformed_;
    memory_.release(packet);
    return;
  }
  emu::RxDesc desc{};
  desc.head_cycle = desc.arrival_cycle = network_.now();
  desc.length = static_cast<std::uint16_t>(length);
  desc.flits = emu::flits_of(length, options_.flit_bits);
  desc.src = meta.source;
  desc.vl = meta.vl_out;
  desc.traffic_class = emu::TrafficClass::control;
  if (capture_ != nullptr) capture_->packet(desc, meta.source, memory_.bytes(packet));
  port->deliver(meta.source, packet, desc);
}

void Edge::submit_control(PacketHandle packet, const PacketMeta& meta) {
  ControlPackets::Record record;
  // Read once: the sender can still write these bytes.
  std::memcpy(&record.state.body, memory_.bytes(packet), sizeof record.state.body);
  emu::ProbeBody& body = record.state.body;
  body.source = meta.source;
  body.dest = meta.dest;
  record.packet = packet;
  record.epoch = meta.epoch;
  record.kind = meta.kind;
  record.ways = ways_;
  const bool release = meta.kind == emu::PacketKind::release;
  Connections& connections = connections_[meta.source];
  const auto known = connections.find(body.connection);
  if (release && known != connections.end()) {
    body.dest = known->second.body.dest;  // whatever it says: that is where its probe went
    connections.erase(known);
  } else if (!release && (known != connections.end() ? known->second.body.dest == body.dest
                                                     : connections.size() < kBookingsPerNodeMax)) {
    Asked& asked = connections[body.connection];
    asked.body = body;
    ++asked.probes;
  } else if (!release) {
    // On two ways at once, or more than any router would book for it: refused at the first one
    // without asking.
    record.state.rejected_by = network_.router_of(meta.source);
  }
  hca::SendPacket send;
  send.cookie = meta.cookie;
  // A probe asks now: its release could overtake one that waits.
  send.launch = release ? meta.launch_cycle : 0;
  send.handle = controls_.add(record);
  send.flits = meta.flits;
  send.dest = body.dest;
  send.vl_in = meta.vl_in;
  send.vl_out = meta.vl_out;
  send.traffic_class = meta.traffic_class;
  send.kind = meta.kind;
  send.vtick = options_.vtick_of_lane[meta.vl_in];
  enter(meta.source, send);
}

void Edge::enter(emu::NodeId source, const hca::SendPacket& packet) {
  ++submitted_;
  if (waiting_[source].empty() && network_.submit(source, packet)) return;
  waiting_[source].push_back(packet);
  ++waiting_count_;
}

void Edge::retry_waiting() {
  for (emu::NodeId node = 0; node < network_.nodes(); ++node) {
    auto& queue = waiting_[node];
    while (!queue.empty() && network_.submit(node, queue.front())) {
      queue.pop_front();
      --waiting_count_;
    }
  }
}

// --- out --------------------------------------------------------------------------------------

void Edge::hand_out() {
  if (!held_.empty()) pass_due();
  // Injected first: a packet that was injected and delivered in one turn still has its meta.
  for (const auto& event : network_.injected()) on_injected(event);
  for (const auto& event : network_.delivered()) on_delivered(event);
  for (const auto& event : network_.answers()) on_answer(event);
  network_.clear_events();
}

// Ports that packets pass by count none of them.
bool Edge::is_multicast(PacketHandle packet) {
  if (options_.pass_through) return false;
  const std::uint8_t* lrh = memory_.bytes(packet);
  return emu::is_group(static_cast<emu::Lid>(lrh[2] << 8 | lrh[3]));
}

void Edge::on_injected(const hca::InjectedEvent& event) {
  // Control records live until their packet's end, so both kinds can still be asked.
  const bool data = event.kind == emu::PacketKind::data;
  const std::uint16_t epoch =
      data ? memory_.meta(event.handle).epoch : controls_.at(event.handle).epoch;
  if (!current(event.node, epoch)) return;
  if (data && is_multicast(event.handle)) ++multicasts_[event.node].sent;
  ports_[event.node]->injected(event.node, {event.cookie, event.tail_cycle, event.flits,
                                            event.traffic_class, event.kind, 0});
}

void Edge::on_delivered(const hca::DeliveredEvent& event) {
  ++finished_;
  ClassStats& stats = classes_[static_cast<std::size_t>(event.traffic_class)];
  const bool data = event.kind == emu::PacketKind::data;
  const std::uint16_t more_packets = data ? memory_.meta(event.handle).more_packets : 0;
  const std::uint64_t packets = 1U + more_packets;
  stats.packets += packets;
  stats.latency_ns.add(options_.cycle_time.ns(event.tail_cycle - event.head_cycle), packets);
  stats.queueing_ns.add(options_.cycle_time.ns(event.head_cycle - event.launch), packets);
  if (!data) {
    memory_.release(controls_.take(event.handle).packet);
    return;
  }
  emu::RxDesc desc{};
  desc.head_cycle = event.head_cycle;
  desc.arrival_cycle = event.tail_cycle;
  desc.length = memory_.meta(event.handle).length;
  desc.more_packets = more_packets;
  desc.flits = event.flits;
  desc.src = event.src;
  desc.vl = event.vl;
  desc.traffic_class = event.traffic_class;
  if (capture_ != nullptr) capture_->packet(desc, event.node, memory_.whole_bytes(event.handle));
  if (is_multicast(event.handle)) ++multicasts_[event.node].received;
  Port* port = ports_[event.node];
  if (port == nullptr) {
    ++undeliverable_;
    memory_.release(event.handle);
    return;
  }
  port->deliver(event.node, event.handle, desc);
}

void Edge::on_answer(const hca::AnswerEvent& event) {
  ++finished_;
  const auto record = controls_.take(event.handle);
  memory_.release(record.packet);
  if (!current(event.node, record.epoch) || superseded(event, record)) return;
  emu::Answer answer = Admission::answer(record.state, event.cycle);
  ports_[event.node]->answer(event.node, answer);
}

// --- links that go and come -------------------------------------------------------------------

emu::Result<void> Edge::set_down(std::span<const LinkEnd> links) {
  std::map<std::pair<emu::NodeId, emu::NodeId>, std::vector<Hop>> before;
  for (const Connections& connections : connections_) {
    for (const auto& [connection, asked] : connections) {
      const auto [way, added] = before.try_emplace({asked.body.source, asked.body.dest});
      if (added) way->second = network_.path(asked.body.source, asked.body.dest);
    }
  }
  if (auto done = network_.set_down(links); !done) return done;
  ++ways_;
  controls_.finish_releases();
  // First all of them give back: what one leaves another may have.
  std::vector<emu::ProbeBody> moved;
  for (Connections& connections : connections_) {
    for (auto& [connection, asked] : connections) {
      const emu::ProbeBody& body = asked.body;
      if (before[{body.source, body.dest}] == network_.path(body.source, body.dest)) continue;
      asked.moved = true;
      if (asked.probes != 0) continue;  // seen to when its answer comes
      controls_.forget(body);
      moved.push_back(body);
    }
    std::erase_if(connections,
                  [](const auto& entry) { return entry.second.moved && entry.second.probes == 0; });
  }
  for (const emu::ProbeBody& body : moved) ask_again(body.source, body);
  return {};
}

void Edge::ask_again(emu::NodeId node, const emu::ProbeBody& body) {
  emu::Answer answer{};
  answer.connection = body.connection;
  answer.cycle = network_.now();
  answer.rejected_by = emu::kNoRouter;
  answer.verdict = emu::Verdict::again;
  if (ports_[node] != nullptr) ports_[node]->answer(node, answer);
}

// Whether links changed behind a probe in a way that makes its answer worth nothing.
bool Edge::superseded(const hca::AnswerEvent& event, const ControlPackets::Record& record) {
  const emu::ProbeBody& body = record.state.body;
  Connections& connections = connections_[event.node];
  const auto found = connections.find(body.connection);
  if (found == connections.end()) {
    // Released meanwhile, perhaps by other routers than those at which it has booked.
    if (record.ways != ways_) controls_.forget(body);
    return false;
  }
  Asked& asked = found->second;
  if (asked.body.dest != body.dest) return false;  // not counted: refused here
  if (asked.probes != 0) --asked.probes;
  if (!asked.moved) return false;
  if (asked.probes != 0) return true;  // the last one decides
  controls_.forget(body);
  connections.erase(found);
  ask_again(event.node, body);
  return true;
}

}  // namespace fabric

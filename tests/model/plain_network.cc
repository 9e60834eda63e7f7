#include "tests/model/plain_network.h"

#include <algorithm>

#include "emu/base/check.h"
#include "fabric/route/routing.h"

namespace model {

namespace {

fabric::Graph graph_of(const fabric::NetworkSpec& spec) {
  return fabric::make_graph(fabric::shape_of(spec)).value();
}

}  // namespace

PlainNetwork::PlainNetwork(const fabric::NetworkSpec& spec, fabric::ControlHook* hook)
    : PlainModel(spec.energy_window),
      spec_(spec),
      hook_(hook),
      graph_(graph_of(spec)),
      routes_(fabric::make_routes(graph_, spec.routing, spec.lanes_of_class).value()),
      ways_(std::make_shared<fabric::RouteTable>(routes_.table)),
      now_(spec.start),
      routers_(graph_.routers.size()),
      hcas_(graph_.nodes.size()),
      lanes_(circuits() ? static_cast<std::size_t>(spec.circuits) : emu::kVlCount) {
  connect_links();
  set_up_lanes();
}

Link* PlainNetwork::new_link() {
  links_.push_back({.number = links_.size(), .flits = {}, .credits = {}});
  return &links_.back();
}

void PlainNetwork::connect_links() {
  for (std::size_t r = 0; r < routers_.size(); ++r) {
    routers_[r].id = static_cast<emu::RouterId>(r);
    routers_[r].ports.resize(graph_.routers[r].size());
  }
  for (std::size_t r = 0; r < routers_.size(); ++r) {
    for (std::size_t p = 0; p < routers_[r].ports.size(); ++p) {
      const fabric::PortEnd& end = graph_.routers[r][p];
      PlainPort& port = routers_[r].ports[p];
      if (end.node == fabric::kNoNode && end.router == fabric::kNobody) continue;
      port.from_me = new_link();
      if (end.node != fabric::kNoNode) {
        hcas_[end.node].to_me = port.from_me;
        hcas_[end.node].from_me = port.to_me = new_link();
      } else {
        routers_[end.router].ports[end.port].to_me = port.from_me;
      }
    }
  }
}

std::unique_ptr<PlainScheduler> PlainNetwork::new_scheduler(emu::SchedulerKind kind,
                                                            const emu::VlWeights& weights) const {
  return make_plain_scheduler(kind, weights, 0, {spec_.block_flits, spec_.block_waits});
}
std::unique_ptr<PlainClock> PlainNetwork::new_clock(emu::SchedulerKind kind,
                                                    fabric::CounterKind counters,
                                                    std::size_t slots) const {
  auto clock = make_plain_clock(kind, counters, slots, spec_.start);
  const std::size_t each = slots / kLanes;
  for (std::size_t i = 0; i < emu::kVlCount * each; ++i)
    clock->set_vtick(i, spec_.lane_vtick[i / each]);
  return clock;
}

void PlainNetwork::set_up_lanes() {
  for (PlainRouter& router : routers_) {
    for (PlainPort& port : router.ports) {
      port.scheduler = new_scheduler(scheduler_kind(), spec_.weights);
      port.clock =
          new_clock(scheduler_kind(), counters(), full_crossbar() ? kLanes : kLanes * kLevels);
      for (OutputLane& lane : port.out) lane.credits.fill(spec_.vc_buf_size);
    }
  }
  for (std::size_t n = 0; n < hcas_.size(); ++n) {
    hcas_[n].node = static_cast<emu::NodeId>(n);
    hcas_[n].scheduler = new_scheduler(hca_scheduler_kind(), spec_.weights);
    hcas_[n].clock = new_clock(hca_scheduler_kind(), hca_counters(), kLanes);
    hcas_[n].streams.resize(emu::kVlCount + hca::kStreamsMax);
    for (SourceLane& lane : hcas_[n].lanes) lane.credits.fill(spec_.vc_buf_size);
  }
}

void PlainNetwork::set_weights(emu::RouterId router, emu::PortId port,
                               const emu::VlWeights& weights) {
  routers_[router].ports[port].scheduler = new_scheduler(scheduler_kind(), weights);
}
void PlainNetwork::set_wire_weights(emu::NodeId node, const emu::VlWeights& weights) {
  hcas_[node].scheduler = new_scheduler(hca_scheduler_kind(), weights);
}
void PlainNetwork::set_lane_vtick(emu::RouterId router, emu::PortId port, emu::Vl lane,
                                  emu::Vtick vtick) {
  PlainClock& clock = *routers_[router].ports[port].clock;
  if (full_crossbar()) return clock.set_vtick(lane, vtick);
  for (std::size_t level = 0; level < kLevels; ++level)
    clock.set_vtick(slot({port, lane, level}), vtick);
}
void PlainNetwork::set_wire_vtick(emu::NodeId node, emu::Vl lane, emu::Vtick vtick) {
  hcas_[node].clock->set_vtick(lane, vtick);
}

void PlainNetwork::set_down(std::span<const fabric::LinkEnd> links) {
  ways_ = std::make_shared<fabric::RouteTable>(
      fabric::make_detour(graph_, routes_.table, spec_.routing, links).value());
}

void PlainNetwork::submit(emu::NodeId src, const hca::SendPacket& packet) {
  auto message = std::make_shared<PlainMessage>();
  message->packet = packet;
  message->src = src;
  message->dest = packet.dest;
  message->flits = packet.flits;
  message->vl_in = packet.vl_in;
  message->launch = std::max(packet.launch, now_);
  // Behind what waits for this very cycle.
  const bool others_due = !launches_.empty() && launches_.begin()->first <= now_;
  if (message->launch == now_ && !others_due) {
    ++live_;
    make_ready(message);
  } else {
    launches_.emplace(message->launch, message);
  }
}

void PlainNetwork::make_ready(const MessagePtr& message) {
  if (circuits()) return ready_for_circuit(message);
  PlainHca& hca = hcas_[message->src];
  SourceLane& lane = hca.lanes[message->vl_in];
  lane.queue.push_back(message);
  if (!lane.current) new_front(hca, message->vl_in);
}

// The next message of the lane: of the highest level, in order.
void PlainNetwork::new_front(PlainHca& hca, std::size_t v) {
  SourceLane& lane = hca.lanes[v];
  lane.sent = 0;
  lane.current = nullptr;
  if (lane.queue.empty()) return;
  auto next = lane.queue.begin();
  if (preemptive())
    next = std::max_element(
        lane.queue.begin(), lane.queue.end(),
        [&](const MessagePtr& a, const MessagePtr& b) { return level_of(*a) < level_of(*b); });
  lane.current = *next;
  lane.queue.erase(next);
  lane.current->fronted = now_;
  hca.clock->head(v, lane.current->packet.vtick);
  lane.stamp = stamp(hca, v, came(*lane.current));
}

void PlainNetwork::step() {
  while (!launches_.empty() && launches_.begin()->first <= now_) {
    ++live_;
    make_ready(launches_.begin()->second);
    launches_.erase(launches_.begin());
  }
  pass_signals();
  for (PlainHca& hca : hcas_) {
    step_hca_send(hca);
    step_hca_receive(hca);
  }
  for (PlainRouter& router : routers_) step_router(router);
  pass_token();
  ++now_;
  tick();
}

void PlainNetwork::step_hca_send(PlainHca& hca) {
  std::deque<LinkCredit>& credits = hca.from_me->credits;
  for (; !credits.empty() && credits.front().arrives <= now_; credits.pop_front())
    ++hca.lanes[credits.front().lane].credits[credits.front().level];
  if (circuits()) begin_probes(hca);
  std::vector<Waiting> able;
  for (emu::Vl v = 0; v < lanes_; ++v) {
    const SourceLane& lane = hca.lanes[v];
    if (!lane.current || lane.silent) continue;
    const Flit flit = next_flit(hca, lane);
    if (lane.credits[level_of(*lane.current)] < room_for(flit)) continue;
    able.push_back(waiting(v, flit, hca.clock->urgency(lane.stamp)));
  }
  able = hca.scheduler->let_go(std::move(able), now_);
  if (able.empty()) return;
  const Choice choice = hca.scheduler->choose(first_class(able));
  SourceLane& lane = hca.lanes[choice.lane];
  const MessagePtr message = lane.current;
  const Flit flit = next_flit(hca, lane);
  hca.scheduler->granted(choice.lane, flit.ends_block(), now_);
  --lane.credits[level_of(*message)];
  hca.from_me->flits.push_back({arrival(), choice.lane, flit});
  if (flit.kind == Flit::Kind::probe) return probe_left(hca, lane);
  ++lane.sent;
  if (flit.is_head()) {
    message->head_cycle = now_;
    message->ways = ways_;
  }
  if (!flit.is_last()) {
    lane.stamp = stamp(hca, choice.lane, came(*message));
    return;
  }
  if (!message->is_answer) {
    injected.push_back({.cookie = message->packet.cookie,
                        .head_cycle = message->head_cycle,
                        .tail_cycle = now_,
                        .handle = message->packet.handle,
                        .flits = message->packet.flits,
                        .node = hca.node,
                        .traffic_class = message->packet.traffic_class,
                        .kind = message->packet.kind});
  }
  lane.current = nullptr;
  if (flit.closes) {
    circuit_closed(hca, choice.lane);
  } else if (circuits()) {
    begin_message(hca, choice.lane);
  } else {
    new_front(hca, choice.lane);
  }
}

Flit PlainNetwork::next_flit(const PlainHca& hca, const SourceLane& lane) const {
  Flit flit = {lane.current, lane.sent, lane.stamp};
  flit.circuit = lane.circuit;
  if (!lane.circuit) return flit;
  if (lane.probe_due) flit.kind = Flit::Kind::probe;
  const bool last_one = !hca.streams[lane.circuit->stream].circuit->stays ||
                        lane.current->packet.kind == emu::PacketKind::release;
  flit.closes = !lane.probe_due && flit.is_last() && last_one;
  return flit;
}

void PlainNetwork::step_hca_receive(PlainHca& hca) {
  std::deque<LinkFlit>& flits = hca.to_me->flits;
  for (; !flits.empty() && flits.front().arrives <= now_; flits.pop_front()) {
    const auto [arrives, lane, flit] = flits.front();
    CHECK(arrives == now_);
    CHECK(flit.message->dest == hca.node);
    check_worm(hca.arriving[lane], flit);
    hca.to_me->credits.push_back({arrival(), lane, level_of(*flit.message)});
    if (flit.kind == Flit::Kind::probe) signal(flit.circuit, flit.circuit->hops.size(), true);
    if (flit.is_dummy()) continue;
    CHECK(flit.number == flit.message->received++);
    if (flit.is_last()) tail_arrived(hca, flit.message, lane);
  }
}

void PlainNetwork::tail_arrived(PlainHca& hca, const MessagePtr& message, emu::Vl lane) {
  const hca::SendPacket& packet = message->packet;
  if (token_.holder == message) token_.released_at = graph_.nodes[hca.node].router;
  if (message->is_answer) {
    answers.push_back({.cookie = packet.cookie,
                       .cycle = now_,
                       .handle = packet.handle,
                       .rejected_by = message->rejected_by,
                       .node = hca.node,
                       .dest = message->src});
  } else if (packet.kind == emu::PacketKind::probe) {
    auto answer = std::make_shared<PlainMessage>(*message);
    answer->is_answer = true;
    std::swap(answer->src, answer->dest);
    answer->flits = spec_.answer_flits;
    answer->vl_in = packet.vl_out;
    answer->received = 0;
    answer->packet.stream = 0;
    answer->launch = now_ + 1;
    make_ready(answer);
    return;
  } else {
    delivered.push_back({.cookie = packet.cookie,
                         .launch = message->launch,
                         .head_cycle = message->head_cycle,
                         .tail_cycle = now_,
                         .handle = packet.handle,
                         .flits = packet.flits,
                         .node = hca.node,
                         .src = message->src,
                         .vl = circuits() ? packet.vl_out : lane,
                         .traffic_class = packet.traffic_class,
                         .kind = packet.kind});
  }
  --live_;
}

void PlainNetwork::tick() {
  const auto move_on = [&](auto& side) {
    side.clock->tick(now_);
    if (side.clock->changed()) reread(side);
  };
  for (PlainRouter& router : routers_)
    for (PlainPort& port : router.ports) move_on(port);
  for (PlainHca& hca : hcas_) move_on(hca);
}

void PlainNetwork::reread(PlainPort& port) {
  const auto each = [&](std::deque<Flit>& flits) {
    for (Flit& flit : flits) flit.stamp = port.clock->reread(flit.stamp);
  };
  if (full_crossbar()) {
    for (OutputLane& lane : port.out) each(lane.buffer);
  } else {
    for (auto& lane : port.in) {
      for (InputBuffer& buffer : lane) {
        each(buffer.flits);
        if (buffer.dummy) buffer.dummy->stamp = port.clock->reread(buffer.dummy->stamp);
      }
    }
  }
}
void PlainNetwork::reread(PlainHca& hca) {
  for (SourceLane& lane : hca.lanes) lane.stamp = hca.clock->reread(lane.stamp);
}

void check_worm(MessagePtr& arriving, const Flit& flit) {
  if (flit.circuit) return;
  CHECK(flit.is_head() ? arriving == nullptr : arriving == flit.message);
  arriving = flit.is_tail() ? nullptr : flit.message;
}

void PlainNetwork::check_invariants() const {
  check_recovery_lanes();
  using Counts = std::array<std::array<int, kLevels>, kLanes>;
  // Of every link: credits at the sender, flits at the receiver. The last one is of no link, for
  // ports where nothing is attached.
  std::vector<Counts> sums(links_.size() + 1);
  const auto sums_of = [&](const Link* link) -> Counts& {
    return link != nullptr ? sums[link->number] : sums.back();
  };
  for (const PlainRouter& router : routers_) {
    for (std::size_t p = 0; p < router.ports.size(); ++p) {
      const PlainPort& port = router.ports[p];
      Counts& to_me = sums_of(port.to_me);
      Counts& from_me = sums_of(port.from_me);
      for (std::size_t v = 0; v < lanes_; ++v) {
        for (std::size_t level = 0; level < levels(); ++level) {
          to_me[v][level] += static_cast<int>(port.in[v][level].flits.size());
          from_me[v][level] += port.out[v].credits[level];
        }
        CHECK(static_cast<int>(port.out[v].buffer.size()) <= spec_.vc_buf_size);
        if (!port.out[v].owner) continue;
        const InputBuffer& owner = buffer_at(router, *port.out[v].owner);
        CHECK(owner.state == InputBuffer::State::active);
        CHECK((owner.out == LaneAt{static_cast<int>(p), static_cast<emu::Vl>(v)}));
      }
    }
  }
  for (const PlainHca& hca : hcas_)
    for (std::size_t v = 0; v < lanes_; ++v)
      for (std::size_t level = 0; level < levels(); ++level)
        sums_of(hca.from_me)[v][level] += hca.lanes[v].credits[level];
  for (const Link& link : links_) {
    Counts& sum = sums[link.number];
    for (const LinkFlit& f : link.flits) ++sum[f.lane][level_of(*f.flit.message)];
    for (const LinkCredit& c : link.credits) ++sum[c.lane][c.level];
    for (std::size_t v = 0; v < lanes_; ++v)
      for (std::size_t level = 0; level < levels(); ++level)
        CHECK(sum[v][level] == spec_.vc_buf_size);
  }
}

}  // namespace model

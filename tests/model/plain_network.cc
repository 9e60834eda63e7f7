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
    : spec_(spec),
      hook_(hook),
      graph_(graph_of(spec)),
      routes_(fabric::make_routes(graph_, spec.routing, spec.lanes_of_class).value()),
      now_(spec.start),
      routers_(graph_.routers.size()),
      hcas_(graph_.nodes.size()) {
  connect_links();
  set_up_lanes();
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
      port.from_me = &links_.emplace_back();
      if (end.node != fabric::kNoNode) {
        hcas_[end.node].to_me = port.from_me;
        hcas_[end.node].from_me = port.to_me = &links_.emplace_back();
      } else {
        routers_[end.router].ports[end.port].to_me = port.from_me;
      }
    }
  }
}

std::unique_ptr<PlainScheduler> PlainNetwork::new_scheduler(const emu::VlWeights& weights) const {
  return make_plain_scheduler(scheduler_kind(), weights, control_lanes(), spec_.block_flits);
}
std::unique_ptr<PlainClock> PlainNetwork::new_clock() const {
  const auto counters = traditional() ? fabric::CounterKind::epoch : spec_.counters;
  auto clock = make_plain_clock(scheduler_kind(), counters, emu::kVlCount, spec_.start);
  for (std::size_t v = 0; v < emu::kVlCount; ++v) clock->set_vtick(v, spec_.lane_vtick[v]);
  return clock;
}

void PlainNetwork::set_up_lanes() {
  for (PlainRouter& router : routers_) {
    for (PlainPort& port : router.ports) {
      port.scheduler = new_scheduler(spec_.weights);
      port.clock = new_clock();
      for (OutputLane& lane : port.out) lane.credits = spec_.vc_buf_size;
    }
  }
  for (std::size_t n = 0; n < hcas_.size(); ++n) {
    hcas_[n].node = static_cast<emu::NodeId>(n);
    hcas_[n].scheduler = new_scheduler(spec_.weights);
    hcas_[n].clock = new_clock();
    for (SourceLane& lane : hcas_[n].lanes) lane.credits = spec_.vc_buf_size;
  }
}

void PlainNetwork::set_weights(emu::RouterId router, emu::PortId port,
                               const emu::VlWeights& weights) {
  routers_[router].ports[port].scheduler = new_scheduler(weights);
}
void PlainNetwork::set_wire_weights(emu::NodeId node, const emu::VlWeights& weights) {
  hcas_[node].scheduler = new_scheduler(weights);
}
void PlainNetwork::set_lane_vtick(emu::RouterId router, emu::PortId port, emu::Vl lane,
                                  emu::Vtick vtick) {
  routers_[router].ports[port].clock->set_vtick(lane, vtick);
}
void PlainNetwork::set_wire_vtick(emu::NodeId node, emu::Vl lane, emu::Vtick vtick) {
  hcas_[node].clock->set_vtick(lane, vtick);
}

void PlainNetwork::submit(emu::NodeId src, const hca::SendPacket& packet) {
  auto message = std::make_shared<PlainMessage>();
  message->packet = packet;
  message->src = src;
  message->dest = packet.dest;
  message->flits = packet.flits;
  message->vl_in = packet.vl_in;
  message->launch = std::max(packet.launch, now_);
  if (message->launch == now_) {
    ++live_;
    make_ready(message);
  } else {
    launches_.emplace(message->launch, message);
  }
}

void PlainNetwork::make_ready(const MessagePtr& message) {
  PlainHca& hca = hcas_[message->src];
  SourceLane& lane = hca.lanes[message->vl_in];
  lane.queue.push_back(message);
  if (lane.queue.size() == 1) new_front(hca, message->vl_in);
}

void PlainNetwork::new_front(PlainHca& hca, std::size_t v) {
  SourceLane& lane = hca.lanes[v];
  lane.sent = 0;
  if (lane.queue.empty()) return;
  const PlainMessage& message = *lane.queue.front();
  hca.clock->head(v, message.packet.vtick);
  lane.stamp = stamp(hca, v, stamps_at_head() ? now_ : message.launch);
}

void PlainNetwork::step() {
  while (!launches_.empty() && launches_.begin()->first <= now_) {
    ++live_;
    make_ready(launches_.begin()->second);
    launches_.erase(launches_.begin());
  }
  for (PlainHca& hca : hcas_) step_hca_send(hca);
  for (PlainHca& hca : hcas_) step_hca_receive(hca);
  for (PlainRouter& router : routers_) step_router(router);
  ++now_;
  tick();
}

void PlainNetwork::step_hca_send(PlainHca& hca) {
  std::deque<LinkCredit>& credits = hca.from_me->credits;
  for (; !credits.empty() && credits.front().arrives <= now_; credits.pop_front())
    ++hca.lanes[credits.front().lane].credits;
  std::vector<Waiting> waiting;
  for (emu::Vl v = 0; v < emu::kVlCount; ++v) {
    const SourceLane& lane = hca.lanes[v];
    if (!lane.queue.empty() && lane.credits > 0)
      waiting.push_back({v, hca.clock->urgency(lane.stamp)});
  }
  if (waiting.empty()) return;
  const Choice choice = hca.scheduler->choose(first_class(waiting));
  SourceLane& lane = hca.lanes[choice.lane];
  const MessagePtr message = lane.queue.front();
  const Flit flit{message, lane.sent++, 0};
  hca.scheduler->granted(choice.lane, flit.is_tail());
  --lane.credits;
  hca.from_me->flits.push_back({arrival(), choice.lane, flit});
  if (flit.is_head()) message->head_cycle = now_;
  if (!flit.is_tail()) {
    lane.stamp = stamp(hca, choice.lane, stamps_at_head() ? now_ : message->launch);
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
  lane.queue.pop_front();
  new_front(hca, choice.lane);
}

void PlainNetwork::step_hca_receive(PlainHca& hca) {
  std::deque<LinkFlit>& flits = hca.to_me->flits;
  for (; !flits.empty() && flits.front().arrives <= now_; flits.pop_front()) {
    const auto [arrives, lane, flit] = flits.front();
    CHECK(arrives == now_);
    CHECK(flit.number == hca.next_number[lane] && flit.message->dest == hca.node);
    hca.next_number[lane] = flit.is_tail() ? 0 : flit.number + 1;
    hca.to_me->credits.push_back({arrival(), lane});
    if (flit.is_tail()) tail_arrived(hca, flit.message, lane);
  }
}

void PlainNetwork::tail_arrived(PlainHca& hca, const MessagePtr& message, emu::Vl lane) {
  const hca::SendPacket& packet = message->packet;
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
                         .vl = lane,
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
    for (InputLane& lane : port.in) each(lane.buffer);
  }
}
void PlainNetwork::reread(PlainHca& hca) {
  for (SourceLane& lane : hca.lanes) lane.stamp = hca.clock->reread(lane.stamp);
}

void PlainNetwork::check_invariants() const {
  const auto check_link = [&](const Link* link, const std::array<int, emu::kVlCount>& credits,
                              const std::array<int, emu::kVlCount>& buffered) {
    for (std::size_t v = 0; v < emu::kVlCount; ++v) {
      int sum = credits[v] + buffered[v];
      for (const LinkFlit& f : link->flits) sum += f.lane == v;
      for (const LinkCredit& c : link->credits) sum += c.lane == v;
      CHECK(sum == spec_.vc_buf_size);
    }
  };
  std::map<const Link*, std::array<int, emu::kVlCount>> buffered;  // at the link's end
  for (const PlainRouter& router : routers_) {
    for (const PlainPort& port : router.ports)
      for (std::size_t v = 0; v < emu::kVlCount; ++v)
        buffered[port.to_me][v] = static_cast<int>(port.in[v].buffer.size());
  }
  for (const PlainHca& hca : hcas_) {
    std::array<int, emu::kVlCount> credits{};
    for (std::size_t v = 0; v < emu::kVlCount; ++v) credits[v] = hca.lanes[v].credits;
    check_link(hca.from_me, credits, buffered[hca.from_me]);
  }
  for (const PlainRouter& router : routers_) {
    for (std::size_t p = 0; p < router.ports.size(); ++p) {
      const PlainPort& port = router.ports[p];
      std::array<int, emu::kVlCount> credits{};
      for (std::size_t v = 0; v < emu::kVlCount; ++v) {
        credits[v] = port.out[v].credits;
        CHECK(static_cast<int>(port.out[v].buffer.size()) <= spec_.vc_buf_size);
        if (!port.out[v].owner) continue;
        const auto [in_port, in_lane] = *port.out[v].owner;
        const InputLane& owner = router.ports[static_cast<std::size_t>(in_port)].in[in_lane];
        CHECK(owner.state == InputLane::State::active);
        CHECK((owner.out == LaneAt{static_cast<int>(p), static_cast<emu::Vl>(v)}));
      }
      if (port.from_me != nullptr) check_link(port.from_me, credits, buffered[port.from_me]);
    }
  }
}

}  // namespace model

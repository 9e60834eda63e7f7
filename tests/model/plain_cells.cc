#include "tests/model/plain_cells.h"

#include <algorithm>

#include "emu/base/check.h"

namespace model {

std::unique_ptr<PlainModel> make_plain_model(const fabric::NetworkSpec& spec,
                                             fabric::ControlHook* hook) {
  if (spec.router == fabric::RouterKind::cell) return std::make_unique<PlainCells>(spec, hook);
  return std::make_unique<PlainNetwork>(spec, hook);
}

PlainCells::PlainCells(const fabric::NetworkSpec& spec, fabric::ControlHook* hook)
    : PlainModel(spec.energy_window),
      spec_(spec),
      hook_(hook),
      graph_(fabric::make_graph(fabric::shape_of(spec)).value()),
      routes_(fabric::make_routes(graph_, spec.routing, spec.lanes_of_class).value()),
      now_(spec.start),
      routers_(graph_.routers.size()),
      sources_(graph_.nodes.size()) {
  for (std::size_t r = 0; r < routers_.size(); ++r) {
    routers_[r].id = static_cast<emu::RouterId>(r);
    routers_[r].ports.resize(graph_.routers[r].size());
    for (CellPort& port : routers_[r].ports) port.credits = spec.vc_buf_size;
  }
  for (CellSource& source : sources_) source.credits = spec.vc_buf_size;
  for (std::size_t r = 0; r < routers_.size(); ++r) {
    for (std::size_t p = 0; p < routers_[r].ports.size(); ++p) {
      const fabric::PortEnd& end = graph_.routers[r][p];
      CellPort& port = routers_[r].ports[p];
      if (end.node != fabric::kNoNode) {
        sources_[end.node].to_me = port.from_me = &links_.emplace_back();
        sources_[end.node].from_me = port.to_me = &links_.emplace_back();
      } else if (end.router != fabric::kNobody) {
        routers_[end.router].ports[end.port].to_me = port.from_me = &links_.emplace_back();
      }
    }
  }
}

void PlainCells::submit(emu::NodeId src, const hca::SendPacket& packet) {
  auto message = std::make_shared<PlainMessage>();
  message->packet = packet;
  message->src = src;
  message->dest = packet.dest;
  message->flits = packet.flits;
  message->launch = std::max(packet.launch, now_);
  // Behind what waits for this very cycle.
  const bool others_due = !launches_.empty() && launches_.begin()->first <= now_;
  if (message->launch > now_ || others_due) {
    launches_.emplace(message->launch, message);
    return;
  }
  ++live_;
  queue_message(message);
}

void PlainCells::queue_message(const MessagePtr& message) {
  CellSource& source = sources_[message->src];
  auto& queue = source.queues[message->dest];
  queue.push_back(message);
  if (queue.size() == 1) source.turns.push_back(message->dest);
}

void PlainCells::step() {
  for (; !launches_.empty() && launches_.begin()->first <= now_;
       launches_.erase(launches_.begin())) {
    ++live_;
    queue_message(launches_.begin()->second);
  }
  for (; !orders_.empty() && orders_.begin()->first <= now_; orders_.erase(orders_.begin())) {
    const auto& [connection, change] = orders_.begin()->second;
    sources_[connection.first].stopped[connection.second] += change;
  }
  for (std::size_t n = 0; n < sources_.size(); ++n) {
    send(static_cast<emu::NodeId>(n));
    receive(static_cast<emu::NodeId>(n));
  }
  for (CellRouter& router : routers_) step_router(router);
  ++now_;
}

// The first connection in turn that was not told to stop.
void PlainCells::send(emu::NodeId node) {
  CellSource& source = sources_[node];
  auto& credits = source.from_me->credits;
  for (; !credits.empty() && credits.front() <= now_; credits.pop_front()) ++source.credits;
  const auto turn = std::find_if(source.turns.begin(), source.turns.end(),
                                 [&](emu::NodeId to) { return source.stopped[to] == 0; });
  if (turn == source.turns.end() || source.credits == 0) return;
  const emu::NodeId to = *turn;
  source.turns.erase(turn);
  auto& queue = source.queues[to];
  const MessagePtr message = queue.front();
  const PlainCell cell = {message, source.sent[to]++};
  --source.credits;
  source.from_me->cells.emplace_back(arrival(), cell);
  if (cell.number == 0) message->head_cycle = now_;
  if (cell.number == message->flits - 1) {
    source.sent[to] = 0;
    queue.pop_front();
    if (!message->is_answer)
      injected.push_back({.cookie = message->packet.cookie,
                          .head_cycle = message->head_cycle,
                          .tail_cycle = now_,
                          .handle = message->packet.handle,
                          .flits = message->packet.flits,
                          .node = node,
                          .traffic_class = message->packet.traffic_class,
                          .kind = message->packet.kind});
  }
  if (!queue.empty()) source.turns.push_back(to);
}

void PlainCells::receive(emu::NodeId node) {
  CellSource& card = sources_[node];
  auto& cells = card.to_me->cells;
  if (cells.empty() || cells.front().first > now_) return;
  const PlainCell cell = cells.front().second;
  const bool last = cell.number == cell.message->flits - 1;
  if (last && now_ < card.takes_at) return;
  cells.pop_front();
  CHECK(cell.message->dest == node && cell.number == cell.message->received++);
  card.to_me->credits.push_back(arrival());
  if (!last) return;
  card.takes_at = now_ + static_cast<emu::Cycle>(spec_.receive_cycles);
  arrived(node, cell.message);
}

void PlainCells::arrived(emu::NodeId node, const MessagePtr& message) {
  const hca::SendPacket& packet = message->packet;
  if (message->is_answer) {
    answers.push_back({.cookie = packet.cookie,
                       .cycle = now_,
                       .handle = packet.handle,
                       .rejected_by = message->rejected_by,
                       .node = node,
                       .dest = message->src});
  } else if (packet.kind == emu::PacketKind::probe) {
    auto answer = std::make_shared<PlainMessage>(*message);
    answer->is_answer = true;
    answer->received = 0;
    std::swap(answer->src, answer->dest);
    answer->flits = spec_.answer_flits;
    queue_message(answer);
    return;
  } else {
    delivered.push_back({.cookie = packet.cookie,
                         .launch = message->launch,
                         .head_cycle = message->head_cycle,
                         .tail_cycle = now_,
                         .handle = packet.handle,
                         .flits = packet.flits,
                         .node = node,
                         .src = message->src,
                         .vl = packet.vl_out,
                         .traffic_class = packet.traffic_class,
                         .kind = packet.kind});
  }
  --live_;
}

void PlainCells::step_router(CellRouter& router) {
  for (CellPort& port : router.ports) {
    if (port.from_me == nullptr) continue;
    auto& credits = port.from_me->credits;
    for (; !credits.empty() && credits.front() <= now_; credits.pop_front()) ++port.credits;
  }
  for (CellPort& port : router.ports)
    if (!port.turns.empty() && port.credits > 0) output(router, port);
  for (std::size_t p = 0; p < router.ports.size(); ++p)
    if (router.ports[p].arrived) enqueue(router, p);
  for (std::size_t p = 0; p < router.ports.size(); ++p) {
    CellPort& port = router.ports[p];
    if (port.to_me == nullptr || port.to_me->cells.empty()) continue;
    auto& [arrives, cell] = port.to_me->cells.front();
    if (arrives > now_) continue;
    port.arrived = cell;
    port.arrived->in_port = p;
    log.came(router.id, p, leads_to_hca(router, p), now_);
    ++port.arrived->hops;
    ++port.held;
    port.to_me->cells.pop_front();
  }
}

void PlainCells::output(CellRouter& router, CellPort& port) {
  const Connection connection = port.turns.front();
  port.turns.pop_front();
  auto& queue = port.queues[connection];
  const PlainCell cell = queue.front();
  queue.pop_front();
  if (!queue.empty()) port.turns.push_back(connection);
  if (router.quenched[connection] &&
      queue.size() <= static_cast<std::size_t>(spec_.quench_flits) / 2) {
    router.quenched[connection] = false;
    order(cell, -1);
  }
  --port.credits;
  port.from_me->cells.emplace_back(arrival(), cell);
  const auto p = static_cast<std::size_t>(&port - router.ports.data());
  log.left(router.id, p, leads_to_hca(router, p), now_);
  --router.ports[cell.in_port].held;
  router.ports[cell.in_port].to_me->credits.push_back(arrival());
}

void PlainCells::enqueue(CellRouter& router, std::size_t in_port) {
  const PlainCell cell = *router.ports[in_port].arrived;
  log.crossed(router.id, now_);
  router.ports[in_port].arrived.reset();
  const emu::PortId out_port = routes_.table.out_port(router.id, cell.message->dest);
  if (cell.number == 0) ask_admission(router, cell, out_port);
  CellPort& port = router.ports[out_port];
  const Connection connection = cell.connection();
  auto& queue = port.queues[connection];
  queue.push_back(cell);
  if (queue.size() == 1) port.turns.push_back(connection);
  if (spec_.flow == fabric::FlowKind::stream && !router.quenched[connection] &&
      queue.size() > static_cast<std::size_t>(spec_.quench_flits)) {
    router.quenched[connection] = true;
    order(cell, 1);
  }
}

// A stop or go reaches the source after as many links as the cell has passed.
void PlainCells::order(const PlainCell& cell, int change) {
  const auto links = static_cast<emu::Cycle>(cell.hops);
  orders_.emplace(now_ + links * static_cast<emu::Cycle>(spec_.link_delay),
                  std::pair(cell.connection(), change));
}

void PlainCells::ask_admission(const CellRouter& router, const PlainCell& cell,
                               emu::PortId out_port) {
  PlainMessage& message = *cell.message;
  const bool asks = message.packet.kind != emu::PacketKind::data && !message.is_answer &&
                    message.rejected_by == emu::kNoRouter;
  if (!asks || hook_ == nullptr) return;
  const bool accepted = hook_->at_route({.router = router.id,
                                         .in_port = static_cast<emu::PortId>(cell.in_port),
                                         .out_port = out_port,
                                         .kind = message.packet.kind,
                                         .src = message.src,
                                         .dest = message.dest,
                                         .cookie = message.packet.cookie,
                                         .handle = message.packet.handle,
                                         .cycle = now_});
  if (!accepted && message.packet.kind == emu::PacketKind::probe) message.rejected_by = router.id;
}

void PlainCells::check_invariants() const {
  std::map<const CellLink*, std::size_t> sums;
  for (const CellRouter& router : routers_) {
    for (const CellPort& port : router.ports) {
      sums[port.to_me] += static_cast<std::size_t>(port.held);
      sums[port.from_me] += static_cast<std::size_t>(port.credits);
    }
  }
  for (const CellSource& source : sources_)
    sums[source.from_me] += static_cast<std::size_t>(source.credits);
  for (const CellLink& link : links_)
    CHECK(sums[&link] + link.cells.size() + link.credits.size() ==
          static_cast<std::size_t>(spec_.vc_buf_size));
}

}  // namespace model

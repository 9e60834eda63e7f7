#include "fabric/router/cell_engine.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "emu/lane/stamp.h"
#include "fabric/router/ask_admission.h"

namespace fabric::cell {

using general::Flit;
using general::Inbox;
using general::PortBits;

namespace {

unsigned first_of(PortBits bits) { return static_cast<unsigned>(std::countr_zero(bits)); }

void join(Turns& turns, std::vector<Connection>& connections, std::uint32_t c) {
  connections[c].next = kNone;
  (turns.last == kNone ? turns.first : connections[turns.last].next) = c;
  turns.last = c;
}

std::uint32_t credits_in(const Inbox& box) {
  return static_cast<std::uint32_t>(std::popcount(box.credits));
}

}  // namespace

Engine::Engine(const NetworkSpec& network_spec, Graph network_graph, ControlHook* control_hook)
    : Impl(network_spec, std::move(network_graph), control_hook),
      links_(graph, spec.link_delay),
      switches_(graph.routers.size()),
      sources_(graph.nodes.size()) {
  const std::size_t nodes = graph.nodes.size();
  const auto pool = static_cast<std::uint32_t>(spec.vc_buf_size);
  for (std::size_t r = 0; r < switches_.size(); ++r) {
    Switch& s = switches_[r];
    s.id = static_cast<emu::RouterId>(r);
    s.ports.resize(graph.routers[r].size());
    for (std::size_t p = 0; p < s.ports.size(); ++p) {
      s.ports[p].credits = pool;
      s.ports[p].to_hca = graph.routers[r][p].node != kNoNode;
    }
    s.connections.resize(nodes * nodes);
    s.memory.resize(s.ports.size() * pool);
    for (std::size_t i = s.memory.size(); i-- > 0; s.free = static_cast<std::uint32_t>(i))
      s.memory[i].next = s.free;
  }
  for (Source& source : sources_) {
    source.to.resize(nodes);
    source.stopped.resize(nodes, 0);
    source.progress.resize(nodes, 0);
    source.credits = pool;
    source.card.resize(pool);
  }
  orders_.reserve(nodes * nodes * 16);
}

void Engine::step(emu::Cycle cycles) {
  for (const emu::Cycle end = now + cycles; now != end;) {
    while (launches[0].next() <= now) ready(launches[0].pop());
    const emu::Cycle epoch = now - now % emu::kStampPeriod + emu::kStampPeriod;
    const emu::Cycle due = std::min({end, launches[0].next(), next_window, epoch});
    if (idle()) {
      now = due;
    } else {
      cycles_until(due);
    }
    if (now == next_window) close_window();
  }
}

void Engine::cycles_until(emu::Cycle end) {
  for (; now != end; ++now) {
    links_.turn_to(now);
    take_orders();
    for (std::size_t n = 0; n < sources_.size(); ++n) {
      send(static_cast<emu::NodeId>(n));
      receive(static_cast<emu::NodeId>(n));
    }
    for (const emu::RouterId r : order) step_switch(switches_[r]);
  }
}

void Engine::take_orders() {
  while (!orders_.empty() && orders_.front().due <= now) {
    const Order next = orders_.front();
    std::pop_heap(orders_.begin(), orders_.end());
    orders_.pop_back();
    const std::size_t nodes = sources_.size();
    sources_[next.connection / nodes].stopped[next.connection % nodes] += next.change;
  }
}

void Engine::send_order(const Cell& cell, std::uint32_t connection, int change) {
  orders_.push_back(
      {now + static_cast<emu::Cycle>(cell.hops) * static_cast<emu::Cycle>(spec.link_delay),
       connection, change});
  std::push_heap(orders_.begin(), orders_.end());
}

void Engine::ready(hca::MessageId id) {
  ++events.live;
  queue_message(id);
}

void Engine::queue_message(hca::MessageId id) {
  hca::Message& message = messages[id];
  message.next = hca::kNoMessage;
  Source& source = sources_[message.src];
  Connection& to = source.to[message.dest];
  const bool alone = to.first == kNone;
  (alone ? to.first : messages[to.last].next) = id;
  to.last = id;
  ++source.backlog;
  if (alone) join(source.turns, source.to, message.dest);
}

// The first connection in turn that was not told to stop; it goes to the end.
void Engine::send(emu::NodeId node) {
  Source& source = sources_[node];
  if (links_.ports_with(unit_of(node)) != 0)
    source.credits += credits_in(links_.inbox(unit_of(node), 0));
  if (source.turns.first == kNone) return;
  std::uint32_t before = kNone;
  std::uint32_t c = source.turns.first;
  while (c != kNone && source.stopped[c] > 0) before = std::exchange(c, source.to[c].next);
  if (c == kNone || source.credits == 0) {
    ++source.wait_cycles;
    return;
  }
  Connection& to = source.to[c];
  (before == kNone ? source.turns.first : source.to[before].next) = to.next;
  if (source.turns.last == c) source.turns.last = before;
  hca::Message& message = messages[to.first];
  const hca::MessageId id = to.first;
  const bool head = source.progress[c]++ == 0;
  const bool last = source.progress[c] == message.flits;
  const int marks = (head ? Flit::head : 0) | (last ? Flit::last : 0);
  // The stamp counts the links that the cell has passed.
  links_.send(unit_of(node), 0, 0, {id, static_cast<std::uint8_t>(marks), 0, 0});
  --source.credits;
  if (head) message.head_cycle = now;
  if (last) {
    to.first = message.next;
    source.progress[c] = 0;
    tail_left(source, id);
  }
  if (to.first != kNone) join(source.turns, source.to, c);
}

void Engine::tail_left(Source& source, hca::MessageId id) {
  const hca::Message& message = messages[id];
  --source.backlog;
  source.sent_by[message.vl_in].flits += message.flits;
  ++source.sent_by[message.vl_in].packets;
  events.tail_left(message, now);
}

void Engine::receive(emu::NodeId node) {
  const unsigned unit = unit_of(node);
  Source& card = sources_[node];
  const auto room = static_cast<std::uint32_t>(card.card.size());
  if (links_.ports_with(unit) != 0) {
    const Inbox& box = links_.inbox(unit, 0);
    if (box.has_flit) {
      CHECK(card.card_count < room);
      card.card[(card.card_first + card.card_count++) % room] = box.flit;
    }
    links_.clear(unit);
  }
  if (card.card_count != 0) take(node);
}

// The card hands a cell on and has room for another; the end of a message waits for the host.
void Engine::take(emu::NodeId node) {
  Source& card = sources_[node];
  const Flit flit = card.card[card.card_first];
  const bool last = flit.is(Flit::last);
  if (last && now < card.takes_at) return;
  card.card_first = (card.card_first + 1) % static_cast<std::uint32_t>(card.card.size());
  --card.card_count;
  links_.credit(unit_of(node), 0, 0);
  if (!last) return;
  card.takes_at = now + static_cast<emu::Cycle>(spec.receive_cycles);
  tail_arrived(node, flit.message);
}

void Engine::tail_arrived(emu::NodeId node, hca::MessageId id) {
  hca::Message& message = messages[id];
  CHECK(message.dest == node);
  sources_[node].received[message.vl_out].flits += message.flits;
  ++sources_[node].received[message.vl_out].packets;
  if (events.tail_arrived(id, message, now)) return;
  hca::turn_round(message, spec.answer_flits, now);
  queue_message(id);
}

// Back to front: a cell leaves no earlier than two cycles after it came.
void Engine::step_switch(Switch& s) {
  const PortBits coming = links_.ports_with(s.id);
  if (s.held == 0 && coming == 0) return;
  for (PortBits bits = coming; bits != 0; bits &= bits - 1)
    s.ports[first_of(bits)].credits += credits_in(links_.inbox(s.id, first_of(bits)));
  for (unsigned p = 0; p < s.ports.size(); ++p)
    if (s.ports[p].queued != 0) output(s, p);
  for (unsigned p = 0; p < s.ports.size(); ++p)
    if (s.ports[p].arrived != kNone) enqueue(s, p);
  for (PortBits bits = coming; bits != 0; bits &= bits - 1)
    if (links_.inbox(s.id, first_of(bits)).has_flit) decode(s, first_of(bits));
  links_.clear(s.id);
}

void Engine::output(Switch& s, unsigned p) {
  OutPort& port = s.ports[p];
  if (port.credits == 0) {
    ++port.wait_cycles;
    return;
  }
  const std::uint32_t c = port.turns.first;
  Connection& connection = s.connections[c];
  port.turns.first = connection.next;
  if (port.turns.first == kNone) port.turns.last = kNone;
  const std::uint32_t i = connection.first;
  Cell& cell = s.memory[i];
  connection.first = cell.next;
  --connection.count;
  if (connection.count != 0) join(port.turns, s.connections, c);
  if (connection.quenched && connection.count <= static_cast<unsigned>(spec.quench_flits) / 2) {
    connection.quenched = false;
    send_order(cell, c, -1);
  }
  --port.credits;
  --port.queued;
  --s.held;
  ++s.window.sent;
  ++port.link.out;
  ++(port.to_hca ? s.window.hca_flits : s.window.sent_to_routers);
  links_.send(s.id, p, 0, cell.flit);
  OutPort& in = s.ports[cell.in_port];
  --in.held;
  // As many as there are outputs may leave in a cycle: a credit bears the number of its output.
  links_.credit(s.id, cell.in_port, p);
  if (cell.flit.is(Flit::last)) {
    const hca::Message& message = messages[cell.flit.message];
    in.received[message.vl_out].flits += message.flits;
    ++in.received[message.vl_out].packets;
    port.sent[message.vl_out].flits += message.flits;
    ++port.sent[message.vl_out].packets;
  }
  cell.next = s.free;
  s.free = i;
}

void Engine::enqueue(Switch& s, unsigned in_port) {
  const std::uint32_t i = std::exchange(s.ports[in_port].arrived, kNone);
  Cell& cell = s.memory[i];
  hca::Message& message = messages[cell.flit.message];
  const std::uint32_t c = connection_of(message);
  const unsigned p = routes.table.out_port(s.id, message.dest);
  if (cell.flit.is(Flit::head)) {
    ++s.window.heads;
    if (asks_admission(hook, message)) ask_admission(s, in_port, p, message);
  }
  Connection& connection = s.connections[c];
  cell.next = kNone;
  (connection.count == 0 ? connection.first : s.memory[connection.last].next) = i;
  connection.last = i;
  if (connection.count++ == 0) join(s.ports[p].turns, s.connections, c);
  ++s.ports[p].queued;
  ++s.window.crossed;
  if (spec.flow == FlowKind::stream && !connection.quenched &&
      connection.count > static_cast<unsigned>(spec.quench_flits)) {
    connection.quenched = true;
    ++design.quenches;
    send_order(cell, c, 1);
  }
}

void Engine::decode(Switch& s, unsigned p) {
  const Inbox& box = links_.inbox(s.id, p);
  const std::uint32_t i = s.free;
  CHECK(i != kNone);
  Cell& cell = s.memory[i];
  s.free = cell.next;
  cell.flit = box.flit;
  cell.hops = static_cast<std::uint8_t>(++cell.flit.stamp);
  cell.in_port = static_cast<std::uint8_t>(p);
  s.ports[p].arrived = i;
  ++s.ports[p].held;
  ++s.held;
  ++s.window.arrived;
  ++s.ports[p].link.in;
  if (s.ports[p].to_hca) ++s.window.hca_flits;
}

void Engine::ask_admission(Switch& s, unsigned in_port, unsigned out_port, hca::Message& message) {
  const LaneSet set = routes.table.choices(s.id, message.dest).front().set;
  fabric::ask_admission(
      *hook, message,
      {s.id, in_port, out_port, now, &routes.lanes.lane[static_cast<std::size_t>(set)]});
}

void Engine::close_window() {
  const auto length = static_cast<emu::Cycle>(spec.energy_window);
  for (Switch& s : switches_) {
    ActivityWindow window = std::exchange(s.window, ActivityWindow{});
    if (window.arrived + window.crossed + window.sent + window.heads == 0) continue;
    window.begin = next_window - length;
    window.router = s.id;
    const std::size_t most = Network::kActivityWindowsMax * switches_.size();
    if (windows.size() >= most) windows.erase(windows.begin());
    windows.push_back(window);
  }
  next_window += length;
}

PortCounters Engine::router_counters(emu::RouterId router, emu::PortId port) const {
  const OutPort& p = switches_[router].ports[port];
  return {p.sent, p.received, p.wait_cycles};
}
LinkFlits Engine::link_flits(emu::RouterId router, emu::PortId port) const {
  return switches_[router].ports[port].link;
}
PortCounters Engine::wire_counters(emu::NodeId node) const {
  return {sources_[node].sent_by, sources_[node].received, sources_[node].wait_cycles};
}

// The memory knows no lanes: all cells are shown on the first.
Network::Occupancy Engine::occupancy(emu::RouterId router, emu::PortId port) const {
  const OutPort& p = switches_[router].ports[port];
  Network::Occupancy occupancy;
  occupancy.input[0] = static_cast<std::uint8_t>(std::min<std::uint32_t>(p.held, 255));
  occupancy.output[0] = static_cast<std::uint8_t>(std::min<std::uint32_t>(p.queued, 255));
  return occupancy;
}

std::string Engine::audit() const {
  for (unsigned unit = 0; unit < switches_.size() + sources_.size(); ++unit) {
    const bool is_switch = unit < switches_.size();
    const std::size_t ports = is_switch ? switches_[unit].ports.size() : 1;
    for (unsigned p = 0; p < ports; ++p) {
      if (!links_.connected(unit, p)) continue;
      std::uint32_t sum =
          is_switch ? switches_[unit].ports[p].credits : sources_[unit - switches_.size()].credits;
      const auto& end = links_.far(unit, p);
      sum += end.unit < switches_.size() ? switches_[end.unit].ports[end.port].held
                                         : sources_[end.unit - switches_.size()].card_count;
      for (int d = 0; d < spec.link_delay; ++d) {
        const emu::Cycle cycle = now + static_cast<emu::Cycle>(d);
        sum += links_.inbox_in(cycle, end.unit, end.port).has_flit ? 1U : 0U;
        sum += credits_in(links_.inbox_in(cycle, unit, p));
      }
      if (sum != static_cast<std::uint32_t>(spec.vc_buf_size))
        return fmt::format("unit {} port {}: cells and credits are {}, not {}", unit, p, sum,
                           spec.vc_buf_size);
    }
  }
  return {};
}

}  // namespace fabric::cell

namespace fabric {

std::unique_ptr<Network::Impl> make_cell_engine(const NetworkSpec& spec, Graph graph,
                                                ControlHook* hook) {
  return std::make_unique<cell::Engine>(spec, std::move(graph), hook);
}

}  // namespace fabric

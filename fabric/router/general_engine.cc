#include "fabric/router/general_engine.h"

#include <algorithm>
#include <bit>

#include "emu/lane/stamp.h"
#include "fabric/router/general_choose.h"
#include "fabric/router/general_hca_step.h"
#include "fabric/router/general_stages.h"

namespace fabric::general {

namespace {

std::uint32_t ring_room(const NetworkSpec& spec) {
  return std::bit_ceil(static_cast<std::uint32_t>(spec.vc_buf_size));
}

QueueBits all_queues(const World& world) {
  const unsigned queues = world.lanes * world.levels;
  return queues == kQueuesMax ? ~QueueBits{0} : queue_bit(queues) - 1;
}

}  // namespace

Engine::Engine(const NetworkSpec& network_spec, Graph network_graph, ControlHook* control_hook)
    : Impl(network_spec, std::move(network_graph), control_hook),
      world_(spec, graph, routes, messages, control_hook, design),
      routers_(graph.routers.size()),
      hcas_(graph.nodes.size()) {
  std::size_t ports = 0;
  for (const auto& router : graph.routers) ports += router.size();
  memory_.resize(ports * (world_.lanes * world_.levels + world_.lanes) * ring_room(spec));
  for (std::size_t r = 0; r < routers_.size(); ++r) set_up_router(r);
  for (std::size_t n = 0; n < hcas_.size(); ++n)
    hcas_[n].configure(static_cast<unsigned>(n), static_cast<unsigned>(routers_.size() + n),
                       world_);
}

void Engine::set_up_router(std::size_t index) {
  Router& router = routers_[index];
  router.id = static_cast<emu::RouterId>(index);
  router.ports.resize(graph.routers[index].size());
  router.leads.resize(router.ports.size() * router.ports.size());
  router.seeks.resize(router.ports.size() * router.ports.size());
  const std::uint32_t room = ring_room(spec);
  const auto take = [&](FlitRing& ring) {
    ring.use(&memory_[used_], room);
    used_ += room;
  };
  for (std::size_t p = 0; p < router.ports.size(); ++p) {
    Port& port = router.ports[p];
    port.to_hca = graph.routers[index][p].node != kNoNode;
    port.in.resize(world_.lanes * world_.levels);
    port.out.resize(world_.lanes);
    for (InputQueue& queue : port.in) take(queue.flits);
    for (OutputLane& lane : port.out) {
      take(lane.flits);
      lane.credits.fill(static_cast<std::uint16_t>(spec.vc_buf_size));
    }
    port.out_room = all_queues(world_);
    configure_schedulers(port.clock, port.arbiter, world_, world_.rules, world_.stamped_levels());
    if (!world_.full_crossbar()) port.next.configure(port.clock, spec.start);
  }
}

void Engine::step(emu::Cycle cycles) {
  for (const emu::Cycle end = now + cycles; now != end;) {
    while (launches[0].next() <= now) ready(launches[0].pop());
    const emu::Cycle epoch = now - now % emu::kStampPeriod + emu::kStampPeriod;
    const emu::Cycle due = std::min({end, launches[0].next(), next_window, epoch});
    if (idle()) {
      now = due;
    } else {
      with_design(world_, [&](auto type) { cycles_until<typename decltype(type)::type>(due); });
    }
    if (now == next_window) close_window();
    if (now == epoch) age(emu::kStampPeriod);
  }
}

template <class Design>
void Engine::cycles_until(emu::Cycle end) {
  for (; now != end; ++now) {
    world_.links.turn_to(now);
    pass_signals();
    for (Hca& hca : hcas_) {
      if (hca.quiet(world_)) continue;
      hca.send<Design>(world_, events, now);
      hca.receive(world_, events, now);
    }
    for (const emu::RouterId r : order) step_router<Design>(routers_[r], world_, now);
  }
}

// Acknowledgements of circuits go back a link in a link's delay.
void Engine::pass_signals() {
  while (world_.signal_count > 0 && world_.signals[world_.signal_first].due == now) {
    const World::Signal signal = world_.signals[world_.signal_first];
    world_.signal_first = (world_.signal_first + 1) % world_.signals.size();
    --world_.signal_count;
    if (signal.at.unit >= routers_.size()) {
      hcas_[signal.at.unit - routers_.size()].signal(signal.lane, signal.accepted);
      continue;
    }
    const QueueAt in = pass_signal(routers_[signal.at.unit], signal);
    world_.signal_back(signal.at.unit, in.port, lane_of(in.queue), signal.accepted, now);
  }
}

void Engine::ready(hca::MessageId id) {
  ++events.live;
  hcas_[messages[id].src].ready(world_, id, now);
}

void Engine::age(std::uint64_t) {
  for (Router& router : routers_) {
    for (Port& port : router.ports) {
      port.clock.age(now);
      port.next.age(now);
      const auto refresh = [&](FlitRing& ring) {
        for (std::uint32_t i = 0; i < ring.size(); ++i)
          ring[i].stamp = port.clock.aged(ring[i].stamp);
      };
      if (world_.full_crossbar()) {
        for (OutputLane& lane : port.out) refresh(lane.flits);
      } else {
        for (InputQueue& queue : port.in) {
          refresh(queue.flits);
          queue.dummy_stamp = port.clock.aged(queue.dummy_stamp);
        }
        for (unsigned queue = 0; queue < port.in.size(); ++queue) port.show_next(queue);
      }
    }
  }
  for (Hca& hca : hcas_) hca.age(now);
}

bool Engine::watch_heads(HeadWatcher* watcher) {
  if (world_.circuits()) return false;
  world_.watcher = watcher;
  return true;
}

void Engine::close_window() {
  const auto length = static_cast<emu::Cycle>(spec.energy_window);
  for (Router& router : routers_) {
    ActivityWindow window = std::exchange(router.window, ActivityWindow{});
    if (window.arrived + window.crossed + window.sent + window.heads == 0) continue;
    window.begin = next_window - length;
    window.router = router.id;
    const std::size_t most = Network::kActivityWindowsMax * routers_.size();
    if (windows.size() >= most) windows.erase(windows.begin());
    windows.push_back(window);
  }
  next_window += length;
  world_.herd.window_ends();
}

void Engine::set_weights(emu::RouterId router, emu::PortId port, const emu::VlWeights& w) {
  routers_[router].ports[port].arbiter.set_weights(w);
}
void Engine::set_wire_weights(emu::NodeId node, const emu::VlWeights& w) {
  hcas_[node].arbiter().set_weights(w);
}
void Engine::set_vtick(emu::RouterId router, emu::PortId port, emu::Vl vl, emu::Vtick vtick) {
  if (!emu::has_lane_vticks(world_.rules.kind)) return;
  const unsigned levels = world_.stamped_levels();
  for (unsigned level = 0; level < levels; ++level)
    routers_[router].ports[port].clock.set_vtick(World::queue_of(vl, level), vtick, now);
}
void Engine::set_wire_vtick(emu::NodeId node, emu::Vl vl, emu::Vtick vtick) {
  if (!emu::has_lane_vticks(world_.hca_rules.kind)) return;
  hcas_[node].clock().set_vtick(vl, vtick, now);
}

PortCounters Engine::router_counters(emu::RouterId router, emu::PortId port) const {
  const Port& p = routers_[router].ports[port];
  PortCounters counters;
  for (std::size_t v = 0; v < kLanesMax; ++v) {
    add(counters.received[v % emu::kVlCount], p.received[v]);
    add(counters.sent[v % emu::kVlCount], p.sent[v]);
  }
  counters.wait_cycles = p.wait_cycles;
  return counters;
}
LinkFlits Engine::link_flits(emu::RouterId router, emu::PortId port) const {
  return routers_[router].ports[port].link;
}
PortCounters Engine::wire_counters(emu::NodeId node) const { return hcas_[node].counters(); }

Network::Occupancy Engine::occupancy(emu::RouterId router, emu::PortId port) const {
  const Port& p = routers_[router].ports[port];
  Network::Occupancy occupancy;
  const auto shown = [](std::uint32_t flits) {
    return static_cast<std::uint8_t>(std::min<std::uint32_t>(flits, 255));
  };
  for (unsigned v = 0; v < std::min<unsigned>(emu::kVlCount, world_.lanes); ++v) {
    std::uint32_t flits = 0;
    for (unsigned level = 0; level < world_.levels; ++level)
      flits += p.in[World::queue_of(v, level)].flits.size();
    occupancy.input[v] = shown(flits);
    occupancy.output[v] = shown(p.out[v].flits.size());
  }
  return occupancy;
}
int Engine::wire_backlog(emu::NodeId node) const { return hcas_[node].backlog(); }

std::vector<Wait> Engine::waits() const {
  std::vector<Wait> found;
  for (const Router& router : routers_) {
    const auto add = [&](QueueAt in, unsigned out_port, unsigned out_lane, bool owns) {
      found.push_back({router.id, in.port, static_cast<emu::Vl>(lane_of(in.queue)),
                       static_cast<emu::PortId>(out_port), static_cast<emu::Vl>(out_lane), owns});
    };
    for (unsigned p = 0; p < router.ports.size(); ++p) {
      const Port& port = router.ports[p];
      for (QueueBits bits = port.routing; bits != 0; bits &= bits - 1) {
        const auto queue = static_cast<std::uint8_t>(std::countr_zero(bits));
        if (port.in[queue].waits_since == emu::kNever) continue;
        const hca::Message& message = messages[port.in[queue].flits.front().message];
        const Choice& choice = routes.table.choices(router.id, message.way)[1];
        add({static_cast<std::uint8_t>(p), queue}, choice.port,
            routes.lanes.at(choice.set, message.vl_out), false);
      }
      for (LaneBits bits = port.owned; bits != 0; bits &= bits - 1) {
        const auto v = static_cast<unsigned>(std::countr_zero(bits));
        const OutputLane& lane = port.out[v];
        if (world_.is_full(lane)) add(lane.owner, p, v, true);
        for (QueueAt q = lane.line_first; q != kNoQueue;
             q = router.ports[q.port].in[q.queue].next_in_line)
          add(q, p, v, false);
      }
    }
  }
  return found;
}

// Flits and credits of one link lane that are not at the sender: on the link, and in the receiver's
// buffer.
unsigned Engine::in_flight(unsigned unit, unsigned port, unsigned lane, unsigned level) const {
  const Links::End& end = world_.links.far(unit, port);
  unsigned sum = 0;
  if (end.unit < routers_.size())
    sum += routers_[end.unit].ports[end.port].in[World::queue_of(lane, level)].flits.size();
  for (int d = 0; d < spec.link_delay; ++d) {
    const emu::Cycle cycle = now + static_cast<emu::Cycle>(d);
    const Inbox& there = world_.links.inbox_in(cycle, end.unit, end.port);
    sum += there.has_flit && there.lane == lane && there.flit.level == level ? 1U : 0U;
    const QueueBits credits = world_.links.inbox_in(cycle, unit, port).credits;
    sum += (credits & queue_bit(World::queue_of(lane, level))) != 0 ? 1U : 0U;
  }
  return sum;
}

std::string Engine::audit_link(unsigned unit, unsigned port) const {
  for (unsigned lane = 0; lane < world_.lanes; ++lane) {
    for (unsigned level = 0; level < world_.levels; ++level) {
      const unsigned credits = unit < routers_.size()
                                   ? routers_[unit].ports[port].out[lane].credits[level]
                                   : hcas_[unit - routers_.size()].credits(lane, level);
      const unsigned sum = credits + in_flight(unit, port, lane, level);
      if (sum != static_cast<unsigned>(spec.vc_buf_size))
        return fmt::format("unit {} port {} lane {}: flits and credits are {}, not {}", unit, port,
                           lane, sum, spec.vc_buf_size);
    }
  }
  return {};
}

// What a port notes of a queue beside it: whether it could cross, where to, and how urgent it is.
bool Engine::is_noted(const Router& router, unsigned p, unsigned queue) const {
  const Port& port = router.ports[p];
  const InputQueue& q = port.in[queue];
  const auto has = [&](QueueBits bits) { return ((bits >> queue) & 1U) != 0; };
  const bool dummy = port.has_dummy(queue);
  const bool filled = dummy || !q.flits.empty();
  if (has(port.filled) != filled || (has(port.closing) && has(port.needs_head))) return false;
  if (filled && !port.next.holds(queue, dummy ? q.dummy_stamp : q.flits.front().stamp))
    return false;
  for (unsigned out = 0; out < router.ports.size(); ++out) {
    const bool leads = has(port.active) && q.out_port == out;
    if (has(router.leads[p * router.ports.size() + out]) != leads) return false;
  }
  if (!has(port.active)) return !has(port.outranked);
  const OutputLane& lane = router.ports[q.out_port].out[q.out_lane];
  const bool outranked = world_.preemptive() && lane.line_first != kNoQueue &&
                         World::level_of(lane.line_first.queue) > World::level_of(queue);
  return has(port.blocked) == world_.is_full(lane) && has(port.outranked) == outranked;
}

std::string Engine::audit_owners(const Router& router) const {
  int owners = 0;
  int active = 0;
  std::uint32_t held = 0;
  for (unsigned p = 0; p < router.ports.size(); ++p) {
    const Port& port = router.ports[p];
    for (unsigned queue = 0; queue < port.in.size(); ++queue)
      if (!is_noted(router, p, queue))
        return fmt::format("router {}: port {} notes queue {} wrong", router.id, p, queue);
    active += std::popcount(port.active);
    for (const InputQueue& queue : port.in) held += queue.flits.size();
    for (unsigned v = 0; v < world_.lanes; ++v) {
      const OutputLane& lane = port.out[v];
      held += lane.flits.size();
      for (unsigned level = 0; level < world_.levels; ++level) {
        const unsigned queue = World::queue_of(v, level);
        const bool next = !lane.flits.empty() && lane.flits.front().level == level;
        if (((port.out_next >> queue) & 1U) != unsigned{next} ||
            ((port.out_room >> queue) & 1U) != unsigned{lane.credits[level] != 0})
          return fmt::format("router {}: port {} notes output lane {} wrong", router.id, p, v);
      }
      if (lane.flits.size() > static_cast<std::uint32_t>(spec.vc_buf_size))
        return fmt::format("router {}: port {} lane {} holds too much", router.id, p, v);
      if (lane.owner == kNoQueue) continue;
      ++owners;
      const InputQueue& owner = router.ports[lane.owner.port].in[lane.owner.queue];
      if (owner.out_port != p || owner.out_lane != v ||
          ((router.ports[lane.owner.port].active >> lane.owner.queue) & 1U) == 0)
        return fmt::format("router {}: port {} lane {} has an owner that is elsewhere", router.id,
                           p, v);
    }
  }
  if (owners != active)
    return fmt::format("router {}: {} lanes owned by {} messages", router.id, owners, active);
  if (held != router.held)
    return fmt::format("router {}: holds {} flits, counts {}", router.id, held, router.held);
  return {};
}

// Whoever sleeps has no lane, unless one of its ports was freed: it looks again in the next cycle.
std::string Engine::audit_sleepers(const Router& router) const {
  std::array<LaneBits, kPortsMax> claimed{};
  for (const Port& port : router.ports)
    for (QueueBits bits = port.arbitrating; bits != 0; bits &= bits - 1) {
      const InputQueue& queue = port.in[static_cast<unsigned>(std::countr_zero(bits))];
      claimed[queue.out_port] |= lane_bit(queue.out_lane);
    }
  for (unsigned p = 0; p < router.ports.size(); ++p) {
    const Port& port = router.ports[p];
    const QueueBits* const seeks = &router.seeks[p * router.ports.size()];  // [output port]
    for (QueueBits bits = port.asleep; bits != 0; bits &= bits - 1) {
      const auto queue = static_cast<unsigned>(std::countr_zero(bits));
      const auto wrong = [&](const char* how) {
        return fmt::format("router {}: port {} queue {} sleeps {}", router.id, p, queue, how);
      };
      if (((port.routing >> queue) & 1U) == 0) return wrong("without a head to route");
      const hca::Message& message = messages[port.in[queue].flits.front().message];
      bool wakes = false;
      for (PortBits outs = router.freed; outs != 0; outs &= outs - 1)
        wakes |= ((seeks[std::countr_zero(outs)] >> queue) & 1U) != 0;
      std::array<LaneBits, kPortsMax> others = claimed;
      if (!wakes && choose_free(router, world_, message, others))
        return wrong("beside a free lane");
    }
  }
  return {};
}

std::string Engine::audit() const {
  for (unsigned unit = 0; unit < routers_.size() + hcas_.size(); ++unit) {
    const std::size_t ports = unit < routers_.size() ? routers_[unit].ports.size() : 1;
    for (unsigned port = 0; port < ports; ++port) {
      if (!world_.links.connected(unit, port)) continue;
      if (std::string wrong = audit_link(unit, port); !wrong.empty()) return wrong;
    }
  }
  for (const Router& router : routers_) {
    if (std::string wrong = audit_owners(router); !wrong.empty()) return wrong;
    if (std::string wrong = audit_sleepers(router); !wrong.empty()) return wrong;
  }
  return {};
}

}  // namespace fabric::general

namespace fabric {

std::unique_ptr<Network::Impl> make_general_engine(const NetworkSpec& spec, Graph graph,
                                                   ControlHook* hook) {
  return std::make_unique<general::Engine>(spec, std::move(graph), hook);
}

}  // namespace fabric

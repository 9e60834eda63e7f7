#include "fabric/router/network.h"

#include <algorithm>
#include <bit>

#include "emu/base/check.h"
#include "emu/lane/stamp.h"
#include "fabric/route/deadlock.h"
#include "fabric/route/routing.h"
#include "fabric/router/impl.h"

namespace fabric {

namespace {

emu::Cycle window_after(emu::Cycle cycle, int length) {
  const auto n = static_cast<emu::Cycle>(length);
  return (cycle / n + 1) * n;
}
emu::Cycle epoch_of(emu::Cycle cycle) { return cycle - cycle % emu::kStampPeriod; }

emu::Result<void> check_range(const char* field, int value, int low, int high) {
  if (value >= low && value <= high) return {};
  return emu::fail("{}: {} is not in {} ... {}", field, value, low, high);
}

// Deadlock recovery takes whatever lane is free: nothing that it routes has a fixed way.
emu::Result<void> check_recovery(const NetworkSpec& spec) {
  if (spec.routing != RoutingKind::recovery) return {};
  if (spec.router == RouterKind::preemptive || spec.router == RouterKind::circuit ||
      spec.router == RouterKind::cell)
    return emu::fail("routing recovery: router {} keeps to fixed ways; np, tr and vct do not",
                     kRouterNames[static_cast<std::size_t>(spec.router)]);
  if (spec.fixed_classes != 0)
    return emu::fail("routing recovery: admission books fixed ways, and here are none");
  return {};
}

emu::Result<void> check_spec(const NetworkSpec& spec) {
  for (const auto& result : {check_range("vc_buf_size", spec.vc_buf_size, 1, 4095),
                             check_range("alloc_iters", spec.alloc_iters, 1, 64),
                             check_range("link_delay", spec.link_delay, 1, 15),
                             check_range("packets_per_node", spec.packets_per_node, 1, 1 << 16),
                             check_range("answer_flits", spec.answer_flits, 1, hca::kFlitsMax),
                             check_range("energy_window", spec.energy_window, 1, 1 << 20),
                             check_range("quench_flits", spec.quench_flits, 1, 4095),
                             check_range("receive_cycles", spec.receive_cycles, 0, 1 << 20),
                             check_range("circuits", spec.circuits, 1, 32),
                             check_range("recovery_cycles", spec.recovery_cycles, 1, 1 << 20),
                             check_range("threads", spec.threads, 1, kThreadsMax),
                             check_range("block_flits", spec.block_flits, 1, 64),
                             check_range("scheduler", static_cast<int>(spec.scheduler), 0,
                                         emu::kSchedulerKindCount - 1)}) {
    if (!result) return result;
  }
  if (spec.router == RouterKind::cut_through && spec.answer_flits > spec.vc_buf_size)
    return emu::fail("vc_buf_size: {} flits do not hold an answer of {}", spec.vc_buf_size,
                     spec.answer_flits);
  if (auto result = check_recovery(spec); !result) return result;
  for (const emu::Vtick vtick : spec.lane_vtick) {
    if (auto result = check_range("lane_vtick", vtick, 0, emu::kVtickMax); !result) return result;
  }
  return {};
}

// Cells share one pool of credits on a link, whatever their lanes: what lanes keep apart elsewhere
// waits for each other here.
emu::Result<void> check_one_pool(const NetworkSpec& spec, const Graph& graph,
                                 const RouteTable& table) {
  const LanePlan all_on_lane_0{};
  const std::vector<LinkLane> ring = find_cycle(graph, table, all_on_lane_0, {1, 0, 0});
  if (ring.empty()) return {};
  return emu::fail(
      "routing {}: cells of all lanes share the credits of a link and could deadlock: {}; choose "
      "routing up_down",
      kRoutingNames[static_cast<std::size_t>(resolved(graph, spec.routing))], to_text(graph, ring));
}

emu::Result<Routes> routes_of(const NetworkSpec& spec, const Graph& graph) {
  if (spec.check_deadlock) {
    auto routes = make_routes(graph, spec.routing, spec.lanes_of_class);
    if (!routes || spec.router != RouterKind::cell) return routes;
    if (auto safe = check_one_pool(spec, graph, routes->table); !safe)
      return std::unexpected(safe.error());
    return routes;
  }
  auto table = make_table(graph, spec.routing);
  if (!table) return std::unexpected(table.error());
  const LanePlan lanes = make_lane_plan(table->sets(), spec.lanes_of_class);
  return Routes{std::move(*table), lanes};
}

// The fast engine has one scheduler at inputs and HCAs, or two that go by stamps.
bool fast_engine_schedules(const NetworkSpec& spec) {
  const emu::SchedulerKind at_routers = spec.router_scheduler();
  const emu::SchedulerKind at_hcas = spec.wire_scheduler();
  if (emu::takes_turns(at_routers)) return at_hcas == at_routers;
  return emu::goes_by_stamps(at_routers) && emu::goes_by_stamps(at_hcas);
}

// The designs of the fast engine; everything else is the general engine's.
bool fast_engine_does(const NetworkSpec& spec, const Graph& graph) {
  const bool router =
      spec.router == RouterKind::non_preemptive || spec.router == RouterKind::traditional;
  return router && spec.herd.window_pj == 0 && spec.routing != RoutingKind::recovery &&
         spec.crossbar == CrossbarKind::multiplexed && spec.counters == CounterKind::epoch &&
         spec.block_flits == 1 && fast_engine_schedules(spec) &&
         spec.vc_buf_size <= emu::kBufferMax && graph.ports_max() <= emu::kPortsMax;
}

std::unique_ptr<Network::Impl> make_fast_engine(const NetworkSpec& spec, Graph graph,
                                                ControlHook* hook) {
  if (spec.router == RouterKind::traditional)
    return make_traditional_engine(spec, std::move(graph), hook);
  switch (spec.scheduler) {
    case emu::SchedulerKind::round_robin:
      return make_turn_engine(spec, std::move(graph), hook);
    case emu::SchedulerKind::wrr:
    case emu::SchedulerKind::two_level:
      return make_weight_engine(spec, std::move(graph), hook);
    default:
      return make_stamp_engine(spec, std::move(graph), hook);
  }
}

}  // namespace

Shape shape_of(const NetworkSpec& spec) {
  Shape shape;
  shape.kind = spec.topology;
  shape.nodes = spec.nodes;
  shape.sides = spec.sides.empty() ? std::vector<int>{spec.mesh_k, spec.mesh_k} : spec.sides;
  shape.nodes_per_router = spec.nodes_per_router;
  shape.links = spec.links;
  shape.arity = spec.arity;
  shape.levels = spec.levels;
  shape.text = spec.graph_text;
  shape.source = spec.graph_source;
  return shape;
}

std::array<emu::Vtick, emu::kVlCount> default_lane_vticks(
    const std::array<emu::LaneMask, emu::kClassCount>& lanes_of_class) {
  std::array<emu::Vtick, emu::kVlCount> vticks{};
  const auto real_time = lanes_of_class[static_cast<int>(emu::TrafficClass::real_time)];
  for (unsigned v = 0; v < emu::kVlCount; ++v) {
    vticks[v] =
        (real_time >> v) & 1U ? static_cast<emu::Vtick>(std::popcount(real_time)) : emu::kVtickMax;
  }
  return vticks;
}

Network::Impl::Impl(const NetworkSpec& network_spec, Graph network_graph, ControlHook* control_hook)
    : spec(network_spec),
      graph(std::move(network_graph)),
      routes{RouteTable(0, 0), {}},
      messages(static_cast<int>(graph.nodes.size()), spec.packets_per_node),
      events(messages.size()),
      parts(std::min(static_cast<std::size_t>(spec.threads), graph.routers.size())),
      part_of_group((graph.nodes.size() + emu::kPortsMax - 1) / emu::kPortsMax),
      hook(control_hook),
      now(spec.start),
      next_window(window_after(spec.start, spec.energy_window)) {
  windows.reserve(graph.routers.size() * kActivityWindowsMax);
  launches.reserve(parts);  // a copy would not have the room that a queue has reserved
  for (std::size_t part = 0; part < parts; ++part) launches.emplace_back(messages);
  for (std::size_t r = 0; r < graph.routers.size(); ++r)
    order.push_back(static_cast<emu::RouterId>(r));
}

void Network::Impl::jump(emu::Cycle cycle) {
  const std::uint64_t moved = epoch_of(cycle) - epoch_of(now);
  now = cycle;
  watch_busy = false;
  if (moved != 0) age(moved);
  if (now < next_window) return;
  close_window();  // it ended in the idle time, as did those behind it
  const emu::Cycle next = window_after(now, spec.energy_window);
  windows_passed((next - next_window) / static_cast<emu::Cycle>(spec.energy_window));
  next_window = next;
}

emu::Result<std::unique_ptr<Network>> Network::make(const NetworkSpec& spec, ControlHook* hook) {
  if (auto result = check_spec(spec); !result) return std::unexpected(result.error());
  auto graph = make_graph(shape_of(spec));
  if (!graph) return std::unexpected(graph.error());
  auto routes = routes_of(spec, *graph);
  if (!routes) return std::unexpected(routes.error());
  if (spec.router == RouterKind::cell && graph->nodes.size() > kCellNodesMax)
    return emu::fail("topology: {} nodes; cell switches know connections of up to {}",
                     graph->nodes.size(), kCellNodesMax);
  const bool can_be_fast = fast_engine_does(spec, *graph);
  const bool fast = !spec.general_engine && can_be_fast;
  if (!fast && spec.threads != 1)
    return emu::fail("threads: {}; {} steps on 1", spec.threads,
                     can_be_fast ? "engine = \"general\"" : "this design's engine");
  const auto make_impl = fast                              ? make_fast_engine
                         : spec.router == RouterKind::cell ? make_cell_engine
                                                           : make_general_engine;
  auto impl = make_impl(spec, std::move(*graph), hook);
  impl->routes = std::move(*routes);
  return std::unique_ptr<Network>(new Network(std::move(impl)));
}

Network::Network(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Network::~Network() = default;

bool Network::watch(HeadWatcher* watcher) { return impl_->watch_heads(watcher); }

int Network::nodes() const { return static_cast<int>(impl_->graph.nodes.size()); }
int Network::routers() const { return static_cast<int>(impl_->graph.routers.size()); }
int Network::ports(emu::RouterId router) const {
  return static_cast<int>(impl_->graph.routers[router].size());
}
emu::RouterId Network::router_of(emu::NodeId node) const { return impl_->graph.nodes[node].router; }
emu::PortId Network::port_of(emu::NodeId node) const { return impl_->graph.nodes[node].port; }
emu::NodeId Network::node_at(emu::RouterId router, emu::PortId port) const {
  return impl_->graph.routers[router][port].node;
}
int Network::hops(emu::NodeId src, emu::NodeId dest) const {
  return static_cast<int>(path(src, dest).size());
}
std::vector<Hop> Network::path(emu::NodeId src, emu::NodeId dest) const {
  return fabric::path(impl_->graph, impl_->routes.table, src, dest, impl_->version);
}
emu::PortId Network::route(emu::RouterId router, emu::NodeId dest) const {
  return impl_->routes.table.out_port(router, impl_->routes.table.first_way(impl_->version) + dest);
}
std::span<const Choice> Network::choices(emu::RouterId router, emu::NodeId dest) const {
  return impl_->routes.table.choices(router, impl_->routes.table.first_way(impl_->version) + dest);
}
Network::Peer Network::peer(emu::RouterId router, emu::PortId port) const {
  const PortEnd& end = impl_->graph.routers[router][port];
  return {end.router, end.port};
}
emu::Cycle Network::now() const { return impl_->now; }

bool Network::submit(emu::NodeId src, const hca::SendPacket& packet) {
  CHECK(src < impl_->graph.nodes.size() && packet.dest < impl_->graph.nodes.size());
  CHECK(packet.flits >= 1 && packet.flits <= hca::kFlitsMax);
  CHECK(packet.stream <= hca::kStreamsMax);
  CHECK(impl_->spec.router != RouterKind::cut_through || packet.flits <= impl_->spec.vc_buf_size);
  CHECK(packet.vl_in < emu::kVlCount && packet.vl_out < emu::kVlCount);
  const hca::MessageId id = impl_->messages.take(src);
  if (id == hca::kNoMessage) return false;
  hca::Message& message = impl_->messages[id];
  message.cookie = packet.cookie;
  message.launch = std::max(packet.launch, impl_->now);
  message.handle = packet.handle;
  message.flits = packet.flits;
  message.src = src;
  message.dest = packet.dest;
  message.vtick = std::min(packet.vtick, emu::kVtickMax);
  message.rejected_by = emu::kNoRouter;
  message.vl_in = packet.vl_in;
  message.vl_out = packet.vl_out;
  message.traffic_class = packet.traffic_class;
  message.kind = packet.kind;
  message.is_answer = false;
  message.stream = packet.stream;
  // What waits for this very cycle becomes ready when it begins, and this one behind it. Whose part
  // waits makes no difference: threads must not decide by which Vticks a message is stamped.
  if (message.launch <= impl_->now && impl_->next_launch() > impl_->now) {
    impl_->ready(id);
  } else {
    impl_->launches_of(src).push(message.launch, id);
  }
  return true;
}
int Network::room(emu::NodeId src) const { return impl_->messages.room(src); }

void Network::step(emu::Cycle cycles) {
  impl_->step(cycles);
  impl_->watch();
}
void Network::run_until(emu::Cycle cycle) {
  while (impl_->now < cycle) {
    if (impl_->idle()) {
      const emu::Cycle next = std::min(cycle, impl_->next_launch());
      if (next > impl_->now) impl_->jump(next);
      if (impl_->now == cycle) return;
    }
    // Long enough to be cheap, short enough to notice idle time.
    constexpr emu::Cycle kStretch = 256;
    step(std::min(cycle - impl_->now, kStretch));
  }
}
bool Network::idle() const { return impl_->idle(); }
emu::Cycle Network::next_event_cycle() const {
  return impl_->idle() ? std::max(impl_->next_launch(), impl_->now) : impl_->now;
}
void Network::skip_to(emu::Cycle cycle) {
  CHECK(impl_->idle() && cycle >= impl_->now && impl_->next_launch() >= cycle);
  impl_->jump(cycle);
}

std::span<const hca::InjectedEvent> Network::injected() const { return impl_->events.injected; }
std::span<const hca::DeliveredEvent> Network::delivered() const { return impl_->events.delivered; }
std::span<const hca::AnswerEvent> Network::answers() const { return impl_->events.answers; }
std::span<const ActivityWindow> Network::activity() const { return impl_->windows; }
void Network::clear_events() {
  for (const hca::MessageId id : impl_->events.done) impl_->messages.give_back(id);
  impl_->events.done.clear();
  impl_->events.injected.clear();
  impl_->events.delivered.clear();
  impl_->events.answers.clear();
  impl_->windows.clear();
}

void Network::set_weights(emu::RouterId router, emu::PortId in_port, const emu::VlWeights& w) {
  impl_->set_weights(router, in_port, w);
}
void Network::set_wire_weights(emu::NodeId node, const emu::VlWeights& w) {
  impl_->set_wire_weights(node, w);
}
void Network::set_lane_vtick(emu::RouterId router, emu::PortId in_port, emu::Vl vl,
                             emu::Vtick vtick) {
  if (!emu::has_lane_vticks(impl_->spec.router_scheduler())) return;
  impl_->set_vtick(router, in_port, vl, std::min(vtick, emu::kVtickMax));
}
void Network::set_wire_vtick(emu::NodeId node, emu::Vl vl, emu::Vtick vtick) {
  if (!emu::has_lane_vticks(impl_->spec.wire_scheduler())) return;
  impl_->set_wire_vtick(node, vl, std::min(vtick, emu::kVtickMax));
}

PortCounters Network::router_counters(emu::RouterId router, emu::PortId port) const {
  return impl_->router_counters(router, port);
}
PortCounters Network::wire_counters(emu::NodeId node) const { return impl_->wire_counters(node); }
LinkFlits Network::link_flits(emu::RouterId router, emu::PortId port) const {
  return impl_->link_flits(router, port);
}
Network::Occupancy Network::occupancy(emu::RouterId router, emu::PortId port) const {
  return impl_->occupancy(router, port);
}
DesignCounters Network::design_counters() const { return impl_->design; }
int Network::wire_backlog(emu::NodeId node) const { return impl_->wire_backlog(node); }

void Network::set_step_order(std::span<const emu::RouterId> order) {
  CHECK(std::is_permutation(order.begin(), order.end(), impl_->order.begin(), impl_->order.end()));
  impl_->order.assign(order.begin(), order.end());
  impl_->order_changed();
}
const std::string& Network::stuck() const { return impl_->stuck; }
std::string Network::audit() const { return impl_->audit(); }
std::uint64_t Network::digest() const { return impl_->events.digest; }

}  // namespace fabric

#include "fabric/daemon/spec.h"

#include <algorithm>
#include <fstream>
#include <string>

#include "emu/config/agreed.h"
#include "fabric/daemon/notices.h"
#include "fabric/route/table.h"
#include "fabric/topo/file.h"
#include "fabric/topo/graph.h"
#include "hca/wire/packet.h"

namespace fabric {

namespace {

emu::SchedulerKind scheduler_kind(emu::Scheduler scheduler) {
  switch (scheduler) {
    case emu::Scheduler::vclk:
      return emu::SchedulerKind::virtual_clock;
    case emu::Scheduler::fgvc:
      return emu::SchedulerKind::fgvc;
    case emu::Scheduler::fcfs:
      return emu::SchedulerKind::fcfs;
    case emu::Scheduler::rr:
      return emu::SchedulerKind::round_robin;
    case emu::Scheduler::wrr:
      return emu::SchedulerKind::wrr;
    case emu::Scheduler::two_level:
      return emu::SchedulerKind::two_level;
    case emu::Scheduler::vclk_hol:
      return emu::SchedulerKind::head_of_line;
    case emu::Scheduler::fq:
      return emu::SchedulerKind::fair_queueing;
    case emu::Scheduler::fgfq:
      return emu::SchedulerKind::fgfq;
  }
  return emu::SchedulerKind::fgvc;
}

// The names of both lists are the same but for the first of the HCAs', "router".
static_assert(static_cast<int>(emu::HcaScheduler::fgfq) ==
              static_cast<int>(emu::Scheduler::fgfq) + 1);
std::optional<emu::SchedulerKind> hca_scheduler_kind(emu::HcaScheduler scheduler) {
  if (scheduler == emu::HcaScheduler::router) return std::nullopt;
  return scheduler_kind(static_cast<emu::Scheduler>(static_cast<int>(scheduler) - 1));
}

// The IBA (7.6.9.2) counts weights in 64 bytes, the engine in flits, at least one. An entry of
// weight 0 is skipped; several of one lane add up.
void add_entries(std::array<std::uint16_t, emu::kVlCount>& table,
                 const std::vector<emu::VlWeight>& entries, std::uint32_t flit_bits) {
  std::array<std::uint32_t, emu::kVlCount> units{};
  for (const auto& entry : entries) units[entry.vl] += entry.weight;
  for (std::size_t vl = 0; vl < emu::kVlCount; ++vl) {
    if (units[vl] == 0) continue;
    const std::uint32_t flits = (units[vl] * 64 * 8 + flit_bits / 2) / flit_bits;
    table[vl] = static_cast<std::uint16_t>(
        std::clamp<std::uint32_t>(flits, 1, std::uint32_t{emu::kWeightMax}));
  }
}

// Limit of High Priority: units of 4 KiB, 0 is one packet, which any flit reaches, 255 none.
std::uint16_t limit_of(const emu::Config& config) {
  constexpr std::uint32_t kNone = 255;
  constexpr std::uint32_t kMost = 0xfff0;  // of a streak that arbiters count
  const std::uint32_t units = config.qos.qos_high_limit;
  if (units >= kNone) return emu::kLimitUnbounded;
  const std::uint32_t flits = units * 4096 * 8 / config.network.flit_bits;
  return static_cast<std::uint16_t>(std::clamp<std::uint32_t>(flits, 1, kMost));
}

emu::VlWeights weights_of(const emu::Config& config) {
  emu::VlWeights weights;
  const emu::QosConfig& qos = config.qos;
  weights.high_limit = limit_of(config);
  weights.whole_packets = true;
  weights.pointer =
      qos.pointer == emu::Pointer::fast ? emu::PointerKind::fast : emu::PointerKind::slow;
  add_entries(weights.high, qos.qos_vlarb_high, config.network.flit_bits);
  add_entries(weights.low, qos.qos_vlarb_low, config.network.flit_bits);
  if (!qos.qos_vlarb_high.empty() || !qos.qos_vlarb_low.empty()) return weights;
  // Nothing given and nothing booked yet: every real-time lane an equal share of the small frame.
  const auto real_time = qos.class_vls[static_cast<std::size_t>(emu::TrafficClass::real_time)];
  const auto best_effort = qos.class_vls[static_cast<std::size_t>(emu::TrafficClass::best_effort)];
  for (std::size_t vl = 0; vl < emu::kVlCount; ++vl) {
    if ((real_time >> vl & 1) != 0) weights.high[vl] = 4;
    if ((best_effort >> vl & 1) != 0) weights.low[vl] = 4;
  }
  return weights;
}

void set_shape(NetworkSpec& spec, const emu::NetworkConfig& network) {
  const emu::TopologyChoice& topology = network.topology;
  static_assert(static_cast<int>(TopologyKind::file) == static_cast<int>(emu::Topology::file));
  spec.topology = static_cast<TopologyKind>(topology.kind);
  spec.nodes = static_cast<int>(network.nodes);
  spec.nodes_per_router = static_cast<int>(network.nodes_per_router);
  spec.links = static_cast<int>(network.links_per_neighbor);
  if (topology.is_grid()) spec.sides.assign(topology.sizes.begin(), topology.sizes.end());
  if (topology.kind == emu::Topology::tree) {
    spec.arity = static_cast<int>(topology.sizes[0]);
    spec.levels = static_cast<int>(topology.sizes[1]);
  }
  if (topology.kind == emu::Topology::file) {
    spec.graph_source = topology.file;
    spec.graph_text = content_of(topology.file);
  }
}

static_assert(static_cast<int>(RouterKind::cell) == static_cast<int>(emu::Router::cell) &&
              static_cast<int>(CrossbarKind::full) == static_cast<int>(emu::Crossbar::full) &&
              static_cast<int>(CounterKind::overflow) == static_cast<int>(emu::Counters::overflow));
static_assert(std::size(kRoutingNames) == 8 &&
              static_cast<int>(RoutingKind::recovery) == static_cast<int>(emu::Routing::recovery));

}  // namespace

std::string content_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text(kGraphBytesMax + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(file.gcount()));
  return text;
}

NetworkSpec network_spec(const emu::Config& config, emu::Cycle start) {
  NetworkSpec spec;
  const emu::NetworkConfig& network = config.network;
  set_shape(spec, network);
  spec.routing = static_cast<RoutingKind>(network.routing);
  // What admission has booked must be what real-time packets use: they keep to the probe's way.
  spec.fixed_classes = config.controls.admission ? 0b011 : 0;
  spec.router = static_cast<RouterKind>(network.router);
  spec.flow = static_cast<FlowKind>(network.flow_control);
  spec.quench_flits = static_cast<int>(network.quench_flits);
  spec.circuits = static_cast<int>(network.circuits);
  spec.accelerate = network.accelerate;
  spec.crossbar = static_cast<CrossbarKind>(network.crossbar);
  spec.counters = static_cast<CounterKind>(config.qos.counters);
  spec.block_flits = static_cast<int>(config.qos.block_flits);
  spec.block_waits = config.qos.block_waits;
  // Only its routers mark packets.
  spec.general_engine =
      network.engine == emu::Engine::general || Notices::marks(config.controls.congestion);
  spec.vc_buf_size = static_cast<int>(network.vc_buf_size);
  spec.threads = static_cast<int>(network.threads);
  spec.alloc_iters = static_cast<int>(network.alloc_iters);
  spec.link_delay = static_cast<int>(network.link_delay);
  spec.recovery_cycles = static_cast<int>(network.recovery_cycles);
  spec.scheduler = scheduler_kind(config.qos.scheduler);
  spec.hca_scheduler = hca_scheduler_kind(config.qos.hca_scheduler);
  spec.strict_classes = config.qos.strict_classes;
  spec.control_first = config.qos.control_first;
  spec.weights = weights_of(config);
  spec.lanes_of_class = config.qos.class_vls;
  spec.lane_vtick = default_lane_vticks(config.qos.class_vls);
  // Two sessions of a node may overlap: one drains while the next begins.
  spec.packets_per_node = static_cast<int>(2 * kSlotsPerNode);
  spec.answer_flits = static_cast<std::uint16_t>(network.control_packet_size);
  spec.start = start;
  if (config.power_herd()) {
    spec.herd.window_pj = config.power_cap_w() * static_cast<double>(spec.energy_window) *
                          static_cast<double>(network.cycle_time().cycle_ps);
    spec.herd.energy = config.energy;
  }
  return spec;
}

std::uint64_t router_ports(const Network& network, emu::RouterId router) {
  std::uint64_t ports = 0;
  for (int p = 0; p < network.ports(router); ++p) {
    if (network.peer(router, static_cast<emu::PortId>(p)).router != emu::kNoRouter)
      ports |= std::uint64_t{1} << p;
  }
  return ports;
}

void tell_links(emu::Config& config, const NetworkSpec& spec) {
  const auto graph = make_graph(shape_of(spec));
  const std::size_t nodes = config.nodes.size();
  if (!graph || graph->nodes.size() != nodes) return;
  const auto table = make_table(*graph, spec.routing);
  if (!table) return;
  std::vector<std::string> told(nodes);
  bool differ = config.network.topology.kind == emu::Topology::file;
  for (std::size_t a = 0; a < nodes; ++a) {
    for (std::size_t b = 0; b < nodes; ++b) {
      const std::size_t links =
          path(*graph, *table, static_cast<emu::NodeId>(a), static_cast<emu::NodeId>(b)).size() - 1;
      differ |= links != config.links_between(a, b);
      // Base 36 ends there; nothing is so far in a cluster of 64 nodes but by a file's odd will.
      told[a] += "0123456789abcdefghijklmnopqrstuvwxyz"[std::min<std::size_t>(links, 35)];
    }
  }
  for (std::size_t a = 0; differ && a < nodes; ++a) config.nodes[a].links_to = told[a];
}

BookLimits book_limits(const emu::Config& config, int routers) {
  BookLimits limits;
  limits.link_bps = config.reservable_bps();
  limits.power_w = config.real_time_power_w() / routers;
  limits.router_flit_pj = config.energy.router_flit_pj();
  if (config.controls.power_booking == emu::PowerBooking::links)
    limits.link_flit_pj = config.energy.link_flit_pj();
  limits.hca_flit_pj = config.energy.hca_flit_pj;
  limits.flit_bits = config.network.flit_bits;
  limits.power_control = config.power_scheme();
  return limits;
}

EdgeRules edge_rules(const emu::Config& config) {
  EdgeRules rules;
  rules.node_count = config.nodes.size();
  rules.flit_bytes = config.network.flit_bits / 8;
  rules.flits_max = static_cast<std::uint16_t>(
      std::min<std::size_t>(hca::kFlitsMax, emu::kPacketBytesMax / rules.flit_bytes + 1));
  rules.trains = config.network.pass_through && config.attach.kind == emu::AttachKind::shm;
  if (config.buffers_hold_packets())
    rules.flits_max = std::min<std::uint16_t>(
        rules.flits_max, static_cast<std::uint16_t>(config.network.vc_buf_size));
  for (std::size_t i = 0; i < emu::kClassCount; ++i) {
    rules.lanes_of_class[i] = config.qos.class_vls[i];
  }
  rules.cycle_time = config.network.cycle_time();
  // Longer than any horizon of an hcad (10 ms by default, 400 ms at most), short enough that what a
  // dead node left behind has left within the second in which its bookings must be released.
  rules.horizon_cycles = rules.cycle_time.cycle_at(500'000'000);
  for (const auto& node : config.nodes) rules.node_names.push_back(node.name);
  rules.agreed = emu::agreed_settings(config);
  return rules;
}

emu::PaceOptions pace_options(const emu::Config& config) {
  emu::PaceOptions options;
  options.mode = config.clock.mode;
  options.cycle_time = config.network.cycle_time();
  options.slack_ns = config.clock.slack_ms * std::uint64_t{1'000'000};
  options.hard_limit_ns = config.clock.hard_limit_ms * std::uint64_t{1'000'000};
  options.quantum_ns = config.clock.quantum_us * std::uint64_t{1'000};
  return options;
}

}  // namespace fabric

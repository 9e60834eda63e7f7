#include "fabric/daemon/spec.h"

#include <algorithm>

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
  }
  return emu::SchedulerKind::fgvc;
}

// The IBA counts weights in 64 bytes, the engine in flits; at least one.
std::uint16_t flits_of(std::uint8_t weight, std::uint32_t flit_bits) {
  return static_cast<std::uint16_t>(std::max<std::uint32_t>(1, weight * 64U * 8 / flit_bits));
}

emu::VlWeights weights_of(const emu::Config& config) {
  emu::VlWeights weights;
  const emu::QosConfig& qos = config.qos;
  weights.high_limit = static_cast<std::uint8_t>(std::min(qos.qos_high_limit, 255U));
  weights.pointer =
      qos.pointer == emu::Pointer::fast ? emu::PointerKind::fast : emu::PointerKind::slow;
  for (const auto& entry : qos.qos_vlarb_high) {
    weights.high[entry.vl] = flits_of(entry.weight, config.network.flit_bits);
  }
  for (const auto& entry : qos.qos_vlarb_low) {
    weights.low[entry.vl] = flits_of(entry.weight, config.network.flit_bits);
  }
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

}  // namespace

NetworkSpec network_spec(const emu::Config& config, emu::Cycle start) {
  NetworkSpec spec;
  const emu::NetworkConfig& network = config.network;
  spec.topology =
      network.topology == emu::Topology::single ? TopologyKind::single : TopologyKind::mesh;
  spec.nodes = static_cast<int>(network.nodes);
  spec.mesh_k = static_cast<int>(network.k);
  spec.nodes_per_router = static_cast<int>(network.nodes_per_router);
  spec.vc_buf_size = static_cast<int>(network.vc_buf_size);
  spec.link_delay = static_cast<int>(network.link_delay);
  spec.scheduler = scheduler_kind(config.qos.scheduler);
  spec.weights = weights_of(config);
  spec.lanes_of_class = config.qos.class_vls;
  spec.lane_vtick = default_lane_vticks(config.qos.class_vls);
  // Two sessions of a node may overlap: one drains while the next begins.
  spec.packets_per_node = static_cast<int>(2 * kSlotsPerNode);
  spec.answer_flits = static_cast<std::uint16_t>(network.control_packet_size);
  spec.start = start;
  return spec;
}

BookLimits book_limits(const emu::Config& config) {
  BookLimits limits;
  limits.link_bps = static_cast<std::uint64_t>(static_cast<double>(config.network.link_bps()) *
                                               config.controls.reservable_share);
  limits.power_w = config.real_time_power_w() / config.router_count();
  limits.router_flit_pj = config.energy.router_flit_pj();
  limits.flit_bits = config.network.flit_bits;
  limits.power_control = config.controls.power_control;
  return limits;
}

EdgeRules edge_rules(const emu::Config& config) {
  EdgeRules rules;
  rules.node_count = config.nodes.size();
  rules.flit_bytes = config.network.flit_bits / 8;
  rules.flits_max = static_cast<std::uint16_t>(
      std::min<std::size_t>(hca::kFlitsMax, emu::kPacketBytesMax / rules.flit_bytes + 1));
  for (std::size_t i = 0; i < emu::kClassCount; ++i) {
    rules.lanes_of_class[i] = config.qos.class_vls[i];
  }
  rules.cycle_time = config.network.cycle_time();
  // Longer than any horizon of an hcad (10 ms by default), short enough that what a dead node left
  // behind has left within the second in which its bookings must be released.
  rules.horizon_cycles = rules.cycle_time.cycle_at(500'000'000);
  for (const auto& node : config.nodes) rules.node_names.push_back(node.name);
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

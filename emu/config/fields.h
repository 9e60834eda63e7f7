// The one list that ties a key of schema.json to a field of Config: loading and printing visit it.
// A test compares it with the schema. Private to this room.
#pragma once

#include <array>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "emu/config/config.h"

namespace emu::config {

template <class Controls, class Visitor>
void visit_controls(Controls& controls, Visitor&& visit) {
  visit("controls", "admission", controls.admission);
  visit("controls", "congestion_control", controls.congestion_control);
  visit("controls", "congestion", controls.congestion);
  visit("controls", "notice", controls.notice);
  visit("controls", "vct_threshold", controls.vct_threshold);
  visit("controls", "vct_history", controls.vct_history);
  visit("controls", "vct_period", controls.vct_period);
  visit("controls", "vct_step", controls.vct_step);
  visit("controls", "vct_timeout", controls.vct_timeout);
  visit("controls", "vct_messages", controls.vct_messages);
  visit("controls", "vct_counts", controls.vct_counts);
  visit("controls", "mark_from", controls.mark_from);
  visit("controls", "mark_all", controls.mark_all);
  visit("controls", "ccti_increase", controls.ccti_increase);
  visit("controls", "ccti_limit", controls.ccti_limit);
  visit("controls", "ccti_timer_us", controls.ccti_timer_us);
  visit("controls", "dcqcn_notice_us", controls.dcqcn_notice_us);
  visit("controls", "dcqcn_timer_us", controls.dcqcn_timer_us);
  visit("controls", "dcqcn_gain", controls.dcqcn_gain);
  visit("controls", "dcqcn_rate_ai", controls.dcqcn_rate_ai);
  visit("controls", "dcqcn_rate_hai", controls.dcqcn_rate_hai);
  visit("controls", "completion_queues", controls.completion_queues);
  visit("controls", "power_control", controls.power_control);
  visit("controls", "peak_power", controls.peak_power);
  visit("controls", "power_booking", controls.power_booking);
  visit("controls", "reservable_share", controls.reservable_share);
  visit("controls", "best_effort_credits", controls.best_effort_credits);
  visit("controls", "hca_buffer_packets", controls.hca_buffer_packets);
  visit("controls", "power_cap_w", controls.power_cap_w);
  visit("controls", "power_cap_load", controls.power_cap_load);
  visit("controls", "power_rt_share", controls.power_rt_share);
}

template <class Network, class Visitor>
void visit_network(Network& network, Visitor&& visit) {
  visit("network", "topology", network.topology);
  visit("network", "routing", network.routing);
  visit("network", "router", network.router);
  visit("network", "flow_control", network.flow_control);
  visit("network", "quench_flits", network.quench_flits);
  visit("network", "circuits", network.circuits);
  visit("network", "accelerate", network.accelerate);
  visit("network", "crossbar", network.crossbar);
  visit("network", "engine", network.engine);
  visit("network", "k", network.k);
  visit("network", "nodes", network.nodes);
  visit("network", "nodes_per_router", network.nodes_per_router);
  visit("network", "links_per_neighbor", network.links_per_neighbor);
  visit("network", "link_mbps", network.link_mbps);
  visit("network", "flit_bits", network.flit_bits);
  visit("network", "num_vcs", network.num_vcs);
  visit("network", "vc_buf_size", network.vc_buf_size);
  visit("network", "threads", network.threads);
  visit("network", "alloc_iters", network.alloc_iters);
  visit("network", "packet_size", network.packet_size);
  visit("network", "control_packet_size", network.control_packet_size);
  visit("network", "pass_through", network.pass_through);
  visit("network", "link_delay", network.link_delay);
  visit("network", "recovery_cycles", network.recovery_cycles);
  visit("network", "seed", network.seed);
}

template <class C, class Visitor>
void visit_fields(C& c, Visitor&& visit) {
  visit_network(c.network, visit);
  visit("qos", "scheduler", c.qos.scheduler);
  visit("qos", "hca_scheduler", c.qos.hca_scheduler);
  visit("qos", "block_flits", c.qos.block_flits);
  visit("qos", "block_waits", c.qos.block_waits);
  visit("qos", "counters", c.qos.counters);
  visit("qos", "strict_classes", c.qos.strict_classes);
  visit("qos", "control_first", c.qos.control_first);
  visit("qos", "frame", c.qos.frame);
  visit("qos", "pointer", c.qos.pointer);
  visit("qos", "qos_high_limit", c.qos.qos_high_limit);
  visit("qos", "qos_vlarb_high", c.qos.qos_vlarb_high);
  visit("qos", "qos_vlarb_low", c.qos.qos_vlarb_low);
  visit("qos", "qos_sl2vl", c.qos.qos_sl2vl);
  visit("qos", "sl_class", c.qos.sl_class);
  visit("qos", "vls_control", c.qos.class_vls[0]);
  visit("qos", "vls_real_time", c.qos.class_vls[1]);
  visit("qos", "vls_best_effort", c.qos.class_vls[2]);
  visit_controls(c.controls, visit);
  visit("hca", "launch_horizon_us", c.hca.launch_horizon_us);
  visit("hca", "vendor_id", c.hca.vendor_id);
  visit("hca", "vendor_part_id", c.hca.vendor_part_id);
  visit("hca", "link_layer", c.hca.link_layer);
  visit("hca", "process", c.hca.process);
  visit("hca", "mtu", c.hca.mtu);
  visit("hca", "crc_on_host", c.hca.crc_on_host);
  visit("hca", "device", c.hca.device);
  visit("clock", "mode", c.clock.mode);
  visit("clock", "hard_limit_ms", c.clock.hard_limit_ms);
  visit("clock", "slack_ms", c.clock.slack_ms);
  visit("clock", "follow_ms", c.clock.follow_ms);
  visit("clock", "quantum_us", c.clock.quantum_us);
  visit("attach", "kind", c.attach.kind);
  visit("attach", "listen", c.attach.listen);
  visit("attach", "fabric", c.attach.fabric);
  visit("attach", "key_file", c.attach.key_file);
  visit("attach", "mtu", c.attach.mtu);
  visit("attach", "ethdev", c.attach.ethdev);
  visit("attach", "heartbeat_ms", c.attach.heartbeat_ms);
  visit("attach", "dead_after_ms", c.attach.dead_after_ms);
  visit("energy", "buffer_read_pj", c.energy.buffer_read_pj);
  visit("energy", "buffer_write_pj", c.energy.buffer_write_pj);
  visit("energy", "arbitration_pj", c.energy.arbitration_pj);
  visit("energy", "crossbar_pj", c.energy.crossbar_pj);
  visit("energy", "link_pj_per_bit", c.energy.link_pj_per_bit);
  visit("energy", "hca_flit_pj", c.energy.hca_flit_pj);
  visit("energy", "hca_core_pj", c.energy.hca_core_pj);
  visit("energy", "hca_memory_pj_per_byte", c.energy.hca_memory_pj_per_byte);
}

template <class N, class Visitor>
void visit_node_fields(N& node, Visitor&& visit) {
  visit("node", "name", node.name);
  visit("node", "ip", node.ip);
  visit("node", "links_to", node.links_to);
}

// The words of each enumeration in the order of its values.
inline constexpr std::array<std::string_view, 7> kTopologyNames = {
    "single", "mesh", "torus", "fat_mesh", "fat_tree", "tree", "file"};
inline constexpr std::array<std::string_view, 8> kRoutingNames = {
    "auto", "dor", "dor_by_load", "dateline", "up_down", "up_by_load", "adaptive", "recovery"};
inline constexpr std::array<std::string_view, 9> kSchedulerNames = {
    "vclk", "fgvc", "fcfs", "rr", "wrr", "two_level", "vclk_hol", "fq", "fgfq"};
inline constexpr std::array<std::string_view, 10> kHcaSchedulerNames = {
    "router", "vclk", "fgvc", "fcfs", "rr", "wrr", "two_level", "vclk_hol", "fq", "fgfq"};
inline constexpr std::array<std::string_view, 6> kRouterNames = {"np",  "tr",  "p",
                                                                 "pcs", "vct", "cell"};
inline constexpr std::array<std::string_view, 2> kFlowControlNames = {"link", "stream"};
inline constexpr std::array<std::string_view, 2> kCrossbarNames = {"multiplexed", "full"};
inline constexpr std::array<std::string_view, 2> kEngineNames = {"auto", "general"};
inline constexpr std::array<std::string_view, 3> kCounterNames = {"epoch", "wide", "overflow"};
inline constexpr std::array<std::string_view, 2> kFrameNames = {"small", "large"};
inline constexpr std::array<std::string_view, 2> kPointerNames = {"fast", "slow"};
inline constexpr std::array<std::string_view, 3> kAttachNames = {"shm", "udp", "ethdev"};

inline constexpr auto kCongestionNames = std::to_array<std::string_view>(
    {"credit", "alo", "self_tuned", "none", "vct1", "vct2", "ibcc", "dcqcn"});
inline constexpr std::array<std::string_view, 3> kPeakPowerNames = {"scheme", "powerherd", "none"};
inline constexpr std::array<std::string_view, 2> kPowerBookingNames = {"links", "routers"};
inline constexpr std::array<std::string_view, 2> kVctCountsNames = {"held", "injected"};
inline constexpr std::array<std::string_view, 2> kNoticeNames = {"instant", "message"};
inline constexpr std::array<std::string_view, 2> kLinkLayerNames = {"infiniband", "roce_v2"};
inline constexpr std::array<std::string_view, 3> kHcaProcessNames = {"auto", "own", "fabric"};
inline constexpr std::array<std::string_view, 3> kCompletionQueuesNames = {"global", "separate",
                                                                           "quad"};

constexpr std::span<const std::string_view> names_of(Topology) { return kTopologyNames; }
constexpr std::span<const std::string_view> names_of(Routing) { return kRoutingNames; }
constexpr std::span<const std::string_view> names_of(Scheduler) { return kSchedulerNames; }
constexpr std::span<const std::string_view> names_of(HcaScheduler) { return kHcaSchedulerNames; }
constexpr std::span<const std::string_view> names_of(Router) { return kRouterNames; }
constexpr std::span<const std::string_view> names_of(FlowControl) { return kFlowControlNames; }
constexpr std::span<const std::string_view> names_of(Crossbar) { return kCrossbarNames; }
constexpr std::span<const std::string_view> names_of(Engine) { return kEngineNames; }
constexpr std::span<const std::string_view> names_of(Counters) { return kCounterNames; }
constexpr std::span<const std::string_view> names_of(Frame) { return kFrameNames; }
constexpr std::span<const std::string_view> names_of(Pointer) { return kPointerNames; }
constexpr std::span<const std::string_view> names_of(AttachKind) { return kAttachNames; }
constexpr std::span<const std::string_view> names_of(LinkLayer) { return kLinkLayerNames; }
constexpr std::span<const std::string_view> names_of(HcaProcess) { return kHcaProcessNames; }
constexpr std::span<const std::string_view> names_of(Congestion) { return kCongestionNames; }
constexpr std::span<const std::string_view> names_of(PeakPower) { return kPeakPowerNames; }
constexpr std::span<const std::string_view> names_of(PowerBooking) { return kPowerBookingNames; }
constexpr std::span<const std::string_view> names_of(VctCounts) { return kVctCountsNames; }
constexpr std::span<const std::string_view> names_of(NoticeWay) { return kNoticeNames; }
constexpr std::span<const std::string_view> names_of(CompletionQueues) {
  return kCompletionQueuesNames;
}
constexpr std::span<const std::string_view> names_of(ClockMode) { return kClockModeNames; }
constexpr std::span<const std::string_view> names_of(TrafficClass) { return kClassNames; }

// "mesh:4x4" and back. false: a size that cannot be.
bool parse_topology(std::string_view text, TopologyChoice& choice);
std::string print_topology(const TopologyChoice& choice);

// VL0 … VL(num_vcs - 2) carry data, VL15 control.
std::uint16_t lanes_there(const NetworkConfig& network);
// "4-14", "0,1,2": a set of lanes as text and back; 0 if the text is none.
std::uint16_t parse_lanes(std::string_view text);
std::string print_lanes(std::uint16_t lanes);
// "0:64,1:32". false: a lane or weight out of range.
bool parse_weights(std::string_view text, std::vector<VlWeight>& weights);
std::string print_weights(const std::vector<VlWeight>& weights);

// What must hold between keys; called after loading. Fills in what follows from others.
Result<void> resolve(Config& config, bool nodes_given, bool node_tables, bool lanes_given);

}  // namespace emu::config

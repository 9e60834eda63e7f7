#include "hca/daemon/options.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>

#include "emu/config/node_address.h"
#include "emu/wire/message.h"
#include "hca/abi/limits.h"

namespace hca {

namespace {

std::uint8_t mtu_enum(std::uint32_t bytes) {  // IBV_MTU_256 = 1 … IBV_MTU_4096 = 5
  std::uint8_t value = 1;
  while (value < 5 && (256U << value) <= bytes) ++value;
  return value;
}

// What the slowest kind of connection carries: the smallest path MTU that a program may choose, and
// XRC's header in every packet. Only a network of small packets has less than 2^31.
std::uint32_t max_message_bytes(const HostOptions& options) {
  constexpr std::uint32_t kPathMtuMin = 256;
  const std::uint64_t payload = connection_payload(options, kPathMtuMin, true);
  return static_cast<std::uint32_t>(
      std::min<std::uint64_t>(payload * kMaxMessagePackets, kMaxMessageBytes));
}

// Every HCA has the same part of the cap. The margin is for what the fabric holds back and lets go
// at once: a window of 500 cycles may carry a little more than was launched in it (measured).
constexpr double kPowerMargin = 0.98;

template <std::size_t N>
void copy_name(const std::string& from, char (&to)[N]) {
  std::memcpy(to, from.data(), std::min(from.size(), N - 1));
}

CongestionReaction reaction_of(const emu::ControlsConfig& controls) {
  const auto ns_of = [](double us) { return static_cast<emu::EmuNs>(us * 1000 + 0.5); };
  return {
      .vct_step_cycles = controls.vct_step,
      .vct_timeout_cycles = controls.vct_timeout,
      .vct_messages = controls.vct_messages,
      .vct_counts_held = controls.vct_counts == emu::VctCounts::held,
      .ccti_increase = controls.ccti_increase,
      .ccti_limit = controls.ccti_limit,
      .ccti_timer_ns = ns_of(controls.ccti_timer_us),
      .dcqcn_timer_ns = ns_of(controls.dcqcn_timer_us),
      .dcqcn_gain = controls.dcqcn_gain,
      .dcqcn_rate_ai = controls.dcqcn_rate_ai,
      .dcqcn_rate_hai = controls.dcqcn_rate_hai,
  };
}

}  // namespace

std::vector<std::uint32_t> node_addresses(const emu::Config& config) {
  std::vector<std::uint32_t> addresses;
  for (std::size_t node = 0; node < config.nodes.size(); ++node)
    addresses.push_back(emu::node_address(config, node));
  return addresses;
}

HostOptions host_options(const emu::Config& config, emu::NodeId node) {
  HostOptions options;
  options.node = node;
  options.nodes = static_cast<std::uint16_t>(config.nodes.size());
  options.cycle_time = config.network.cycle_time();
  options.link_bps = config.network.link_bps();
  options.flit_bits = config.network.flit_bits;
  // Where packets are no worms, they are as long as their slots allow: up to the path MTU.
  options.packet_flits =
      config.network.pass_through
          ? static_cast<std::uint32_t>(emu::kPacketBytesMax) * 8 / options.flit_bits
          : config.network.packet_size;
  options.mtu_bytes = config.hca.mtu;
  options.datagram_bytes = config.datagram_bytes();
  options.buffer_bytes = config.buffer_bytes();
  options.class_of_sl = config.qos.sl_class;
  for (std::uint8_t sl = 0; sl < options.lanes_of_sl.size(); ++sl) {
    options.lanes_of_sl[sl] = config.qos.lanes_of_sl(sl);
  }
  options.controls = {config.controls.admission, config.controls.congestion_control,
                      config.power_scheme()};
  options.hca_buffer_packets = config.controls.hca_buffer_packets;
  options.best_effort_credits = config.controls.best_effort_credits;
  options.congestion = emu::name_of(config.controls.congestion);
  options.congestion_reaction = reaction_of(config.controls);
  options.completion_queues = static_cast<CqLayout>(config.controls.completion_queues);
  static_assert(static_cast<int>(CqLayout::quad) == static_cast<int>(emu::CompletionQueues::quad));
  options.quadrants = config.quadrants();
  for (std::size_t other = 0; other < config.nodes.size(); ++other) {
    options.quadrant_of[other] = static_cast<std::uint8_t>(config.quadrant(node, other));
  }
  options.launch_horizon_us = config.hca.launch_horizon_us;
  options.reservable_bps = config.reservable_bps();
  options.energy = config.energy;
  for (std::size_t other = 0; other < config.nodes.size(); ++other) {
    options.hops_to[other] = static_cast<std::uint8_t>(config.links_between(node, other));
  }
  options.power_w = kPowerMargin * config.power_cap_w() / static_cast<double>(config.nodes.size());
  options.seals = config.hca.crc_on_host || config.attach.kind != emu::AttachKind::shm;
  options.seed = config.network.seed * 1000 + node;
  options.roce = config.hca.link_layer == emu::LinkLayer::roce_v2;
  std::ranges::copy(node_addresses(config), options.address_of.begin());
  return options;
}

void fill_node_page(const emu::Config& config, const HostOptions& options, NodePage& page) {
  page.magic = kNodeMagic;
  page.version = kAbiVersion;
  page.node_guid = options.guid_base + options.node + 1;
  page.port_guid = page.node_guid;
  page.gid_prefix = options.gid_prefix;
  page.link_bps = options.link_bps;
  page.cycle_ps = options.cycle_time.cycle_ps;
  // RoCE v2 has no LIDs and no subnet manager.
  page.lid = options.roce ? emu::Lid{0} : emu::lid_of(options.node);
  page.sm_lid = options.roce ? 0 : 1;
  page.ipv4 = options.address_of[options.node];
  page.link_layer = options.roce ? 2 : 1;
  page.pkey = 0xffff;
  page.max_message_bytes = max_message_bytes(options);
  page.active_mtu = mtu_enum(options.datagram_bytes);
  page.max_mtu = mtu_enum(4096);
  page.node_index = options.node;
  page.vendor_id = config.hca.vendor_id;
  page.vendor_part_id = config.hca.vendor_part_id;
  copy_name(config.hca.device, page.device_name);
  copy_name(config.nodes[options.node].name, page.node_name);
  for (std::size_t sl = 0; sl < 16; ++sl) {
    page.class_of_sl[sl] = static_cast<std::uint8_t>(options.class_of_sl[sl]);
  }
  page.port_state = 1;  // IBV_PORT_DOWN until the fabric is there
}

}  // namespace hca

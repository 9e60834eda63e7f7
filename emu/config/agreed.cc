#include "emu/config/agreed.h"

#include <string>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "emu/config/fields.h"
#include "emu/config/node_address.h"

namespace emu {
namespace {

// Hosts may keep a topology's file in different places, and one router is one router.
std::string topology_of(const NetworkConfig& network) {
  const Topology kind = network.topology.kind;
  if (kind == Topology::file || kind == Topology::single) return std::string(name_of(kind));
  return config::print_topology(network.topology);
}

std::string names_of_nodes(const Config& config) {
  std::string text;
  for (const NodeConfig& node : config.nodes) text += (text.empty() ? "" : " ") + node.name;
  return text;
}

std::string addresses_of_nodes(const Config& config) {
  std::string text;
  for (std::size_t node = 0; node < config.nodes.size(); ++node) {
    const std::uint32_t ip = node_address(config, node);
    text += fmt::format("{}{}.{}.{}.{}", node == 0 ? "" : " ", ip >> 24, ip >> 16 & 255,
                        ip >> 8 & 255, ip & 255);
  }
  return text;
}

std::string links_of_nodes(const Config& config) {
  std::string text;
  for (const NodeConfig& node : config.nodes) {
    if (!node.links_to.empty()) text += node.links_to + ' ';
  }
  return text;
}

std::string classes_of(const QosConfig& qos) {
  std::string text;
  for (const TrafficClass c : qos.sl_class) {
    text += text.empty() ? "" : ",";
    text += kClassNames[static_cast<std::size_t>(c)];
  }
  return text;
}

}  // namespace

std::vector<Setting> agreed_settings(const Config& config) {
  const NetworkConfig& network = config.network;
  const QosConfig& qos = config.qos;
  std::vector<Setting> settings;
  const auto add = [&settings](const char* key, const auto& value) {
    settings.push_back({key, fmt::format("{}", value)});
  };
  add("network.nodes", config.nodes.size());
  add("network.topology", topology_of(network));
  add("network.nodes_per_router", network.nodes_per_router);
  add("network.links_per_neighbor", network.links_per_neighbor);
  add("network.link_mbps", network.link_mbps);
  add("network.flit_bits", network.flit_bits);
  add("network.num_vcs", network.num_vcs);
  add("network.packet_size", network.packet_size);
  add("network.control_packet_size", network.control_packet_size);
  add("network.pass_through", network.pass_through);
  add("network.router", name_of(network.router));
  add("network.vc_buf_size", network.vc_buf_size);
  // Not given, it follows from the classes and their lanes.
  add("qos.qos_sl2vl", qos.qos_sl2vl_given ? fmt::format("{}", fmt::join(qos.qos_sl2vl, ","))
                                           : std::string("of the classes"));
  add("qos.sl_class", classes_of(qos));
  for (std::size_t c = 0; c < qos.class_vls.size(); ++c) {
    const std::string key = fmt::format("qos.vls_{}", kClassNames[c]);
    add(key.c_str(), config::print_lanes(qos.class_vls[c]));
  }
  add("hca.link_layer", name_of(config.hca.link_layer));
  add("hca.mtu", config.hca.mtu);
  add("[[node]] name", names_of_nodes(config));
  add("[[node]] ip", addresses_of_nodes(config));
  add("[[node]] links_to", links_of_nodes(config));
  return settings;
}

}  // namespace emu

#include "fabric/daemon/subnet.h"

#include <bit>

#include "fabric/daemon/spec.h"

namespace fabric {

SubnetSpec subnet_spec(const emu::Config& config, const Edge& edge, const Links& links) {
  SubnetSpec spec;
  for (const emu::NodeConfig& node : config.nodes) spec.nodes.push_back(node.name);
  spec.device = config.hca.device;
  spec.link_bps = std::uint64_t{config.network.link_mbps} * 1'000'000;
  spec.flit_bits = config.network.flit_bits;
  spec.mtu_bytes = config.hca.mtu;
  spec.vendor_id = config.hca.vendor_id;
  spec.device_id = static_cast<std::uint16_t>(config.hca.vendor_part_id);
  // A table has one lane for a level; ours may spread over several, of which this is the first.
  for (unsigned sl = 0; sl < 16; ++sl) {
    const std::uint16_t lanes = config.qos.lanes_of_sl(static_cast<std::uint8_t>(sl));
    spec.lane_of_sl[sl] = static_cast<emu::Vl>(lanes == 0 ? 0 : std::countr_zero(lanes));
  }
  spec.weights = network_spec(config, 0).weights;
  spec.node_up = [&edge, &links](emu::NodeId node) {
    return edge.is_attached(node) && !links.node_down(node);
  };
  spec.link_up = [&links](emu::RouterId router, emu::PortId port) {
    return !links.is_down({router, port});
  };
  return spec;
}

}  // namespace fabric

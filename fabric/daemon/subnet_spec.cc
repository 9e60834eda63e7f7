#include "fabric/daemon/subnet_spec.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "emu/packet/device_info.h"
#include "fabric/topo/shape.h"

namespace fabric {

SubnetSpec subnet_spec(const emu::Config& config, const NetworkSpec& network) {
  const emu::QosConfig& qos = config.qos;
  SubnetSpec spec;
  for (const auto& node : config.nodes)
    spec.node_names.push_back(node.name + " " + config.hca.device);
  if (auto graph = make_graph(shape_of(network))) spec.switch_names = std::move(graph->names);
  spec.link_bps = config.network.link_bps();
  spec.flit_bits = config.network.flit_bits;
  spec.mtu_bytes = config.datagram_bytes();
  spec.vendor_id = config.hca.vendor_id & 0xffffff;
  spec.device_id = emu::kSubnetDeviceId;
  spec.high_limit = static_cast<std::uint8_t>(std::min<std::uint32_t>(qos.qos_high_limit, 255));
  spec.vlarb_high = qos.qos_vlarb_high;
  spec.vlarb_low = qos.qos_vlarb_low;
  if (spec.vlarb_high.empty() && spec.vlarb_low.empty()) {
    // As weights_of() begins: equal shares until something is booked.
    const auto real_time = qos.class_vls[static_cast<std::size_t>(emu::TrafficClass::real_time)];
    const auto best_effort =
        qos.class_vls[static_cast<std::size_t>(emu::TrafficClass::best_effort)];
    for (unsigned vl = 0; vl < emu::kControlVl; ++vl) {
      if ((real_time >> vl & 1) != 0) spec.vlarb_high.push_back({static_cast<emu::Vl>(vl), 1});
      if ((best_effort >> vl & 1) != 0) spec.vlarb_low.push_back({static_cast<emu::Vl>(vl), 1});
    }
  }
  for (std::size_t sl = 0; sl < spec.sl2vl.size(); ++sl) {
    const unsigned lanes = qos.lanes_of_sl(static_cast<std::uint8_t>(sl));
    spec.sl2vl[sl] = static_cast<emu::Vl>(std::countr_zero(lanes));
  }
  return spec;
}

}  // namespace fabric

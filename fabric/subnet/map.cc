#include "fabric/subnet/map.h"

#include <algorithm>
#include <utility>

#include "emu/base/guid.h"
#include "fabric/topo/graph.h"

namespace fabric {

SubnetMap::SubnetMap(const Network& network, NodeUp node_up)
    : network_(network), node_up_(std::move(node_up)) {
  const auto count = static_cast<std::size_t>(network.routers());
  down_ports_.resize(count);
  ways_.resize(count);
  find_parts();
}

void SubnetMap::follow() {
  const std::span<const LinkEnd> down = network_.down();
  if (std::ranges::equal(down, down_)) return;
  down_.assign(down.begin(), down.end());
  std::ranges::fill(down_ports_, 0);
  for (const LinkEnd end : down_) {
    const Network::Peer far = network_.peer(end.router, end.port);
    down_ports_[end.router] |= std::uint64_t{1} << end.port;
    down_ports_[far.router] |= std::uint64_t{1} << far.port;
  }
  for (auto& row : ways_) row.clear();
  find_parts();
}

int SubnetMap::ports(Device device) const {
  return device.is_switch ? network_.ports(device.index) : 1;
}

emu::Lid SubnetMap::lid(Device device) const {
  if (!device.is_switch) return emu::lid_of(device.index);
  return static_cast<emu::Lid>(nodes() + 1 + device.index);
}

std::uint64_t SubnetMap::guid(Device device) {
  return device.is_switch ? emu::switch_guid_of(device.index) : emu::guid_of(device.index);
}

std::optional<Device> SubnetMap::by_lid(emu::Lid lid) const {
  if (lid == 0 || lid > lid_max()) return std::nullopt;
  if (lid <= nodes()) return hca_device(emu::node_of(lid));
  return switch_device(static_cast<emu::RouterId>(lid - nodes() - 1));
}

std::optional<Device> SubnetMap::by_guid(std::uint64_t guid) const {
  const std::uint64_t node = guid - emu::kGuidBase - 1;
  if (node < static_cast<std::uint64_t>(nodes())) return hca_device(static_cast<emu::NodeId>(node));
  const std::uint64_t router = guid - emu::kSwitchGuidBase - 1;
  if (router >= static_cast<std::uint64_t>(routers())) return std::nullopt;
  return switch_device(static_cast<emu::RouterId>(router));
}

std::optional<DeviceEnd> SubnetMap::far_end(DeviceEnd end) const {
  const Device device = end.device;
  if (end.port < 1 || end.port > ports(device)) return std::nullopt;
  if (!device.is_switch) {
    if (!exists(device)) return std::nullopt;
    return DeviceEnd{switch_device(network_.router_of(device.index)),
                     network_.port_of(device.index) + 1};
  }
  const auto port = static_cast<emu::PortId>(end.port - 1);
  const emu::NodeId node = network_.node_at(device.index, port);
  if (node != kNoNode) {
    if (!node_up_(node)) return std::nullopt;
    return DeviceEnd{hca_device(node), 1};
  }
  const Network::Peer far = network_.peer(device.index, port);
  if (far.router == emu::kNoRouter || (down_ports_[device.index] >> port & 1) != 0)
    return std::nullopt;
  return DeviceEnd{switch_device(far.router), far.port + 1};
}

emu::RouterId SubnetMap::router_of(Device device) const {
  return device.is_switch ? device.index : network_.router_of(device.index);
}

void SubnetMap::find_parts() {
  constexpr std::size_t kNoPart = ~std::size_t{0};
  part_.assign(static_cast<std::size_t>(routers()), kNoPart);
  for (std::size_t first = 0; first < part_.size(); ++first) {
    if (part_[first] != kNoPart) continue;
    part_[first] = first;
    line_.assign(1, static_cast<emu::RouterId>(first));
    for (std::size_t next = 0; next < line_.size(); ++next) {
      const emu::RouterId here = line_[next];
      for (int p = 0; p < network_.ports(here); ++p) {
        const emu::RouterId far = network_.peer(here, static_cast<emu::PortId>(p)).router;
        if (far == emu::kNoRouter || (down_ports_[here] >> p & 1) != 0 || part_[far] != kNoPart)
          continue;
        part_[far] = first;
        line_.push_back(far);
      }
    }
  }
}

std::vector<std::size_t> SubnetMap::present() const {
  std::vector<std::size_t> devices(part_.size());
  for (int lid = 1; lid <= lid_max(); ++lid) {
    const Device device = *by_lid(static_cast<emu::Lid>(lid));
    if (exists(device)) ++devices[part(device)];
  }
  return devices;
}

std::uint8_t SubnetMap::linear_port(emu::RouterId router, emu::Lid lid) {
  const auto device = by_lid(lid);
  return device ? port_to(router, *device) : kNoLinearPort;
}

// The routing's own port where it has one: it knows no way to switches, which programs never need.
std::uint8_t SubnetMap::port_to(emu::RouterId router, Device to) {
  if (to.is_switch) return ways_from(router)[to.index];
  const emu::RouterId last = network_.router_of(to.index);
  if (last != router && ways_from(router)[last] == kNoLinearPort) return kNoLinearPort;
  // Where no packet to this node comes by, the routing has no way that would end there.
  if (!arrives(router, to.index)) return ways_from(router)[last];
  return static_cast<std::uint8_t>(network_.route(router, to.index) + 1);
}

bool SubnetMap::arrives(emu::RouterId router, emu::NodeId node) const {
  for (int hops = 0; hops <= routers(); ++hops) {
    if (router == network_.router_of(node)) return true;
    const auto far = far_end({switch_device(router), network_.route(router, node) + 1});
    if (!far || !far->device.is_switch) return false;
    router = far->device.index;
  }
  return false;
}

// Breadth first: each router's next is one nearer, so that ways by these ports end.
std::span<const std::uint8_t> SubnetMap::ways_from(emu::RouterId router) {
  std::vector<std::uint8_t>& row = ways_[router];
  if (!row.empty()) return row;
  row.assign(static_cast<std::size_t>(routers()), kNoLinearPort);
  row[router] = 0;  // its own management port
  line_.assign(1, router);
  for (std::size_t next = 0; next < line_.size(); ++next) {
    const emu::RouterId here = line_[next];
    for (int port = 1; port <= network_.ports(here); ++port) {
      const auto far = far_end({switch_device(here), port});
      if (!far || !far->device.is_switch || row[far->device.index] != kNoLinearPort) continue;
      row[far->device.index] = here == router ? static_cast<std::uint8_t>(port) : row[here];
      line_.push_back(far->device.index);
    }
  }
  return row;
}

}  // namespace fabric

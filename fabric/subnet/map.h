// The subnet as its manager sees it: devices (HCAs and switches) with their LIDs and GUIDs, what is
// at the other end of a port, which ports are up, and by which port a switch sends to a LID. Asked
// by the agents of this room; follows the network's links as they go and come.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "emu/base/units.h"
#include "emu/packet/device_info.h"
#include "fabric/router/network.h"

namespace fabric {

struct Device {
  bool is_switch = false;
  std::uint16_t index = 0;  // NodeId or RouterId
  bool operator==(const Device&) const = default;
};
constexpr Device hca_device(emu::NodeId node) { return {false, node}; }
constexpr Device switch_device(emu::RouterId router) { return {true, router}; }

// Ports are InfiniBand's here: of a switch 1 and up, 0 is its management port; an HCA has port 1.
struct DeviceEnd {
  Device device;
  int port = 0;
};

using emu::kManagerLid;
inline constexpr std::uint8_t kNoLinearPort = 0xff;  // of a forwarding table: leads nowhere

class SubnetMap {
 public:
  // Whether a node is attached and its link in service.
  using NodeUp = std::function<bool(emu::NodeId)>;
  SubnetMap(const Network& network, NodeUp node_up);

  // Before each question: takes over which links are down now. Cheap while they stay the same.
  void follow();

  const Network& network() const { return network_; }
  int nodes() const { return network_.nodes(); }
  int routers() const { return network_.routers(); }
  int ports(Device device) const;
  emu::Lid lid(Device device) const;
  emu::Lid lid_max() const { return static_cast<emu::Lid>(nodes() + routers()); }
  static std::uint64_t guid(Device device);
  std::optional<Device> by_lid(emu::Lid lid) const;
  std::optional<Device> by_guid(std::uint64_t guid) const;

  // Over a link that is up.
  std::optional<DeviceEnd> far_end(DeviceEnd end) const;
  bool is_up(DeviceEnd end) const { return far_end(end).has_value(); }
  // Both are there, and there is a way between them.
  bool reaches(Device from, Device to) const {
    return exists(from) && exists(to) && part(from) == part(to);
  }
  // Of the parts that the fabric is in: one, but for switches all of whose links are down.
  std::size_t part(Device device) const { return part_[router_of(device)]; }
  // How many devices are there in each part. All of a part reach each other, and themselves.
  std::vector<std::size_t> present() const;
  // What a switch's linear forwarding table says of a LID.
  std::uint8_t linear_port(emu::RouterId router, emu::Lid lid);
  // The port by which a switch would send to that device.
  std::uint8_t port_to(emu::RouterId router, Device to);

 private:
  bool exists(Device device) const { return device.is_switch || node_up_(device.index); }
  emu::RouterId router_of(Device device) const;
  std::span<const std::uint8_t> ways_from(emu::RouterId router);
  void find_parts();
  // Whether the routing's own way from there ends at the node's router.
  bool arrives(emu::RouterId router, emu::NodeId node) const;

  const Network& network_;
  NodeUp node_up_;
  std::vector<LinkEnd> down_;              // as the network had it at the last look ...
  std::vector<std::uint64_t> down_ports_;  // ... as a mask for each router, both ends
  // [router][other router]: the first port of a shortest way. Each row is made when it is first
  // asked for, at a cost of one look at every link, and forgotten when links change.
  std::vector<std::vector<std::uint8_t>> ways_;
  std::vector<std::size_t> part_;    // [router]
  std::vector<emu::RouterId> line_;  // of the searches
};

}  // namespace fabric

// What a device says of itself and of a port to subnet management (IBA 14.2.5): fabric/subnet
// answers for every device of the network, and hcad for its own while it has no link. In: plain
// values. Out: an attribute's 64 bytes, which were all zero.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "emu/base/units.h"
#include "emu/packet/headers.h"

namespace emu {

using SmpData = std::span<std::uint8_t, 64>;

enum SubnetAttribute : std::uint16_t {
  kNodeDescription = 0x10,
  kNodeInfo = 0x11,
  kSwitchInfo = 0x12,
  kGuidInfo = 0x14,
  kPortInfo = 0x15,
  kPkeyTable = 0x16,
  kSlToVlTable = 0x17,
  kVlArbitrationTable = 0x18,
  kLinearForwardingTable = 0x19,
  kMulticastForwardingTable = 0x1b,
  kSubnetManagerInfo = 0x20,
};

// Not what hca.vendor_part_id tells programs: with some vendor's number infiniband-diags go on to
// ask for that vendor's own attributes.
inline constexpr std::uint16_t kSubnetDeviceId = 0xf117;
inline constexpr Lid kManagerLid = 1;           // where the subnet manager is said to be
inline constexpr unsigned kSubnetTimeout = 18;  // 4.096 us * 2^18: about a second
inline constexpr unsigned kResponseTime = 16;

// Two fields of four bits.
constexpr std::uint8_t nibbles(unsigned high, unsigned low) {
  return static_cast<std::uint8_t>(high << 4 | (low & 15));
}
// MTUs by their code: 1 is 256 bytes, 5 is 4096.
constexpr unsigned mtu_code(std::uint32_t bytes) {
  unsigned code = 1;
  while (code < 5 && (256U << (code - 1)) < bytes) ++code;
  return code;
}

struct DeviceInfo {
  bool is_switch = false;
  int ports = 1;
  std::uint64_t guid = 0;  // of device, port and system
  std::uint16_t device_id = kSubnetDeviceId;
  std::uint32_t vendor_id = 0xffffff;
};
void put_description(std::string_view name, SmpData data);
// `port`: the one by which the question came in.
void put_node_info(const DeviceInfo& device, int port, SmpData data);

struct LinkInfo {
  std::uint64_t link_bps = 0;
  std::uint32_t mtu_bytes = 0;
  std::uint8_t high_limit = 0;
};
// PortInfo has three parts: of every port, of one that has an address, of its link.
void put_port(int asked_by, SmpData data);
void put_address(Lid lid, std::uint64_t link_bps, SmpData data);
void put_link(const LinkInfo& link, bool is_up, SmpData data);

}  // namespace emu

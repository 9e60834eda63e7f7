#include "fabric/subnet/management.h"

#include <algorithm>
#include <cstring>

#include <fmt/core.h>

#include "emu/base/guid.h"
#include "emu/base/link_speed.h"
#include "emu/packet/headers.h"

namespace fabric {

namespace {

constexpr unsigned kPortDown = 1;
constexpr unsigned kPortActive = 4;
constexpr unsigned kPolling = 2;
constexpr unsigned kLinkUp = 5;
constexpr unsigned kManagerMaster = 3;
constexpr unsigned kVl0To14 = 5;

constexpr std::size_t kVlArbitrationEntries = 64;  // of high and of low priority, two blocks each
constexpr std::uint16_t kLinearTableMax = 0xc000;  // every unicast LID

}  // namespace

MadStatus SubnetManagement::get(DeviceEnd at, std::uint16_t attribute, std::uint32_t modifier,
                                Data data) {
  switch (attribute) {
    case kNodeDescription:
      node_description(at.device, data);
      return MadStatus::ok;
    case kNodeInfo:
      node_info(at, data);
      return MadStatus::ok;
    case kSwitchInfo:
      return switch_info(at.device, data);
    case kGuidInfo:
      return guid_info(at.device, modifier, data);
    case kPortInfo:
      return port_info(at, modifier, data);
    case kPkeyTable:
      return pkey_table(at.device, modifier, data);
    case kSlToVlTable:
      return sl_to_vl(data);
    case kVlArbitrationTable:
      return vl_arbitration(modifier, data);
    case kLinearForwardingTable:
      return linear_table(at.device, modifier, data);
    case kMulticastForwardingTable:
      // Senders copy for each member: switches know no groups.
      return at.device.is_switch ? MadStatus::ok : MadStatus::unsupported;
    case kSubnetManagerInfo:
      return manager_info(at.device, data);
    default:
      return MadStatus::unsupported;
  }
}

void SubnetManagement::node_description(Device device, Data data) const {
  const std::vector<std::string>& names = device.is_switch ? spec_.switch_names : spec_.node_names;
  std::string name = device.index < names.size() ? names[device.index] : "";
  if (name.empty()) name = fmt::format("{} {}", device.is_switch ? "switch" : "node", device.index);
  std::memcpy(data.data(), name.data(), std::min(name.size(), data.size() - 1));
}

void SubnetManagement::node_info(DeviceEnd at, Data data) const {
  std::uint8_t* d = data.data();
  d[0] = 1;  // base version
  d[1] = 1;  // class version
  d[2] = at.device.is_switch ? 2 : 1;
  d[3] = static_cast<std::uint8_t>(map_.ports(at.device));
  for (const std::size_t guid_at : {4, 12, 20}) put<8>(d + guid_at, SubnetMap::guid(at.device));
  put<2>(d + 28, 1);  // partition keys
  put<2>(d + 30, spec_.device_id);
  put<4>(d + 32, emu::kHardwareVersion);
  d[36] = static_cast<std::uint8_t>(at.port);
  put<3>(d + 37, spec_.vendor_id);
}

MadStatus SubnetManagement::switch_info(Device device, Data data) const {
  if (!device.is_switch) return MadStatus::unsupported;
  std::uint8_t* d = data.data();
  put<2>(d, kLinearTableMax);
  put<2>(d + 6, map_.lid_max());
  d[11] = kSubnetTimeout << 3;  // how long a packet lives
  return MadStatus::ok;
}

MadStatus SubnetManagement::guid_info(Device device, std::uint32_t block, Data data) const {
  if (block != 0) return MadStatus::invalid_field;
  put<8>(data.data(), SubnetMap::guid(device));
  return MadStatus::ok;
}

MadStatus SubnetManagement::port_info(DeviceEnd at, std::uint32_t modifier, Data data) const {
  const Device device = at.device;
  modifier &= 0x7fffffff;  // the highest bit: who asks knows extended speeds (IBA 14.2.5.6)
  DeviceEnd port = {device, static_cast<int>(modifier & 0xff)};
  if (modifier > 0xff || port.port > map_.ports(device)) return MadStatus::invalid_field;
  if (!device.is_switch) port.port = 1;
  std::uint8_t* d = data.data();
  // Of a switch only its management port has an address.
  if (!device.is_switch || port.port == 0) {
    put<8>(d + 8, emu::kGidPrefix);
    put<2>(d + 16, map_.lid(device));
    put<2>(d + 18, kManagerLid);
    put<4>(d + 20, emu::port_capabilities(spec_.link_bps, map_.lid(device) == kManagerLid));
    d[50] = 1;  // GUIDs
    d[51] = kSubnetTimeout;
  }
  d[28] = static_cast<std::uint8_t>(at.port);
  port_links(port, data);
  d[52] = kResponseTime;
  return MadStatus::ok;
}

// The half of PortInfo that is about the link; a switch's management port has none and is active.
void SubnetManagement::port_links(DeviceEnd port, Data data) const {
  std::uint8_t* d = data.data();
  const emu::LinkSpeed& speed = emu::link_speed_of(spec_.link_bps);
  const bool up = port.port == 0 || map_.is_up(port);
  const unsigned width = speed.width == 1 ? 1 : 3;             // supported: 1x, or 1x and 4x
  const unsigned speeds = (unsigned{speed.plain()} << 1) - 1;  // that one and all slower ones
  const unsigned faster = speed.extended() == 0 ? 0 : (unsigned{speed.extended()} << 1) - 1;
  const unsigned mtu = mtu_code(spec_.mtu_bytes);
  d[29] = d[30] = static_cast<std::uint8_t>(width);
  d[31] = speed.width;
  d[32] = nibbles(speeds, up ? kPortActive : kPortDown);
  d[33] = nibbles(up ? kLinkUp : kPolling, kPolling);
  d[35] = nibbles(speed.plain(), speeds);
  d[36] = nibbles(mtu, 0);
  d[37] = nibbles(kVl0To14, 0);
  d[38] = spec_.high_limit;
  d[39] = d[40] = kVlArbitrationEntries;
  d[41] = nibbles(0, mtu_code(4096));
  d[43] = nibbles(kVl0To14, 0);
  d[53] = nibbles(8, 8);  // errors until a link counts as bad: the IBA's default
  d[62] = nibbles(speed.extended(), faster);
  d[63] = static_cast<std::uint8_t>(faster);
}

MadStatus SubnetManagement::pkey_table(Device device, std::uint32_t modifier, Data data) const {
  if (static_cast<int>(modifier >> 16) > map_.ports(device)) return MadStatus::invalid_field;
  if ((modifier & 0xffff) != 0) return MadStatus::invalid_field;
  put<2>(data.data(), emu::kDefaultPkey);
  return MadStatus::ok;
}

MadStatus SubnetManagement::sl_to_vl(Data data) const {
  for (std::size_t sl = 0; sl < 16; sl += 2)
    data[sl / 2] = nibbles(spec_.sl2vl[sl], spec_.sl2vl[sl + 1]);
  return MadStatus::ok;
}

// Blocks 1 and 2 are the low table, 3 and 4 the high one.
MadStatus SubnetManagement::vl_arbitration(std::uint32_t modifier, Data data) const {
  constexpr std::size_t kOfBlock = 32;
  const std::uint32_t block = modifier >> 16;
  if (block < 1 || block > 4) return MadStatus::invalid_field;
  const std::vector<emu::VlWeight>& table = block <= 2 ? spec_.vlarb_low : spec_.vlarb_high;
  const std::size_t first = (block - 1) % 2 * kOfBlock;
  for (std::size_t i = 0; i < kOfBlock && first + i < table.size(); ++i) {
    data[2 * i] = table[first + i].vl;
    data[2 * i + 1] = table[first + i].weight;
  }
  return MadStatus::ok;
}

MadStatus SubnetManagement::linear_table(Device device, std::uint32_t block, Data data) {
  constexpr std::uint32_t kOfBlock = 64;
  if (!device.is_switch) return MadStatus::unsupported;
  if (block >= kLinearTableMax / kOfBlock) return MadStatus::invalid_field;
  for (std::uint32_t i = 0; i < kOfBlock; ++i)
    data[i] = map_.linear_port(device.index, static_cast<emu::Lid>(block * kOfBlock + i));
  return MadStatus::ok;
}

MadStatus SubnetManagement::manager_info(Device device, Data data) {
  if (device.is_switch) return MadStatus::unsupported;
  std::uint8_t* d = data.data();
  put<8>(d, SubnetMap::guid(device));
  if (map_.lid(device) != kManagerLid) return MadStatus::ok;  // not active
  put<4>(d + 16, ++activity_);
  d[20] = nibbles(0, kManagerMaster);
  return MadStatus::ok;
}

}  // namespace fabric

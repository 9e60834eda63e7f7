#include "fabric/subnet/management.h"

#include <algorithm>

#include <fmt/core.h>

#include "emu/base/guid.h"
#include "emu/packet/headers.h"

namespace fabric {

namespace {

constexpr unsigned kManagerMaster = 3;
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
  emu::put_description(name, data);
}

void SubnetManagement::node_info(DeviceEnd at, Data data) const {
  const Device device = at.device;
  emu::put_node_info({.is_switch = device.is_switch,
                      .ports = map_.ports(device),
                      .guid = SubnetMap::guid(device),
                      .device_id = spec_.device_id,
                      .vendor_id = spec_.vendor_id},
                     at.port, data);
}

MadStatus SubnetManagement::switch_info(Device device, Data data) const {
  if (!device.is_switch) return MadStatus::unsupported;
  std::uint8_t* d = data.data();
  put_field<2>(d, kLinearTableMax);
  put_field<2>(d + 6, map_.lid_max());
  d[11] = kSubnetTimeout << 3;  // how long a packet lives
  return MadStatus::ok;
}

MadStatus SubnetManagement::guid_info(Device device, std::uint32_t block, Data data) const {
  if (block != 0) return MadStatus::invalid_field;
  put_field<8>(data.data(), SubnetMap::guid(device));
  return MadStatus::ok;
}

MadStatus SubnetManagement::port_info(DeviceEnd at, std::uint32_t modifier, Data data) const {
  const Device device = at.device;
  modifier &= 0x7fffffff;  // the highest bit: who asks knows extended speeds (IBA 14.2.5.6)
  DeviceEnd port = {device, static_cast<int>(modifier & 0xff)};
  if (modifier > 0xff || port.port > map_.ports(device)) return MadStatus::invalid_field;
  if (!device.is_switch) port.port = 1;
  emu::put_port(at.port, data);
  // Of a switch only its management port has an address. It has no link, and is active.
  if (!device.is_switch || port.port == 0) emu::put_address(map_.lid(device), spec_.link_bps, data);
  emu::put_link({spec_.link_bps, spec_.mtu_bytes, spec_.high_limit},
                port.port == 0 || map_.is_up(port), data);
  return MadStatus::ok;
}

MadStatus SubnetManagement::pkey_table(Device device, std::uint32_t modifier, Data data) const {
  if (static_cast<int>(modifier >> 16) > map_.ports(device)) return MadStatus::invalid_field;
  if ((modifier & 0xffff) != 0) return MadStatus::invalid_field;
  put_field<2>(data.data(), emu::kDefaultPkey);
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
  put_field<8>(d, SubnetMap::guid(device));
  if (map_.lid(device) != kManagerLid) return MadStatus::ok;  // not active
  put_field<4>(d + 16, ++activity_);
  d[20] = nibbles(0, kManagerMaster);
  return MadStatus::ok;
}

}  // namespace fabric

// Subnet management (IBA 14.2): what the agents of HCAs and switches say of themselves when they
// are asked for an attribute, and the subnet manager of itself. In: device, attribute, modifier.
// Out: the attribute's 64 bytes.
#pragma once

#include <cstdint>
#include <span>

#include "emu/packet/device_info.h"
#include "fabric/subnet/fields.h"
#include "fabric/subnet/map.h"
#include "fabric/subnet/spec.h"

namespace fabric {

using emu::SubnetAttribute;
using enum emu::SubnetAttribute;

class SubnetManagement {
 public:
  using Data = emu::SmpData;
  SubnetManagement(const SubnetSpec& spec, SubnetMap& map) : spec_(spec), map_(map) {}

  // Of `at.device`; `at.port` is the port by which the question came in. `data` is all zero.
  MadStatus get(DeviceEnd at, std::uint16_t attribute, std::uint32_t modifier, Data data);

  void node_info(DeviceEnd at, Data data) const;
  void node_description(Device device, Data data) const;

 private:
  MadStatus switch_info(Device device, Data data) const;
  MadStatus guid_info(Device device, std::uint32_t block, Data data) const;
  MadStatus port_info(DeviceEnd at, std::uint32_t modifier, Data data) const;
  MadStatus pkey_table(Device device, std::uint32_t modifier, Data data) const;
  MadStatus sl_to_vl(Data data) const;
  MadStatus vl_arbitration(std::uint32_t modifier, Data data) const;
  MadStatus linear_table(Device device, std::uint32_t block, Data data);
  MadStatus manager_info(Device device, Data data);

  const SubnetSpec& spec_;
  SubnetMap& map_;
  std::uint32_t activity_ = 0;  // of the manager: counts up, so that others see it alive
};

}  // namespace fabric

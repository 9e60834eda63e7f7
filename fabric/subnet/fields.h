// Big-endian fields of datagrams, and what a status may say. Private to this room.
#pragma once

#include <cstddef>
#include <cstdint>

#include "emu/packet/device_info.h"
#include "emu/packet/mad.h"

namespace fabric {

using emu::get_field, emu::put_field;
using emu::mtu_code, emu::nibbles;

// IBA 13.4.7; those of subnet administration (15.2.1) are in the upper byte.
enum class MadStatus : std::uint16_t {
  ok = 0,
  bad_version = 0x0004,
  unsupported = 0x000c,    // this method of this attribute
  invalid_field = 0x001c,  // in the attribute or its modifier
  no_resources = 0x0100,
  invalid_request = 0x0200,
  no_records = 0x0300,
  too_many_records = 0x0400,
  invalid_gid = 0x0500,
  too_few_components = 0x0600,
};

using emu::kMadDataAt, emu::kResponseTime, emu::kSubnetTimeout;

}  // namespace fabric

// Big-endian fields of datagrams, and what a status may say. Private to this room.
#pragma once

#include <cstddef>
#include <cstdint>

#include "emu/packet/device_info.h"

namespace fabric {

template <int Bytes>
constexpr std::uint64_t get(const std::uint8_t* at) {
  std::uint64_t value = 0;
  for (int i = 0; i < Bytes; ++i) value = value << 8 | at[i];
  return value;
}
template <int Bytes>
constexpr void put(std::uint8_t* at, std::uint64_t value) {
  for (int i = 0; i < Bytes; ++i) at[i] = static_cast<std::uint8_t>(value >> (8 * (Bytes - 1 - i)));
}

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

inline constexpr std::size_t kMadDataAt = 64;  // of SMPs and of the performance class
using emu::kResponseTime, emu::kSubnetTimeout;

}  // namespace fabric

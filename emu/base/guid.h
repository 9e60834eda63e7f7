// GUIDs of the subnet's ports and switches, and the prefix that makes them GIDs (IBA 4.1.1), and
// the version of them all. HCAs, the subnet's agents and the exporter must say the same of a port.
#pragma once

#include <cstdint>

#include "emu/base/units.h"

namespace emu {

inline constexpr std::uint64_t kGidPrefix = 0xfe80000000000000ULL;
inline constexpr std::uint64_t kGuidBase = 0x0002c90300000000ULL;
inline constexpr std::uint64_t kSwitchGuidBase = kGuidBase + 0x10000;  // behind those of all nodes

inline constexpr std::uint32_t kHardwareVersion = 1;

constexpr std::uint64_t guid_of(NodeId node) { return kGuidBase + node + 1; }
constexpr std::uint64_t switch_guid_of(RouterId router) { return kSwitchGuidBase + router + 1; }

}  // namespace emu

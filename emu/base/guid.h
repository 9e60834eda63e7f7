// Numbers that hca, fabric and tools/exporter must give to the same things: node n has the GUID
// kGuidBase + n + 1, switches others behind them (fabric/subnet).
#pragma once

#include <cstdint>

namespace emu {

inline constexpr std::uint64_t kGuidBase = 0x0002c90300000000ULL;
inline constexpr std::uint64_t kGidPrefix = 0xfe80000000000000ULL;  // link local

}  // namespace emu

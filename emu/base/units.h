// Identities and units that every room shares. No state, no policy.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace emu {

// One cycle is one flit time on a link; counted since the fabric first started (never reset).
using Cycle = std::uint64_t;
// Emulated nanoseconds: cycle * cycle_ps / 1000. What every user sees as time.
using EmuNs = std::uint64_t;

using NodeId = std::uint16_t;    // dense index of an attached HCA, 0 … nodes-1
using RouterId = std::uint16_t;  // dense index of a router
using PortId = std::uint8_t;     // port of a router
using Vl = std::uint8_t;         // virtual lane, 0 … 15
using Lid = std::uint16_t;       // IBA local identifier; node n owns n + 1

inline constexpr int kVlCount = 16;           // IBA: VL0 … VL15
inline constexpr Vl kControlVl = 15;          // management lane: control traffic and probes
inline constexpr int kNodesMax = 64;          // attached HCAs of a live cluster
inline constexpr int kNodesVirtualMax = 512;  // in virtual time: the VCT paper's 8-ary 3-cube
inline constexpr Cycle kNever = ~Cycle{0};

constexpr Lid lid_of(NodeId node) { return static_cast<Lid>(node + 1); }
constexpr NodeId node_of(Lid lid) { return static_cast<NodeId>(lid - 1); }

// Traffic classes in falling priority (ACP section 3.2: one doorbell queue per class).
enum class TrafficClass : std::uint8_t { control = 0, real_time = 1, best_effort = 2 };
inline constexpr int kClassCount = 3;
inline constexpr std::array<std::string_view, kClassCount> kClassNames = {"control", "real_time",
                                                                          "best_effort"};

__extension__ typedef unsigned __int128 WideUint;  // ISO C++ has no name for it

// a * b + c over d, rounded down, of what fits into 64 bits. Nearly always the product does, too,
// and a division of 128 bits costs as much as all else in some places that ask.
constexpr std::uint64_t scaled(std::uint64_t a, std::uint64_t b, std::uint64_t c, std::uint64_t d) {
  std::uint64_t product = 0;
  std::uint64_t sum = 0;
  if (!__builtin_mul_overflow(a, b, &product) && !__builtin_add_overflow(product, c, &sum))
    return sum / d;
  return static_cast<std::uint64_t>((static_cast<WideUint>(a) * b + c) / d);
}

// Length of a cycle and conversions. flit_bits / link_bps, kept in picoseconds.
struct CycleTime {
  std::uint64_t cycle_ps = 320'000;  // 128-bit flit at 400 Mb/s

  constexpr EmuNs ns(Cycle c) const { return scaled(c, cycle_ps, 0, 1000); }
  // The first cycle that does not begin before `t`.
  constexpr Cycle cycle_at(EmuNs t) const { return scaled(t, 1000, cycle_ps - 1, cycle_ps); }
  // The first that does not begin before cycle `c` of another length: to the picosecond, for a
  // nanosecond may hold several cycles.
  constexpr Cycle cycle_from(CycleTime other, Cycle c) const {
    return scaled(c, other.cycle_ps, cycle_ps - 1, cycle_ps);
  }
};

}  // namespace emu

// Which router is built: the designs of the five papers, by the names under which a configuration
// selects them. Values only; what each does in which cycle is written in README.md and DESIGNS.md.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace fabric {

enum class RouterKind : std::uint8_t {
  non_preemptive,  // lanes split among the classes, a rate scheduler (RN 3.2, MediaWorm)
  traditional,     // first come first served everywhere, no class goes before another (RN 4.2)
  preemptive,      // any class on any lane: a higher one interrupts a lower at the input (RN 3.2.1)
  circuit,         // pipelined circuit switching: a probe reserves a lane a hop (MediaWorm III.F)
  cut_through,     // virtual cut-through: buffers hold whole packets, blocked ones are absorbed
  cell,            // shared memory, a queue of cells for each connection and output (GigaNet C)
};
inline constexpr std::array<std::string_view, 6> kRouterNames = {"np",  "tr",  "p",
                                                                 "pcs", "vct", "cell"};

enum class CrossbarKind : std::uint8_t {
  multiplexed,  // ports x ports; the scheduler at its inputs: contention point A of MediaWorm
  full,         // lanes x lanes; the scheduler at the VC multiplexer of the output: point C
};
inline constexpr std::array<std::string_view, 2> kCrossbarNames = {"multiplexed", "full"};

// What keeps a sender of cells from sending.
enum class FlowKind : std::uint8_t {
  link,    // one pool of credits for each link
  stream,  // that, and a stop or go to the source of a connection whose queue grows (source quench)
};
inline constexpr std::array<std::string_view, 2> kFlowNames = {"link", "stream"};

// How stamps are kept.
enum class CounterKind : std::uint8_t {
  epoch,     // 16 bits, counted from an epoch that moves on (emu/lane/stamp.h)
  wide,      // 64 bits, never cut: the reference
  overflow,  // 16 bits; a counter that overflows becomes 0 and takes its value off all the others
             // of its port (RN 3.1)
};
inline constexpr std::array<std::string_view, 3> kCounterNames = {"epoch", "wide", "overflow"};

}  // namespace fabric

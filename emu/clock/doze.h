// How long a daemon with nothing to do sleeps before it looks at the clock again; whoever has work
// for it wakes it sooner. Called by the loops of fabricd and hcad.
#pragma once

#include <cstdint>

namespace emu {

inline constexpr std::uint64_t kDozeNsMost = 20'000'000;

// Programs pace by the clock page, which sleepers do not move on: between their messages the steps
// are short, after a frame time of video without any longer, after a second longer still.
constexpr std::uint64_t doze_ns(std::uint64_t idle_ns) {
  if (idle_ns > 1'000'000'000) return kDozeNsMost;
  if (idle_ns > 50'000'000) return 8'000'000;
  return 1'000'000;
}

}  // namespace emu

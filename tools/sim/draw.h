// Random draws that workloads need beyond emu::Prng's: normal, a shuffle. Pure.
#pragma once

#include <cmath>
#include <cstdint>
#include <numbers>
#include <utility>
#include <vector>

#include "emu/base/prng.h"

namespace tools {

// Normal with mean and standard deviation (Box and Muller; the second value is not kept, so that a
// draw depends on the generator alone).
inline double draw_normal(emu::Prng& prng, double mean, double deviation) {
  const double radius = std::sqrt(-2 * std::log1p(-prng.uniform()));
  return mean + deviation * radius * std::cos(2 * std::numbers::pi * prng.uniform());
}

template <class T>
void shuffle(emu::Prng& prng, std::vector<T>& values) {
  for (std::size_t i = values.size(); i > 1; --i)
    std::swap(values[i - 1], values[prng.below(static_cast<std::uint32_t>(i))]);
}

}  // namespace tools

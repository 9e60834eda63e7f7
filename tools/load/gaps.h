// Gaps between the messages of one source, drawn: without memory, or in bursts. Live generators and
// simulated sources use the same. Pure; any unit of time.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string_view>

#include "emu/base/prng.h"

namespace tools {

enum class ArrivalLaw : std::uint8_t {
  poisson,       // exponential gaps
  on_off,        // messages back to back, exponential numbers of them and silences
  self_similar,  // the same with Pareto numbers and silences
};
inline constexpr std::string_view kArrivalNames[] = {"poisson", "on_off", "self_similar"};

// Pareto with the given mean; shape > 1. Shapes below 2 have no variance: long memory.
inline double draw_pareto(emu::Prng& prng, double mean, double shape) {
  const double least = mean * (shape - 1) / shape;
  return least * std::pow(1 - prng.uniform(), -1 / shape);
}

class Gaps {
 public:
  static constexpr double kBurstMessages = 10;  // mean of a burst

  // `shape` of self_similar: H = (3 - shape) / 2.
  Gaps(ArrivalLaw law, double shape) : law_(law), shape_(shape) {}

  // From one message to the next. `mean` is right in the long run, `message` is what one takes:
  // bursts are no faster, and where `mean` is less, they are a unit of time apart.
  double next(double mean, double message, emu::Prng& prng) {
    if (law_ == ArrivalLaw::poisson) return prng.exponential(mean);
    if (burst_left_ > 0) {
      --burst_left_;
      return message;
    }
    const bool pareto = law_ == ArrivalLaw::self_similar;
    const double burst =
        pareto ? draw_pareto(prng, kBurstMessages, shape_) : prng.exponential(kBurstMessages);
    // Rounded up or down by chance: the mean stays.
    burst_left_ = static_cast<std::uint64_t>(burst + prng.uniform());
    const double off = std::max(1.0, kBurstMessages * (mean - message) + (mean - message));
    return message + (pareto ? draw_pareto(prng, off, shape_) : prng.exponential(off));
  }

 private:
  ArrivalLaw law_;
  double shape_;
  std::uint64_t burst_left_ = 0;
};

}  // namespace tools

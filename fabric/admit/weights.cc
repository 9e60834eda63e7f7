#include "fabric/admit/weights.h"

#include <algorithm>
#include <bit>

namespace fabric {
namespace {

// W_v = rho_v F over the lanes of `lanes`, rho_v = R_v / sum R, rounded, a booked lane at least 1
// and none above `max`. With nothing booked all lanes are alike.
FrameWeights proportional(const LaneRates& rates, std::uint16_t lanes, std::uint64_t frame,
                          std::uint64_t max) {
  FrameWeights out;
  out.high_limit = high_priority_limit(rates.peak_bps, rates.link_bps);
  const auto count = static_cast<std::uint64_t>(std::popcount(lanes));
  if (count == 0) return out;
  std::uint64_t sum = 0;
  for (std::size_t vl = 0; vl < emu::kVlCount; ++vl) {
    if ((lanes >> vl & 1) != 0) sum += rates.rate_bps[vl];
  }
  for (std::size_t vl = 0; vl < emu::kVlCount; ++vl) {
    if ((lanes >> vl & 1) == 0) continue;
    const double share = sum == 0
                             ? 1.0 / static_cast<double>(count)
                             : static_cast<double>(rates.rate_bps[vl]) / static_cast<double>(sum);
    const auto weight = static_cast<std::uint64_t>(share * static_cast<double>(frame) + 0.5);
    out.weight[vl] = static_cast<std::uint16_t>(std::clamp<std::uint64_t>(weight, 1, max));
  }
  return out;
}

}  // namespace

FrameWeights small_frame_weights(const LaneRates& rates, std::uint16_t real_time_lanes) {
  const auto lanes = static_cast<std::uint64_t>(std::popcount(real_time_lanes));
  return proportional(rates, real_time_lanes, 4 * lanes, 4 * lanes);
}

FrameWeights large_frame_weights(const LaneRates& rates, std::uint16_t real_time_lanes) {
  return proportional(rates, real_time_lanes, kLargeFrame, kLargeFrame);
}

std::uint16_t high_priority_limit(std::uint64_t peak_bps, std::uint64_t link_bps) {
  if (peak_bps >= link_bps) return kLimitNone;
  const std::uint64_t limit = link_bps / (link_bps - peak_bps);
  return static_cast<std::uint16_t>(std::clamp<std::uint64_t>(limit, 1, kLimitNone - 1));
}

}  // namespace fabric

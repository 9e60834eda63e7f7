// Weights of the IBA's two-level arbiter from what is booked (ACP 3.3): W_v = rho_v F, rho_v the
// lane's part of all that is booked on the link, F the frame.
#pragma once

#include <array>
#include <cstdint>

#include "emu/base/units.h"

namespace fabric {

struct LaneRates {
  std::array<std::uint64_t, emu::kVlCount> rate_bps{};  // booked per lane
  std::uint64_t peak_bps = 0;                           // B_p, sum of the peaks on the link
  std::uint64_t link_bps = 0;                           // B
};

inline constexpr std::uint16_t kLimitNone = 255;  // high priority without limit

struct FrameWeights {
  std::array<std::uint16_t, emu::kVlCount> weight{};  // flits that the lane may send in a frame
  std::uint16_t high_limit = kLimitNone;              // L
};

// The largest frame of the IBA: 64 entries of the arbitration table, each of weight 255.
inline constexpr std::uint16_t kLargeFrame = 255 * 64;

// F = 4 N of N real-time lanes (11 lanes: 44). Suffers from truncation, smooths bursts.
FrameWeights small_frame_weights(const LaneRates& rates, std::uint16_t real_time_lanes);
// F = kLargeFrame: exact shares.
FrameWeights large_frame_weights(const LaneRates& rates, std::uint16_t real_time_lanes);
// L = 255 if B_p >= B, else B / (B - B_p), at most 254.
std::uint16_t high_priority_limit(std::uint64_t peak_bps, std::uint64_t link_bps);

}  // namespace fabric

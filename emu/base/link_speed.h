// What InfiniBand calls a link of this rate: width and signalling, as a port's attributes have
// them.
#pragma once

#include <cstdint>

namespace emu {

struct LinkSpeed {
  std::uint64_t mbps;
  std::uint8_t width;  // 1: 1x, 2: 4x
  std::uint8_t speed;  // 1: SDR, 2: DDR, 4: QDR, 16: FDR, 32: EDR, 64: HDR, 128: NDR
};

// The one that comes closest from below; no link of IBA is slower than the first.
constexpr LinkSpeed link_speed_of(std::uint64_t link_bps) {
  constexpr LinkSpeed kSpeeds[] = {{2'500, 1, 1},    {5'000, 1, 2},    {10'000, 2, 1},
                                   {20'000, 2, 2},   {40'000, 2, 4},   {56'000, 2, 16},
                                   {100'000, 2, 32}, {200'000, 2, 64}, {400'000, 2, 128}};
  LinkSpeed found = kSpeeds[0];
  for (const LinkSpeed& speed : kSpeeds) {
    if (link_bps < speed.mbps * 1'000'000) break;
    found = speed;
  }
  return found;
}

}  // namespace emu

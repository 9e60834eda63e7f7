// What InfiniBand calls a link of some rate: verbs, subnet management and path records have a code
// of their own for the same thing.
#pragma once

#include <cstdint>

namespace emu {

struct LinkSpeed {
  std::uint64_t mbps;
  std::uint8_t width;  // 1: 1x, 2: 4x
  std::uint8_t speed;  // 1: SDR, 2: DDR, 4: QDR, 16: FDR, 32: EDR, 64: HDR, 128: NDR
  std::uint8_t rate;   // as path records say it (IBA 15.2.5.16, ibv_rate)

  // LinkSpeedActive knows up to QDR; what is faster is QDR there and in LinkSpeedExtActive (FDR 1,
  // EDR 2, HDR 4, NDR 8).
  constexpr std::uint8_t plain() const { return speed < 16 ? speed : std::uint8_t{4}; }
  constexpr std::uint8_t extended() const { return static_cast<std::uint8_t>(speed >> 4); }
};

inline constexpr LinkSpeed kLinkSpeeds[] = {
    {2'500, 1, 1, 2},     {5'000, 1, 2, 5},     {10'000, 2, 1, 3},
    {20'000, 2, 2, 6},    {40'000, 2, 4, 7},    {56'000, 2, 16, 12},
    {100'000, 2, 32, 16}, {200'000, 2, 64, 17}, {400'000, 2, 128, 21}};

// The one that comes closest from below; no link of IBA is slower than the first.
constexpr const LinkSpeed& link_speed_of(std::uint64_t link_bps) {
  const LinkSpeed* found = &kLinkSpeeds[0];
  for (const LinkSpeed& speed : kLinkSpeeds) {
    if (link_bps < speed.mbps * 1'000'000) break;
    found = &speed;
  }
  return *found;
}

// Capabilities of an HCA's port (IBA 14.2.5.6), as PortInfo, verbs and the exporter's files have
// them: SL mapping, a system image GUID, programs are told to register anew; extended speeds where
// the link has one; whether the subnet's manager is there.
constexpr std::uint32_t port_capabilities(std::uint64_t link_bps, bool is_manager) {
  const bool extended = link_speed_of(link_bps).extended() != 0;
  return 1U << 6 | 1U << 11 | 1U << 25 | (extended ? 1U << 14 : 0) | (is_manager ? 1U << 1 : 0);
}

}  // namespace emu

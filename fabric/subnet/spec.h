// What the subnet's agents are built from, beside the network itself: plain values, made from the
// configuration by fabric/daemon.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "emu/base/units.h"
#include "emu/config/config.h"

namespace fabric {

struct SubnetSpec {
  std::vector<std::string> node_names;    // NodeDescriptions, at most 63 characters of each
  std::vector<std::string> switch_names;  // the same; where there is none: "switch" and its number
  std::uint64_t link_bps = 400'000'000;
  std::uint32_t flit_bits = 128;
  std::uint32_t mtu_bytes = 2048;
  std::uint32_t vendor_id = 0xffffff;
  std::uint16_t device_id = 0;
  std::uint8_t high_limit = 255;
  std::vector<emu::VlWeight> vlarb_high;  // at most 64 entries of each
  std::vector<emu::VlWeight> vlarb_low;
  std::array<emu::Vl, 16> sl2vl{};
};

}  // namespace fabric

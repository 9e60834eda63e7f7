// GIDs of the nodes' ports. Index 0 is the subnet's prefix and the port's GUID. With RoCE v2 (IBA
// annex A17) index 1 is the node's IPv4 address as ::ffff:a.b.c.d, and a GID is how a node is
// found.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "emu/packet/headers.h"
#include "hca/host/options.h"

namespace hca {

inline constexpr std::uint8_t kIpGidIndex = 1;

constexpr std::uint8_t gids_of_port(bool roce) { return roce ? 2 : 1; }

inline emu::Gid guid_gid(std::uint64_t prefix, std::uint64_t guid) {
  emu::Gid gid;
  for (std::size_t i = 0; i < 8; ++i) {
    gid[i] = static_cast<std::uint8_t>(prefix >> (56 - 8 * i));
    gid[8 + i] = static_cast<std::uint8_t>(guid >> (56 - 8 * i));
  }
  return gid;
}

inline emu::Gid ip_gid(std::uint32_t v4) {
  emu::Gid gid{};
  gid[10] = gid[11] = 0xff;
  for (std::size_t i = 0; i < 4; ++i) gid[12 + i] = static_cast<std::uint8_t>(v4 >> (24 - 8 * i));
  return gid;
}

inline bool is_ip_gid(const emu::Gid& gid) {
  const emu::Gid none = ip_gid(0);
  return std::equal(none.begin(), none.begin() + 12, gid.begin());
}

inline emu::Gid gid_of(const HostOptions& options, emu::NodeId node, std::uint8_t index) {
  if (options.roce && index == kIpGidIndex) return ip_gid(options.address_of[node]);
  return guid_gid(options.gid_prefix, options.guid_base + node + 1);
}

inline std::optional<emu::NodeId> node_of_gid(const HostOptions& options, const emu::Gid& gid) {
  for (emu::NodeId node = 0; node < options.nodes; ++node) {
    for (std::uint8_t index = 0; index < gids_of_port(options.roce); ++index) {
      if (gid_of(options, node, index) == gid) return node;
    }
  }
  return std::nullopt;
}

}  // namespace hca

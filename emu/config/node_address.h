// The IPv4 addresses of nodes: HCAs, the exporter and the check of a configuration must say the
// same of a node.
#pragma once

#include <arpa/inet.h>

#include "emu/config/config.h"

namespace emu {

// Host order: `ip` of the configuration, or 127.1.0.(n + 1).
inline std::uint32_t node_address(const Config& config, std::size_t node) {
  constexpr std::uint32_t kFirst = 0x7f010001;
  in_addr given{};
  if (::inet_pton(AF_INET, config.nodes[node].ip.c_str(), &given) == 1) return ntohl(given.s_addr);
  return kFirst + static_cast<std::uint32_t>(node);
}

}  // namespace emu

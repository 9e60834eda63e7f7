// From the cluster's configuration to what an HCA's host half and its node page are told.
#pragma once

#include <cstdint>
#include <vector>

#include "emu/config/config.h"
#include "hca/abi/node.h"
#include "hca/host/options.h"

namespace hca {

HostOptions host_options(const emu::Config& config, emu::NodeId node);

// Fills the cold part of a node page (zeroed before).
void fill_node_page(const emu::Config& config, const HostOptions& options, NodePage& page);

// The IP addresses of the nodes, host order: `ip` of the configuration, or 127.1.0.(n + 1).
std::vector<std::uint32_t> node_addresses(const emu::Config& config);

}  // namespace hca

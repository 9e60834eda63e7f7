// From the cluster's configuration to what an HCA's host half and its node page are told.
#pragma once

#include "emu/config/config.h"
#include "hca/abi/node.h"
#include "hca/host/options.h"

namespace hca {

HostOptions host_options(const emu::Config& config, emu::NodeId node);

// Fills the cold part of a node page (zeroed before).
void fill_node_page(const emu::Config& config, const HostOptions& options, NodePage& page);

}  // namespace hca

// Why a request failed, as a line of the node's log.
#pragma once

#include <span>
#include <string>

#include "emu/config/config.h"
#include "hca/host/trouble.h"

namespace hca {

std::string describe(const Trouble& trouble, std::span<const emu::NodeConfig> nodes);

}  // namespace hca

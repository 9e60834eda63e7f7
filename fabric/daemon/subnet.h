// What the subnet's agents are told of this fabric.
#pragma once

#include "emu/config/config.h"
#include "fabric/daemon/edge.h"
#include "fabric/daemon/links.h"
#include "fabric/subnet/agent.h"

namespace fabric {

// `edge` and `links` outlive whoever has it.
SubnetSpec subnet_spec(const emu::Config& config, const Edge& edge, const Links& links);

}  // namespace fabric

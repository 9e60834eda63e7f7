// What the subnet's agents say of a configuration. Apart from spec.h, which the simulator compiles:
// nobody asks agents there.
#pragma once

#include "emu/config/config.h"
#include "fabric/router/spec.h"
#include "fabric/subnet/spec.h"

namespace fabric {

// Names, links, tables of arbitration.
SubnetSpec subnet_spec(const emu::Config& config, const NetworkSpec& network);

}  // namespace fabric

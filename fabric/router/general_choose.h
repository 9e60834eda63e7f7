// Where a routed head goes in the general engine: as choose.h for the fast one, over ports up
// to 64. Called by stage 2.
#pragma once

#include "fabric/router/general_state.h"

namespace fabric::general {

struct LaneAt {
  unsigned port;
  unsigned lane;
};

// `claimed`: [port] output lanes that heads of this cycle have chosen before.
LaneAt choose_output(const Router& router, const World& world, const hca::Message& message,
                     std::array<LaneBits, kPortsMax>& claimed);

}  // namespace fabric::general

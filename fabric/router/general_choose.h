// Where a routed head goes in the general engine: as choose.h for the fast one, over ports up
// to 64. Called by stage 2.
#pragma once

#include <optional>

#include "fabric/router/general_state.h"

namespace fabric::general {

struct LaneAt {
  unsigned port;
  unsigned lane;
};

// Routing recovery: the message takes free lanes only, and waits until there is one.
bool may_wait_unrouted(const Router& router, const World& world, const hca::Message& message);
// Nothing: no lane is free for it.
std::optional<LaneAt> choose_free(const Router& router, const World& world,
                                  const hca::Message& message,
                                  std::array<LaneBits, kPortsMax>& claimed);
// `claimed`: [port] output lanes that heads of this cycle have chosen before.
LaneAt choose_output(const Router& router, const World& world, const hca::Message& message,
                     std::array<LaneBits, kPortsMax>& claimed);

}  // namespace fabric::general

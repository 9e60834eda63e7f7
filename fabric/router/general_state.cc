// What is set up before the first cycle.
#include "fabric/router/general_state.h"

namespace fabric::general {

void configure_schedulers(PortClock& clock, Arbiter& arbiter, const World& world,
                          const ClockRules& rules, unsigned levels) {
  clock.configure(rules, world.spec.start);
  arbiter.configure(rules.kind, world.spec.block_flits, world.spec.block_waits);
  arbiter.set_weights(world.spec.weights);
  if (!emu::has_lane_vticks(rules.kind)) return;
  for (unsigned i = 0; i < emu::kVlCount * levels; ++i)
    clock.set_vtick(i, world.spec.lane_vtick[i % emu::kVlCount], world.spec.start);
}

}  // namespace fabric::general

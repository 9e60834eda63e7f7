// The engine with weighted round robin, one level or two.
#include "emu/lane/turns.h"
#include "fabric/router/engine.h"

namespace fabric {

std::unique_ptr<Network::Impl> make_weight_engine(const NetworkSpec& spec, Graph graph,
                                                  ControlHook* hook) {
  return std::make_unique<Engine<emu::TwoLevel, emu::TwoLevel>>(spec, std::move(graph), hook);
}

}  // namespace fabric

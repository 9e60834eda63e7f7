// The engine with round robin.
#include "emu/lane/turns.h"
#include "fabric/router/engine.h"

namespace fabric {

std::unique_ptr<Network::Impl> make_turn_engine(const NetworkSpec& spec, Graph graph,
                                                ControlHook* hook) {
  return std::make_unique<Engine<emu::RoundRobin, emu::RoundRobin>>(spec, std::move(graph), hook);
}

}  // namespace fabric

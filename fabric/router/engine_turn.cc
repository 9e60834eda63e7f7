// The engine with round robin.
#include "emu/lane/turns.h"
#include "fabric/router/engine.h"

namespace fabric {

namespace {
template <int kPlanes>
using TurnEngine = Engine<kPlanes, emu::RoundRobin, emu::RoundRobin>;
}

std::unique_ptr<Network::Impl> make_turn_engine(const NetworkSpec& spec, Graph graph,
                                                ControlHook* hook) {
  return make_engine<TurnEngine>(spec, std::move(graph), hook);
}

}  // namespace fabric

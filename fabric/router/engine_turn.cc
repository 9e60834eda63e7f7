// The engines with round robin: of one router, and of many.
#include "emu/lane/port_turns.h"
#include "emu/lane/turns.h"
#include "fabric/router/block_engine.h"
#include "fabric/router/engine.h"
#include "fabric/router/make_engine.h"

namespace fabric {

namespace {
template <int kPlanes>
using TurnEngine = Engine<kPlanes, emu::RoundRobin, emu::RoundRobin>;
template <int kPlanes>
using TurnBlocks = BlockEngine<kPlanes, emu::PortTurns, emu::PortTurns>;
}  // namespace

std::unique_ptr<Network::Impl> make_turn_engine(const NetworkSpec& spec, Graph graph,
                                                ControlHook* hook) {
  return make_engine<TurnEngine, TurnBlocks>(spec, std::move(graph), hook);
}

}  // namespace fabric

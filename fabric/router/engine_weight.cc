// The engines with weighted round robin, one level or two: of one router, and of many.
#include "emu/lane/port_turns.h"
#include "emu/lane/turns.h"
#include "fabric/router/block_engine.h"
#include "fabric/router/engine.h"
#include "fabric/router/make_engine.h"

namespace fabric {

namespace {
template <int kPlanes>
using WeightEngine = Engine<kPlanes, emu::TwoLevel, emu::TwoLevel>;
template <int kPlanes>
using WeightBlocks = BlockEngine<kPlanes, emu::PortWeights, emu::PortWeights>;
}  // namespace

std::unique_ptr<Network::Impl> make_weight_engine(const NetworkSpec& spec, Graph graph,
                                                  ControlHook* hook) {
  return make_engine<WeightEngine, WeightBlocks>(spec, std::move(graph), hook);
}

}  // namespace fabric

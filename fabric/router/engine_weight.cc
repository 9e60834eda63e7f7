// The engine with weighted round robin, one level or two.
#include "emu/lane/turns.h"
#include "fabric/router/engine.h"

namespace fabric {

namespace {
template <int kPlanes>
using WeightEngine = Engine<kPlanes, emu::TwoLevel, emu::TwoLevel>;
}

std::unique_ptr<Network::Impl> make_weight_engine(const NetworkSpec& spec, Graph graph,
                                                  ControlHook* hook) {
  return make_engine<WeightEngine>(spec, std::move(graph), hook);
}

}  // namespace fabric

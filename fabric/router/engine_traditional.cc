// The engine of traditional routers: FCFS at the inputs, at the outputs the order of coming.
#include "emu/lane/stamps.h"
#include "fabric/router/engine.h"
#include "fabric/router/make_engine.h"

namespace fabric {

namespace {
template <int kPlanes>
using TraditionalEngine =
    Engine<kPlanes, emu::InputStamps<kPlanes>, emu::SourceStamps, InOrderOfComing<kPlanes>>;
}  // namespace

std::unique_ptr<Network::Impl> make_traditional_engine(const NetworkSpec& spec, Graph graph,
                                                       ControlHook* hook) {
  return make_engine<TraditionalEngine>(spec, std::move(graph), hook);
}

}  // namespace fabric

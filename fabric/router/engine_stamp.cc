// The engine with FCFS, VirtualClock and FGVC.
#include "emu/lane/stamps.h"
#include "fabric/router/engine.h"

namespace fabric {

namespace {
template <int kPlanes>
using StampEngine = Engine<kPlanes, emu::InputStamps<kPlanes>, emu::SourceStamps>;
}

std::unique_ptr<Network::Impl> make_stamp_engine(const NetworkSpec& spec, Graph graph,
                                                 ControlHook* hook) {
  return make_engine<StampEngine>(spec, std::move(graph), hook);
}

}  // namespace fabric

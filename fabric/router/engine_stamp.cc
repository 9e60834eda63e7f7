// The engine with FCFS, VirtualClock and FGVC.
#include "emu/lane/stamps.h"
#include "fabric/router/engine.h"

namespace fabric {

std::unique_ptr<Network::Impl> make_stamp_engine(const NetworkSpec& spec, Graph graph,
                                                 ControlHook* hook) {
  return std::make_unique<Engine<emu::InputStamps, emu::SourceStamps>>(spec, std::move(graph),
                                                                       hook);
}

}  // namespace fabric

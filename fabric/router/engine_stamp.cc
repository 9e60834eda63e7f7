// The engines with FCFS, VirtualClock and FGVC: of one router, and of many on one thread, most of
// whose ports have nothing to do.
#include "emu/lane/port_stamps.h"
#include "emu/lane/stamps.h"
#include "fabric/router/block_engine.h"
#include "fabric/router/engine.h"

namespace fabric {

namespace {
template <int kPlanes>
using StampEngine = Engine<kPlanes, emu::InputStamps<kPlanes>, emu::SourceStamps>;
template <int kPlanes>
using StampBlocks = BlockEngine<kPlanes, emu::InputClocks<kPlanes>, emu::SourceClocks>;
}  // namespace

std::unique_ptr<Network::Impl> make_stamp_engine(const NetworkSpec& spec, Graph graph,
                                                 ControlHook* hook) {
  if (graph.routers.size() > 1 && spec.threads == 1)
    return make_engine<StampBlocks>(spec, std::move(graph), hook);
  return make_engine<StampEngine>(spec, std::move(graph), hook);
}

}  // namespace fabric

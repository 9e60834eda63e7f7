// The engines with FCFS, VirtualClock and FGVC: of one router, and of many, most of whose ports
// have nothing to do.
#include "emu/lane/port_stamps.h"
#include "emu/lane/stamps.h"
#include "fabric/router/block_engine.h"
#include "fabric/router/engine.h"
#include "fabric/router/make_engine.h"

namespace fabric {

namespace {
template <int kPlanes>
using StampEngine = Engine<kPlanes, emu::InputStamps<kPlanes>, emu::SourceStamps>;
template <int kPlanes>
using StampBlocks = BlockEngine<kPlanes, emu::InputClocks<kPlanes>, emu::SourceClocks>;

// One router and its scheduler stay in the first cache, beside the HCAs.
template <int kPlanes>
constexpr std::size_t kHotBytes = sizeof(HotState<kPlanes>) + sizeof(emu::InputStamps<kPlanes>) -
                                  emu::InputStamps<kPlanes>::kBehindBytes;
static_assert(kHotBytes<emu::kPlanesSmall> <= 4096);
}  // namespace

std::unique_ptr<Network::Impl> make_stamp_engine(const NetworkSpec& spec, Graph graph,
                                                 ControlHook* hook) {
  return make_engine<StampEngine, StampBlocks>(spec, std::move(graph), hook);
}

}  // namespace fabric

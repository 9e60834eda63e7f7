// Which of the engines that were compiled for a scheduler does a network. Included by engine_*.cc.
#pragma once

#include <algorithm>
#include <memory>

#include "fabric/link/packing.h"
#include "fabric/router/impl.h"

namespace fabric {

// The engine that has room for the buffers of `spec`.
template <template <int> class SomeEngine>
std::unique_ptr<Network::Impl> make_engine(const NetworkSpec& spec, Graph graph,
                                           ControlHook* hook) {
  if constexpr (emu::kStepsByAvx2) {  // with a sanitizer the roomy one does for all: half the code
    if (spec.vc_buf_size < 1 << emu::kPlanesSmall)
      return std::make_unique<SomeEngine<emu::kPlanesSmall>>(spec, std::move(graph), hook);
  }
  return std::make_unique<SomeEngine<emu::kPlanesLarge>>(spec, std::move(graph), hook);
}

// That of one router, or that of many.
template <template <int> class OfOne, template <int> class OfMany>
std::unique_ptr<Network::Impl> make_engine(const NetworkSpec& spec, Graph graph,
                                           ControlHook* hook) {
  if (graph.routers.size() == 1) return make_engine<OfOne>(spec, std::move(graph), hook);
  NetworkSpec shared = spec;  // threads share out blocks, not routers
  const std::size_t blocks = Packing(graph, spec.threads).blocks().size();
  shared.threads = std::min(spec.threads, static_cast<int>(blocks));
  return make_engine<OfMany>(shared, std::move(graph), hook);
}

}  // namespace fabric

#include "fabric/link/packing.h"

#include <algorithm>

namespace fabric {

namespace {

// The widest vectors have so many words.
constexpr std::size_t kBlockPortsMin = 32;

bool leads_somewhere(const PortEnd& end) { return end.node != kNoNode || end.router != kNobody; }

}  // namespace

std::size_t Packing::room(std::size_t ports, int threads) {
  const auto parts = static_cast<std::size_t>(threads);
  return std::clamp<std::size_t>((ports + parts - 1) / parts, kBlockPortsMin, emu::kBlockPorts);
}

Packing::Packing(const Graph& graph, int threads) {
  std::size_t ports = 0;
  for (const auto& router : graph.routers)
    ports += static_cast<std::size_t>(std::ranges::count_if(router, leads_somewhere));
  const std::size_t most = room(ports, threads);
  for (const auto& ends : graph.routers) {
    const auto used = static_cast<std::size_t>(std::ranges::count_if(ends, leads_somewhere));
    if (blocks_.empty() || blocks_.back().ports + used > most)
      blocks_.push_back({.first_router = static_cast<emu::RouterId>(of_router_.size())});
    Block& block = blocks_.back();
    Router router{.block = static_cast<std::uint32_t>(blocks_.size() - 1),
                  .first = static_cast<std::uint8_t>(block.ports)};
    router.place.fill(kNowhere);
    for (std::size_t p = 0; p < ends.size(); ++p)
      if (leads_somewhere(ends[p])) router.place[p] = static_cast<std::uint8_t>(block.ports++);
    router.end = static_cast<std::uint8_t>(block.ports);
    ++block.routers;
    of_router_.push_back(router);
  }
}

}  // namespace fabric

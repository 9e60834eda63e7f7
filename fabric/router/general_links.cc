#include "fabric/router/general_links.h"

#include <bit>

namespace fabric::general {

Links::Links(const Graph& graph, int delay)
    : delay_(delay),
      mask_(std::bit_ceil(static_cast<std::size_t>(delay) + 1) - 1),
      units_(graph.routers.size() + graph.nodes.size()) {
  std::uint32_t ports = 0;
  for (const auto& router : graph.routers) {
    first_.push_back(ports);
    ports += static_cast<std::uint32_t>(router.size());
  }
  for (std::size_t n = 0; n < graph.nodes.size(); ++n) first_.push_back(ports++);
  far_.assign(ports, End{kNowhere, 0, 0});
  const auto routers = static_cast<std::uint32_t>(graph.routers.size());
  for (std::uint32_t r = 0; r < routers; ++r) {
    for (std::uint32_t p = 0; p < graph.routers[r].size(); ++p) {
      const PortEnd& end = graph.routers[r][p];
      if (end.node != kNoNode) {
        far_[first_[r] + p] = {routers + end.node, 0, first_[routers + end.node]};
        far_[first_[routers + end.node]] = {r, p, first_[r] + p};
      } else if (end.router != kNobody) {
        far_[first_[r] + p] = {end.router, end.port, first_[end.router] + end.port};
      }
    }
  }
  boxes_.resize((mask_ + 1) * ports);
  ports_.resize((mask_ + 1) * units_);
}

void Links::clear(unsigned unit) {
  for (PortBits bits = ports_with(unit); bits != 0; bits &= bits - 1)
    clear_box(inbox(unit, static_cast<unsigned>(std::countr_zero(bits))));
  clear_ports(unit);
}

}  // namespace fabric::general

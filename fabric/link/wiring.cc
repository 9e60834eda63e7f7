#include "fabric/link/wiring.h"

#include <bit>

namespace fabric {

namespace {

void connect(emu::Outlet& outlet, std::size_t port, std::size_t unit, std::size_t peer_port) {
  emu::lead_to(outlet, static_cast<unsigned>(port), static_cast<unsigned>(unit),
               static_cast<unsigned>(peer_port));
  outlet.connected = static_cast<std::uint8_t>(outlet.connected | 1U << port);
}

bool straight(const emu::Outlet& outlet) {
  for (std::size_t p = 0; p < emu::kPortsMax; ++p) {
    if (((outlet.connected >> p) & 1U) == 0) continue;
    if (outlet.unit[p] != outlet.unit[0] || outlet.port[p] != p) return false;
  }
  return (outlet.connected & 1U) != 0;
}

}  // namespace

Wiring make_wiring(const Graph& graph) {
  Wiring wiring;
  wiring.routers = static_cast<int>(graph.routers.size());
  wiring.groups = static_cast<int>((graph.nodes.size() + emu::kPortsMax - 1) / emu::kPortsMax);
  wiring.outlets.resize(static_cast<std::size_t>(wiring.units()));
  for (int unit = 0; unit < wiring.units(); ++unit) lead_nowhere(wiring, unit, 0);
  const std::size_t first_group = graph.routers.size();
  for (std::size_t r = 0; r < graph.routers.size(); ++r) {
    for (std::size_t p = 0; p < graph.routers[r].size(); ++p) {
      const PortEnd& end = graph.routers[r][p];
      if (end.node != kNoNode) {
        const std::size_t group = first_group + end.node / emu::kPortsMax;
        const std::size_t word = end.node % emu::kPortsMax;
        connect(wiring.outlets[r], p, group, word);
        wiring.outlets[r].to_hca[p] = 0xffff;
        connect(wiring.outlets[group], word, r, p);
      } else if (end.router != kNobody) {
        connect(wiring.outlets[r], p, end.router, end.port);
      }
    }
  }
  for (std::size_t u = 0; u < wiring.outlets.size(); ++u) {
    emu::Outlet& outlet = wiring.outlets[u];
    // A whole vector may be stored only where the peer's links all come from here.
    outlet.aligned = straight(outlet) && straight(wiring.outlets[outlet.unit[0]]) &&
                     wiring.outlets[outlet.unit[0]].unit[0] == u;
  }
  return wiring;
}

void lead_nowhere(Wiring& wiring, int unit, int nowhere) {
  emu::Outlet& outlet = wiring.outlets[static_cast<std::size_t>(unit)];
  for (unsigned p = 0; p < emu::kPortsMax; ++p) {
    if (((outlet.connected >> p) & 1U) == 0)
      emu::lead_to(outlet, p, static_cast<unsigned>(wiring.units() + nowhere), p);
  }
}

BoxWheel::BoxWheel(int units, int delay, int ahead, int nowheres)
    : units_(static_cast<std::size_t>(units + nowheres)),
      mask_(std::bit_ceil(static_cast<std::size_t>(delay + ahead)) - 1),
      delay_(delay),
      boxes_(units_ * (mask_ + 1), emu::Box{}) {}

}  // namespace fabric

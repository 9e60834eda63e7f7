// The energy of a FlitRun, window by window: what routers said, what passed between them and by the
// HCAs. Called when the workload begins and at the end of every window.
#include <algorithm>
#include <utility>

#include "tools/sim/flit_run.h"

namespace tools {

namespace {

// Flits that left a router for other routers since the start.
std::uint64_t flits_to_routers(const fabric::Network& network, emu::RouterId router) {
  std::uint64_t flits = 0;
  for (int p = 0; p < network.ports(router); ++p) {
    const auto port = static_cast<emu::PortId>(p);
    if (network.peer(router, port).router == emu::kNoRouter) continue;
    for (const auto& lane : network.router_counters(router, port).sent) flits += lane.flits;
  }
  return flits;
}

}  // namespace

// What passed before the workload began, probes and their answers, counts for no window.
void FlitRun::begin_windows() {
  for (std::size_t r = 0; r < link_flits_of_.size(); ++r)
    link_flits_of_[r] = flits_to_routers(*network_, static_cast<emu::RouterId>(r));
  for (std::size_t n = 0; n < passed_.size(); ++n) passed_[n] = passed(n);
}

FlitRun::Passed FlitRun::passed(std::size_t node) const {
  const auto counters = network_->wire_counters(static_cast<emu::NodeId>(node));
  Passed sum;
  for (std::size_t v = 0; v < emu::kVlCount; ++v) {
    sum.flits += counters.sent[v].flits + counters.received[v].flits;
    sum.packets += counters.sent[v].packets + counters.received[v].packets;
  }
  return sum;
}

// Energy of a window: routers as they said, links by what passed between routers.
void FlitRun::end_window() {
  double total_pj = 0;
  double largest_pj = 0;
  for (std::size_t r = 0; r < router_pj_.size(); ++r) {
    const std::uint64_t flits = flits_to_routers(*network_, static_cast<emu::RouterId>(r));
    const double link_pj =
        static_cast<double>(flits - link_flits_of_[r]) * point_.cluster.energy.link_flit_pj();
    link_flits_of_[r] = flits;
    const double router_pj = std::exchange(router_pj_[r], 0) + link_pj;
    total_pj += router_pj;
    largest_pj = std::max(largest_pj, router_pj);
  }
  measure_->window(now(), total_pj, largest_pj);
  hca_window();
}

// What the HCAs' own parts took (emu/energy/table.h), by what passed their ports.
void FlitRun::hca_window() {
  const emu::EnergyTable& energy = point_.cluster.energy;
  double total_pj = 0;
  double largest_pj = 0;
  for (std::size_t n = 0; n < passed_.size(); ++n) {
    const Passed now_passed = passed(n);
    const double hca_pj =
        static_cast<double>(now_passed.flits - passed_[n].flits) * energy.hca_own_flit_pj() +
        static_cast<double>(now_passed.packets - passed_[n].packets) * energy.hca_packet_pj();
    passed_[n] = now_passed;
    total_pj += hca_pj;
    largest_pj = std::max(largest_pj, hca_pj);
  }
  measure_->hca_window(now(), total_pj, largest_pj);
}

}  // namespace tools

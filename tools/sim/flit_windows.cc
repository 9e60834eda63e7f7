// The energy of a FlitRun, window by window: what routers said, what passed between them and by the
// HCAs. Called when the workload begins and at the end of every window.
#include <algorithm>
#include <utility>

#include "tools/sim/flit_run.h"

namespace tools {

// What passed before the workload began, probes and their answers, counts for no window.
void FlitRun::begin_windows() {
  for (std::size_t n = 0; n < passed_.size(); ++n) passed_[n] = passed(n);
}

FlitRun::Passed FlitRun::passed(std::size_t node) const {
  const auto n = static_cast<emu::NodeId>(node);
  const fabric::LinkFlits link = network_->link_flits(network_->router_of(n), network_->port_of(n));
  const fabric::PortCounters counters = network_->wire_counters(n);
  Passed sum;
  sum.flits = link.in + link.out;
  for (std::size_t v = 0; v < emu::kVlCount; ++v)
    sum.packets += counters.sent[v].packets + counters.received[v].packets;
  return sum;
}

// Energy of a window: what routers said that they and the links between them took, and the HCAs'
// part of the cap.
void FlitRun::end_window() {
  double total_pj =
      static_cast<double>(std::exchange(hca_flits_, 0)) * point_.cluster.energy.hca_flit_pj;
  double largest_pj = 0;
  for (double& router_pj : router_pj_) {
    total_pj += router_pj;
    largest_pj = std::max(largest_pj, std::exchange(router_pj, 0));
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

#include "fabric/router/power_herd.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace fabric {

namespace {

// Decided here. The prediction is the mean of the last one and of what the window has shown; a
// router that had to stop wanted at least a quarter more than it had. A tenth of the prediction is
// kept as a reserve, and a tenth of an equal share always, so that nobody starves.
constexpr double kMemory = 0.5;
constexpr double kMore = 1.25;
constexpr double kReserve = 1.1;
constexpr double kLeast = 0.1;
// What nobody around lacks spreads, so that it comes to those farther off: over each link a part of
// the difference, small enough for routers of up to eight links.
constexpr double kSpread = 0.125;

}  // namespace

PowerHerd::PowerHerd(const HerdOptions& options, const Graph& graph, const HerdPace& pace)
    : window_cycles_(static_cast<emu::Cycle>(pace.window_cycles)),
      link_delay_(static_cast<emu::Cycle>(pace.link_delay)) {
  const emu::EnergyTable& energy = options.energy;
  cross_pj_ =
      energy.buffer_read_pj + energy.arbitration_pj + energy.crossbar_pj + energy.buffer_write_pj;
  send_pj_ = energy.buffer_read_pj + energy.link_flit_pj();
  send_to_hca_pj_ = energy.buffer_read_pj + energy.hca_flit_pj;
  arrive_pj_ = energy.buffer_write_pj;
  hca_arrives_pj_ = energy.buffer_write_pj + energy.hca_flit_pj;
  if (options.window_pj <= 0) return;
  routers_.resize(graph.routers.size());
  const double equal_pj = options.window_pj / static_cast<double>(routers_.size());
  for (std::size_t r = 0; r < routers_.size(); ++r) {
    Router& router = routers_[r];
    place(router, graph.routers[r], pace.crossings);
    strict_ &= router.least_pj <= equal_pj;
    router.budget_pj = router.left_pj = router.predicted_pj = equal_pj;
  }
  for (Router& router : routers_) {
    if (!strict_) router.least_pj = 0;
    router.least_pj = std::max(router.least_pj, kLeast * equal_pj);
  }
}

// The least of its budget pays what comes without being asked, which is what its HCAs can send and
// what it sent when the last window ended, and with that a cycle of the crossbar and a flit sent.
void PowerHerd::place(Router& router, const std::vector<PortEnd>& ends, int crossings) {
  router.ports = static_cast<unsigned>(ends.size());
  for (std::size_t p = 0; p < ends.size(); ++p) {
    if (ends[p].node != kNoNode) router.hcas_cycle_pj += hca_arrives_pj_;
    const emu::RouterId other = ends[p].router;
    if (other == kNobody) continue;
    router.router_ports |= std::uint64_t{1} << p;
    if (std::ranges::count(router.neighbours, other) == 0) router.neighbours.push_back(other);
  }
  const double links = std::popcount(router.router_ports);
  router.least_pj = router.hcas_cycle_pj * static_cast<double>(window_cycles_) +
                    arrive_pj_ * links * static_cast<double>(link_delay_) +
                    cross_pj_ * router.ports * crossings + send_to_hca_pj_ + send_pj_ + arrive_pj_;
}

void PowerHerd::predict(Router& router) {
  const double spent_pj = std::max(0.0, router.budget_pj - router.left_pj);
  const double wanted_pj = router.stopped ? std::max(spent_pj, router.budget_pj) * kMore : spent_pj;
  router.predicted_pj = kMemory * router.predicted_pj + (1 - kMemory) * wanted_pj;
  router.lacks_pj = std::max(0.0, kReserve * router.predicted_pj - router.budget_pj);
  stops_ += router.stopped ? 1 : 0;
  router.stopped = false;
  router.left_pj = std::min(router.left_pj, 0.0) + std::exchange(router.next_left_pj, 0.0);
}

double PowerHerd::spare_pj(const Router& router) const {
  return router.budget_pj - std::max(router.least_pj, kReserve * router.predicted_pj);
}

// What a router can spare goes to the neighbours that lack some, in proportion to what they lack.
void PowerHerd::share(Router& router) {
  const double spare = spare_pj(router);
  if (spare <= 0) return;
  double lacking_pj = 0;
  for (const emu::RouterId n : router.neighbours) lacking_pj += routers_[n].lacks_pj;
  if (lacking_pj <= 0) return;
  const double part = std::min(1.0, spare / lacking_pj);
  for (const emu::RouterId n : router.neighbours) {
    const double given_pj = part * routers_[n].lacks_pj;
    routers_[n].lacks_pj -= given_pj;
    routers_[n].budget_pj += given_pj;
    router.budget_pj -= given_pj;
  }
}

void PowerHerd::window_ends() {
  for (Router& router : routers_) predict(router);
  for (Router& router : routers_) share(router);
  for (Router& router : routers_) {
    for (const emu::RouterId n : router.neighbours) {
      const double spare = spare_pj(router);
      const double more_pj = spare - std::max(0.0, spare_pj(routers_[n]));
      if (spare <= 0 || more_pj <= 0) continue;
      router.budget_pj -= kSpread * more_pj;
      routers_[n].budget_pj += kSpread * more_pj;
    }
  }
  for (Router& router : routers_) router.left_pj += router.budget_pj;
}

// Predictions and differences between budgets fade, until a window changes nothing: then none does,
// however long the idle time is.
void PowerHerd::windows_pass(std::uint64_t count) {
  for (; count > 0 && on(); --count) {
    for (Router& router : routers_) router.before_pj = standing_of(router);
    window_ends();
    const auto rests = [](const Router& r) { return r.before_pj == standing_of(r); };
    if (std::ranges::all_of(routers_, rests)) return;
  }
}

}  // namespace fabric

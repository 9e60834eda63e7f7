#include "fabric/router/power_herd.h"

#include <algorithm>

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

PowerHerd::PowerHerd(const HerdOptions& options, const Graph& graph) : options_(options) {
  if (options.window_pj <= 0) return;
  routers_.resize(graph.routers.size());
  const double equal_pj = options.window_pj / static_cast<double>(routers_.size());
  least_pj_ = kLeast * equal_pj;
  for (std::size_t r = 0; r < routers_.size(); ++r) {
    Router& router = routers_[r];
    router.budget_pj = router.left_pj = router.predicted_pj = equal_pj;
    for (std::size_t p = 0; p < graph.routers[r].size(); ++p) {
      const emu::RouterId other = graph.routers[r][p].router;
      if (other == kNobody) continue;
      router.router_ports |= std::uint64_t{1} << p;
      if (std::ranges::count(router.neighbours, other) == 0) router.neighbours.push_back(other);
    }
  }
}

void PowerHerd::predict(Router& router) {
  const double spent_pj = std::max(0.0, router.budget_pj - router.left_pj);
  const double wanted_pj = router.stopped ? std::max(spent_pj, router.budget_pj) * kMore : spent_pj;
  router.predicted_pj = kMemory * router.predicted_pj + (1 - kMemory) * wanted_pj;
  router.lacks_pj = std::max(0.0, kReserve * router.predicted_pj - router.budget_pj);
  stops_ += router.stopped ? 1 : 0;
  router.stopped = false;
  router.left_pj = std::min(router.left_pj, 0.0);
}

// What a router can spare goes to the neighbours that lack some, in proportion to what they lack.
void PowerHerd::share(Router& router) {
  const double keeps_pj = std::max(least_pj_, kReserve * router.predicted_pj);
  const double spare_pj = router.budget_pj - keeps_pj;
  if (spare_pj <= 0) return;
  double lacking_pj = 0;
  for (const emu::RouterId n : router.neighbours) lacking_pj += routers_[n].lacks_pj;
  if (lacking_pj <= 0) return;
  const double part = std::min(1.0, spare_pj / lacking_pj);
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
  const auto spare_of = [this](const Router& router) {
    return router.budget_pj - std::max(least_pj_, kReserve * router.predicted_pj);
  };
  for (Router& router : routers_) {
    for (const emu::RouterId n : router.neighbours) {
      const double spare_pj = spare_of(router);
      const double more_pj = spare_pj - std::max(0.0, spare_of(routers_[n]));
      if (spare_pj <= 0 || more_pj <= 0) continue;
      router.budget_pj -= kSpread * more_pj;
      routers_[n].budget_pj += kSpread * more_pj;
    }
  }
  for (Router& router : routers_) router.left_pj += router.budget_pj;
}

}  // namespace fabric

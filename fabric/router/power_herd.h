// PowerHerd (Shang, Peh, Jha, ICS 2003; ACP's reference 30): peak power kept by the routers. Each
// has a budget of energy for a window and stops when it is spent. When a window ends it predicts
// what it will need in the next and gives what it can spare to neighbours that lack it: the sum of
// all budgets stays the cap. In: what flits do, as they do it, ends of windows. Out: may a router
// let flits cross, may it send one. What the paper leaves to its reader is decided in
// power_herd.cc.
//
// What is promised: what flits take in a window, by the events that the meter counts
// (network.h, ActivityWindow), is never more than the cap. A router pays for each event in the
// window in which it happens, and asks before it happens: for crossing, for sending, and for the
// write into the next router's buffer, which follows from sending. Nobody can refuse what an HCA
// sends, so that is kept in reserve. Of a cap that does not pay that reserve and a flit in every
// router (strict() is false) the mean is kept.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "emu/base/units.h"
#include "emu/energy/table.h"
#include "fabric/topo/graph.h"

namespace fabric {

struct HerdOptions {
  double window_pj = 0;  // of all routers and their links, a window; 0: no cap
  emu::EnergyTable energy;
};

// What a herd needs to know of the network beside its graph.
struct HerdPace {
  int window_cycles = 500;  // a window ends at each multiple
  int link_delay = 1;
  int crossings = 1;  // of flits, from an input port in a cycle
};

class PowerHerd {
 public:
  PowerHerd(const HerdOptions& options, const Graph& graph, const HerdPace& pace);

  bool on() const { return !routers_.empty(); }

  // So many flits at once.
  bool may_cross(emu::RouterId router, unsigned flits, emu::Cycle now) {
    return may_spend(routers_[router], cross_pj_ * flits, now);
  }
  void crossed(emu::RouterId router) { routers_[router].left_pj -= cross_pj_; }

  bool may_send(emu::RouterId router, unsigned port, emu::Cycle now) {
    Router& r = routers_[router];
    return may_spend(r, leads_on(r, port) ? send_pj_ + arrive_pj_ : send_to_hca_pj_, now);
  }
  void sent(emu::RouterId router, unsigned port, emu::Cycle now) {
    Router& r = routers_[router];
    r.left_pj -= leads_on(r, port) ? send_pj_ : send_to_hca_pj_;
    if (!leads_on(r, port)) return;
    const bool soon = link_delay_ < cycles_left(now);
    (soon ? r.left_pj : r.next_left_pj) -= arrive_pj_;
  }
  // The port whose turn it is to send first, in another order in each window.
  unsigned first_port(emu::RouterId router, emu::Cycle now) const {
    return static_cast<unsigned>((now + now / window_cycles_) % routers_[router].ports);
  }

  void came_from_hca(emu::RouterId router) { routers_[router].left_pj -= hca_arrives_pj_; }
  void window_ends();
  // So many windows in which nobody spent anything: as if each of them had ended.
  void windows_pass(std::uint64_t count);

  // Every window is below the cap, not only their mean.
  bool strict() const { return strict_; }
  double budget_pj(emu::RouterId router) const { return routers_[router].budget_pj; }
  double left_pj(emu::RouterId router) const { return routers_[router].left_pj; }
  // Windows in which a router had to stop, of all of them.
  std::uint64_t stops() const { return stops_; }

 private:
  struct Router {
    double budget_pj = 0;
    double left_pj = 0;        // of the running window; below 0: owed by the next
    double next_left_pj = 0;   // 0 or less: of the next window, spent already
    double hcas_cycle_pj = 0;  // what its HCAs can make it spend in a cycle
    double least_pj = 0;       // of its budget
    double predicted_pj = 0;
    double lacks_pj = 0;                // of what it predicts
    bool stopped = false;               // in this window
    std::array<double, 3> before_pj{};  // budget, left and predicted, when a window passes
    unsigned ports = 0;
    std::uint64_t router_ports = 0;
    std::vector<emu::RouterId> neighbours;
  };

  static bool leads_on(const Router& router, unsigned port) {
    return (router.router_ports >> port & 1) != 0;
  }
  // Of the window, this one included.
  emu::Cycle cycles_left(emu::Cycle now) const { return window_cycles_ - now % window_cycles_; }
  bool may_spend(Router& router, double energy_pj, emu::Cycle now) {
    const double reserve_pj = router.hcas_cycle_pj * static_cast<double>(cycles_left(now));
    const bool may = strict_ ? router.left_pj - reserve_pj >= energy_pj : router.left_pj > 0;
    router.stopped |= !may;
    return may;
  }
  static std::array<double, 3> standing_of(const Router& router) {
    return {router.budget_pj, router.left_pj, router.predicted_pj};
  }
  void place(Router& router, const std::vector<PortEnd>& ends, int crossings);
  double spare_pj(const Router& router) const;
  void predict(Router& router);
  void share(Router& router);

  emu::Cycle window_cycles_;
  emu::Cycle link_delay_;
  // A flit: through the crossbar; out of the output buffer, onto a link or to an HCA; into an input
  // buffer, and from an HCA.
  double cross_pj_;
  double send_pj_;
  double send_to_hca_pj_;
  double arrive_pj_;
  double hca_arrives_pj_;
  bool strict_ = true;
  std::vector<Router> routers_;
  std::uint64_t stops_ = 0;
};

}  // namespace fabric

// PowerHerd (Shang, Peh, Jha, ICS 2003; ACP's reference 30): peak power kept by the routers. Each
// has a budget of energy for a window and lets nothing cross when it is spent. When a window ends
// it predicts what it will need in the next and gives what it can spare to neighbours that lack it:
// the sum of all budgets stays the cap. In: flits as they cross, ends of windows. Out: may a
// router's crossbar work. What the paper leaves to its reader is decided in power_herd.cc.
#pragma once

#include <cstdint>
#include <vector>

#include "emu/base/units.h"
#include "fabric/topo/graph.h"

namespace fabric {

struct HerdOptions {
  double window_pj = 0;       // of all routers and their links, a window; 0: no cap
  double router_flit_pj = 0;  // a flit through a router,
  double link_flit_pj = 0;    // and over the link to the next
};

class PowerHerd {
 public:
  PowerHerd(const HerdOptions& options, const Graph& graph);

  bool may_cross(emu::RouterId router) {
    if (routers_.empty()) return true;
    Router& r = routers_[router];
    r.stopped |= r.left_pj <= 0;
    return r.left_pj > 0;
  }
  void spend(emu::RouterId router, unsigned out_port) {
    if (routers_.empty()) return;
    Router& r = routers_[router];
    const bool link = (r.router_ports >> out_port & 1) != 0;
    r.left_pj -= options_.router_flit_pj + (link ? options_.link_flit_pj : 0);
  }
  void window_ends();

  bool on() const { return !routers_.empty(); }
  double budget_pj(emu::RouterId router) const { return routers_[router].budget_pj; }
  // Windows in which a router had to stop, of all of them.
  std::uint64_t stops() const { return stops_; }

 private:
  struct Router {
    double budget_pj = 0;
    double left_pj = 0;  // of the running window; below 0: what was too much, taken off the next
    double predicted_pj = 0;
    double lacks_pj = 0;   // of what it predicts
    bool stopped = false;  // in this window
    std::uint64_t router_ports = 0;
    std::vector<emu::RouterId> neighbours;
  };
  void predict(Router& router);
  void share(Router& router);

  HerdOptions options_;
  double least_pj_ = 0;
  std::vector<Router> routers_;
  std::uint64_t stops_ = 0;
};

}  // namespace fabric

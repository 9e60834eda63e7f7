// Which box word every port's flits and credits go to. Units are the routers, then the groups of
// eight HCAs; node n is word n % 8 of group n / 8. Built once from the graph by fabric/router.
#pragma once

#include <vector>

#include "emu/lane/box.h"
#include "fabric/topo/graph.h"

namespace fabric {

struct Wiring {
  int routers = 0;
  int groups = 0;
  std::vector<emu::Outlet> outlets;  // [unit]
  int units() const { return routers + groups; }
};

Wiring make_wiring(const Graph& graph);
// Ports of `unit` that lead nowhere: their words are those of box `units() + nowhere`.
void lead_nowhere(Wiring& wiring, int unit, int nowhere);

// The links' contents for some cycles to come: a row of boxes per cycle, as many as the delay
// needs.
class BoxWheel {
 public:
  // Rows for units that are stepped up to `ahead` cycles before others.
  BoxWheel(int units, int delay, int ahead, int nowheres);
  // Boxes of all units, and `nowheres` for ports that lead nowhere, for the flits that arrive in
  // `cycle`.
  emu::Box* row(emu::Cycle cycle) { return rows().of(cycle); }
  const emu::Box* row(emu::Cycle cycle) const { return &boxes_[(cycle & mask_) * units_]; }
  int delay() const { return delay_; }
  // The same rows for loops that store through vectors, after which members are read again.
  struct Rows {
    emu::Box* boxes;
    std::size_t units;
    std::size_t mask;
    emu::Box* of(emu::Cycle cycle) const { return boxes + (cycle & mask) * units; }
  };
  Rows rows() { return {boxes_.data(), units_, mask_}; }

 private:
  std::size_t units_;
  std::size_t mask_;
  int delay_;
  std::vector<emu::Box> boxes_;
};

}  // namespace fabric

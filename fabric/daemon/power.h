// Power of the fabric over windows of 500 cycles from what the engine says each router did. In:
// activity windows, in order. Out: the meter's figures, energy per router. Called by the loop.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "emu/energy/meter.h"
#include "emu/energy/table.h"
#include "fabric/router/network.h"

namespace fabric {

class PowerWindows {
 public:
  // `link_share[i]`: part of router i's outgoing flits that go to another router, not to an HCA;
  // kept up to date from the port counters by whoever calls.
  PowerWindows(const emu::EnergyTable& table, emu::CycleTime time, double cap_w, emu::Cycle now,
               std::size_t routers);

  void add(std::span<const ActivityWindow> windows);
  // Everything up to `now` has been added: counts the windows since in which nothing moved.
  void settle(emu::Cycle now);

  void set_link_share(emu::RouterId router, double share) { link_share_[router] = share; }
  const emu::PowerMeter& meter() const { return meter_; }
  double router_pj(emu::RouterId router) const { return router_pj_[router]; }  // since the start

 private:
  void close();

  emu::EnergyTable table_;
  emu::PowerMeter meter_;
  emu::EnergyCounts totals_;
  emu::EnergyCounts window_;
  emu::Cycle begin_ = emu::kNever;  // of the window being summed; kNever: none
  std::vector<double> link_share_;
  std::vector<double> router_pj_;
};

}  // namespace fabric

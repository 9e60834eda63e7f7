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

// What a router's window took. The flits of HCAs are theirs, not the router's.
emu::EnergyCounts energy_counts(const ActivityWindow& window);

class PowerWindows {
 public:
  PowerWindows(const emu::EnergyTable& table, emu::CycleTime time, double cap_w, emu::Cycle now,
               std::size_t routers);

  void add(std::span<const ActivityWindow> windows);
  // Everything up to `now` has been added: counts the windows since in which nothing moved.
  void settle(emu::Cycle now);

  const emu::PowerMeter& meter() const { return meter_; }
  // Of a router and the links behind it, since the start.
  double router_pj(emu::RouterId router) const { return router_pj_[router]; }

 private:
  void close();

  emu::EnergyTable table_;
  emu::PowerMeter meter_;
  emu::EnergyCounts totals_;
  emu::EnergyCounts window_;
  emu::Cycle begin_ = emu::kNever;  // of the window being summed; kNever: none
  std::vector<double> router_pj_;
};

}  // namespace fabric

// Power over windows of 500 cycles (ACP figure 10). In: the engine's running totals of events at
// the end of each window. Out: watts of the last window, mean, maximum, windows above the cap.
#pragma once

#include <cstdint>

#include "emu/base/units.h"
#include "emu/energy/table.h"

namespace emu {

inline constexpr Cycle kPowerWindowCycles = 500;

// Running totals, never reset; the engine counts them per router, the caller adds them up.
struct EnergyCounts {
  std::uint64_t buffer_writes = 0;  // flits, input and output buffers together
  std::uint64_t buffer_reads = 0;
  std::uint64_t arbitrations = 0;  // flits granted by a crossbar input multiplexer
  std::uint64_t crossings = 0;     // flits through a crossbar
  std::uint64_t link_flits = 0;    // flits that entered a link between routers
  std::uint64_t hca_flits = 0;     // flits sent or received by an HCA

  // For an engine that counts only whole passages: `flits` that crossed a router each went through
  // both buffers, one arbitration and the crossbar.
  static constexpr EnergyCounts of_flits(std::uint64_t router_flits, std::uint64_t link_flits,
                                         std::uint64_t hca_flits = 0) {
    return {2 * router_flits, 2 * router_flits, router_flits, router_flits, link_flits, hca_flits};
  }
};

constexpr double energy_pj(const EnergyTable& table, const EnergyCounts& counts) {
  return static_cast<double>(counts.buffer_writes) * table.buffer_write_pj +
         static_cast<double>(counts.buffer_reads) * table.buffer_read_pj +
         static_cast<double>(counts.arbitrations) * table.arbitration_pj +
         static_cast<double>(counts.crossings) * table.crossbar_pj +
         static_cast<double>(counts.link_flits) * table.link_flit_pj() +
         static_cast<double>(counts.hca_flits) * table.hca_flit_pj;
}

class PowerMeter {
 public:
  PowerMeter(const EnergyTable& table, CycleTime time, double cap_w)
      : table_(table), time_(time), cap_w_(cap_w) {}

  // The cycle at which the running window ends: step the engine up to it, then call window_ends.
  Cycle window_end() const { return window_start_ + kPowerWindowCycles; }
  // First call of a meter that starts in the middle of a life: where the first window begins.
  void start(Cycle now, const EnergyCounts& totals);
  // `now` is window_end() or later (a skipped stretch in which nothing moved is averaged over).
  void window_ends(Cycle now, const EnergyCounts& totals);

  double last_w() const { return last_w_; }
  double mean_w() const;  // over all windows so far
  double max_w() const { return max_w_; }
  double cap_w() const { return cap_w_; }
  void set_cap_w(double cap_w) { cap_w_ = cap_w; }
  std::uint64_t windows() const { return windows_; }
  std::uint64_t windows_above_cap() const { return windows_above_cap_; }

 private:
  EnergyTable table_;
  CycleTime time_;
  double cap_w_;
  Cycle window_start_ = 0;
  double totals_pj_ = 0;
  double last_w_ = 0;
  double max_w_ = 0;
  double sum_pj_ = 0;
  Cycle sum_cycles_ = 0;
  std::uint64_t windows_ = 0;
  std::uint64_t windows_above_cap_ = 0;
};

}  // namespace emu

#include "emu/energy/meter.h"

#include <algorithm>

#include "emu/base/check.h"

namespace emu {

void PowerMeter::start(Cycle now, const EnergyCounts& totals) {
  window_start_ = now;
  totals_pj_ = energy_pj(table_, totals);
}

void PowerMeter::window_ends(Cycle now, const EnergyCounts& totals) {
  CHECK(now > window_start_);
  const double pj = energy_pj(table_, totals);
  const Cycle cycles = now - window_start_;
  // pJ / ps = W.
  last_w_ = (pj - totals_pj_) / (static_cast<double>(cycles) * static_cast<double>(time_.cycle_ps));
  max_w_ = std::max(max_w_, last_w_);
  sum_pj_ += pj - totals_pj_;
  sum_cycles_ += cycles;
  ++windows_;
  if (last_w_ > cap_w_) ++windows_above_cap_;
  totals_pj_ = pj;
  window_start_ = now;
}

double PowerMeter::mean_w() const {
  if (sum_cycles_ == 0) return 0;
  return sum_pj_ / (static_cast<double>(sum_cycles_) * static_cast<double>(time_.cycle_ps));
}

}  // namespace emu

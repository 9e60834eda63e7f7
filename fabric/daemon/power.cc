#include "fabric/daemon/power.h"

#include <cmath>

namespace fabric {

namespace {

void accumulate(emu::EnergyCounts& to, const emu::EnergyCounts& from) {
  to.buffer_writes += from.buffer_writes;
  to.buffer_reads += from.buffer_reads;
  to.arbitrations += from.arbitrations;
  to.crossings += from.crossings;
  to.link_flits += from.link_flits;
  to.hca_flits += from.hca_flits;
}

}  // namespace

PowerWindows::PowerWindows(const emu::EnergyTable& table, emu::CycleTime time, double cap_w,
                           emu::Cycle now, std::size_t routers)
    : table_(table), meter_(table, time, cap_w), link_share_(routers), router_pj_(routers) {
  meter_.start(now - now % emu::kPowerWindowCycles, {});
}

void PowerWindows::add(std::span<const ActivityWindow> windows) {
  for (const auto& w : windows) {
    if (w.begin != begin_) {
      close();
      begin_ = w.begin;
    }
    emu::EnergyCounts counts;
    counts.buffer_writes = std::uint64_t{w.arrived} + w.crossed;
    counts.buffer_reads = std::uint64_t{w.crossed} + w.sent;
    counts.arbitrations = w.crossed;
    counts.crossings = w.crossed;
    counts.link_flits = static_cast<std::uint64_t>(std::llround(w.sent * link_share_[w.router]));
    router_pj_[w.router] += emu::energy_pj(table_, counts);
    accumulate(window_, counts);
  }
  // The engine tells a window of all routers at once, when it ends.
  close();
}

void PowerWindows::close() {
  if (begin_ == emu::kNever) return;
  // Windows in which nothing moved are not told: one stretch of no power.
  if (begin_ > meter_.window_end() - emu::kPowerWindowCycles) meter_.window_ends(begin_, totals_);
  accumulate(totals_, window_);
  window_ = {};
  meter_.window_ends(begin_ + emu::kPowerWindowCycles, totals_);
  begin_ = emu::kNever;
}

void PowerWindows::settle(emu::Cycle now) {
  const emu::Cycle ended = now - now % emu::kPowerWindowCycles;
  if (meter_.window_end() <= ended) meter_.window_ends(ended, totals_);
}

}  // namespace fabric

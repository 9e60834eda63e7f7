#include "fabric/daemon/power.h"

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

emu::EnergyCounts energy_counts(const ActivityWindow& window) {
  emu::EnergyCounts counts;
  counts.buffer_writes = std::uint64_t{window.arrived} + window.crossed;
  counts.buffer_reads = std::uint64_t{window.crossed} + window.sent;
  counts.arbitrations = window.crossed;
  counts.crossings = window.crossed;
  counts.link_flits = window.sent_to_routers;
  counts.hca_flits = window.hca_flits;
  return counts;
}

PowerWindows::PowerWindows(const emu::EnergyTable& table, emu::CycleTime time, double cap_w,
                           emu::Cycle now, std::size_t routers)
    : table_(table), meter_(table, time, cap_w), router_pj_(routers) {
  meter_.start(now - now % emu::kPowerWindowCycles, {});
}

void PowerWindows::add(std::span<const ActivityWindow> windows) {
  for (const auto& w : windows) {
    if (w.begin != begin_) {
      close();
      begin_ = w.begin;
    }
    emu::EnergyCounts counts = energy_counts(w);
    accumulate(window_, counts);
    counts.hca_flits = 0;
    router_pj_[w.router] += emu::energy_pj(table_, counts);
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

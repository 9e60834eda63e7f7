#include "emu/clock/pace.h"

#include <algorithm>

#include "emu/base/check.h"

namespace emu {

namespace {
constexpr std::uint64_t kWindowNs = 1'000'000'000;

double ratio(std::uint64_t host_ns, std::uint64_t emulated_ns) {
  if (emulated_ns == 0) return host_ns == 0 ? 1.0 : 1e6;
  return static_cast<double>(host_ns) / static_cast<double>(emulated_ns);
}
}  // namespace

std::uint64_t Pace::lag_quantile_ns(double q) const {
  const auto& words = lag_histogram_.words;  // count, sum, buckets
  const auto wanted = static_cast<std::uint64_t>(q * static_cast<double>(words[0]));
  std::uint64_t seen = 0;
  for (std::size_t bucket = 0; bucket < kHistogramBuckets; ++bucket) {
    seen += words[2 + bucket];
    if (seen > wanted || (seen == words[0] && seen != 0)) return histogram_bucket_high(bucket) - 1;
  }
  return 0;
}

Pace::Pace(const PaceOptions& options, Cycle cycle, std::uint64_t host_ns) : options_(options) {
  CHECK(options.cycle_time.cycle_ps > 0);
  quantum_ = std::max<Cycle>(1, options.cycle_time.cycle_at(options.quantum_ns));
  start(cycle, host_ns);
}

void Pace::start(Cycle cycle, std::uint64_t host_ns) {
  start_cycle_ = window_cycle_ = cycle;
  start_host_ns_ = window_host_ns_ = host_ns;
  reanchor(cycle, host_ns);
}

void Pace::reanchor(Cycle cycle, std::uint64_t host_ns) {
  anchor_cycle_ = cycle;
  anchor_host_ns_ = host_ns;
}

std::uint64_t Pace::due_ns(Cycle cycle) const {
  if (cycle <= anchor_cycle_) return anchor_host_ns_;
  return anchor_host_ns_ + emulated_ns(cycle - anchor_cycle_);
}

void Pace::close_window(Cycle reached, std::uint64_t host_ns) {
  if (host_ns - window_host_ns_ < kWindowNs) return;
  dilation_.window =
      ratio(host_ns - window_host_ns_, emulated_ns(reached) - emulated_ns(window_cycle_));
  dilation_.overall =
      ratio(host_ns - start_host_ns_, emulated_ns(reached) - emulated_ns(start_cycle_));
  window_cycle_ = reached;
  window_host_ns_ = host_ns;
}

// The cycle that host time has completed on the line.
Cycle Pace::due(std::uint64_t host_ns) const {
  const auto since_ns = host_ns > anchor_host_ns_ ? host_ns - anchor_host_ns_ : 0;
  return anchor_cycle_ + scaled(since_ns, 1000, 0, options_.cycle_time.cycle_ps);
}

void Pace::late(std::uint64_t lag_ns) {
  lag_ns_ = lag_ns;
  lag_max_ns_ = std::max(lag_max_ns_, lag_ns_);
  lag_histogram_.add(lag_ns_);
  if (options_.mode == ClockMode::real && lag_ns_ > options_.hard_limit_ns) {
    hard_limit_exceeded_ = true;
  }
  if (options_.mode == ClockMode::elastic && lag_ns_ > options_.slack_ns) {
    const std::uint64_t excess_ns = lag_ns_ - options_.slack_ns;
    given_up_ns_ += excess_ns;
    anchor_host_ns_ += excess_ns;
  }
}

void Pace::note_held(bool held, std::uint64_t host_ns) {
  if (held_) held_ns_ += host_ns - asked_ns_;
  held_ = held;
  asked_ns_ = host_ns;
}

Cycle Pace::target(Cycle reached, std::uint64_t host_ns, bool busy, Cycle limit) {
  close_window(reached, host_ns);
  if (options_.mode == ClockMode::virtual_ && busy) {
    const Cycle to = std::max(reached, std::min(reached + quantum_, limit));
    note_held(to == reached, host_ns);
    reanchor(to, host_ns);
    return to;
  }
  const Cycle now = due(host_ns);
  note_held(now > reached && limit <= reached, host_ns);
  if (now <= reached) {
    late(0);
    return reached;
  }
  // Work is late by what is due beyond one quantum: a loop that naps a quantum is on time.
  const std::uint64_t behind_ns = emulated_ns(now - reached);
  late(behind_ns > options_.quantum_ns ? behind_ns - options_.quantum_ns : 0);
  return std::max(reached, std::min({now, reached + quantum_, limit}));
}

Cycle Pace::idle_target(Cycle reached, std::uint64_t host_ns, Cycle limit) {
  const Cycle now = due(host_ns);
  if (now <= reached) return reached;
  const std::uint64_t behind_ns = emulated_ns(now - reached);
  if (behind_ns <= options_.idle_sleep_ns) return std::max(reached, std::min(now, limit));
  late(behind_ns - options_.idle_sleep_ns);
  return std::max(reached, std::min(due(host_ns), limit));  // late() may have moved the line
}

}  // namespace emu

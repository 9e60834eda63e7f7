// How emulated time follows host time: real, elastic or virtual. Pure state: host time and what
// the engine reached are handed in, the next target comes out. fabricd's loop asks it once a turn.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "emu/base/units.h"
#include "emu/clock/doze.h"
#include "emu/metrics/histogram.h"

namespace emu {

enum class ClockMode : std::uint8_t {
  real = 0,     // cycle <-> host time; late beyond the hard limit: the run stops
  elastic = 1,  // late beyond the slack: emulated time slows down for everybody alike
  virtual_ = 2  // as fast as the work allows
};
inline constexpr std::array<std::string_view, 3> kClockModeNames = {"real", "elastic", "virtual"};

struct PaceOptions {
  ClockMode mode = ClockMode::elastic;
  CycleTime cycle_time;
  // elastic: lag up to this is caught up, more is given up as dilation. Covers the gaps that a
  // polling process sees on a shared core (at most 5 ms alone, more beside busy neighbours).
  std::uint64_t slack_ns = 20'000'000;
  // real: lag beyond this ends the run.
  std::uint64_t hard_limit_ns = 100'000'000;
  // One turn steps the engine at most this far, so that ports are polled in between.
  std::uint64_t quantum_ns = 100'000;
  // The loop of an idle fabric sleeps up to this long on purpose, and is woken a little later.
  std::uint64_t idle_sleep_ns = kDozeNsMost + 2'000'000;
};

// Host time over emulated time, since the start and over the last closed window of about a second.
struct Dilation {
  double overall = 1.0;
  double window = 1.0;
};

class Pace {
 public:
  // Emulated time is `cycle` at host time `host_ns` and goes on from there.
  Pace(const PaceOptions& options, Cycle cycle, std::uint64_t host_ns);

  // The same anew, when what came before the first turn took its time.
  void start(Cycle cycle, std::uint64_t host_ns);

  // One turn begins at `host_ns`, the engine stands at `reached`. Returns the cycle to step to now:
  // `reached` when ahead of time. `busy` is whether the engine has work (virtual mode only runs
  // ahead when it has). Never beyond `limit`, the cycle for which time waits (follow.h): what is
  // lost by waiting is lag like any other.
  Cycle target(Cycle reached, std::uint64_t host_ns, bool busy, Cycle limit = kNever);

  // The same when nothing is in the fabric: all the way at once, time slept through is not late.
  Cycle idle_target(Cycle reached, std::uint64_t host_ns, Cycle limit = kNever);

  // Host time at which `cycle` is due; virtual mode: now.
  std::uint64_t due_ns(Cycle cycle) const;

  bool hard_limit_exceeded() const { return hard_limit_exceeded_; }
  std::uint64_t lag_ns() const { return lag_ns_; }
  std::uint64_t lag_max_ns() const { return lag_max_ns_; }
  std::uint64_t given_up_ns() const { return given_up_ns_; }
  // The last target() stood at its limit; and host time spent so.
  bool held() const { return held_; }
  std::uint64_t held_ns() const { return held_ns_; }
  Dilation dilation() const { return dilation_; }
  // Lag at the start of each turn, in nanoseconds of host time.
  const PlainHistogram& lag_histogram() const { return lag_histogram_; }
  std::uint64_t lag_quantile_ns(double q) const;  // upper bound of its bucket; 0: always on time
  const PaceOptions& options() const { return options_; }

 private:
  std::uint64_t emulated_ns(Cycle cycle) const { return options_.cycle_time.ns(cycle); }
  void reanchor(Cycle cycle, std::uint64_t host_ns);
  Cycle due(std::uint64_t host_ns) const;
  // Counts a lag, gives up what exceeds the slack, notices the hard limit.
  void late(std::uint64_t lag_ns);
  void close_window(Cycle reached, std::uint64_t host_ns);
  void note_held(bool held, std::uint64_t host_ns);

  PaceOptions options_;
  Cycle quantum_;  // of the options, at least one
  // The line on which emulated time runs: cycle anchor_cycle_ is due at anchor_host_ns_.
  Cycle anchor_cycle_ = 0;
  std::uint64_t anchor_host_ns_ = 0;
  std::uint64_t lag_ns_ = 0;
  bool hard_limit_exceeded_ = false;
  bool held_ = false;
  std::uint64_t asked_ns_ = 0;
  std::uint64_t held_ns_ = 0;
  // cold
  std::uint64_t lag_max_ns_ = 0;
  std::uint64_t given_up_ns_ = 0;
  Cycle start_cycle_ = 0;
  std::uint64_t start_host_ns_ = 0;
  Cycle window_cycle_ = 0;
  std::uint64_t window_host_ns_ = 0;
  Dilation dilation_;
  PlainHistogram lag_histogram_;
};

}  // namespace emu

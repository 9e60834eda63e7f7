// When a source sends: the papers' arrival processes as one question, "when is the next message?".
// Times are emulated; randomness is one seed. Pure.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "emu/base/check.h"
#include "emu/base/prng.h"
#include "emu/base/units.h"
#include "tools/load/gaps.h"

namespace tools {

enum class ArrivalKind : std::uint8_t {
  drawn,   // best effort: gaps by a law
  even,    // control: 10 packets per 33.3 ms, evenly spaced
  on_off,  // exponential ON and OFF times, even gaps while ON
};

struct ArrivalOptions {
  ArrivalKind kind = ArrivalKind::drawn;
  ArrivalLaw law = ArrivalLaw::poisson;  // of drawn
  double shape = 1.4;                    // of a self-similar law
  double message_ns = 0;                 // that one takes on the link: the gap in a burst
  double gap_ns = 1e6;                   // mean gap; of on_off: the gap while ON
  double on_ns = 10e6;                   // mean ON time
  double off_ns = 10e6;                  // mean OFF time
  // Pulses and phases: the rate times each of these in turn, and again from the first. 0: silence.
  std::vector<double> factors;
  double step_ns = 0;  // how long each
};

class Arrivals {
 public:
  Arrivals(const ArrivalOptions& options, std::uint64_t seed)
      : options_(options), prng_(seed), gaps_(options.law, options.shape) {
    CHECK(options.gap_ns >= 1);
    CHECK(options.factors.empty() || options.step_ns >= 1);
    CHECK(options.factors.empty() || std::ranges::max(options.factors) > 0);
  }

  // Starts the process at `now_ns`, at a random place inside its first gap.
  void start(emu::EmuNs now_ns) {
    start_ns_ = next_ns_ = on_until_ns_ = static_cast<double>(now_ns);
    if (options_.kind == ArrivalKind::on_off) return begin_on_or_off();
    const bool drawn = options_.kind == ArrivalKind::drawn;
    next_ns_ = after(next_ns_, drawn ? 1 : prng_.uniform());
  }
  emu::EmuNs next_ns() const { return static_cast<emu::EmuNs>(next_ns_); }
  void advance() {
    next_ns_ = after(next_ns_, 1);
    if (options_.kind == ArrivalKind::on_off) stay_on();
  }
  // The host was late: what should have left before `now_ns` leaves from there on.
  void catch_up(emu::EmuNs now_ns) {
    const double late = static_cast<double>(now_ns) - next_ns_;
    if (late <= 0) return;
    next_ns_ += late;
    on_until_ns_ += late;
  }

 private:
  // Begun long ago: ON with the share of ON in its life, for exponential times forget.
  bool begins_on() { return prng_.uniform() * (options_.on_ns + options_.off_ns) < options_.on_ns; }
  void begin_on_or_off() {
    if (begins_on()) {
      const double on = loud_from(start_ns_);
      on_until_ns_ = on + prng_.exponential(options_.on_ns);
      next_ns_ = after(on, prng_.uniform());
    }
    stay_on();
  }

  // A message that is due when ON is over waits for the next ON time that is long enough. There it
  // comes at a random place inside its first gap, as in the laboratory: then the rate is the one
  // asked for, however few messages an ON time has. Behind silence it begins as at the start.
  void stay_on() {
    constexpr int kOnTimesMax = 100'000;  // looked at for a message: milliseconds of work
    for (int i = 0; i < kOnTimesMax && next_ns_ >= on_until_ns_; ++i) {
      const double due = on_until_ns_ + prng_.exponential(options_.off_ns);
      double on = loud_from(due);
      if (on > due && !begins_on()) on = loud_from(on + prng_.exponential(options_.off_ns));
      on_until_ns_ = on + prng_.exponential(options_.on_ns);
      next_ns_ = after(on, prng_.uniform());
    }
  }

  // A rate that changes at a known time is met exactly, whatever the law: a gap is drawn once, for
  // a factor of 1, and time passes through it by the factor of each step.
  double after(double at, double part) {
    const bool drawn = options_.kind == ArrivalKind::drawn;
    double gap =
        part * (drawn ? gaps_.next(options_.gap_ns, options_.message_ns, prng_) : options_.gap_ns);
    for (;;) {
      at = loud_from(at);
      const double factor = factor_at(at);
      const double change = change_after(at);
      const double passes = (change - at) * factor;
      if (gap < passes) return at + gap / factor;
      gap -= passes;
      at = change;
    }
  }
  double loud_from(double at) const {
    while (factor_at(at) <= 0) at = change_after(at);
    return at;
  }
  double step_at(double at) const { return std::floor((at - start_ns_) / options_.step_ns); }
  double factor_at(double at) const {
    if (options_.factors.empty()) return 1;
    const auto step = static_cast<std::uint64_t>(std::max(0.0, step_at(at)));
    return options_.factors[step % options_.factors.size()];
  }
  double change_after(double at) const {
    if (options_.factors.empty()) return 1e300;
    // Half a nanosecond into the next step, whichever way the division rounds.
    return start_ns_ + (step_at(at) + 1) * options_.step_ns + 0.5;
  }

  ArrivalOptions options_;
  emu::Prng prng_;
  Gaps gaps_;
  // Doubles are exact to a nanosecond for 104 days of emulated time.
  double start_ns_ = 0;
  double next_ns_ = 0;
  double on_until_ns_ = 0;
};

}  // namespace tools

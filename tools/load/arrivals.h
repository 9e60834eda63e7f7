// When a source sends: the papers' arrival processes as one question, "when is the next message?".
// Times are emulated; randomness is one seed. Pure.
#pragma once

#include <cstdint>

#include "emu/base/check.h"
#include "emu/base/prng.h"
#include "emu/base/units.h"

namespace tools {

enum class ArrivalKind : std::uint8_t {
  poisson,  // best effort: exponential gaps
  even,     // control: 10 packets per 33.3 ms, evenly spaced
  on_off,   // exponential ON and OFF times, even gaps while ON
};

struct ArrivalOptions {
  ArrivalKind kind = ArrivalKind::poisson;
  double gap_ns = 1e6;   // mean gap; of on_off: the gap while ON
  double on_ns = 10e6;   // mean ON time
  double off_ns = 10e6;  // mean OFF time
};

class Arrivals {
 public:
  Arrivals(const ArrivalOptions& options, std::uint64_t seed) : options_(options), prng_(seed) {
    CHECK(options.gap_ns >= 1);
  }

  // Starts the process at `now_ns`, at a random place inside its first gap.
  void start(emu::EmuNs now_ns) {
    next_ns_ = static_cast<double>(now_ns);
    if (options_.kind == ArrivalKind::poisson) {
      next_ns_ += prng_.exponential(options_.gap_ns);
      return;
    }
    if (options_.kind == ArrivalKind::on_off) begin_on();
    next_ns_ += options_.gap_ns * prng_.uniform();
  }
  emu::EmuNs next_ns() const { return static_cast<emu::EmuNs>(next_ns_); }
  void advance() {
    next_ns_ += options_.kind == ArrivalKind::poisson ? prng_.exponential(options_.gap_ns)
                                                      : options_.gap_ns;
    while (options_.kind == ArrivalKind::on_off && next_ns_ >= on_until_ns_) {
      next_ns_ = on_until_ns_ + prng_.exponential(options_.off_ns);
      begin_on();
    }
  }
  // The host was late: what should have left before `now_ns` leaves from there on.
  void catch_up(emu::EmuNs now_ns) {
    const double late = static_cast<double>(now_ns) - next_ns_;
    if (late <= 0) return;
    next_ns_ += late;
    on_until_ns_ += late;
  }

 private:
  void begin_on() { on_until_ns_ = next_ns_ + prng_.exponential(options_.on_ns); }

  ArrivalOptions options_;
  emu::Prng prng_;
  // Doubles are exact to a nanosecond for 104 days of emulated time.
  double next_ns_ = 0;
  double on_until_ns_ = 0;
};

}  // namespace tools

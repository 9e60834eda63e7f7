// A real-time connection that is ON or OFF for exponential times; messages leave evenly while it is
// ON (ACP section 6.2). In: mean rate and mean times. Out: messages, no frames. Pure.
#pragma once

#include "tools/sim/workload.h"

namespace tools {

class OnOffSource : public Source {
 public:
  // Mean payload per second as StreamShape of a synthetic stream; always ON would be on_share of
  // it.
  OnOffSource(const Setting& setting, const StreamDemand& demand, emu::Cycle begin, emu::Cycle end,
              std::uint64_t seed)
      : setting_(setting),
        demand_(demand),
        end_(static_cast<double>(end)),
        cycles_per_ms_(1e9 / static_cast<double>(setting.time.cycle_ps)),
        prng_(seed),
        next_(static_cast<double>(begin)),
        on_until_(next_) {
    const WorkloadSpec& spec = setting.spec;
    const double payload_bits =
        static_cast<double>(spec.message_flits - spec.header_flits) * setting.flit_bits;
    const double per_ms = spec.stream_kbps / payload_bits * (spec.on_ms + spec.off_ms) / spec.on_ms;
    interval_ = cycles_per_ms_ / per_ms;
    // Begun long ago: ON with the share of ON in its life, for exponential times forget.
    if (prng_.uniform() * (spec.on_ms + spec.off_ms) < spec.on_ms) {
      on_until_ += prng_.exponential(spec.on_ms * cycles_per_ms_);
      next_ += interval_ * prng_.uniform();
    }
    if (next_ >= on_until_) begin_on();
  }
  emu::Cycle feed(emu::Cycle horizon, std::vector<FlitMessage>& out) override {
    while (next_ < static_cast<double>(horizon) && next_ < end_) {
      out.push_back({.created = static_cast<emu::Cycle>(next_),
                     .stream = kNoStream,
                     .flits = static_cast<std::uint16_t>(setting_.spec.message_flits),
                     .source = demand_.source,
                     .dest = demand_.dest,
                     .vl_in = demand_.vl_in,
                     .vl_out = demand_.vl_out,
                     .traffic_class = emu::TrafficClass::real_time,
                     .vtick = vtick_of(interval_ / setting_.spec.message_flits)});
      next_ += interval_;
      if (next_ >= on_until_) begin_on();
    }
    return next_ < end_ ? static_cast<emu::Cycle>(next_) : emu::kNever;
  }

 private:
  // After the OFF time that follows this ON time, at a random place inside the first gap.
  void begin_on() {
    const WorkloadSpec& spec = setting_.spec;
    double at = on_until_;
    do {
      if (spec.off_ms > 0) at += prng_.exponential(spec.off_ms * cycles_per_ms_);
      on_until_ = at + prng_.exponential(spec.on_ms * cycles_per_ms_);
      next_ = at + interval_ * prng_.uniform();
      at = on_until_;
    } while (next_ >= on_until_ && at < end_);  // too short for a message: the next one
    if (next_ >= on_until_) next_ = end_;
  }

  const Setting& setting_;
  StreamDemand demand_;
  double end_;
  double cycles_per_ms_;
  emu::Prng prng_;
  double interval_ = 0;
  double next_;
  double on_until_ = 0;
};

}  // namespace tools

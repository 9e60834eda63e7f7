// DCQCN at the source, its reaction point (Zhu and others, SIGCOMM 2015, section 5 and figure 7): a
// destination that gets marked packets sends congestion notices, at most one in `dcqcn_notice_us`;
// each cuts the rate to that destination by alpha / 2, where alpha is how often that has happened.
// Without notices the rate climbs with its timer: half of the way back five times, then by a
// constant as well, then by more; and alpha falls, at the link's rate too. Rates are parts of the
// link; the paper's byte counter (10 MB) is left out, it never comes first here, and alpha has the
// rate's timer: both are 55 us in the paper.
#include <algorithm>
#include <cmath>

#include "hca/host/paced.h"

namespace hca {

namespace {

constexpr int kFastSteps = 5;  // F
constexpr double kLeastRate = 0.001;
constexpr double kNearlyAll = 0.999;  // from here on the rate is the link's

struct DcqcnFlow {
  double rate = 1;       // R_C
  double target = 1;     // R_T
  double alpha = 1;      // as the first notice finds it, whenever it comes
  int steps = 0;         // of the rate's timer since the last notice
  emu::Cycle timer = 0;  // its last step; 0: there was no notice yet
  emu::Cycle next = 0;   // before it the next packet may not leave
};

class Dcqcn final : public PacedByDestination<DcqcnFlow> {
 public:
  explicit Dcqcn(const CongestionOptions& options)
      : PacedByDestination(options),
        reaction_(options.reaction),
        period_(std::max<emu::Cycle>(1, options.time.cycle_at(reaction_.dcqcn_timer_ns))) {}

  std::uint16_t handed_on(emu::NodeId dest, std::uint16_t flits, emu::Cycle now) override {
    if (dest >= flows_.size()) return 0;
    DcqcnFlow& flow = flows_[dest];
    settle(flow, now);
    if (flow.rate < 1)
      flow.next = std::max(flow.next, now) + static_cast<emu::Cycle>(flits / flow.rate);
    return dest;
  }
  void notice(emu::NoticeKind, emu::NodeId dest, emu::Cycle now) override {
    if (dest >= flows_.size()) return;
    DcqcnFlow& flow = flows_[dest];
    settle(flow, now);
    flow.target = flow.rate;
    flow.rate = std::max(kLeastRate, flow.rate * (1 - flow.alpha / 2));  // equation 1, in order
    flow.alpha = (1 - reaction_.dcqcn_gain) * flow.alpha + reaction_.dcqcn_gain;
    flow.timer = std::max<emu::Cycle>(1, now);
    flow.steps = 0;
  }
  emu::Cycle delay_cycles(emu::Cycle now) override {
    for (DcqcnFlow& flow : flows_) settle(flow, now);
    const double slowest = std::ranges::min(flows_, {}, &DcqcnFlow::rate).rate;
    return static_cast<emu::Cycle>(40 / slowest) - 40;
  }

 private:
  void settle(DcqcnFlow& flow, emu::Cycle now) const {
    // It ends within the steps to the link's rate, however late it is asked.
    while (flow.rate < 1 && now >= flow.timer + period_) {
      flow.timer += period_;
      flow.alpha *= 1 - reaction_.dcqcn_gain;
      ++flow.steps;
      if (flow.steps > 2 * kFastSteps) {
        flow.target += reaction_.dcqcn_rate_hai;
      } else if (flow.steps > kFastSteps) {
        flow.target += reaction_.dcqcn_rate_ai;
      }
      flow.target = std::min(flow.target, 1.0);
      flow.rate = (flow.target + flow.rate) / 2;
      if (flow.rate > kNearlyAll) flow.rate = 1;
    }
    forget(flow, now);
  }
  // A flow at the link's rate may be idle for long: all its periods at once.
  void forget(DcqcnFlow& flow, emu::Cycle now) const {
    if (flow.timer == 0 || now < flow.timer + period_) return;
    const emu::Cycle periods = (now - flow.timer) / period_;
    flow.alpha *= std::pow(1 - reaction_.dcqcn_gain, static_cast<double>(periods));
    flow.timer += periods * period_;
  }
  CongestionReaction reaction_;
  emu::Cycle period_;
};

}  // namespace

std::unique_ptr<CongestionControl> make_dcqcn(const CongestionOptions& options) {
  return std::make_unique<Dcqcn>(options);
}

}  // namespace hca

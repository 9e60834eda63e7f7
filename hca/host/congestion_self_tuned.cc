// Self-Tuned (Thottethodi, Lebeck, Mukherjee, HPCA 2001; ACP's reference 17): nobody injects while
// the fabric has more full buffers than a threshold. A side band tells the count every 32 cycles;
// between two counts it is extrapolated. The threshold climbs the hill of throughput every 96
// cycles: down by 4 % of all buffers when throughput fell by a quarter, up by 1 % when it did not
// and injection was held back, else it stays. When throughput has fallen to less than half of the
// best seen, the threshold of that best is taken again.
#include <algorithm>

#include "hca/host/congestion.h"

namespace hca {

namespace {

constexpr emu::Cycle kGatherCycles = 32;
constexpr emu::Cycle kTuneCycles = 3 * kGatherCycles;
constexpr double kFirstThreshold = 0.01;  // of all buffers; also the least
constexpr double kUp = 0.01;
constexpr double kDown = 0.04;
constexpr double kFell = 0.75;   // of the throughput of the period before
constexpr double kReturn = 0.5;  // of the best throughput

class SelfTuned final : public CongestionControl {
 public:
  explicit SelfTuned(const CongestionOptions&) {}

  bool may_send(emu::NodeId, emu::Cycle) override {
    held_ |= above();
    return !above();
  }
  bool blocked(emu::Cycle) override { return above(); }
  emu::Cycle ready_at() const override { return 0; }  // with the next count
  Signal needs() const override { return Signal::state; }
  void fabric_state(const FabricState& state, emu::Cycle now) override {
    const double full = static_cast<double>(state.full_buffers) / state.buffers;
    if (now >= gathered_at_ + kGatherCycles) {
      before_ = gathered_;
      gathered_ = full;
      gathered_at_ = now;
    }
    const double since =
        static_cast<double>(now - gathered_at_) / static_cast<double>(kGatherCycles);
    estimate_ = std::max(0.0, gathered_ + (gathered_ - before_) * since);
    if (now >= tuned_at_ + kTuneCycles) tune(state.delivered_flits, now);
  }

 private:
  bool above() const { return estimate_ > threshold_; }
  void tune(std::uint64_t delivered, emu::Cycle now) {
    const double rate = static_cast<double>(delivered - delivered_) /
                        static_cast<double>(std::max<emu::Cycle>(now - tuned_at_, 1));
    if (rate > best_) {
      best_ = rate;
      best_threshold_ = threshold_;
    }
    if (rate < kFell * rate_) {
      threshold_ -= kDown;
    } else if (held_) {
      threshold_ += kUp;
    }
    if (rate < kReturn * best_ && held_) threshold_ = best_threshold_;
    threshold_ = std::clamp(threshold_, kFirstThreshold, 1.0);
    rate_ = rate;
    held_ = false;
    delivered_ = delivered;
    tuned_at_ = now;
  }

  double threshold_ = kFirstThreshold;  // part of all buffers
  double estimate_ = 0;
  double gathered_ = 0;  // the last count and the one before it
  double before_ = 0;
  double rate_ = 0;  // flits a cycle, last period
  double best_ = 0;
  double best_threshold_ = kFirstThreshold;
  bool held_ = false;
  std::uint64_t delivered_ = 0;
  emu::Cycle gathered_at_ = 0;
  emu::Cycle tuned_at_ = 0;
};

}  // namespace

std::unique_ptr<CongestionControl> make_self_tuned(const CongestionOptions& options) {
  return std::make_unique<SelfTuned>(options);
}

}  // namespace hca

// The sources of the VCT paper (Fernandez, Garcia): told that it is to blame for congestion, an HCA
// waits before each message. Approach 1 (section 4.1): a step more for each notice, a step less for
// each timeout without one. Approach 2 (section 5): from a notice until the relief a step more
// after each `messages` injected, then a step less after as many. While there is a delay, messages
// leave one at a time and it counts from the last one's tail. What was handed on before the notice
// leaves as it would have, and says nothing of what the delay brought about: it is counted only if
// the options want it.
#include <algorithm>

#include "hca/host/congestion.h"

namespace hca {

namespace {

class VctSource : public CongestionControl {
 public:
  explicit VctSource(const CongestionOptions& options) : options_(options) {}

  bool may_send(emu::NodeId, emu::Cycle now) override { return open(now); }
  bool blocked(emu::Cycle now) override { return !open(now); }
  emu::Cycle ready_at() const override { return in_flight() ? emu::kNever : ready_after(delay_); }
  std::uint16_t handed_on(emu::NodeId, std::uint16_t, emu::Cycle) override {
    ++out_;
    return 0;
  }
  void came_back(std::uint16_t, emu::Cycle now) override {
    if (out_ > 0) --out_;
    last_ = std::max(last_, now);
    injected();
  }
  void restart() override { out_ = 0; }
  Signal needs() const override { return Signal::blame; }
  emu::Cycle delay_cycles(emu::Cycle now) override {
    settle(now);
    return delay_;
  }

 protected:
  virtual void settle(emu::Cycle) {}  // what time alone does to the delay
  virtual void injected() {}
  std::uint32_t out() const { return out_; }  // handed on and not yet injected
  bool in_flight() const { return out_ > 0; }
  emu::Cycle ready_after(emu::Cycle delay) const { return last_ + delay; }

  CongestionOptions options_;
  emu::Cycle delay_ = 0;

 private:
  bool open(emu::Cycle now) {
    settle(now);
    return delay_ == 0 || (out_ == 0 && now >= last_ + delay_);
  }
  std::uint32_t out_ = 0;
  emu::Cycle last_ = 0;  // the last tail left
};

class Approach1 final : public VctSource {
 public:
  using VctSource::VctSource;
  void notice(emu::NoticeKind kind, emu::NodeId, emu::Cycle now) override {
    if (kind != emu::NoticeKind::congestion) return;
    settle(now);
    delay_ += options_.reaction.vct_step_cycles;
    timer_ = now;
  }
  // The delay may end before it has passed, for timeouts shorten it.
  emu::Cycle ready_at() const override {
    if (in_flight()) return emu::kNever;
    const emu::Cycle step = options_.reaction.vct_step_cycles;
    const emu::Cycle timeout = options_.reaction.vct_timeout_cycles;
    const emu::Cycle next = timer_ + timeout;
    if (ready_after(delay_) <= next) return ready_after(delay_);
    // Each timeout brings both ends nearer, until they meet or no delay is left.
    const emu::Cycle to_meet = (ready_after(delay_) - next + step + timeout - 1) / (step + timeout);
    const emu::Cycle timeouts = std::min(to_meet, (delay_ + step - 1) / step);
    const emu::Cycle left = delay_ - std::min(delay_, timeouts * step);
    return std::max(timer_ + timeouts * timeout, ready_after(left));
  }

 private:
  void settle(emu::Cycle now) override {
    while (delay_ > 0 && now >= timer_ + options_.reaction.vct_timeout_cycles) {
      delay_ -= std::min<emu::Cycle>(delay_, options_.reaction.vct_step_cycles);
      timer_ += options_.reaction.vct_timeout_cycles;
    }
  }
  emu::Cycle timer_ = 0;  // of the last notice or timeout
};

class Approach2 final : public VctSource {
 public:
  using VctSource::VctSource;
  // Routers blame it one by one; the last word counts.
  void notice(emu::NoticeKind kind, emu::NodeId, emu::Cycle) override {
    const bool begins = kind == emu::NoticeKind::congestion && !limited_;
    limited_ = kind == emu::NoticeKind::congestion;
    if (!begins) return;
    before_ = options_.reaction.vct_counts_held ? out() : 0;
    delay_ = std::max<emu::Cycle>(delay_, options_.reaction.vct_step_cycles);
    count_ = 0;
  }
  void restart() override {
    VctSource::restart();
    before_ = 0;
    limited_ = false;  // nobody is left who would say so
  }

 private:
  void injected() override {
    if (before_ > 0) {
      --before_;
      return;
    }
    if (delay_ == 0 || ++count_ < options_.reaction.vct_messages) return;
    count_ = 0;
    if (limited_) {
      delay_ += options_.reaction.vct_step_cycles;
    } else {
      delay_ -= std::min<emu::Cycle>(delay_, options_.reaction.vct_step_cycles);
    }
  }
  bool limited_ = false;
  std::uint32_t before_ = 0;  // not to be counted: handed on before the notice, not yet injected
  std::uint32_t count_ = 0;   // injected since the last step
};

}  // namespace

std::unique_ptr<CongestionControl> make_vct1(const CongestionOptions& options) {
  return std::make_unique<Approach1>(options);
}
std::unique_ptr<CongestionControl> make_vct2(const CongestionOptions& options) {
  return std::make_unique<Approach2>(options);
}

}  // namespace hca

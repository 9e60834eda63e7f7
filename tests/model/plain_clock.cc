// The stamps of VirtualClock and Fair Queueing as the papers write them, one counter a lane.
#include <algorithm>
#include <optional>
#include <vector>

#include "emu/base/check.h"
#include "tests/model/plain_scheduler.h"

namespace model {

Stamp oldest_stamp(emu::Cycle now) {
  const auto t = static_cast<Stamp>(now);
  return t - t % kPeriod - kPeriod + 1;
}

namespace {

using emu::SchedulerKind;

struct LaneClock {
  std::optional<Stamp> aux;  // auxVC or F; none: nothing is owed
  Stamp vtick = 0;
};

class LaneClocks : public PlainClock {
 public:
  LaneClocks(SchedulerKind kind, std::size_t lanes)
      : per_message_(kind == SchedulerKind::fgvc || kind == SchedulerKind::fgfq),
        per_lane_(emu::has_lane_vticks(kind)),
        lanes_(lanes) {}
  void set_vtick(std::size_t lane, emu::Vtick vtick) override {
    if (per_lane_) lanes_[lane].vtick = vtick;
  }
  void head(std::size_t lane, emu::Vtick vtick) override {
    if (per_message_) lanes_[lane] = {std::nullopt, vtick};
  }

 protected:
  // max(now, auxVC) + Vtick
  static Stamp next(const LaneClock& lane, Stamp from) {
    return std::max(from, lane.aux.value_or(from)) + lane.vtick;
  }
  bool per_message_;
  bool per_lane_;
  std::vector<LaneClock> lanes_;
};

// 64 bits.
class WideClock final : public LaneClocks {
 public:
  using LaneClocks::LaneClocks;
  Stamp stamp(std::size_t lane, emu::Cycle arrival, emu::Cycle) override {
    lanes_[lane].aux = next(lanes_[lane], static_cast<Stamp>(arrival));
    return *lanes_[lane].aux;
  }
};

// 16 bits from an epoch that moves on every kPeriod cycles.
class EpochClock final : public LaneClocks {
 public:
  EpochClock(SchedulerKind kind, std::size_t lanes, emu::Cycle start)
      : LaneClocks(kind, lanes), oldest_(oldest_stamp(start)) {
    for (LaneClock& lane : lanes_) lane.aux = oldest_ - 1;
  }
  Stamp stamp(std::size_t lane, emu::Cycle arrival, emu::Cycle now) override {
    const auto came = static_cast<Stamp>(arrival);
    lanes_[lane].aux =
        std::max(std::min(next(lanes_[lane], came), came + kHorizon), oldest_stamp(now));
    return *lanes_[lane].aux;
  }
  void tick(emu::Cycle now) override {
    if (oldest_stamp(now) == oldest_) return;
    oldest_ = oldest_stamp(now);
    changed_ = true;
    for (LaneClock& lane : lanes_)
      if (lane.aux) lane.aux = reread(*lane.aux);
  }
  Stamp reread(Stamp stamp) const override { return std::max(stamp, oldest_); }

 private:
  Stamp oldest_;
};

// 16 bits. A counter that overflows becomes 0; its value is taken off all the others, the clock
// among them, down to 0.
class OverflowClock final : public LaneClocks {
 public:
  OverflowClock(SchedulerKind kind, std::size_t lanes) : LaneClocks(kind, lanes) {
    for (LaneClock& lane : lanes_) lane.aux = 0;
  }
  void head(std::size_t lane, emu::Vtick vtick) override {
    LaneClocks::head(lane, vtick);
    if (per_message_) lanes_[lane].aux = 0;
  }
  Stamp stamp(std::size_t lane, emu::Cycle arrival, emu::Cycle now) override {
    const Stamp came = std::max<Stamp>(clock_ - static_cast<Stamp>(now - arrival), 0);
    const Stamp sum = next(lanes_[lane], came);
    if (sum > kMax) {
      take_off(sum);
      lanes_[lane].aux = 0;
    } else {
      lanes_[lane].aux = sum;
    }
    return *lanes_[lane].aux;
  }
  void tick(emu::Cycle) override {
    off_ = 0;
    if (++clock_ > kMax) take_off(clock_);
  }
  Stamp urgency(Stamp stamp) const override { return stamp - clock_; }
  Stamp reread(Stamp stamp) const override { return std::max<Stamp>(stamp - off_, 0); }

 private:
  static constexpr Stamp kMax = 65535;
  void take_off(Stamp value) {
    off_ = value;
    changed_ = true;
    clock_ = reread(clock_);
    for (LaneClock& lane : lanes_) lane.aux = reread(*lane.aux);
  }
  Stamp clock_ = 0;
  Stamp off_ = 0;
};

// F <- max(R, F) + P/n. R counts the rounds of a server that serves all lanes with work at once,
// each by its weight 1 / Vtick: in a cycle it completes 1 / (sum of the weights) of a round. In
// fractions, R and F of 2^-16, weights of 2^-20. F is at most 2^52 of them beyond R, and every
// kPeriod cycles whatever R has passed is raised to it.
class FairClock final : public LaneClocks {
 public:
  FairClock(SchedulerKind kind, std::size_t lanes) : LaneClocks(kind, lanes) {
    for (LaneClock& lane : lanes_) lane.aux = 0;
  }
  Stamp stamp(std::size_t lane, emu::Cycle, emu::Cycle) override {
    LaneClock& l = lanes_[lane];
    const Stamp finish = std::max(round_, l.aux.value_or(round_)) + l.vtick * 65536;
    l.aux = std::min(finish, round_ + kFinishHorizon);
    return *l.aux;
  }
  void tick(emu::Cycle now) override {
    Stamp weights = 0;
    for (const LaneClock& lane : lanes_)
      if (lane.aux && *lane.aux > round_) weights += (1 << 20) / std::max<Stamp>(1, lane.vtick);
    if (weights != 0) round_ += (Stamp{1} << 36) / weights;
    if (static_cast<Stamp>(now) % kPeriod != 0) return;
    oldest_ = round_;
    changed_ = true;
    for (LaneClock& lane : lanes_)
      if (lane.aux) lane.aux = reread(*lane.aux);
  }
  Stamp urgency(Stamp stamp) const override { return stamp - round_; }
  Stamp reread(Stamp stamp) const override { return std::max(stamp, oldest_); }

 private:
  static constexpr Stamp kFinishHorizon = Stamp{1} << 52;
  Stamp round_ = 0;
  Stamp oldest_ = 0;
};

}  // namespace

std::unique_ptr<PlainClock> make_plain_clock(SchedulerKind kind, fabric::CounterKind counters,
                                             std::size_t lanes, emu::Cycle start) {
  if (kind == SchedulerKind::fair_queueing || kind == SchedulerKind::fgfq)
    return std::make_unique<FairClock>(kind, lanes);
  switch (counters) {
    case fabric::CounterKind::epoch:
      return std::make_unique<EpochClock>(kind, lanes, start);
    case fabric::CounterKind::wide:
      return std::make_unique<WideClock>(kind, lanes);
    case fabric::CounterKind::overflow:
      return std::make_unique<OverflowClock>(kind, lanes);
  }
  CHECK(false);
  return nullptr;
}

}  // namespace model

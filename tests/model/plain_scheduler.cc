#include "tests/model/plain_scheduler.h"

#include <algorithm>

#include "emu/base/check.h"

namespace model {

Stamp oldest_stamp(emu::Cycle now) {
  const auto t = static_cast<Stamp>(now);
  return t - t % kPeriod - kPeriod + 1;
}

PlainClock::PlainClock(emu::SchedulerKind kind, emu::Vtick lane_vtick, emu::Cycle start)
    : per_message_(kind == emu::SchedulerKind::fgvc),
      vtick_(emu::has_lane_vticks(kind) ? lane_vtick : 0),
      aux_(oldest_stamp(start) - 1) {}

void PlainClock::head(emu::Vtick vtick) {
  if (!per_message_) return;
  vtick_ = vtick;
  aux_.reset();
}

Stamp PlainClock::stamp(emu::Cycle arrival, emu::Cycle now) {
  const auto came = static_cast<Stamp>(arrival);
  const Stamp base = aux_ ? std::max(came, *aux_) : came;
  aux_ = std::max(std::min(base + vtick_, came + kHorizon), oldest_stamp(now));
  return *aux_;
}

void PlainClock::age(emu::Cycle now) {
  if (aux_) aux_ = std::max(*aux_, oldest_stamp(now));
}

namespace {

bool contains(const std::vector<emu::Vl>& lanes, emu::Vl lane) {
  return std::find(lanes.begin(), lanes.end(), lane) != lanes.end();
}

// The first of `lanes` after `last`, going round.
emu::Vl next_after(int last, const std::vector<emu::Vl>& lanes) {
  for (int i = 1; i <= emu::kVlCount; ++i) {
    const auto lane = static_cast<emu::Vl>((last + i + emu::kVlCount) % emu::kVlCount);
    if (contains(lanes, lane)) return lane;
  }
  CHECK(false);
  return 0;
}

class ControlFirst : public PlainScheduler {
 public:
  explicit ControlFirst(emu::LaneMask control) : control_(control) {}
  Choice choose(const std::vector<Waiting>& waiting) final {
    for (const Waiting& w : waiting)
      if (is_control(w.lane)) return {w.lane, kMostUrgent};
    return choose_other(waiting);
  }
  void granted(emu::Vl lane) final {
    if (!is_control(lane)) other_granted(lane);
  }

 private:
  bool is_control(emu::Vl lane) const { return ((control_ >> lane) & 1) != 0; }
  virtual Choice choose_other(const std::vector<Waiting>& waiting) = 0;
  virtual void other_granted(emu::Vl lane) = 0;
  emu::LaneMask control_;
};

class SmallestStamp final : public ControlFirst {
 public:
  using ControlFirst::ControlFirst;

 private:
  Choice choose_other(const std::vector<Waiting>& waiting) override {
    const auto best =
        std::min_element(waiting.begin(), waiting.end(),
                         [](const Waiting& a, const Waiting& b) { return a.stamp < b.stamp; });
    return {best->lane, best->stamp};
  }
  void other_granted(emu::Vl) override {}
};

class PlainRoundRobin final : public ControlFirst {
 public:
  using ControlFirst::ControlFirst;

 private:
  Choice choose_other(const std::vector<Waiting>& waiting) override {
    std::vector<emu::Vl> lanes;
    for (const Waiting& w : waiting) lanes.push_back(w.lane);
    return {next_after(last_, lanes), 1};
  }
  void other_granted(emu::Vl lane) override { last_ = lane; }
  int last_ = -1;
};

// A table of weights, spent flit by flit.
class PlainTable {
 public:
  PlainTable(const std::array<std::uint16_t, emu::kVlCount>& weights, emu::PointerKind pointer)
      : weights_(weights), left_(weights), pointer_(pointer) {}
  std::vector<emu::Vl> members(const std::vector<Waiting>& waiting) const {
    std::vector<emu::Vl> lanes;
    for (const Waiting& w : waiting)
      if (weights_[w.lane] != 0) lanes.push_back(w.lane);
    return lanes;
  }
  emu::Vl choose(const std::vector<emu::Vl>& lanes) const {
    if (pointer_ == emu::PointerKind::slow) {
      const bool goes_on = last_ >= 0 && contains(lanes, static_cast<emu::Vl>(last_)) &&
                           left_[static_cast<std::size_t>(last_)] > 0;
      return goes_on ? static_cast<emu::Vl>(last_) : next_after(last_, lanes);
    }
    std::vector<emu::Vl> with_weight;
    for (const emu::Vl lane : lanes)
      if (left_[lane] > 0) with_weight.push_back(lane);
    return next_after(last_, with_weight.empty() ? lanes : with_weight);
  }
  void spend(emu::Vl lane) {
    if (pointer_ == emu::PointerKind::slow && (lane != last_ || left_[lane] == 0)) {
      left_[lane] = weights_[lane];  // the entry's turn begins
    }
    if (pointer_ == emu::PointerKind::fast && left_[lane] == 0) left_ = weights_;  // a new frame
    --left_[lane];
    last_ = lane;
  }

 private:
  std::array<std::uint16_t, emu::kVlCount> weights_;
  std::array<std::uint16_t, emu::kVlCount> left_;
  emu::PointerKind pointer_;
  int last_ = -1;
};

class PlainTwoLevel final : public ControlFirst {
 public:
  PlainTwoLevel(const emu::VlWeights& weights, emu::LaneMask control)
      : ControlFirst(control),
        high_(weights.high, weights.pointer),
        low_(weights.low, weights.pointer),
        limit_(weights.high_limit) {}

 private:
  enum class Level { high, low, no_table };
  Choice choose_other(const std::vector<Waiting>& waiting) override {
    const auto high = high_.members(waiting);
    const auto low = low_.members(waiting);
    const bool limit_reached = limit_ != emu::kLimitUnbounded && in_a_row_ >= limit_;
    low_waits_ = !low.empty();
    if (!low.empty() && (high.empty() || limit_reached)) {
      level_ = Level::low;
      return {low_.choose(low), high.empty() ? 2 : 1};
    }
    if (!high.empty()) {
      level_ = Level::high;
      return {high_.choose(high), 1};
    }
    level_ = Level::no_table;
    return {waiting.front().lane, 3};
  }
  void other_granted(emu::Vl lane) override {
    if (level_ == Level::high) {
      high_.spend(lane);
      in_a_row_ = low_waits_ ? in_a_row_ + 1 : 0;
    } else if (level_ == Level::low) {
      low_.spend(lane);
      in_a_row_ = 0;
    }
  }

  PlainTable high_;
  PlainTable low_;
  int limit_;
  int in_a_row_ = 0;
  bool low_waits_ = false;
  Level level_ = Level::no_table;
};

}  // namespace

std::unique_ptr<PlainScheduler> make_plain_scheduler(emu::SchedulerKind kind,
                                                     const emu::VlWeights& weights,
                                                     emu::LaneMask control) {
  switch (kind) {
    case emu::SchedulerKind::fcfs:
    case emu::SchedulerKind::virtual_clock:
    case emu::SchedulerKind::fgvc:
    case emu::SchedulerKind::head_of_line:
      return std::make_unique<SmallestStamp>(control);
    case emu::SchedulerKind::round_robin:
      return std::make_unique<PlainRoundRobin>(control);
    case emu::SchedulerKind::wrr: {
      emu::VlWeights one_level = weights;
      one_level.low = {};
      return std::make_unique<PlainTwoLevel>(one_level, control);
    }
    case emu::SchedulerKind::two_level:
      return std::make_unique<PlainTwoLevel>(weights, control);
  }
  CHECK(false);
  return nullptr;
}

}  // namespace model

#include "tests/model/plain_scheduler.h"

#include <algorithm>

#include "emu/base/check.h"

namespace model {

namespace {

bool contains(const std::vector<emu::Vl>& lanes, emu::Vl lane) {
  return std::find(lanes.begin(), lanes.end(), lane) != lanes.end();
}

// The first of `lanes` after `last`, going round.
constexpr int kNumbers = 64;  // more than there are lanes
emu::Vl next_after(int last, const std::vector<emu::Vl>& lanes) {
  for (int i = 1; i <= kNumbers; ++i) {
    const auto lane = static_cast<emu::Vl>((last + i + kNumbers) % kNumbers);
    if (contains(lanes, lane)) return lane;
  }
  CHECK(false);
  return 0;
}

// Lanes of control, then accelerated ones, then the block in progress, then the scheduler proper.
class ControlFirst : public PlainScheduler {
 public:
  ControlFirst(std::uint32_t control, Blocks blocks) : control_(control), blocks_(blocks) {}
  Choice choose(const std::vector<Waiting>& waiting) final {
    std::vector<emu::Vl> accelerated;
    for (const Waiting& w : waiting) {
      if (w.first || ((control_ >> w.lane) & 1) != 0)
        return chose(Kind::control, {w.lane, kMostUrgent});
      if (w.accelerated) accelerated.push_back(w.lane);
    }
    if (!accelerated.empty())
      return chose(Kind::accelerated, {next_after(last_accelerated_, accelerated), kAccelerated});
    for (const Waiting& w : waiting) {
      if (block_left_ == 0 || w.lane != block_.lane) continue;
      return chose(Kind::block, {w.lane, by_stamps() ? w.stamp : block_.urgency});
    }
    return chose(Kind::scheduled, choose_other(waiting));
  }
  std::vector<Waiting> let_go(std::vector<Waiting> waiting, emu::Cycle now) const final {
    if (!blocks_.waits || block_left_ == 0 || now >= block_until_) return waiting;
    std::erase_if(waiting, [this](const Waiting& w) {
      const bool control = w.first || ((control_ >> w.lane) & 1) != 0;
      return !control && !w.accelerated && w.lane != block_.lane;
    });
    return waiting;
  }
  void granted(emu::Vl lane, bool ends, emu::Cycle now) final {
    if (kind_ == Kind::accelerated) last_accelerated_ = lane;
    if (kind_ == Kind::block) --block_left_;
    if (kind_ == Kind::scheduled) {
      other_granted(lane);
      block_ = choice_;
      block_left_ = blocks_.flits - 1;
      block_until_ = now + static_cast<emu::Cycle>(blocks_.flits);
    }
    if (ends && lane == block_.lane) block_left_ = 0;
    if (ends && (kind_ == Kind::scheduled || kind_ == Kind::block)) other_ended();
  }

 private:
  enum class Kind { control, accelerated, block, scheduled };
  virtual Choice choose_other(const std::vector<Waiting>& waiting) = 0;
  virtual void other_granted(emu::Vl lane) = 0;
  virtual void other_ended() {}  // a flit that was granted, or one of its block, was a tail
  virtual bool by_stamps() const { return false; }
  Choice chose(Kind kind, Choice choice) {
    kind_ = kind;
    choice_ = choice;
    return choice;
  }

  std::uint32_t control_;
  Blocks blocks_;
  Kind kind_ = Kind::scheduled;
  Choice choice_{};
  Choice block_{};
  int block_left_ = 0;  // flits that its lane may still send without being chosen again
  emu::Cycle block_until_ = 0;
  int last_accelerated_ = -1;
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
  bool by_stamps() const override { return true; }
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
      : weights_(weights), pointer_(pointer) {
    for (emu::Vl v = 0; v < weights_.size(); ++v) refill(v);
  }
  std::vector<emu::Vl> members(const std::vector<Waiting>& waiting) const {
    std::vector<emu::Vl> lanes;
    for (const Waiting& w : waiting)
      if (w.lane < weights_.size() && weights_[w.lane] != 0) lanes.push_back(w.lane);
    return lanes;
  }
  emu::Vl choose(const std::vector<emu::Vl>& lanes) const {
    if (pointer_ == emu::PointerKind::slow) {
      const bool goes_on = last_ >= 0 && contains(lanes, static_cast<emu::Vl>(last_)) &&
                           left_[static_cast<std::size_t>(last_)] > 0;
      return goes_on ? static_cast<emu::Vl>(last_) : next_after(next_, lanes);
    }
    std::vector<emu::Vl> with_weight;
    for (const emu::Vl lane : lanes)
      if (left_[lane] > 0) with_weight.push_back(lane);
    return next_after(next_, with_weight.empty() ? lanes : with_weight);
  }
  void spend(emu::Vl lane) {
    next_ = lane;
    const bool slow = pointer_ == emu::PointerKind::slow;
    const bool paid = left_[lane] > 0 && (!slow || lane == last_);
    if (!paid && somebody_keeps_weight() && left_[lane] > 1 - weights_[lane]) {
      --left_[lane];  // of its next weight
      return;
    }
    if (!paid && slow) refill(lane);  // the entry's turn begins
    if (!paid && !slow) {             // a frame begins
      for (emu::Vl v = 0; v < weights_.size(); ++v) refill(v);
    }
    --left_[lane];
    last_ = lane;
  }

 private:
  // A lane that has begun its weight, has some left, and cannot send now: another was chosen.
  bool somebody_keeps_weight() const {
    if (pointer_ == emu::PointerKind::slow)
      return last_ >= 0 && left_[static_cast<std::size_t>(last_)] > 0;
    for (std::size_t v = 0; v < weights_.size(); ++v)
      if (left_[v] > 0 && left_[v] < weights_[v]) return true;
    return false;
  }
  void refill(emu::Vl lane) { left_[lane] = weights_[lane] + std::min(left_[lane], 0); }

  std::array<std::uint16_t, emu::kVlCount> weights_;
  std::array<int, emu::kVlCount> left_{};  // less than 0: owed
  emu::PointerKind pointer_;
  int last_ = -1;  // whose turn it is
  int next_ = -1;  // behind which lane the next turn begins
};

class PlainTwoLevel final : public ControlFirst {
 public:
  PlainTwoLevel(const emu::VlWeights& weights, std::uint32_t control, Blocks blocks)
      : ControlFirst(control, blocks),
        high_(weights.high, weights.pointer),
        low_(weights.low, weights.pointer),
        limit_(weights.high_limit),
        whole_packets_(weights.whole_packets) {}

 private:
  enum class Level { high, low, no_table };
  bool streak_is_long() const { return limit_ != emu::kLimitUnbounded && in_a_row_ >= limit_; }
  Choice choose_other(const std::vector<Waiting>& waiting) override {
    const auto high = high_.members(waiting);
    const auto low = low_.members(waiting);
    low_waits_ = !low.empty();
    const bool lows_turn = whole_packets_ ? due_ : streak_is_long();
    if (!low.empty() && (high.empty() || lows_turn)) {
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
      if (low_waits_) ++in_a_row_;
      if (!low_waits_ && !whole_packets_) in_a_row_ = 0;
    } else if (level_ == Level::low) {
      low_.spend(lane);
      if (!whole_packets_) in_a_row_ = 0;
    }
    granted_level_ = level_;
  }
  void other_ended() override {
    if (!whole_packets_) return;
    if (granted_level_ == Level::high && streak_is_long()) due_ = true;
    if (granted_level_ == Level::low) {
      due_ = false;
      in_a_row_ = 0;
    }
  }

  PlainTable high_;
  PlainTable low_;
  int limit_;
  bool whole_packets_;
  int in_a_row_ = 0;
  bool due_ = false;  // a packet of the low table
  // Of the last choice.
  bool low_waits_ = false;
  Level level_ = Level::no_table;
  Level granted_level_ = Level::no_table;  // of the last that was granted
};

}  // namespace

std::unique_ptr<PlainScheduler> make_plain_scheduler(emu::SchedulerKind kind,
                                                     const emu::VlWeights& weights,
                                                     std::uint32_t control, Blocks blocks) {
  switch (kind) {
    case emu::SchedulerKind::fcfs:
    case emu::SchedulerKind::virtual_clock:
    case emu::SchedulerKind::fgvc:
    case emu::SchedulerKind::head_of_line:
    case emu::SchedulerKind::fair_queueing:
    case emu::SchedulerKind::fgfq:
      return std::make_unique<SmallestStamp>(control, blocks);
    case emu::SchedulerKind::round_robin:
      return std::make_unique<PlainRoundRobin>(control, blocks);
    case emu::SchedulerKind::wrr: {
      emu::VlWeights one_level = weights;
      one_level.low = {};
      return std::make_unique<PlainTwoLevel>(one_level, control, blocks);
    }
    case emu::SchedulerKind::two_level:
      return std::make_unique<PlainTwoLevel>(weights, control, blocks);
  }
  CHECK(false);
  return nullptr;
}

}  // namespace model

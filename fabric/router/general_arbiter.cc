#include "fabric/router/general_arbiter.h"

namespace fabric::general {

namespace {
constexpr LaneBits bit(unsigned lane) { return LaneBits{1} << lane; }
}  // namespace

void WeightTable::set(const std::array<std::uint16_t, emu::kVlCount>& weights,
                      emu::PointerKind pointer) {
  *this = {};
  weights_ = left_ = weights;
  pointer_ = pointer;
  for (unsigned v = 0; v < emu::kVlCount; ++v)
    if (weights[v] != 0) members_ |= bit(v);
  unspent_ = members_;
}

unsigned WeightTable::choose(LaneBits lanes) const {
  if (pointer_ == emu::PointerKind::slow) {
    const bool goes_on = last_ >= 0 && (lanes & unspent_ & bit(static_cast<unsigned>(last_))) != 0;
    return goes_on ? static_cast<unsigned>(last_) : next_lane(last_, lanes);
  }
  const LaneBits with_weight = lanes & unspent_;
  return next_lane(last_, with_weight != 0 ? with_weight : lanes);
}

void WeightTable::spend(unsigned lane) {
  const bool spent = (unspent_ & bit(lane)) == 0;
  if (pointer_ == emu::PointerKind::slow && (static_cast<int>(lane) != last_ || spent)) {
    left_[lane] = weights_[lane];  // the entry's turn begins
    unspent_ |= bit(lane);
  }
  if (pointer_ == emu::PointerKind::fast && spent) {  // a new frame
    left_ = weights_;
    unspent_ = members_;
  }
  if (--left_[lane] == 0) unspent_ &= ~bit(lane);
  last_ = static_cast<int>(lane);
}

void Arbiter::set_weights(const emu::VlWeights& weights) {
  const emu::SchedulerKind kind = kind_;
  const int block = block_flits_;
  const bool waits = block_waits_;
  *this = {};
  configure(kind, block, waits);
  high_.set(weights.high, weights.pointer);
  if (kind == emu::SchedulerKind::two_level) low_.set(weights.low, weights.pointer);
  high_limit_ = weights.high_limit;
}

Chosen Arbiter::by_turns(LaneBits lanes) {
  if (kind_ == emu::SchedulerKind::round_robin) return {next_lane(last_, lanes), 1};
  const LaneBits high = lanes & high_.members();
  const LaneBits low = lanes & low_.members();
  const bool limit_reached = high_limit_ != emu::kLimitUnbounded && high_in_a_row_ >= high_limit_;
  low_waits_ = low != 0;
  if (low != 0 && (high == 0 || limit_reached)) {
    table_ = Table::low;
    return {low_.choose(low), high == 0 ? 2 : 1};
  }
  if (high != 0) {
    table_ = Table::high;
    return {high_.choose(high), 1};
  }
  table_ = Table::none;
  return {static_cast<unsigned>(std::countr_zero(lanes)), 3};
}

void Arbiter::spend(unsigned lane) {
  if (kind_ == emu::SchedulerKind::round_robin) {
    last_ = static_cast<int>(lane);
  } else if (table_ == Table::high) {
    high_.spend(lane);
    high_in_a_row_ = low_waits_ ? high_in_a_row_ + 1 : 0;
  } else if (table_ == Table::low) {
    low_.spend(lane);
    high_in_a_row_ = 0;
  }
}

}  // namespace fabric::general

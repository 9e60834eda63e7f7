#include "fabric/router/general_arbiter.h"

namespace fabric::general {

void Arbiter::set_weights(const emu::VlWeights& weights) {
  const emu::SchedulerKind kind = kind_;
  const int block = block_flits_;
  const bool waits = block_waits_;
  *this = {};
  configure(kind, block, waits);
  high_.load(weights.high);
  if (kind == emu::SchedulerKind::two_level) low_.load(weights.low);
  slow_ = weights.pointer == emu::PointerKind::slow;
  high_limit_ = weights.high_limit;
  whole_packets_ = weights.whole_packets;
}

Chosen Arbiter::by_turns(LaneBits lanes) {
  if (kind_ == emu::SchedulerKind::round_robin) return {next_lane(last_, lanes), 1};
  const LaneBits high = lanes & high_.member();
  const LaneBits low = lanes & low_.member();
  low_waits_ = low != 0;
  const bool lows_turn = whole_packets_ ? due_ : streak_is_long();
  if (low != 0 && (high == 0 || lows_turn)) {
    table_ = Table::low;
    return {low_.pick(low, slow_), high == 0 ? 2 : 1};
  }
  if (high != 0) {
    table_ = Table::high;
    return {high_.pick(high, slow_), 1};
  }
  table_ = Table::none;
  return {static_cast<unsigned>(std::countr_zero(lanes)), 3};
}

void Arbiter::spend(unsigned lane) {
  if (kind_ == emu::SchedulerKind::round_robin) {
    last_ = static_cast<int>(lane);
  } else if (table_ == Table::high) {
    high_.spend(lane, slow_);
    streak_ = low_waits_ ? streak_ + 1 : whole_packets_ ? streak_ : 0;
  } else if (table_ == Table::low) {
    low_.spend(lane, slow_);
    if (!whole_packets_) streak_ = 0;
  }
}

void Arbiter::packet_ended(Table table) {
  if (table == Table::high) {
    due_ |= whole_packets_ && streak_is_long();
  } else if (table == Table::low && whole_packets_) {
    due_ = false;
    streak_ = 0;
  }
}

}  // namespace fabric::general

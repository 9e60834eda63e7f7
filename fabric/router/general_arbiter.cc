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
  limit_.load(weights);
}

Chosen Arbiter::by_turns(LaneBits lanes) {
  if (kind_ == emu::SchedulerKind::round_robin) return {next_lane(last_, lanes), 1};
  const LaneBits high = lanes & high_.member();
  const LaneBits low = lanes & low_.member();
  low_waits_ = low != 0;
  if (low != 0 && (high == 0 || limit_.lows_turn())) {
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
    limit_.high_sent(low_waits_);
  } else if (table_ == Table::low) {
    low_.spend(lane, slow_);
    limit_.low_sent();
  }
}

void Arbiter::packet_ended(Table table) {
  if (table == Table::high) limit_.high_ended();
  if (table == Table::low) limit_.low_ended();
}

}  // namespace fabric::general

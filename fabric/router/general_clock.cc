#include "fabric/router/general_clock.h"

#include <algorithm>
#include <bit>
#include <limits>

namespace fabric::general {

namespace {

constexpr Stamp kCounterMax = 65535;
constexpr Stamp kLongAgo = std::numeric_limits<Stamp>::min() / 4;
// Fair queueing counts in fractions of a round. A queue of Vtick v has weight kWeight / v.
constexpr int kRoundBits = 16;
constexpr int kWeightBits = 20;
// F is at most so far beyond R: 2^21 flits of best effort, more than any port buffers. What a queue
// is served in the port and not by the server of all queues at once does not add up for ever.
constexpr Stamp kFinishHorizon = Stamp{1} << 52;

}  // namespace

void PortClock::configure(const ClockRules& rules, emu::Cycle start) {
  rules_ = rules;
  by_epoch_ = !rules.fair() && rules.counters == CounterKind::epoch;
  absolute_ = !rules.fair() && rules.counters != CounterKind::overflow;
  zero_ = static_cast<Stamp>(start);
  counted_ = start;
  Stamp first = kLongAgo;
  if (rules.fair()) first = 0;
  if (!rules.fair() && rules.counters == CounterKind::epoch) first = oldest_stamp(start) - 1;
  aux_.fill(first);
}

void PortClock::set_vtick(unsigned queue, emu::Vtick vtick, emu::Cycle now) {
  if (rules_.fair()) advance_rounds(now);
  vtick_[queue] = vtick;
}

void PortClock::head(unsigned queue, emu::Vtick vtick, emu::Cycle now) {
  if (!rules_.per_message()) return;
  set_vtick(queue, vtick, now);
  aux_[queue] = kLongAgo;
  busy_ &= ~queue_bit(queue);
}

Stamp PortClock::stamp_otherwise(unsigned queue, emu::Cycle arrival, emu::Cycle now) {
  if (rules_.fair()) {
    advance_rounds(now);
    const Stamp next = std::max(round_, aux_[queue]) + (Stamp{vtick_[queue]} << kRoundBits);
    aux_[queue] = std::min(next, round_ + kFinishHorizon);
    if (aux_[queue] > round_) busy_ |= queue_bit(queue);
    return aux_[queue];
  }
  if (rules_.counters == CounterKind::overflow) return stamp_overflow(queue, arrival, now);
  return aux_[queue] = std::max(static_cast<Stamp>(arrival), aux_[queue]) + vtick_[queue];
}

// All counters of the port are kept relative to zero_: taking a value off all of them, not below
// zero, is to move zero_ up and to read what lies below it as 0.
Stamp PortClock::stamp_overflow(unsigned queue, emu::Cycle arrival, emu::Cycle now) {
  catch_up(now);
  const Stamp came = static_cast<Stamp>(arrival) + ahead_;
  const Stamp sum = std::max({came, aux_[queue], zero_}) + vtick_[queue];
  if (sum - zero_ > kCounterMax) {
    zero_ = sum;
    ahead_ = std::max(ahead_, zero_ - static_cast<Stamp>(now));  // the clock, too, reads no less
  }
  return aux_[queue] = sum;
}

void PortClock::catch_up(emu::Cycle now) {
  const Stamp clock = static_cast<Stamp>(now) + ahead_ - zero_;
  if (clock > kCounterMax) zero_ += clock / (kCounterMax + 1) * (kCounterMax + 1);
}

Stamp PortClock::relative_urgency(Stamp stamp, emu::Cycle now) {
  if (rules_.fair()) {
    advance_rounds(now);
    return stamp - round_;
  }
  catch_up(now);
  return std::max(stamp, zero_) - (static_cast<Stamp>(now) + ahead_);
}

PortClock::Pace PortClock::pace() const {
  Stamp weights = 0;
  Stamp until = std::numeric_limits<Stamp>::max();
  for (QueueBits bits = busy_; bits != 0; bits &= bits - 1) {
    const auto queue = static_cast<unsigned>(std::countr_zero(bits));
    weights += (Stamp{1} << kWeightBits) / std::max<Stamp>(1, vtick_[queue]);
    until = std::min(until, aux_[queue]);
  }
  return {(Stamp{1} << (kRoundBits + kWeightBits)) / weights, until};
}

// The server that serves all queues at once, each by its weight: R grows by the link's rate over
// the weights of the queues that it has not finished. The set changes when R passes an F.
void PortClock::advance_rounds(emu::Cycle now) {
  while (counted_ < now && busy_ != 0) {
    const Pace p = pace();
    const auto left = static_cast<Stamp>(now - counted_);
    const Stamp cycles = std::min(left, (p.until - round_ + p.rounds - 1) / p.rounds);
    round_ += cycles * p.rounds;
    counted_ += static_cast<emu::Cycle>(cycles);
    for (QueueBits bits = busy_; bits != 0; bits &= bits - 1) {
      const auto queue = static_cast<unsigned>(std::countr_zero(bits));
      if (aux_[queue] <= round_) busy_ &= ~queue_bit(queue);
    }
  }
  counted_ = now;
}

void PortClock::age(emu::Cycle now) {
  shift_ = 0;
  floor_ = std::numeric_limits<Stamp>::min();
  if (rules_.fair()) {
    // R is counted from here on. What it has passed is raised to it: an idle queue would fall
    // behind for ever.
    advance_rounds(now);
    shift_ = round_;
    round_ = 0;
    floor_ = 0;
  } else if (rules_.counters == CounterKind::epoch) {
    floor_ = oldest_stamp(now);
  } else {
    return;
  }
  for (Stamp& aux : aux_)
    if (aux != kLongAgo) aux = std::max(aux - shift_, floor_);
}

}  // namespace fabric::general

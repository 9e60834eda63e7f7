// The stamps of the flits that wait at one port: VirtualClock and Fair Queueing, fine-grained or
// not, in counters of any kind. In: arrivals. Out: a stamp for each flit, and how urgent a stamp is
// against those of other ports. Asked by the stages of the general engine and by its HCAs.
#pragma once

#include <algorithm>
#include <array>

#include "emu/lane/policy.h"
#include "emu/lane/stamp.h"
#include "fabric/router/design.h"
#include "fabric/router/general_flit.h"

namespace fabric::general {

struct ClockRules {
  emu::SchedulerKind kind = emu::SchedulerKind::fcfs;
  CounterKind counters = CounterKind::epoch;

  bool fair() const {
    return kind == emu::SchedulerKind::fair_queueing || kind == emu::SchedulerKind::fgfq;
  }
  bool per_message() const {
    return kind == emu::SchedulerKind::fgvc || kind == emu::SchedulerKind::fgfq;
  }
  bool head_of_line() const { return kind == emu::SchedulerKind::head_of_line; }
};

// The first stamp that the epoch of a cycle can tell; older ones are raised to it.
constexpr Stamp oldest_stamp(emu::Cycle now) {
  return static_cast<Stamp>(now - now % emu::kStampPeriod) - static_cast<Stamp>(emu::kStampPeriod) +
         1;
}

class PortClock {
 public:
  void configure(const ClockRules& rules, emu::Cycle start);
  void set_vtick(unsigned queue, emu::Vtick vtick, emu::Cycle now);
  // The head of a message comes: it brings its Vtick, and the queue starts afresh.
  void head(unsigned queue, emu::Vtick vtick, emu::Cycle now);
  // Of the next flit of the queue, which arrived in cycle `arrival`.
  Stamp stamp(unsigned queue, emu::Cycle arrival, emu::Cycle now) {
    return by_epoch_ ? stamp_epoch(queue, static_cast<Stamp>(arrival), now)
                     : stamp_otherwise(queue, arrival, now);
  }
  // Stamps are those of the papers' 16-bit counters, and urgencies as they are.
  bool by_epoch() const { return by_epoch_; }
  // Smaller first; comparable between ports.
  Stamp urgency(Stamp stamp, emu::Cycle now) {
    return absolute_ ? stamp : relative_urgency(stamp, now);
  }
  // The cycle `now` is a multiple of emu::kStampPeriod. What a stamp given before becomes is told
  // by aged().
  void age(emu::Cycle now);
  Stamp aged(Stamp stamp) const { return std::max(stamp - shift_, floor_); }

 private:
  Stamp relative_urgency(Stamp stamp, emu::Cycle now);
  Stamp stamp_epoch(unsigned queue, Stamp came, emu::Cycle now) {
    const Stamp next = std::max(came, aux_[queue]) + vtick_[queue];
    aux_[queue] = std::max(std::min(next, came + Stamp{emu::kStampHorizon}), oldest_stamp(now));
    return aux_[queue];
  }
  Stamp stamp_otherwise(unsigned queue, emu::Cycle arrival, emu::Cycle now);
  Stamp stamp_overflow(unsigned queue, emu::Cycle arrival, emu::Cycle now);
  void catch_up(emu::Cycle now);        // overflow: the clock itself may have overflowed
  void advance_rounds(emu::Cycle now);  // fair queueing
  // Rounds of one cycle, and the first finish number that ends the present set of busy queues.
  struct Pace {
    Stamp rounds;
    Stamp until;
  };
  Pace pace() const;

  ClockRules rules_;
  bool absolute_ = true;                 // stamps of different ports are cycles of one clock
  bool by_epoch_ = true;                 // they are those of the papers' 16-bit counters
  std::array<Stamp, kQueuesMax> aux_{};  // auxVC, or the finish number F
  std::array<emu::Vtick, kQueuesMax> vtick_{};
  // overflow: 16-bit counters read aux - zero_; the port's clock reads now + ahead_ - zero_.
  Stamp zero_ = 0;
  Stamp ahead_ = 0;
  // fair queueing: R, the cycle it belongs to, and the queues whose F lies beyond it.
  Stamp round_ = 0;
  emu::Cycle counted_ = 0;
  QueueBits busy_ = 0;
  Stamp shift_ = 0;
  Stamp floor_ = 0;
};

}  // namespace fabric::general

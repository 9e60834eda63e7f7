// Preemption in the input buffer (RN 3.2): each level of a lane has a buffer of its own. A head of
// a higher level makes the messages below it let go of their output lanes: those of which flits
// have crossed by a dummy tail. What is left of them goes on, behind a dummy head, when nothing of
// a higher level is left in the lane. The history stack is what their queues remember of their
// routes.
#pragma once

#include "fabric/router/general_cycle.h"

namespace fabric::general {

template <class Design>
void RouterCycle<Design>::make_way(unsigned p, unsigned lane, unsigned level) {
  for (unsigned below = 0; below < level; ++below) interrupt(p, World::queue_of(lane, below));
}

template <class Design>
void RouterCycle<Design>::interrupt(unsigned p, unsigned queue) {
  Port& port = r_.ports[p];
  InputQueue& q = port.in[queue];
  switch (q.front) {
    case Front::idle:
    case Front::suspended:
      return;
    case Front::routing:
      clear_bit(port.routing, queue, r_.routing, p);
      q.front = Front::idle;
      return;
    case Front::arbitrating:
      clear_bit(port.arbitrating, queue, r_.arbitrating, p);
      q.front = Front::suspended;
      break;
    case Front::waiting:
      leave_line({static_cast<std::uint8_t>(p), static_cast<std::uint8_t>(queue)});
      q.front = Front::suspended;
      break;
    case Front::active:
      if ((port.closing & queue_bit(queue)) != 0) return;
      if (q.worm_open) {
        port.closing |= queue_bit(queue);
        stamp_dummy(p, queue);
        ++r_.dummies;
      } else {
        release(p, queue);
        q.front = Front::suspended;
      }
      break;
  }
  ++w_.design.interruptions;
}

template <class Design>
void RouterCycle<Design>::leave_line(QueueAt me) {
  InputQueue& q = at(me);
  OutputLane& lane = r_.ports[q.out_port].out[q.out_lane];
  QueueAt before = kNoQueue;
  for (QueueAt i = lane.line_first; i != me; i = at(i).next_in_line) before = i;
  (before == kNoQueue ? lane.line_first : at(before).next_in_line) = q.next_in_line;
  if (lane.line_last == me) lane.line_last = before;
  outrank(lane);
}

// A dummy flit is stamped like one that arrives now.
template <class Design>
void RouterCycle<Design>::stamp_dummy(unsigned p, unsigned queue) {
  Port& port = r_.ports[p];
  if (!d_.full_crossbar()) port.in[queue].dummy_stamp = port.clock.stamp(queue, now_, now_);
  port.show_next(queue);
}

template <class Design>
Flit RouterCycle<Design>::dummy_flit(const Port& port, unsigned queue) const {
  const InputQueue& q = port.in[queue];
  const bool closes = (port.closing & queue_bit(queue)) != 0;
  const int marks = Flit::dummy | (closes ? Flit::tail : Flit::head);
  return {q.message, static_cast<std::uint8_t>(marks),
          static_cast<std::uint8_t>(World::level_of(queue)), q.dummy_stamp};
}

template <class Design>
void RouterCycle<Design>::dummy_crossed(unsigned p, unsigned queue) {
  Port& port = r_.ports[p];
  InputQueue& q = port.in[queue];
  ++w_.design.dummy_flits;
  ++r_.held;
  if ((port.closing & queue_bit(queue)) == 0) {
    port.needs_head &= ~queue_bit(queue);
    port.show_next(queue);
    q.worm_open = true;
    --r_.dummies;
    return;
  }
  port.closing &= ~queue_bit(queue);
  port.needs_head |= queue_bit(queue);  // r_.dummies counts it on
  release(p, queue);
  q.front = Front::suspended;
  wake(p, d_.lane_of(queue));
}

// The owner of the lane, or the first in line, is another one.
template <class Design>
void RouterCycle<Design>::outrank(const OutputLane& lane) {
  if (!d_.preemptive() || lane.owner == kNoQueue) return;
  Port& port = r_.ports[lane.owner.port];
  const QueueBits bit = queue_bit(lane.owner.queue);
  const bool outranked = lane.line_first != kNoQueue &&
                         World::level_of(lane.line_first.queue) > World::level_of(lane.owner.queue);
  port.outranked = outranked ? port.outranked | bit : port.outranked & ~bit;
}

}  // namespace fabric::general

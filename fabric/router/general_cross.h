// Stage 4: the crossbar, multiplexed or full.
#pragma once

#include <utility>

#include "fabric/router/general_cycle.h"
#include "fabric/router/general_rank.h"

namespace fabric::general {

template <class Design>
void RouterCycle<Design>::cross() {
  if (r_.active == 0) return;
  if (w_.herd.on() && !w_.herd.may_cross(r_.id, crossings_max(), now_)) return;
  if (d_.full_crossbar()) {
    cross_all_lanes();
  } else {
    allocate();
  }
}

// What can cross in this cycle at most.
template <class Design>
unsigned RouterCycle<Design>::crossings_max() const {
  unsigned flits = 0;
  for (PortBits bits = r_.active; bits != 0; bits &= bits - 1) {
    const QueueBits queues = could_cross(r_.ports[first_of(bits)]);
    const auto lanes = static_cast<unsigned>(std::popcount(d_.lanes_of(queues)));
    flits += d_.full_crossbar() ? lanes : std::min(lanes, 1U);
  }
  return flits;
}

// Every input lane has its own way to its output lane.
template <class Design>
void RouterCycle<Design>::cross_all_lanes() {
  for (PortBits bits = r_.active; bits != 0; bits &= bits - 1) {
    const unsigned p = first_of(bits);
    const QueueBits queues = could_cross(r_.ports[p]);
    for (LaneBits lanes = d_.lanes_of(queues); lanes != 0; lanes &= lanes - 1)
      move(p, d_.queue_at(first_of(lanes), queues));
  }
}

// One queue a lane: the dummy tail goes first, of the lowest level; the message that made it due
// has a buffer of its own and does not stand behind it. Else the highest level.
template <class Design>
QueueBits RouterCycle<Design>::could_cross(const Port& port) const {
  const QueueBits could = port.active & port.filled & ~port.blocked;
  if (d_.levels() == 1 || !d_.share_lanes(could)) return could;
  LaneBits decided = 0;
  QueueBits chosen = 0;
  const auto choose = [&](QueueBits queues, unsigned level) {
    const LaneBits lanes = d_.lanes_of_level(queues, level) & ~decided;
    decided |= lanes;
    chosen |= QueueBits{lanes} << World::queue_of(0, level);
  };
  if ((could & port.closing) != 0)
    for (unsigned level = 0; level < d_.levels(); ++level) choose(could & port.closing, level);
  for (unsigned level = d_.levels(); level-- > 0;) choose(could, level);
  return chosen;
}

// False: nothing. Written in place, for a struct that was put together of parts is slow to copy.
template <class Design>
bool RouterCycle<Design>::wish(unsigned p, Wish& wish) const {
  const Port& port = r_.ports[p];
  const QueueBits queues = could_cross(port);
  if (queues == 0) return false;
  Able lanes = d_.able_of(w_, queues);
  if (d_.preemptive() && w_.spec.accelerate) {
    // RN 3.2.2: the rest of a message that was interrupted, and of one that holds the output lane
    // that a higher level waits for.
    lanes.accelerated = d_.lanes_of(queues & (port.closing | port.outranked));
    lanes.yielding &= ~lanes.accelerated;
  }
  wish.queues = queues;
  wish.lanes.able = lanes.able;
  wish.lanes.first = lanes.first;
  wish.lanes.accelerated = lanes.accelerated;
  wish.lanes.yielding = lanes.yielding;
  wish.let_go = port.arbiter.let_go(lanes, now_);
  return wish.let_go != 0;
}

// All of best effort alike, after every other flit.
template <class Design>
Stamp RouterCycle<Design>::between_inputs(const Chosen& chosen, LaneBits yielding) const {
  if (!w_.spec.strict_classes) return chosen.urgency;
  if (((yielding >> chosen.lane) & 1U) != 0) return std::numeric_limits<Stamp>::max();
  // On the 16-bit counters of epochs the last value is theirs.
  constexpr Stamp kLastOfOthers = 65533;
  if (w_.rules.fair() || w_.rules.counters != CounterKind::epoch) return chosen.urgency;
  return std::min(chosen.urgency, oldest_stamp(now_) - 1 + kLastOfOthers);
}

// Of the lanes `open` of an input port the one that its scheduler chooses.
template <class Design>
Chosen RouterCycle<Design>::propose(Port& port, const Wish& wish, LaneBits open) {
  const auto stamp = [&](unsigned lane) {
    return port.clock.urgency(port.next.of(d_.queue_at(lane, wish.queues)), now_);
  };
  const auto least = [&](LaneBits lanes) -> Chosen {
    if (!d_.has_words(port.next)) return least_by_loop(lanes, stamp);
    const unsigned lane = d_.least(port.next, wish.queues & d_.queues_of(lanes));
    return {lane, port.next.of(d_.queue_at(lane, wish.queues))};
  };
  return port.arbiter.choose(wish.lanes.among(open), stamp, least);
}

// The separable allocator: in each round every input port without a grant proposes a lane whose
// output port has none; of the proposals for an output the most urgent wins, ties by rank.
template <class Design>
void RouterCycle<Design>::allocate() {
  const std::size_t ports = r_.ports.size();
  std::array<Wish, kPortsMax> wishes;         // [input port]
  std::array<Proposal, kPortsMax> best;       // [output port]
  std::array<std::uint8_t, kPortsMax> grant;  // [input port] queue
  PortBits open = 0;
  PortBits granted = 0;
  for (PortBits bits = r_.active; bits != 0; bits &= bits - 1) {
    const unsigned p = first_of(bits);
    if (wish(p, wishes[p])) open |= port_bit(p);
  }
  PortBits asked = 0;  // outputs of the last round: nobody asks for them any more
  for (int round = 0; round < w_.spec.alloc_iters && open != 0; ++round) {
    const PortBits taken = std::exchange(asked, 0);
    for (PortBits bits = open; bits != 0; bits &= bits - 1) {
      const unsigned p = first_of(bits);
      Wish& mine = wishes[p];
      for (PortBits outs = taken; outs != 0; outs &= outs - 1)
        mine.queues &= ~r_.leads_to(p, first_of(outs));
      const LaneBits lanes = d_.lanes_of(mine.queues) & mine.let_go;
      if (lanes == 0) {
        open &= ~port_bit(p);
        continue;
      }
      const Chosen chosen = propose(r_.ports[p], mine, lanes);
      const unsigned queue = d_.queue_at(chosen.lane, mine.queues);
      const Stamp urgency = between_inputs(chosen, mine.lanes.yielding);
      const unsigned out = r_.ports[p].in[queue].out_port;
      Proposal& other = best[out];
      const bool wins = (asked & port_bit(out)) == 0 || urgency < other.urgency ||
                        (urgency == other.urgency &&
                         rank_of(p, ports, now_) < rank_of(other.in_port, ports, now_));
      if (wins) {
        other.chosen.lane = chosen.lane;
        other.chosen.urgency = chosen.urgency;
        other.urgency = urgency;
        other.in_port = static_cast<std::uint8_t>(p);
        other.queue = static_cast<std::uint8_t>(queue);
      }
      asked |= port_bit(out);
    }
    for (PortBits bits = asked; bits != 0; bits &= bits - 1) {
      const Proposal& winner = best[first_of(bits)];
      Port& port = r_.ports[winner.in_port];
      port.arbiter.granted(winner.chosen, ends_block(port, winner.queue), now_);
      grant[winner.in_port] = winner.queue;
      granted |= port_bit(winner.in_port);
      open &= ~port_bit(winner.in_port);
    }
  }
  // Ports in order, so that of two tails the lower port's leaves first.
  for (; granted != 0; granted &= granted - 1) move(first_of(granted), grant[first_of(granted)]);
}

// A flit crosses; its place at the input is free for another.
template <class Design>
void RouterCycle<Design>::move(unsigned p, unsigned queue) {
  Port& port = r_.ports[p];
  InputQueue& q = port.in[queue];
  Port& out = r_.ports[q.out_port];
  OutputLane& target = out.out[q.out_lane];
  const unsigned lane = d_.lane_of(queue);
  const bool dummy = port.has_dummy(queue);
  if (w_.herd.on()) w_.herd.crossed(r_.id);
  Flit flit = dummy ? dummy_flit(port, queue) : q.flits.pop();
  if (!dummy) w_.links.credit(r_.id, p, queue);
  if (d_.full_crossbar()) {
    if (flit.is(Flit::head)) out.clock.head(q.out_lane, w_.messages[flit.message].vtick, now_);
    if (!w_.rules.head_of_line() || target.flits.empty())
      flit.stamp = out.clock.stamp(q.out_lane, now_, now_);
  } else {
    if (d_.traditional()) flit.stamp = static_cast<Stamp>(now_);
    if (!dummy && w_.rules.head_of_line() && !q.flits.empty())
      q.flits.front().stamp = port.clock.stamp(queue, now_, now_);
  }
  port.show_next(queue);
  if (target.flits.empty()) out.out_next |= queue_bit(World::queue_of(q.out_lane, flit.level));
  target.flits.push(flit);
  if (w_.is_full(target)) port.blocked |= queue_bit(queue);
  set_bit(out.out_filled, q.out_lane, r_.out_filled, q.out_port);
  ++r_.window.crossed;
  if (flit.is(Flit::last)) {
    count_message(p, q, lane, flit.message);
  } else if (d_.circuits() && flit.is(Flit::probe)) {
    ++port.received[lane].flits;
    ++out.sent[q.out_lane].flits;
  }
  if (dummy) return dummy_crossed(p, queue);
  if (flit.is(Flit::head)) q.worm_open = true;
  if (flit.is(Flit::tail)) worm_ended(p, queue);
}

template <class Design>
void RouterCycle<Design>::count_message(unsigned p, const InputQueue& q, unsigned lane,
                                        hca::MessageId id) {
  const std::uint16_t flits = w_.messages[id].flits;
  LaneCounters& in = r_.ports[p].received[lane];
  LaneCounters& out = r_.ports[q.out_port].sent[q.out_lane];
  in.flits += flits;
  ++in.packets;
  out.flits += flits;
  ++out.packets;
}

// The next message of the lane comes to the front.
template <class Design>
void RouterCycle<Design>::worm_ended(unsigned p, unsigned queue) {
  InputQueue& q = r_.ports[p].in[queue];
  release(p, queue);
  q.front = Front::idle;
  --q.messages;
  if (w_.watcher != nullptr)
    w_.watcher->left(r_.id, static_cast<emu::PortId>(p), static_cast<emu::Vl>(d_.lane_of(queue)),
                     q.out_port);
  wake(p, d_.lane_of(queue));
}

// The output lane of the queue is free.
template <class Design>
void RouterCycle<Design>::release(unsigned p, unsigned queue) {
  InputQueue& q = r_.ports[p].in[queue];
  disown(r_, {static_cast<std::uint8_t>(p), static_cast<std::uint8_t>(queue)});
  set_bit(r_.ports[q.out_port].to_grant, q.out_lane, r_.to_grant, q.out_port);
  q.worm_open = false;
}

// The message at the front of the lane, of its highest level: its head has to be routed, or, where
// it was interrupted, its output lane asked for.
template <class Design>
void RouterCycle<Design>::wake(unsigned p, unsigned lane) {
  Port& port = r_.ports[p];
  for (unsigned level = d_.levels(); level-- > 0;) {
    const unsigned queue = World::queue_of(lane, level);
    InputQueue& q = port.in[queue];
    if (q.messages == 0) continue;
    if (q.front == Front::idle) {
      q.front = Front::routing;
      set_bit(port.routing, queue, r_.routing, p);
    } else if (q.front == Front::suspended) {
      q.front = Front::arbitrating;
      set_bit(port.arbitrating, queue, r_.arbitrating, p);
    }
    return;
  }
}

}  // namespace fabric::general

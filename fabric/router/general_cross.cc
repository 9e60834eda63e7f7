// Stage 4: the crossbar, multiplexed or full.
#include "fabric/router/general_cycle.h"
#include "fabric/router/general_rank.h"

namespace fabric::general {

void RouterCycle::cross() {
  if (r_.active == 0) return;
  if (!w_.herd.may_cross(r_.id)) return;
  if (w_.full_crossbar()) {
    cross_all_lanes();
  } else {
    allocate();
  }
}

// Every input lane has its own way to its output lane.
void RouterCycle::cross_all_lanes() {
  for (PortBits bits = r_.active; bits != 0; bits &= bits - 1) {
    const unsigned p = first_of(bits);
    const Wish& wish = wishes_of(p);
    for (LaneBits lanes = wish.lanes.able; lanes != 0; lanes &= lanes - 1)
      move(p, wish.queue[first_of(lanes)]);
  }
}

// Of a lane the dummy tail goes first, of the lowest level; the message that made it due has a
// buffer of its own and does not stand behind it.
const Wish& RouterCycle::wishes_of(unsigned p) {
  Port& port = r_.ports[p];
  Wish& wish = port.wish;
  wish.lanes = {};
  LaneBits decided = 0;
  for (QueueBits bits = port.active; bits != 0; bits &= bits - 1) {
    const unsigned queue = first_of(bits);
    const InputQueue& q = port.in[queue];
    if (q.flits.empty() && !has_dummy(q)) continue;
    const OutputLane& target = r_.ports[q.out_port].out[q.out_lane];
    if (target.flits.size() == static_cast<std::uint32_t>(w_.spec.vc_buf_size)) continue;
    const unsigned lane = w_.lane_of(queue);
    if ((decided & lane_bit(lane)) != 0) continue;
    if (q.closing) decided |= lane_bit(lane);
    wish.queue[lane] = static_cast<std::uint8_t>(queue);
    const unsigned level = queue - lane * w_.levels;
    w_.add(wish.lanes, lane, level);
    if (!w_.preemptive() || !accelerated(p, queue)) continue;
    wish.lanes.accelerated |= lane_bit(lane);
    wish.lanes.yielding &= ~lane_bit(lane);
  }
  return wish;
}

Stamp RouterCycle::between_inputs(const Chosen& chosen, LaneBits yielding) const {
  if (!w_.spec.strict_classes) return chosen.urgency;
  if (((yielding >> chosen.lane) & 1U) != 0) return std::numeric_limits<Stamp>::max();
  // On the 16-bit counters of epochs the last value is theirs.
  constexpr Stamp kLastOfOthers = 65533;
  if (w_.rules.fair() || w_.rules.counters != CounterKind::epoch) return chosen.urgency;
  return std::min(chosen.urgency, oldest_stamp(now_) - 1 + kLastOfOthers);
}

LaneBits RouterCycle::open_lanes(const Port& port, PortBits taken) const {
  LaneBits open = port.wish.lanes.able;
  if (taken == 0) return open;
  for (LaneBits lanes = open; lanes != 0; lanes &= lanes - 1) {
    const InputQueue& q = port.in[port.wish.queue[first_of(lanes)]];
    if (((taken >> q.out_port) & 1U) != 0) open &= ~(lanes & -lanes);
  }
  return open;
}

// False: no lane of the port leads to an output without a grant.
bool RouterCycle::propose(unsigned p, PortBits taken, Proposal& mine) {
  Port& port = r_.ports[p];
  const Wish& wish = port.wish;
  const LaneBits open = open_lanes(port, taken) & port.arbiter.let_go(wish.lanes, now_);
  if (open == 0) return false;
  const auto stamp = [&](unsigned lane) {
    return port.clock.urgency(next_stamp(port.in[wish.queue[lane]]), now_);
  };
  mine.in_port = p;
  mine.chosen = port.arbiter.choose(wish.lanes.among(open), stamp);
  mine.urgency = between_inputs(mine.chosen, wish.lanes.yielding);
  mine.rank = rank_of(p, r_.ports.size(), now_);
  return true;
}

// The separable allocator: in each round every input port without a grant proposes a lane whose
// output port has none; of the proposals for an output the most urgent wins, ties by rank.
void RouterCycle::allocate() {
  std::array<unsigned, kPortsMax> grant;  // [input port] queue
  PortBits open = r_.active;
  PortBits granted = 0;
  PortBits taken = 0;
  for (PortBits bits = open; bits != 0; bits &= bits - 1) wishes_of(first_of(bits));
  for (int round = 0; round < w_.spec.alloc_iters && open != 0; ++round) {
    PortBits asked = 0;
    for (PortBits bits = open; bits != 0; bits &= bits - 1) {
      const unsigned p = first_of(bits);
      Proposal mine;
      if (!propose(p, taken, mine)) {
        open &= ~port_bit(p);
        continue;
      }
      const Port& port = r_.ports[p];
      const unsigned out = port.in[port.wish.queue[mine.chosen.lane]].out_port;
      Proposal& other = r_.ports[out].best;
      const bool first = (asked & port_bit(out)) == 0;
      if (first || mine.urgency < other.urgency ||
          (mine.urgency == other.urgency && mine.rank < other.rank))
        other = mine;
      asked |= port_bit(out);
    }
    for (PortBits bits = asked; bits != 0; bits &= bits - 1) {
      const Proposal& winner = r_.ports[first_of(bits)].best;
      Port& port = r_.ports[winner.in_port];
      const unsigned queue = port.wish.queue[winner.chosen.lane];
      port.arbiter.granted(winner.chosen, ends_worm(port.in[queue]), now_);
      grant[winner.in_port] = queue;
      granted |= port_bit(winner.in_port);
      open &= ~port_bit(winner.in_port);
    }
    taken |= asked;
  }
  // Ports in order, so that of two tails the lower port's leaves first.
  for (; granted != 0; granted &= granted - 1) move(first_of(granted), grant[first_of(granted)]);
}

// A flit crosses; its place at the input is free for another.
void RouterCycle::move(unsigned p, unsigned queue) {
  Port& port = r_.ports[p];
  InputQueue& q = port.in[queue];
  Port& out = r_.ports[q.out_port];
  OutputLane& target = out.out[q.out_lane];
  const unsigned lane = w_.lane_of(queue);
  const bool dummy = has_dummy(q);
  w_.herd.spend(r_.id, q.out_port);
  Flit flit = dummy ? dummy_flit(q, queue) : q.flits.pop();
  if (!dummy) w_.links.credit(r_.id, p, lane, flit.level, now_);
  if (w_.full_crossbar()) {
    if (flit.is(Flit::head)) out.clock.head(q.out_lane, w_.messages[flit.message].vtick, now_);
    if (!w_.rules.head_of_line() || target.flits.empty())
      flit.stamp = out.clock.stamp(q.out_lane, now_, now_);
  } else {
    if (w_.traditional()) flit.stamp = static_cast<Stamp>(now_);
    if (!dummy && w_.rules.head_of_line() && !q.flits.empty())
      q.flits.front().stamp = port.clock.stamp(queue, now_, now_);
  }
  target.flits.push(flit);
  set_bit(out.out_filled, q.out_lane, r_.out_filled, q.out_port);
  ++r_.window.crossed;
  if (flit.is(Flit::last)) count_message(p, q, lane, flit.message);
  if (dummy) return dummy_crossed(p, queue);
  if (flit.is(Flit::head)) q.worm_open = true;
  if (flit.is(Flit::tail)) worm_ended(p, queue);
}

void RouterCycle::count_message(unsigned p, const InputQueue& q, unsigned lane, hca::MessageId id) {
  const std::uint16_t flits = w_.messages[id].flits;
  LaneCounters& in = r_.ports[p].received[lane];
  LaneCounters& out = r_.ports[q.out_port].sent[q.out_lane];
  in.flits += flits;
  ++in.packets;
  out.flits += flits;
  ++out.packets;
}

// The next message of the lane comes to the front.
void RouterCycle::worm_ended(unsigned p, unsigned queue) {
  InputQueue& q = r_.ports[p].in[queue];
  release(p, queue);
  q.front = Front::idle;
  --q.messages;
  if (w_.watcher != nullptr)
    w_.watcher->left(r_.id, static_cast<emu::PortId>(p), static_cast<emu::Vl>(w_.lane_of(queue)),
                     q.out_port);
  wake(p, w_.lane_of(queue));
}

// The output lane of the queue is free.
void RouterCycle::release(unsigned p, unsigned queue) {
  Port& port = r_.ports[p];
  InputQueue& q = port.in[queue];
  Port& out = r_.ports[q.out_port];
  out.out[q.out_lane].owner = kNoQueue;
  out.owned &= ~lane_bit(q.out_lane);
  set_bit(out.to_grant, q.out_lane, r_.to_grant, q.out_port);
  clear_bit(port.active, queue, r_.active, p);
  q.worm_open = false;
}

// The message at the front of the lane, of its highest level: its head has to be routed, or, where
// it was interrupted, its output lane asked for.
void RouterCycle::wake(unsigned p, unsigned lane) {
  Port& port = r_.ports[p];
  for (unsigned level = w_.levels; level-- > 0;) {
    const unsigned queue = w_.queue_of(lane, level);
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

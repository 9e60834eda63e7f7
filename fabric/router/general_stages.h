// Stages 5, 3, 2 and 1 of a router, for every design whose worms go lane by lane.
#pragma once

#include <algorithm>
#include <utility>

#include "fabric/router/ask_admission.h"
#include "fabric/router/general_choose.h"
#include "fabric/router/general_cross.h"
#include "fabric/router/general_cycle.h"
#include "fabric/router/general_preempt.h"

namespace fabric::general {

// Stage 5: credits come home; of the lanes with a flit and a credit one puts it on the link.
template <class Design>
void RouterCycle<Design>::output() {
  for (PortBits bits = w_.links.ports_with(r_.id); bits != 0; bits &= bits - 1)
    take_credits(first_of(bits), w_.links.inbox(r_.id, first_of(bits)));
  const PortBits filled = r_.out_filled;
  if (!w_.herd.on()) return send_from(filled);
  // Where power is short the ports are first in turn.
  const PortBits last = port_bit(w_.herd.first_port(r_.id, now_)) - 1;
  send_from(filled & ~last);
  send_from(filled & last);
}

template <class Design>
void RouterCycle<Design>::send_from(PortBits ports) {
  for (PortBits bits = ports; bits != 0; bits &= bits - 1) {
    const unsigned p = first_of(bits);
    const Able able = sendable(r_.ports[p]);
    if (able.able == 0 || (w_.herd.on() && !w_.herd.may_send(r_.id, p, now_))) {
      ++r_.ports[p].wait_cycles;
    } else {
      send(p, next_to_send(p, able));
    }
  }
}

template <class Design>
void RouterCycle<Design>::take_credits(unsigned p, const Inbox& box) {
  Port& port = r_.ports[p];
  LaneBits lanes = 0;
  port.out_room |= box.credits;
  for (QueueBits bits = box.credits; bits != 0; bits &= bits - 1) {
    const unsigned lane = d_.lane_of(first_of(bits));
    ++port.out[lane].credits[d_.level_of(first_of(bits))];
    lanes |= lane_bit(lane);
  }
  if ((lanes & ~port.owned) != 0) r_.freed |= port_bit(p);
}

template <class Design>
Able RouterCycle<Design>::sendable(const Port& port) const {
  QueueBits could = port.out_next & port.out_room;
  if (d_.cut_through()) {
    for (QueueBits bits = could; bits != 0; bits &= bits - 1) {
      const OutputLane& lane = port.out[first_of(bits)];
      if (lane.credits[0] < d_.room_for(w_, lane.flits.front()))
        could &= ~queue_bit(first_of(bits));
    }
  }
  Able able = d_.able_of(w_, could);
  if (d_.full_crossbar()) able.able = port.arbiter.let_go(able, now_);
  return able;
}

// The VC multiplexer: the scheduler of a full crossbar sits here; behind a multiplexed one lanes
// take turns, for at most one flit a cycle comes; a traditional router goes by the order of coming.
template <class Design>
unsigned RouterCycle<Design>::next_to_send(unsigned p, const Able& able) {
  Port& port = r_.ports[p];
  const auto stamp = [&](unsigned lane) { return urgency(port, port.out[lane].flits.front()); };
  if (d_.full_crossbar()) {
    const auto least = [&](LaneBits lanes) { return least_by_loop(lanes, stamp); };
    const Chosen chosen = port.arbiter.choose(able.among(able.able), stamp, least);
    port.arbiter.granted(chosen, port.out[chosen.lane].flits.front().ends_block(), now_);
    return chosen.lane;
  }
  if (d_.traditional()) {
    // As at the inputs, those that have waited for longer than stamps can tell came together.
    const auto came = [&](unsigned lane) { return std::max(stamp(lane), oldest_stamp(now_)); };
    unsigned first = first_of(able.able);
    for (LaneBits bits = able.able & (able.able - 1); bits != 0; bits &= bits - 1)
      if (came(first_of(bits)) < came(first)) first = first_of(bits);
    return first;
  }
  if (able.first != 0) return first_of(able.first);
  const unsigned lane = next_lane(port.last_served, able.able);
  port.last_served = static_cast<int>(lane);
  return lane;
}

template <class Design>
void RouterCycle<Design>::send(unsigned p, unsigned l) {
  Port& port = r_.ports[p];
  OutputLane& lane = port.out[l];
  if (w_.is_full(lane) && lane.owner != kNoQueue)
    r_.ports[lane.owner.port].blocked &= ~queue_bit(lane.owner.queue);
  const Flit flit = lane.flits.pop();
  const QueueBits queue = queue_bit(World::queue_of(l, flit.level));
  if (--lane.credits[flit.level] == 0) port.out_room &= ~queue;
  port.out_next &= ~queue;
  if (!lane.flits.empty()) port.out_next |= queue_bit(World::queue_of(l, lane.flits.front().level));
  w_.links.send(r_.id, p, l, flit);
  --r_.held;
  if (w_.herd.on()) w_.herd.sent(r_.id, p, now_);
  ++r_.window.sent;
  ++port.link.out;
  ++(port.to_hca ? r_.window.hca_flits : r_.window.sent_to_routers);
  if (lane.flits.empty()) {
    clear_bit(port.out_filled, l, r_.out_filled, p);
  } else if (d_.full_crossbar() && w_.rules.head_of_line()) {
    lane.flits.front().stamp = port.clock.stamp(l, now_, now_);
  }
}

// Stage 3: routed heads join the line for their output lane; free lanes go to the first in line.
template <class Design>
void RouterCycle<Design>::arbitrate() {
  for (PortBits ports = r_.arbitrating; ports != 0; ports &= ports - 1) {
    Port& port = r_.ports[first_of(ports)];
    for (QueueBits bits = port.arbitrating; bits != 0; bits &= bits - 1) {
      if (d_.circuits()) {
        reserve(first_of(ports), first_of(bits));
      } else {
        join_line(first_of(ports), first_of(bits));
      }
    }
    port.arbitrating = 0;
  }
  r_.arbitrating = 0;
  for (PortBits ports = r_.to_grant; ports != 0; ports &= ports - 1) {
    Port& port = r_.ports[first_of(ports)];
    for (LaneBits bits = port.to_grant & ~port.owned; bits != 0; bits &= bits - 1)
      grant(first_of(ports), first_of(bits));
    port.to_grant = 0;
  }
  r_.to_grant = 0;
}

// A circuit takes a free lane, or is refused (general_circuit.cc).
template <class Design>
void RouterCycle<Design>::reserve(unsigned p, unsigned queue) {
  InputQueue& q = r_.ports[p].in[queue];
  hca::Message& message = w_.messages[q.message];
  const bool opens = message.stream != 0 && message.kind == emu::PacketKind::probe;
  const LaneBits lanes = w_.lanes == kLanesMax ? ~LaneBits{0} : lane_bit(w_.lanes) - 1;
  const LaneBits free = lanes & ~r_.ports[q.out_port].owned;
  const bool refused_here = opens && message.rejected_by == r_.id;  // by admission
  if (free != 0 && !refused_here) {
    q.out_lane = static_cast<std::uint8_t>(first_of(free));
    own({static_cast<std::uint8_t>(p), static_cast<std::uint8_t>(queue)}, q.out_port, q.out_lane);
    return;
  }
  if (opens) message.rejected_by = r_.id;
  ++r_.ports[p].received[d_.lane_of(queue)].flits;
  q.flits.pop();
  r_.ports[p].show_next(queue);
  --r_.held;
  w_.links.credit(r_.id, p, queue);
  w_.signal_back(r_.id, p, d_.lane_of(queue), false, now_);
  q.front = Front::idle;
  --q.messages;
}

// In order of coming; those of a higher level first.
template <class Design>
void RouterCycle<Design>::join_line(unsigned p, unsigned queue) {
  const QueueAt me = {static_cast<std::uint8_t>(p), static_cast<std::uint8_t>(queue)};
  InputQueue& q = at(me);
  Port& out = r_.ports[q.out_port];
  OutputLane& lane = out.out[q.out_lane];
  q.front = Front::waiting;
  QueueAt behind = lane.line_last;
  if (d_.preemptive() && behind != kNoQueue) {
    behind = kNoQueue;
    for (QueueAt i = lane.line_first;
         i != kNoQueue && World::level_of(i.queue) >= World::level_of(queue);
         i = at(i).next_in_line)
      behind = i;
  }
  QueueAt& link = behind == kNoQueue ? lane.line_first : at(behind).next_in_line;
  q.next_in_line = link;
  link = me;
  if (q.next_in_line == kNoQueue) lane.line_last = me;
  outrank(lane);
  set_bit(out.to_grant, q.out_lane, r_.to_grant, q.out_port);
}

template <class Design>
void RouterCycle<Design>::grant(unsigned p, unsigned l) {
  OutputLane& lane = r_.ports[p].out[l];
  const QueueAt first = lane.line_first;
  if (first == kNoQueue) return;
  lane.line_first = at(first).next_in_line;
  if (lane.line_first == kNoQueue) lane.line_last = kNoQueue;
  own(first, p, l);
  if ((r_.ports[first.port].needs_head & queue_bit(first.queue)) != 0)
    stamp_dummy(first.port, first.queue);
}

template <class Design>
void RouterCycle<Design>::own(QueueAt me, unsigned p, unsigned l) {
  OutputLane& lane = r_.ports[p].out[l];
  Port& port = r_.ports[me.port];
  lane.owner = me;
  r_.ports[p].owned |= lane_bit(l);
  port.in[me.queue].front = Front::active;
  set_bit(port.active, me.queue, r_.active, me.port);
  r_.leads_to(me.port, p) |= queue_bit(me.queue);
  port.blocked &= ~queue_bit(me.queue);
  if (w_.is_full(lane)) port.blocked |= queue_bit(me.queue);
  outrank(lane);
  ++r_.window.heads;
}

// Stage 2: a head at the front of its queue learns its output; probes and releases ask admission.
// With recovery some find no lane free and sleep: they look again when a lane may have become so.
template <class Design>
void RouterCycle<Design>::route() {
  const PortBits freed = std::exchange(r_.freed, 0);
  if (r_.routing == 0) return;
  std::array<LaneBits, kPortsMax> claimed{};
  if (w_.spec.routing == RoutingKind::recovery) {
    route_by_waiting(freed, claimed);
    return;
  }
  for (PortBits ports = r_.routing; ports != 0; ports &= ports - 1) {
    const unsigned p = first_of(ports);
    for (QueueBits bits = r_.ports[p].routing; bits != 0; bits &= bits - 1)
      find_output({static_cast<std::uint8_t>(p), static_cast<std::uint8_t>(first_of(bits))},
                  claimed);
  }
}

// Heads that may have found no lane before: who has waited longest asks first. By ports the HCA's
// would be first at all times, and what enters the network would have the room that what is in it
// waits for. Who asked in vain asks again only when a lane of its ways is free.
template <class Design>
void RouterCycle<Design>::route_by_waiting(PortBits freed,
                                           std::array<LaneBits, kPortsMax>& claimed) {
  std::array<QueueBits, kPortsMax> asking;  // [input port]
  PortBits with = 0;
  for (PortBits ports = r_.routing; ports != 0; ports &= ports - 1) {
    const unsigned p = first_of(ports);
    const QueueBits asleep = r_.ports[p].asleep;
    asking[p] = r_.ports[p].routing & ~asleep;
    if (asleep != 0)
      for (PortBits outs = freed; outs != 0; outs &= outs - 1)
        asking[p] |= asleep & r_.seeks_to(p, first_of(outs));
    if (asking[p] != 0) with |= port_bit(p);
  }
  while (with != 0) {
    const QueueAt first = waits_longest(with, asking);
    clear_bit(asking[first.port], first.queue, with, first.port);
    find_output(first, claimed);
  }
  if (r_.routing != 0 && w_.token.is_at(r_.id, now_)) recover(claimed);
}

// Of the queues of these ports; of equals the lowest port, then queue.
template <class Design>
QueueAt RouterCycle<Design>::waits_longest(PortBits ports,
                                           const std::array<QueueBits, kPortsMax>& queues) {
  QueueAt longest = kNoQueue;
  for (; ports != 0; ports &= ports - 1) {
    const unsigned p = first_of(ports);
    for (QueueBits bits = queues[p]; bits != 0; bits &= bits - 1) {
      const QueueAt me = {static_cast<std::uint8_t>(p), static_cast<std::uint8_t>(first_of(bits))};
      if (longest == kNoQueue || at(me).waits_since < at(longest).waits_since) longest = me;
    }
  }
  return longest;
}

// Of those that found no output the one that has waited longest may take the token.
template <class Design>
void RouterCycle<Design>::recover(std::array<LaneBits, kPortsMax>& claimed) {
  std::array<QueueBits, kPortsMax> waiting;  // [input port]
  for (PortBits ports = r_.routing; ports != 0; ports &= ports - 1)
    waiting[first_of(ports)] = r_.ports[first_of(ports)].routing;
  const QueueAt lost = waits_longest(r_.routing, waiting);
  if (now_ - at(lost).waits_since < timeout()) return;
  w_.token.capture(at(lost).flits.front().message);
  ++w_.design.recoveries;
  find_output(lost, claimed);
}

// A lane that a head found taken gets an owner or has one, and one without room gets credits: both
// show in Router::freed. Only an interrupted worm gives up a lane before it has it.
template <class Design>
void RouterCycle<Design>::fall_asleep(QueueAt me, const hca::Message& message) {
  InputQueue& q = at(me);
  q.waits_since = std::min(q.waits_since, now_);
  if (d_.preemptive() || d_.circuits()) return;
  Port& port = r_.ports[me.port];
  const QueueBits bit = queue_bit(me.queue);
  if ((port.asleep & bit) != 0) return;
  port.asleep |= bit;
  for (unsigned out = 0; out < r_.ports.size(); ++out) r_.seeks_to(me.port, out) &= ~bit;
  for (const Choice& choice : w_.routes.table.choices(r_.id, message.way).subspan(1))
    r_.seeks_to(me.port, choice.port) |= bit;
}

// False: no lane is free for it.
template <class Design>
bool RouterCycle<Design>::find_output(QueueAt me, std::array<LaneBits, kPortsMax>& claimed) {
  InputQueue& q = at(me);
  const hca::MessageId id = q.flits.front().message;
  hca::Message& message = w_.messages[id];
  LaneAt out{};
  if (may_wait_unrouted(r_, w_, message) && !w_.token.has(id)) {
    const std::optional<LaneAt> free = choose_free(r_, w_, message, claimed);
    if (!free) {
      fall_asleep(me, message);
      return false;
    }
    out = *free;
  } else {
    out = choose_output(r_, w_, message, claimed);
  }
  q.message = id;
  q.waits_since = emu::kNever;
  q.out_port = static_cast<std::uint8_t>(out.port);
  q.out_lane = static_cast<std::uint8_t>(out.lane);
  q.front = Front::arbitrating;
  Port& port = r_.ports[me.port];
  clear_bit(port.routing, me.queue, r_.routing, me.port);
  port.asleep &= ~queue_bit(me.queue);
  set_bit(port.arbitrating, me.queue, r_.arbitrating, me.port);
  // What was cut off a probe upstream and comes behind a dummy head has been asked about.
  if (asks_admission(w_.hook, message) && !q.flits.front().is(Flit::dummy))
    ask_admission(me.port, out.port, message);
  if (w_.watcher != nullptr)
    w_.watcher->routed(head_at(me.port, d_.lane_of(me.queue), id), q.out_port);
  return true;
}

template <class Design>
void RouterCycle<Design>::ask_admission(unsigned p, unsigned out_port, hca::Message& message) {
  const LaneSet set = w_.routes.table.choices(r_.id, message.way).front().set;
  fabric::ask_admission(
      *w_.hook, message,
      {r_.id, p, out_port, now_, &w_.routes.lanes.lane[static_cast<std::size_t>(set)]});
}

// Stage 1: flits come off the links into their queues and get their stamps.
template <class Design>
void RouterCycle<Design>::decode() {
  for (PortBits bits = w_.links.ports_with(r_.id); bits != 0; bits &= bits - 1) {
    const unsigned p = first_of(bits);
    Inbox& box = w_.links.inbox(r_.id, p);
    const bool has_flit = box.has_flit;
    Links::clear_box(box);
    if (!has_flit) continue;
    Port& port = r_.ports[p];
    const unsigned queue = World::queue_of(box.lane, box.flit.level);
    InputQueue& q = port.in[queue];
    Flit flit = box.flit;
    if (!d_.full_crossbar()) {
      if (flit.is(Flit::head)) port.clock.head(queue, w_.messages[flit.message].vtick, now_);
      if (!w_.rules.head_of_line() || q.flits.empty())
        flit.stamp = port.clock.stamp(queue, now_, now_);
    }
    q.flits.push(flit);
    if (q.flits.size() == 1) port.show_next(queue);
    ++r_.held;
    ++r_.window.arrived;
    ++port.link.in;
    if (port.to_hca) ++r_.window.hca_flits;
    if (port.to_hca && w_.herd.on()) w_.herd.came_from_hca(r_.id);
    if (!flit.is(Flit::head)) continue;
    ++q.messages;
    if (w_.watcher != nullptr) w_.watcher->came(head_at(p, box.lane, flit.message));
    if (d_.preemptive()) make_way(p, box.lane, flit.level);
    wake(p, box.lane);
  }
}

// One cycle of a router; nothing happens when it holds no flit and nothing comes.
template <class Design>
void step_router(Router& router, World& world, emu::Cycle now) {
  if ((router.held | router.dummies) == 0 && world.links.ports_with(router.id) == 0) return;
  RouterCycle<Design> cycle(router, world, now);
  cycle.output();
  cycle.cross();
  cycle.arbitrate();
  cycle.route();
  cycle.decode();
  world.links.clear_ports(router.id);
}

}  // namespace fabric::general

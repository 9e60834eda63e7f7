// Stages 5, 3, 2 and 1 of a router, for every design whose worms go lane by lane.
#include <algorithm>

#include "fabric/router/general_choose.h"
#include "fabric/router/general_cycle.h"

namespace fabric::general {

// Stage 5: credits come home; of the lanes with a flit and a credit one puts it on the link.
void RouterCycle::output() {
  for (PortBits bits = w_.links.ports_with(r_.id, now_); bits != 0; bits &= bits - 1)
    take_credits(first_of(bits), w_.links.inbox(r_.id, first_of(bits), now_));
  for (PortBits bits = r_.out_filled; bits != 0; bits &= bits - 1) {
    const unsigned p = first_of(bits);
    const Able able = sendable(r_.ports[p]);
    if (able.able == 0) {
      ++r_.ports[p].wait_cycles;
    } else {
      send(p, next_to_send(p, able));
    }
  }
}

void RouterCycle::take_credits(unsigned p, const Inbox& box) {
  for (unsigned level = 0; level < w_.levels; ++level)
    for (LaneBits bits = box.credits[level]; bits != 0; bits &= bits - 1)
      ++r_.ports[p].out[first_of(bits)].credits[level];
}

Able RouterCycle::sendable(const Port& port) const {
  QueueBits could = 0;
  for (LaneBits bits = port.out_filled; bits != 0; bits &= bits - 1) {
    const unsigned l = first_of(bits);
    const OutputLane& lane = port.out[l];
    const unsigned level = lane.flits.front().level;
    if (lane.credits[level] >= w_.room_for(lane.flits.front()))
      could |= queue_bit(World::queue_of(l, level));
  }
  Able able = w_.able_of(could);
  if (w_.full_crossbar()) able.able = port.arbiter.let_go(able, now_);
  return able;
}

// The VC multiplexer: the scheduler of a full crossbar sits here; behind a multiplexed one lanes
// take turns, for at most one flit a cycle comes; a traditional router goes by the order of coming.
unsigned RouterCycle::next_to_send(unsigned p, const Able& able) {
  Port& port = r_.ports[p];
  const auto stamp = [&](unsigned lane) { return urgency(port, port.out[lane].flits.front()); };
  if (w_.full_crossbar()) {
    const Chosen chosen = port.arbiter.choose(able.among(able.able), stamp);
    port.arbiter.granted(chosen, port.out[chosen.lane].flits.front().is(Flit::tail), now_);
    return chosen.lane;
  }
  if (w_.traditional()) {
    unsigned first = first_of(able.able);
    for (LaneBits bits = able.able & (able.able - 1); bits != 0; bits &= bits - 1)
      if (stamp(first_of(bits)) < stamp(first)) first = first_of(bits);
    return first;
  }
  if (able.first != 0) return first_of(able.first);
  const unsigned lane = next_lane(port.last_served, able.able);
  port.last_served = static_cast<int>(lane);
  return lane;
}

void RouterCycle::send(unsigned p, unsigned l) {
  Port& port = r_.ports[p];
  OutputLane& lane = port.out[l];
  if (w_.is_full(lane) && lane.owner != kNoQueue)
    r_.ports[lane.owner.port].blocked &= ~queue_bit(lane.owner.queue);
  const Flit flit = lane.flits.pop();
  --lane.credits[flit.level];
  w_.links.send(r_.id, p, l, flit, now_);
  --r_.held;
  ++r_.window.sent;
  if (lane.flits.empty()) {
    clear_bit(port.out_filled, l, r_.out_filled, p);
  } else if (w_.full_crossbar() && w_.rules.head_of_line()) {
    lane.flits.front().stamp = port.clock.stamp(l, now_, now_);
  }
}

// Stage 3: routed heads join the line for their output lane; free lanes go to the first in line.
void RouterCycle::arbitrate() {
  for (PortBits ports = r_.arbitrating; ports != 0; ports &= ports - 1) {
    Port& port = r_.ports[first_of(ports)];
    for (QueueBits bits = port.arbitrating; bits != 0; bits &= bits - 1) {
      if (w_.circuits()) {
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

// In order of coming; those of a higher level first.
void RouterCycle::join_line(unsigned p, unsigned queue) {
  const QueueAt me = {static_cast<std::uint8_t>(p), static_cast<std::uint8_t>(queue)};
  InputQueue& q = at(me);
  Port& out = r_.ports[q.out_port];
  OutputLane& lane = out.out[q.out_lane];
  q.front = Front::waiting;
  QueueAt behind = lane.line_last;
  if (w_.preemptive() && behind != kNoQueue) {
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

void RouterCycle::grant(unsigned p, unsigned l) {
  OutputLane& lane = r_.ports[p].out[l];
  const QueueAt first = lane.line_first;
  if (first == kNoQueue) return;
  lane.line_first = at(first).next_in_line;
  if (lane.line_first == kNoQueue) lane.line_last = kNoQueue;
  own(first, p, l);
  if ((r_.ports[first.port].needs_head & queue_bit(first.queue)) != 0)
    stamp_dummy(first.port, first.queue);
}

void RouterCycle::own(QueueAt me, unsigned p, unsigned l) {
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
// With recovery some wait here, and of those the one that has waited longest may take the token.
void RouterCycle::route() {
  if (r_.routing == 0) return;
  std::array<LaneBits, kPortsMax> claimed{};
  QueueAt lost = kNoQueue;
  for (PortBits ports = r_.routing; ports != 0; ports &= ports - 1) {
    const unsigned p = first_of(ports);
    for (QueueBits bits = r_.ports[p].routing; bits != 0; bits &= bits - 1) {
      const QueueAt me = {static_cast<std::uint8_t>(p), static_cast<std::uint8_t>(first_of(bits))};
      if (find_output(me, claimed)) continue;
      if (lost == kNoQueue || at(me).waits_since < at(lost).waits_since) lost = me;
    }
  }
  if (lost == kNoQueue || now_ - at(lost).waits_since < timeout() || !w_.token.is_at(r_.id, now_))
    return;
  w_.token.capture(at(lost).flits.front().message);
  ++w_.design.recoveries;
  find_output(lost, claimed);
}

// False: no lane is free for it.
bool RouterCycle::find_output(QueueAt me, std::array<LaneBits, kPortsMax>& claimed) {
  InputQueue& q = at(me);
  const hca::MessageId id = q.flits.front().message;
  hca::Message& message = w_.messages[id];
  LaneAt out{};
  if (may_wait_unrouted(r_, w_, message) && !w_.token.has(id)) {
    const std::optional<LaneAt> free = choose_free(r_, w_, message, claimed);
    if (!free) {
      q.waits_since = std::min(q.waits_since, now_);
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
  set_bit(port.arbitrating, me.queue, r_.arbitrating, me.port);
  // What was cut off a probe upstream and comes behind a dummy head has been asked about.
  const bool asks = message.kind != emu::PacketKind::data && !message.is_answer &&
                    !q.flits.front().is(Flit::dummy);
  if (asks && w_.hook != nullptr) ask_admission(me.port, out.port, message);
  if (w_.watcher != nullptr)
    w_.watcher->routed(head_at(me.port, w_.lane_of(me.queue), id), q.out_port);
  return true;
}

void RouterCycle::ask_admission(unsigned p, unsigned out_port, hca::Message& message) {
  if (message.rejected_by != emu::kNoRouter) return;  // a refused probe asks nobody any more
  const LaneSet set = w_.routes.table.choices(r_.id, message.way).front().set;
  const ControlHead head = {.router = r_.id,
                            .in_port = static_cast<emu::PortId>(p),
                            .out_port = static_cast<emu::PortId>(out_port),
                            .kind = message.kind,
                            .src = message.src,
                            .dest = message.dest,
                            .cookie = message.cookie,
                            .handle = message.handle,
                            .cycle = now_,
                            .lanes_out = &w_.routes.lanes.lane[static_cast<std::size_t>(set)]};
  const bool accepted = w_.hook->at_route(head);
  if (!accepted && message.kind == emu::PacketKind::probe) message.rejected_by = r_.id;
}

// Stage 1: flits come off the links into their queues and get their stamps.
void RouterCycle::decode() {
  for (PortBits bits = w_.links.ports_with(r_.id, now_); bits != 0; bits &= bits - 1) {
    const unsigned p = first_of(bits);
    const Inbox& box = w_.links.inbox(r_.id, p, now_);
    if (!box.has_flit) continue;
    Port& port = r_.ports[p];
    const unsigned queue = World::queue_of(box.lane, box.flit.level);
    InputQueue& q = port.in[queue];
    Flit flit = box.flit;
    if (!w_.full_crossbar()) {
      if (flit.is(Flit::head)) port.clock.head(queue, w_.messages[flit.message].vtick, now_);
      if (!w_.rules.head_of_line() || q.flits.empty())
        flit.stamp = port.clock.stamp(queue, now_, now_);
    }
    q.flits.push(flit);
    if (q.flits.size() == 1) port.show_next(queue);
    ++r_.held;
    ++r_.window.arrived;
    if (!flit.is(Flit::head)) continue;
    ++q.messages;
    if (w_.watcher != nullptr) w_.watcher->came(head_at(p, box.lane, flit.message));
    if (w_.preemptive()) make_way(p, box.lane, flit.level);
    wake(p, box.lane);
  }
}

void step_router(Router& router, World& world, emu::Cycle now) {
  if ((router.held | router.dummies) == 0 && world.links.ports_with(router.id, now) == 0) return;
  RouterCycle cycle(router, world, now);
  cycle.output();
  cycle.cross();
  cycle.arbitrate();
  cycle.route();
  cycle.decode();
  world.links.clear(router.id, now);
}

void configure_schedulers(PortClock& clock, Arbiter& arbiter, const World& world,
                          const ClockRules& rules, unsigned levels) {
  clock.configure(rules, world.spec.start);
  arbiter.configure(rules.kind, world.spec.block_flits, world.spec.block_waits);
  arbiter.set_weights(world.spec.weights);
  if (!emu::has_lane_vticks(rules.kind)) return;
  for (unsigned i = 0; i < emu::kVlCount * levels; ++i)
    clock.set_vtick(i, world.spec.lane_vtick[i % emu::kVlCount], world.spec.start);
}

}  // namespace fabric::general

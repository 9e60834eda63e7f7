// The five stages of a router, from back to front, for every design whose worms go lane by lane.
#include <bit>

#include "fabric/router/general_choose.h"
#include "fabric/router/general_rank.h"
#include "fabric/router/general_state.h"

namespace fabric::general {

namespace {

template <class Bits>
unsigned first_of(Bits bits) {
  return static_cast<unsigned>(std::countr_zero(bits));
}
constexpr LaneBits lane_bit(unsigned lane) { return LaneBits{1} << lane; }
constexpr QueueBits queue_bit(unsigned queue) { return QueueBits{1} << queue; }
constexpr PortBits port_bit(unsigned port) { return PortBits{1} << port; }

// Sets or clears a bit of a port's mask, and the port's bit in the router's.
template <class Bits>
void set_bit(Bits& bits, unsigned i, PortBits& ports, unsigned port) {
  bits |= Bits{1} << i;
  ports |= port_bit(port);
}
template <class Bits>
void clear_bit(Bits& bits, unsigned i, PortBits& ports, unsigned port) {
  bits &= ~(Bits{1} << i);
  if (bits == 0) ports &= ~port_bit(port);
}

class RouterCycle {
 public:
  RouterCycle(Router& router, World& world, emu::Cycle now) : r_(router), w_(world), now_(now) {}

  void output();
  void cross();
  void arbitrate();
  void route();
  void decode();

 private:
  // What each input port could send across, and the queue of each such lane.
  struct Wish {
    Able able;
    std::array<std::uint8_t, kLanesMax> queue;
  };
  struct Proposal {
    unsigned in_port;
    Chosen chosen;
    unsigned rank;
  };
  void take_credits(unsigned p, const Inbox& box);
  void send(unsigned p, unsigned lane);
  unsigned next_to_send(unsigned p, LaneBits able);
  LaneBits sendable(const Port& port) const;
  void wishes_of(unsigned p, Wish& wish) const;
  void allocate();
  void cross_all_lanes();
  void move(unsigned p, unsigned queue);
  void worm_ended(unsigned p, unsigned queue);
  void count_message(unsigned p, const InputQueue& q, unsigned lane, hca::MessageId id);
  void join_line(unsigned p, unsigned queue);
  void grant(unsigned p, unsigned lane);
  void ask_admission(unsigned p, unsigned out_port, hca::Message& message);
  void wake(unsigned p, unsigned queue);

  InputQueue& at(QueueAt q) { return r_.ports[q.port].in[q.queue]; }
  Stamp urgency(Port& port, const Flit& flit) { return port.clock.urgency(flit.stamp, now_); }
  Able first_class(LaneBits able) const {
    const LaneBits others = able & ~w_.yielding_lanes();
    if (others != 0) able = others;
    return {able, able & w_.control_lanes(), 0};
  }
  // Against other inputs: all of best effort alike, after every other flit.
  Stamp between_inputs(const Chosen& chosen) const;

  Router& r_;
  World& w_;
  emu::Cycle now_;
};

// Stage 5: credits come home; of the lanes with a flit and a credit one puts it on the link.
void RouterCycle::output() {
  for (PortBits bits = w_.links.ports_with(r_.id, now_); bits != 0; bits &= bits - 1)
    take_credits(first_of(bits), w_.links.inbox(r_.id, first_of(bits), now_));
  for (PortBits bits = r_.out_filled; bits != 0; bits &= bits - 1) {
    const unsigned p = first_of(bits);
    const LaneBits able = sendable(r_.ports[p]);
    if (able == 0) {
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

LaneBits RouterCycle::sendable(const Port& port) const {
  LaneBits able = 0;
  for (LaneBits bits = port.out_filled; bits != 0; bits &= bits - 1) {
    const OutputLane& lane = port.out[first_of(bits)];
    if (lane.credits[lane.flits.front().level] > 0) able |= bits & -bits;
  }
  return able;
}

// The VC multiplexer: the scheduler of a full crossbar sits here; behind a multiplexed one lanes
// take turns, for at most one flit a cycle comes; a traditional router goes by the order of coming.
unsigned RouterCycle::next_to_send(unsigned p, LaneBits able) {
  Port& port = r_.ports[p];
  const auto stamp = [&](unsigned lane) { return urgency(port, port.out[lane].flits.front()); };
  if (w_.full_crossbar()) {
    const Chosen chosen = port.arbiter.choose(first_class(able), stamp);
    port.arbiter.granted(chosen, port.out[chosen.lane].flits.front().is(Flit::tail));
    return chosen.lane;
  }
  if (w_.traditional()) {
    unsigned first = first_of(able);
    for (LaneBits bits = able & (able - 1); bits != 0; bits &= bits - 1)
      if (stamp(first_of(bits)) < stamp(first)) first = first_of(bits);
    return first;
  }
  const LaneBits control = able & w_.control_lanes();
  if (control != 0) return first_of(control);
  const unsigned lane = next_lane(port.last_served, able);
  port.last_served = static_cast<int>(lane);
  return lane;
}

void RouterCycle::send(unsigned p, unsigned l) {
  Port& port = r_.ports[p];
  OutputLane& lane = port.out[l];
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

// Stage 4.
void RouterCycle::cross() {
  if (r_.active == 0) return;
  if (w_.full_crossbar()) {
    cross_all_lanes();
  } else {
    allocate();
  }
}

// Every input lane has its own way to its output lane.
void RouterCycle::cross_all_lanes() {
  for (PortBits bits = r_.active; bits != 0; bits &= bits - 1) {
    Wish wish;
    const unsigned p = first_of(bits);
    wishes_of(p, wish);
    for (LaneBits lanes = wish.able.able; lanes != 0; lanes &= lanes - 1)
      move(p, wish.queue[first_of(lanes)]);
  }
}

void RouterCycle::wishes_of(unsigned p, Wish& wish) const {
  const Port& port = r_.ports[p];
  LaneBits able = 0;
  for (QueueBits bits = port.active; bits != 0; bits &= bits - 1) {
    const unsigned queue = first_of(bits);
    const InputQueue& q = port.in[queue];
    if (q.flits.empty()) continue;
    const OutputLane& target = r_.ports[q.out_port].out[q.out_lane];
    if (target.flits.size() == static_cast<std::uint32_t>(w_.spec.vc_buf_size)) continue;
    const unsigned lane = w_.lane_of(queue);
    able |= lane_bit(lane);
    wish.queue[lane] = static_cast<std::uint8_t>(queue);
  }
  wish.able = {able, 0, 0};
}

Stamp RouterCycle::between_inputs(const Chosen& chosen) const {
  if (!w_.spec.strict_classes) return chosen.urgency;
  if (((w_.yielding_lanes() >> chosen.lane) & 1U) != 0) return std::numeric_limits<Stamp>::max();
  // On the 16-bit counters of epochs the last value is theirs.
  constexpr Stamp kLastOfOthers = 65533;
  if (w_.rules.fair() || w_.rules.counters != CounterKind::epoch) return chosen.urgency;
  return std::min(chosen.urgency, oldest_stamp(now_) - 1 + kLastOfOthers);
}

// The separable allocator: in each round every input port without a grant proposes a lane whose
// output port has none; of the proposals for an output the most urgent wins, ties by rank.
void RouterCycle::allocate() {
  std::array<Wish, kPortsMax> wish;
  std::array<Proposal, kPortsMax> best;
  std::array<unsigned, kPortsMax> grant;  // [input port] lane
  PortBits open = r_.active;
  PortBits granted = 0;
  PortBits taken = 0;
  for (PortBits bits = open; bits != 0; bits &= bits - 1)
    wishes_of(first_of(bits), wish[first_of(bits)]);
  for (int round = 0; round < w_.spec.alloc_iters && open != 0; ++round) {
    PortBits asked = 0;
    for (PortBits bits = open; bits != 0; bits &= bits - 1) {
      const unsigned p = first_of(bits);
      Port& port = r_.ports[p];
      LaneBits able = wish[p].able.able;
      for (LaneBits lanes = able; lanes != 0; lanes &= lanes - 1) {
        const InputQueue& q = port.in[wish[p].queue[first_of(lanes)]];
        if (((taken >> q.out_port) & 1U) != 0) able &= ~(lanes & -lanes);
      }
      wish[p].able.able = able;
      if (able == 0) {
        open &= ~port_bit(p);
        continue;
      }
      const auto stamp = [&](unsigned lane) {
        return urgency(port, port.in[wish[p].queue[lane]].flits.front());
      };
      Chosen chosen = port.arbiter.choose(first_class(able), stamp);
      const unsigned out = port.in[wish[p].queue[chosen.lane]].out_port;
      const Proposal mine = {p, chosen, rank_of(p, r_.ports.size(), now_)};
      const Stamp my_urgency = between_inputs(chosen);
      const bool first = (asked & port_bit(out)) == 0;
      const Stamp other = first ? 0 : between_inputs(best[out].chosen);
      if (first || my_urgency < other || (my_urgency == other && mine.rank < best[out].rank))
        best[out] = mine;
      asked |= port_bit(out);
    }
    for (PortBits bits = asked; bits != 0; bits &= bits - 1) {
      const Proposal& winner = best[first_of(bits)];
      Port& port = r_.ports[winner.in_port];
      grant[winner.in_port] = wish[winner.in_port].queue[winner.chosen.lane];
      port.arbiter.granted(winner.chosen,
                           port.in[grant[winner.in_port]].flits.front().is(Flit::tail));
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
  Flit flit = q.flits.pop();
  const unsigned lane = w_.lane_of(queue);
  w_.links.credit(r_.id, p, lane, flit.level, now_);
  if (w_.full_crossbar()) {
    if (flit.is(Flit::head)) out.clock.head(q.out_lane, w_.messages[flit.message].vtick, now_);
    if (!w_.rules.head_of_line() || target.flits.empty())
      flit.stamp = out.clock.stamp(q.out_lane, now_, now_);
  } else {
    if (w_.traditional()) flit.stamp = static_cast<Stamp>(now_);
    if (w_.rules.head_of_line() && !q.flits.empty())
      q.flits.front().stamp = port.clock.stamp(queue, now_, now_);
  }
  target.flits.push(flit);
  set_bit(out.out_filled, q.out_lane, r_.out_filled, q.out_port);
  ++r_.window.crossed;
  if (flit.is(Flit::last)) count_message(p, q, lane, flit.message);
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

// The output lane is free; the next message of the queue comes to the front.
void RouterCycle::worm_ended(unsigned p, unsigned queue) {
  Port& port = r_.ports[p];
  InputQueue& q = port.in[queue];
  Port& out = r_.ports[q.out_port];
  out.out[q.out_lane].owner = kNoQueue;
  out.owned &= ~lane_bit(q.out_lane);
  set_bit(out.to_grant, q.out_lane, r_.to_grant, q.out_port);
  clear_bit(port.active, queue, r_.active, p);
  q.front = Front::idle;
  --q.messages;
  wake(p, queue);
}

// The message at the front of the queue, if there is one, has to be routed.
void RouterCycle::wake(unsigned p, unsigned queue) {
  Port& port = r_.ports[p];
  InputQueue& q = port.in[queue];
  if (q.messages == 0 || q.front != Front::idle) return;
  q.front = Front::routing;
  set_bit(port.routing, queue, r_.routing, p);
}

// Stage 3: routed heads join the line for their output lane; free lanes go to the first in line.
void RouterCycle::arbitrate() {
  for (PortBits ports = r_.arbitrating; ports != 0; ports &= ports - 1) {
    Port& port = r_.ports[first_of(ports)];
    for (QueueBits bits = port.arbitrating; bits != 0; bits &= bits - 1)
      join_line(first_of(ports), first_of(bits));
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

void RouterCycle::join_line(unsigned p, unsigned queue) {
  const QueueAt me = {static_cast<std::uint8_t>(p), static_cast<std::uint8_t>(queue)};
  InputQueue& q = at(me);
  Port& out = r_.ports[q.out_port];
  OutputLane& lane = out.out[q.out_lane];
  q.front = Front::waiting;
  q.next_in_line = kNoQueue;
  if (lane.line_first == kNoQueue) {
    lane.line_first = me;
  } else {
    at(lane.line_last).next_in_line = me;
  }
  lane.line_last = me;
  set_bit(out.to_grant, q.out_lane, r_.to_grant, q.out_port);
}

void RouterCycle::grant(unsigned p, unsigned l) {
  OutputLane& lane = r_.ports[p].out[l];
  const QueueAt first = lane.line_first;
  if (first == kNoQueue) return;
  InputQueue& q = at(first);
  lane.line_first = q.next_in_line;
  lane.owner = first;
  r_.ports[p].owned |= lane_bit(l);
  q.front = Front::active;
  set_bit(r_.ports[first.port].active, first.queue, r_.active, first.port);
  ++r_.window.heads;
}

// Stage 2: a head at the front of its queue learns its output; probes and releases ask admission.
void RouterCycle::route() {
  if (r_.routing == 0) return;
  std::array<LaneBits, kPortsMax> claimed{};
  for (PortBits ports = r_.routing; ports != 0; ports &= ports - 1) {
    const unsigned p = first_of(ports);
    Port& port = r_.ports[p];
    for (QueueBits bits = port.routing; bits != 0; bits &= bits - 1) {
      InputQueue& q = port.in[first_of(bits)];
      hca::Message& message = w_.messages[q.flits.front().message];
      const LaneAt out = choose_output(r_, w_, message, claimed);
      q.out_port = static_cast<std::uint8_t>(out.port);
      q.out_lane = static_cast<std::uint8_t>(out.lane);
      q.front = Front::arbitrating;
      set_bit(port.arbitrating, first_of(bits), r_.arbitrating, p);
      if (message.kind != emu::PacketKind::data && !message.is_answer && w_.hook != nullptr)
        ask_admission(p, out.port, message);
    }
    port.routing = 0;
  }
  r_.routing = 0;
}

void RouterCycle::ask_admission(unsigned p, unsigned out_port, hca::Message& message) {
  if (message.rejected_by != emu::kNoRouter) return;  // a refused probe asks nobody any more
  const LaneSet set = w_.routes.table.choices(r_.id, message.dest).front().set;
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
    const unsigned queue = w_.queue_of(box.lane, box.flit.level);
    InputQueue& q = port.in[queue];
    Flit flit = box.flit;
    if (!w_.full_crossbar()) {
      if (flit.is(Flit::head)) port.clock.head(queue, w_.messages[flit.message].vtick, now_);
      if (!w_.rules.head_of_line() || q.flits.empty())
        flit.stamp = port.clock.stamp(queue, now_, now_);
    }
    q.flits.push(flit);
    ++r_.held;
    ++r_.window.arrived;
    if (!flit.is(Flit::head)) continue;
    ++q.messages;
    wake(p, queue);
  }
}

}  // namespace

void step_router(Router& router, World& world, emu::Cycle now) {
  if (router.held == 0 && world.links.ports_with(router.id, now) == 0) return;
  RouterCycle cycle(router, world, now);
  cycle.output();
  cycle.cross();
  cycle.arbitrate();
  cycle.route();
  cycle.decode();
  world.links.clear(router.id, now);
}

void configure_port_schedulers(PortClock& clock, Arbiter& arbiter, const World& world) {
  clock.configure(world.rules, world.spec.start);
  arbiter.configure(world.rules.kind, world.spec.block_flits);
  arbiter.set_weights(world.spec.weights);
  if (!emu::has_lane_vticks(world.rules.kind)) return;
  for (unsigned lane = 0; lane < emu::kVlCount; ++lane)
    for (unsigned level = 0; level < world.levels; ++level)
      clock.set_vtick(world.queue_of(lane, level), world.spec.lane_vtick[lane], world.spec.start);
}

}  // namespace fabric::general

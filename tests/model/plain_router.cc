// The five stages of a router, one function each, evaluated from back to front.
#include <algorithm>
#include <functional>
#include <map>

#include "emu/base/check.h"
#include "tests/model/plain_network.h"

namespace model {

namespace {

// Product in the field of 2^bits elements with the given modulus.
unsigned times(unsigned a, unsigned b, int bits, unsigned modulus) {
  unsigned product = 0;
  for (int i = bits - 1; i >= 0; --i) {
    product <<= 1;
    if (product >> bits != 0) product ^= modulus;
    if ((b >> i) & 1U) product ^= a;
  }
  return product;
}

// Rank of an input port in this cycle, for ties: x -> factor * x + offset in a field as large as
// the radix asks for. Of any two ports each goes first as often as the other.
unsigned rank_of(std::size_t port, std::size_t ports, emu::Cycle now) {
  const auto x = static_cast<unsigned>(port);
  if (ports <= 8) {
    const auto turn = static_cast<unsigned>(now % 64);
    const unsigned factor = turn < 56 ? 1 + turn % 7 : 1;
    const unsigned offset = turn < 56 ? turn / 7 : turn - 56;
    return times(factor, x, 3, 0b1011) ^ offset;
  }
  const auto turn = static_cast<unsigned>(now % (63 * 64));
  unsigned factor = 1;
  for (unsigned i = 0; i < turn % 63; ++i) factor = times(factor, 2, 6, 0b1000011);
  return times(factor, x, 6, 0b1000011) ^ (turn / 63);
}

LaneAt lane_at(std::size_t port, emu::Vl lane) { return {static_cast<int>(port), lane}; }

}  // namespace

Waiting PlainNetwork::waiting(emu::Vl lane, const Flit& flit, Stamp stamp) const {
  Waiting w = {lane, stamp};
  if (circuits()) return w;  // their lanes have no class
  const auto of_class = [&](std::size_t which) {
    return preemptive() ? static_cast<std::size_t>(flit.message->packet.traffic_class) == which
                        : ((spec_.lanes_of_class[which] >> lane) & 1) != 0;
  };
  w.first = !traditional() && (spec_.control_first || preemptive()) && of_class(0);
  w.yields = spec_.strict_classes && of_class(2);
  return w;
}

std::vector<Waiting> PlainNetwork::first_class(std::vector<Waiting> waiting) const {
  const auto yields = [](const Waiting& w) { return w.yields; };
  if (!std::all_of(waiting.begin(), waiting.end(), yields)) std::erase_if(waiting, yields);
  return waiting;
}

Stamp PlainNetwork::urgency_of(const Choice& choice, bool yields) const {
  if (!spec_.strict_classes) return choice.urgency;
  if (yields) return INT64_MAX;
  const bool rounds = scheduler_kind() == emu::SchedulerKind::fair_queueing ||
                      scheduler_kind() == emu::SchedulerKind::fgfq;
  const bool epoch = traditional() || spec_.counters == fabric::CounterKind::epoch;
  if (rounds || !epoch) return choice.urgency;
  // On the 16-bit counter the last value is theirs.
  constexpr Stamp kLastOfOthers = 65533;
  return std::min(choice.urgency, oldest_stamp(now_) - 1 + kLastOfOthers);
}

void PlainNetwork::step_router(PlainRouter& router) {
  stage5(router);
  stage4(router);
  stage3(router);
  stage2(router);
  stage1(router);
}

// Output: credits come home; one lane with a flit and a credit puts it on the link.
void PlainNetwork::stage5(PlainRouter& router) {
  for (PlainPort& port : router.ports) {
    if (port.from_me == nullptr) continue;
    std::deque<LinkCredit>& credits = port.from_me->credits;
    for (; !credits.empty() && credits.front().arrives <= now_; credits.pop_front())
      ++port.out[credits.front().lane].credits[credits.front().level];
    std::vector<Waiting> able;
    for (emu::Vl v = 0; v < lanes_; ++v) {
      const OutputLane& lane = port.out[v];
      if (lane.buffer.empty()) continue;
      const Flit& flit = lane.buffer.front();
      if (lane.credits[level_of(*flit.message)] < room_for(flit)) continue;
      able.push_back(waiting(v, flit, port.clock->urgency(flit.stamp)));
    }
    if (full_crossbar()) able = port.scheduler->let_go(std::move(able), now_);
    if (able.empty()) continue;
    const emu::Vl chosen = next_to_send(port, able);
    OutputLane& lane = port.out[chosen];
    port.from_me->flits.push_back({arrival(), chosen, lane.buffer.front()});
    const auto p = static_cast<std::size_t>(&port - router.ports.data());
    log.left(router.id, p, leads_to_hca(router, p), now_);
    --lane.credits[level_of(*lane.buffer.front().message)];
    lane.buffer.pop_front();
    if (full_crossbar() && stamps_at_head() && !lane.buffer.empty())
      lane.buffer.front().stamp = stamp(port, chosen, now_);
  }
}

// The VC multiplexer: the scheduler of a full crossbar; otherwise lanes of control, then the others
// in turn, or in the order in which the flits came, in a traditional router.
emu::Vl PlainNetwork::next_to_send(PlainPort& port, const std::vector<Waiting>& able) {
  if (full_crossbar()) {
    const Choice choice = port.scheduler->choose(first_class(able));
    port.scheduler->granted(choice.lane, port.out[choice.lane].buffer.front().ends_block(), now_);
    return choice.lane;
  }
  if (traditional()) {
    // As at the inputs, those that have waited for longer than stamps can tell came together.
    const auto earlier = [&](const Waiting& a, const Waiting& b) {
      return std::max(a.stamp, oldest_stamp(now_)) < std::max(b.stamp, oldest_stamp(now_));
    };
    return std::min_element(able.begin(), able.end(), earlier)->lane;
  }
  for (const Waiting& w : able)
    if (w.first) return w.lane;
  emu::Vl next = able.front().lane;
  for (std::size_t i = able.size(); i-- > 0;)
    if (able[i].lane > port.last_served) next = able[i].lane;
  port.last_served = next;
  return next;
}

// What an input port could send across, at most one flit of each lane: its dummy tail of the lowest
// level, or else what comes next of the message that has the lane.
std::vector<LaneAt> PlainNetwork::may_cross(PlainRouter& router, std::size_t p) const {
  std::vector<LaneAt> wishes;
  for (emu::Vl v = 0; v < lanes_; ++v) {
    std::optional<LaneAt> wish;
    for (std::size_t level = 0; level < levels(); ++level) {
      const InputBuffer& buffer = router.ports[p].in[v][level];
      if (buffer.state != InputBuffer::State::active || !buffer.has_next()) continue;
      const PlainPort& target = router.ports[static_cast<std::size_t>(buffer.out.port)];
      if (static_cast<int>(target.out[buffer.out.lane].buffer.size()) == spec_.vc_buf_size)
        continue;
      wish = {static_cast<int>(p), v, level};
      if (buffer.is_closing()) break;
    }
    if (wish) wishes.push_back(*wish);
  }
  return wishes;
}

std::vector<Waiting> PlainNetwork::waiting_of(PlainRouter& router,
                                              const std::vector<LaneAt>& wishes) const {
  std::vector<Waiting> able;
  for (const LaneAt& wish : wishes) {
    const Flit& flit = buffer_at(router, wish).next();
    const PlainPort& port = router.ports[static_cast<std::size_t>(wish.port)];
    able.push_back(waiting(wish.lane, flit, port.clock->urgency(flit.stamp)));
    able.back().accelerated = is_accelerated(router, wish);
    if (able.back().accelerated) able.back().yields = false;
  }
  return able;
}

// The crossbar. Multiplexed: at most one flit from each input port and to each output port, by a
// separable allocator. Full: every lane has a way of its own.
void PlainNetwork::stage4(PlainRouter& router) {
  std::vector<LaneAt> grants;
  if (full_crossbar()) {
    for (std::size_t p = 0; p < router.ports.size(); ++p)
      for (const LaneAt& wish : may_cross(router, p)) grants.push_back(wish);
  } else {
    grants = allocate(router);
  }
  // Ports in order, so that of two tails the lower port's leaves first.
  std::stable_sort(grants.begin(), grants.end(),
                   [](const LaneAt& a, const LaneAt& b) { return a.port < b.port; });
  for (const LaneAt& from : grants) cross(router, from);
}

// Rounds: input ports without a grant propose, the most urgent proposal for an output wins.
std::vector<LaneAt> PlainNetwork::allocate(PlainRouter& router) {
  struct Proposal {
    LaneAt from;
    Stamp urgency;
    unsigned rank;
  };
  const std::size_t ports = router.ports.size();
  std::vector<std::vector<LaneAt>> wishes;
  for (std::size_t p = 0; p < ports; ++p) wishes.push_back(may_cross(router, p));
  std::vector<LaneAt> grants;
  std::vector<bool> output_taken(ports, false);
  for (int round = 0; round < spec_.alloc_iters; ++round) {
    std::map<int, Proposal> best;  // by output port
    for (std::size_t p = 0; p < ports; ++p) {
      std::erase_if(wishes[p], [&](const LaneAt& wish) {
        return output_taken[static_cast<std::size_t>(buffer_at(router, wish).out.port)];
      });
      if (wishes[p].empty()) continue;
      const auto able = waiting_of(router, wishes[p]);
      const auto let_go = router.ports[p].scheduler->let_go(able, now_);
      if (let_go.empty()) continue;
      const Choice choice = router.ports[p].scheduler->choose(first_class(let_go));
      std::size_t which = 0;
      while (able[which].lane != choice.lane) ++which;
      const Proposal mine = {wishes[p][which], urgency_of(choice, able[which].yields),
                             rank_of(p, ports, now_)};
      const int output = buffer_at(router, mine.from).out.port;
      const auto [other, first] = best.try_emplace(output, mine);
      if (!first && std::pair(mine.urgency, mine.rank) <
                        std::pair(other->second.urgency, other->second.rank)) {
        other->second = mine;
      }
    }
    for (const auto& [output, winner] : best) {
      grants.push_back(winner.from);
      output_taken[static_cast<std::size_t>(output)] = true;
      const auto p = static_cast<std::size_t>(winner.from.port);
      router.ports[p].scheduler->granted(winner.from.lane,
                                         buffer_at(router, winner.from).next().ends_block(), now_);
      wishes[p].clear();
    }
  }
  return grants;
}

void PlainNetwork::cross(PlainRouter& router, LaneAt from) {
  PlainPort& port = router.ports[static_cast<std::size_t>(from.port)];
  InputBuffer& buffer = buffer_at(router, from);
  PlainPort& out = router.ports[static_cast<std::size_t>(buffer.out.port)];
  OutputLane& target = out.out[buffer.out.lane];
  Flit flit = buffer.next();
  CHECK(target.owner == from);
  CHECK(flit.is_head() || target.buffer.empty() || target.buffer.back().message == flit.message ||
        flit.circuit);
  const bool made_here = buffer.dummy.has_value();
  if (made_here) {
    buffer.dummy.reset();
  } else {
    buffer.flits.pop_front();
    port.to_me->credits.push_back({arrival(), from.lane, from.level});
  }
  if (full_crossbar()) {
    if (flit.is_head()) out.clock->head(buffer.out.lane, flit.message->packet.vtick);
    if (!stamps_at_head() || target.buffer.empty()) flit.stamp = stamp(out, buffer.out.lane, now_);
  } else {
    if (traditional()) flit.stamp = static_cast<Stamp>(now_);
    if (stamps_at_head() && !made_here && !buffer.flits.empty())
      buffer.flits.front().stamp = stamp(port, slot(from), now_);
  }
  target.buffer.push_back(flit);
  log.crossed(router.id, now_);
  buffer.worm_open = !flit.is_tail();
  if (flit.is_tail()) worm_crossed(router, from, made_here ? flit.message : nullptr);
}

// The output lane is free. A message that was interrupted waits for its turn, a dummy head before
// it; of one that has crossed nothing is left.
void PlainNetwork::worm_crossed(PlainRouter& router, LaneAt from, const MessagePtr& interrupted) {
  InputBuffer& buffer = buffer_at(router, from);
  router.ports[static_cast<std::size_t>(buffer.out.port)].out[buffer.out.lane].owner.reset();
  if (interrupted) {
    buffer.state = InputBuffer::State::suspended;
    buffer.dummy = Flit{interrupted, 0, 0, Flit::Kind::dummy_head};
  } else {
    buffer.state = InputBuffer::State::idle;
    buffer.messages.pop_front();
  }
}

// RN 3.2.2: flits in a higher level's way, at the input or at the output lane.
bool PlainNetwork::is_accelerated(const PlainRouter& router, LaneAt at) const {
  if (!preemptive() || !spec_.accelerate) return false;
  const InputBuffer& buffer = buffer_at(router, at);
  const auto& line =
      router.ports[static_cast<std::size_t>(buffer.out.port)].out[buffer.out.lane].line;
  return buffer.is_closing() || (!line.empty() && line.front().level > at.level);
}

// Arbitration: routed heads join the line for their output lane; free lanes go to the first in
// line. So do messages that were interrupted and have nothing above them any more.
void PlainNetwork::stage3(PlainRouter& router) {
  if (circuits()) return reserve_lanes(router);
  for (std::size_t p = 0; p < router.ports.size(); ++p) {
    for (emu::Vl v = 0; v < lanes_; ++v) {
      for (std::size_t level = 0; level < levels(); ++level) {
        const LaneAt me = {static_cast<int>(p), v, level};
        const auto state = router.ports[p].in[v][level].state;
        if (state == InputBuffer::State::arbitrating ||
            (state == InputBuffer::State::suspended && is_top(router.ports[p], me)))
          join_line(router, me);
      }
    }
  }
  for (PlainPort& port : router.ports) {
    for (OutputLane& lane : port.out) {
      if (lane.owner || lane.line.empty()) continue;
      const LaneAt first = lane.line.front();
      lane.line.pop_front();
      lane.owner = first;
      InputBuffer& buffer = buffer_at(router, first);
      buffer.state = InputBuffer::State::active;
      if (buffer.dummy && !full_crossbar()) {
        PlainPort& in = router.ports[static_cast<std::size_t>(first.port)];
        buffer.dummy->stamp = stamp(in, slot(first), now_);
      }
    }
  }
}

// In order of coming; those of a higher level first.
void PlainNetwork::join_line(PlainRouter& router, LaneAt me) {
  InputBuffer& buffer = buffer_at(router, me);
  buffer.state = InputBuffer::State::waiting;
  auto& line = router.ports[static_cast<std::size_t>(buffer.out.port)].out[buffer.out.lane].line;
  const auto lower = [&](const LaneAt& other) { return other.level < me.level; };
  line.insert(std::find_if(line.begin(), line.end(), lower), me);
}

LaneAt PlainNetwork::choose(const PlainRouter& router, const PlainMessage& message,
                            const std::vector<LaneAt>& claimed) const {
  const auto lane_of = [&](const fabric::Choice& choice) {
    return lane_at(choice.port, routes_.lanes.at(choice.set, message.packet.vl_out));
  };
  const auto choices = message.ways->choices(router.id, message.dest);
  if (choices.front().set == fabric::LaneSet::recovery) return lane_of(choices.front());
  const LaneAt fixed = lane_of(choices.front());
  const auto of_class = static_cast<unsigned>(message.packet.traffic_class);
  if (preemptive() || circuits() || message.packet.kind != emu::PacketKind::data ||
      message.is_answer || ((spec_.fixed_classes >> of_class) & 1) != 0) {
    return fixed;
  }
  struct Option {
    LaneAt lane;
    bool taken;
    int load;
  };
  std::vector<Option> options;
  for (const fabric::Choice& choice : choices) {
    Option option = {lane_of(choice), false, 0};
    const PlainPort& port = router.ports[choice.port];
    option.taken = port.out[option.lane.lane].owner.has_value();
    for (const OutputLane& out : port.out) option.load += out.owner.has_value();
    std::vector<LaneAt> counted;
    for (const LaneAt& other : claimed) {
      option.taken |= other == option.lane;
      if (other.port != choice.port) continue;
      if (std::find(counted.begin(), counted.end(), other) == counted.end()) {
        counted.push_back(other);
        ++option.load;
      }
    }
    const bool adaptive = choice.set == fabric::LaneSet::adaptive;
    const bool adapts = ((routes_.lanes.may_adapt >> message.packet.vl_out) & 1) != 0;
    const OutputLane& out = port.out[option.lane.lane];
    const int room = out.credits[0] - static_cast<int>(out.buffer.size());
    const bool fits = room >= std::min<int>(message.packet.flits, spec_.vc_buf_size);
    if (adaptive ? adapts && !option.taken && fits : true) options.push_back(option);
  }
  // The escape is for those whom no adaptive lane is free for.
  if (options.size() > 1 && choices.back().set == fabric::LaneSet::adaptive)
    options.erase(options.begin());
  return std::min_element(options.begin(), options.end(),
                          [](const Option& a, const Option& b) {
                            return std::pair(a.taken, a.load) < std::pair(b.taken, b.load);
                          })
      ->lane;
}

// Routing: a head at the front of its lane learns its output; probes and releases ask admission.
// With recovery a head may find no free lane, and the one that is lost here longest the token.
void PlainNetwork::stage2(PlainRouter& router) {
  std::vector<LaneAt> claimed;
  for (const LaneAt& me : heads_in_turn(router)) {
    InputBuffer& buffer = buffer_at(router, me);
    CHECK(buffer.flits.front().is_head());
    const PlainMessage& message = *buffer.messages.front();
    if (!recovers(router, message)) {
      learn_output(router, me, choose(router, message, claimed), claimed);
    } else if (const auto free = free_lane(router, message, claimed)) {
      learn_output(router, me, *free, claimed);
    } else {
      ++buffer.waited;
    }
  }
  const auto lost = lost_head(router);
  if (!lost) return;
  token_.captured_by = buffer_at(router, *lost).messages.front();
  learn_output(router, *lost, choose(router, *token_.captured_by, claimed), claimed);
}

// The heads that want an output, by port, lane and level; with recovery those first that have
// waited longest.
std::vector<LaneAt> PlainNetwork::heads_in_turn(PlainRouter& router) {
  std::vector<LaneAt> heads;
  for (std::size_t p = 0; p < router.ports.size(); ++p) {
    for (emu::Vl v = 0; v < lanes_; ++v) {
      for (std::size_t level = 0; level < levels(); ++level) {
        const LaneAt me = {static_cast<int>(p), v, level};
        const InputBuffer& buffer = buffer_at(router, me);
        if (buffer.state != InputBuffer::State::idle || buffer.messages.empty()) continue;
        if (is_top(router.ports[p], me)) heads.push_back(me);
      }
    }
  }
  std::ranges::stable_sort(heads, std::greater{}, [&](const LaneAt& me) {
    return buffer_at(router, me).waited;  // 0 but with recovery
  });
  return heads;
}

void PlainNetwork::learn_output(PlainRouter& router, LaneAt me, LaneAt out,
                                std::vector<LaneAt>& claimed) {
  InputBuffer& buffer = buffer_at(router, me);
  buffer.out = out;
  buffer.waited = 0;
  buffer.state = InputBuffer::State::arbitrating;
  claimed.push_back(out);
  // What was cut off a probe upstream and comes behind a dummy head has been asked about.
  if (buffer.flits.front().kind == Flit::Kind::dummy_head) return;
  ask_admission(router, static_cast<std::size_t>(me.port), out, *buffer.messages.front());
}

void PlainNetwork::ask_admission(const PlainRouter& router, std::size_t in_port, LaneAt out,
                                 PlainMessage& message) {
  const bool asks = message.packet.kind != emu::PacketKind::data && !message.is_answer &&
                    message.rejected_by == emu::kNoRouter;
  if (!asks || hook_ == nullptr) return;
  const bool accepted = hook_->at_route({.router = router.id,
                                         .in_port = static_cast<emu::PortId>(in_port),
                                         .out_port = static_cast<emu::PortId>(out.port),
                                         .kind = message.packet.kind,
                                         .src = message.src,
                                         .dest = message.dest,
                                         .cookie = message.packet.cookie,
                                         .handle = message.packet.handle,
                                         .cycle = now_});
  if (!accepted && message.packet.kind == emu::PacketKind::probe) message.rejected_by = router.id;
}

// Decode: flits come off the links into their lanes and get their stamps.
void PlainNetwork::stage1(PlainRouter& router) {
  for (PlainPort& port : router.ports) {
    if (port.to_me == nullptr) continue;
    std::deque<LinkFlit>& flits = port.to_me->flits;
    for (; !flits.empty() && flits.front().arrives <= now_; flits.pop_front()) {
      CHECK(flits.front().arrives == now_);
      const auto p = static_cast<std::size_t>(&port - router.ports.data());
      log.came(router.id, p, leads_to_hca(router, p), now_);
      arrive(router, port, flits.front().lane, flits.front().flit);
    }
  }
}

void PlainNetwork::arrive(PlainRouter& router, PlainPort& port, emu::Vl lane, Flit flit) {
  const LaneAt at = {0, lane, level_of(*flit.message)};
  InputBuffer& buffer = port.in[lane][at.level];
  check_worm(buffer.arriving, flit);
  CHECK(static_cast<int>(buffer.flits.size()) < spec_.vc_buf_size);
  if (!full_crossbar()) {
    if (flit.is_head()) port.clock->head(slot(at), flit.message->packet.vtick);
    if (!stamps_at_head() || buffer.flits.empty()) flit.stamp = stamp(port, slot(at), now_);
  }
  buffer.flits.push_back(flit);
  if (!flit.is_head()) return;
  buffer.messages.push_back(flit.message);
  if (preemptive()) make_way(router, port, lane, at.level);
}

void PlainNetwork::make_way(PlainRouter& router, PlainPort& port, emu::Vl lane, std::size_t level) {
  const auto p = static_cast<int>(&port - router.ports.data());
  for (std::size_t below = 0; below < level; ++below) interrupt(router, port, {p, lane, below});
}

// What has not begun to cross lets go of its output; what has, closes its worm with a dummy tail.
void PlainNetwork::interrupt(PlainRouter& router, PlainPort& port, LaneAt at) {
  InputBuffer& buffer = port.in[at.lane][at.level];
  if (buffer.state == InputBuffer::State::idle || buffer.is_closing()) return;
  OutputLane& lane = router.ports[static_cast<std::size_t>(buffer.out.port)].out[buffer.out.lane];
  std::erase(lane.line, at);
  if (buffer.state == InputBuffer::State::active && buffer.worm_open) {
    buffer.dummy = Flit{buffer.messages.front(), 0, 0, Flit::Kind::dummy_tail};
    if (!full_crossbar()) buffer.dummy->stamp = stamp(port, slot(at), now_);
    return;
  }
  if (lane.owner == at) lane.owner.reset();
  buffer.state = InputBuffer::State::suspended;
}

}  // namespace model

// The five stages of a router, one function each, evaluated from back to front.
#include <algorithm>
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

std::vector<Waiting> PlainNetwork::first_class(std::vector<Waiting> waiting) const {
  const auto yields = [&](const Waiting& w) { return is_best_effort(w.lane); };
  if (spec_.strict_classes && !std::all_of(waiting.begin(), waiting.end(), yields))
    std::erase_if(waiting, yields);
  return waiting;
}

Stamp PlainNetwork::urgency_of(const Choice& choice) const {
  if (!spec_.strict_classes) return choice.urgency;
  if (is_best_effort(choice.lane)) return INT64_MAX;
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
      ++port.out[credits.front().lane].credits;
    std::vector<Waiting> able;
    for (emu::Vl v = 0; v < emu::kVlCount; ++v) {
      const OutputLane& lane = port.out[v];
      if (!lane.buffer.empty() && lane.credits > 0)
        able.push_back({v, port.clock->urgency(lane.buffer.front().stamp)});
    }
    if (able.empty()) continue;
    const emu::Vl chosen = next_to_send(port, able);
    OutputLane& lane = port.out[chosen];
    port.from_me->flits.push_back({arrival(), chosen, lane.buffer.front()});
    lane.buffer.pop_front();
    --lane.credits;
    if (full_crossbar() && stamps_at_head() && !lane.buffer.empty())
      lane.buffer.front().stamp = stamp(port, chosen, now_);
  }
}

// The VC multiplexer: the scheduler of a full crossbar; otherwise lanes of control, then the others
// in turn, or in the order in which the flits came, in a traditional router.
emu::Vl PlainNetwork::next_to_send(PlainPort& port, const std::vector<Waiting>& able) {
  if (full_crossbar()) {
    const Choice choice = port.scheduler->choose(first_class(able));
    port.scheduler->granted(choice.lane, port.out[choice.lane].buffer.front().is_tail());
    return choice.lane;
  }
  if (traditional()) {
    const auto earlier = [](const Waiting& a, const Waiting& b) { return a.stamp < b.stamp; };
    return std::min_element(able.begin(), able.end(), earlier)->lane;
  }
  for (const Waiting& w : able)
    if (((control_lanes() >> w.lane) & 1) != 0) return w.lane;
  emu::Vl next = able.front().lane;
  for (std::size_t i = able.size(); i-- > 0;)
    if (able[i].lane > port.last_served) next = able[i].lane;
  port.last_served = next;
  return next;
}

// The lanes of an input port that could send a flit across.
std::vector<Waiting> PlainNetwork::may_cross(PlainRouter& router, PlainPort& port) const {
  std::vector<Waiting> able;
  for (emu::Vl v = 0; v < emu::kVlCount; ++v) {
    const InputLane& lane = port.in[v];
    if (lane.state != InputLane::State::active || lane.buffer.empty()) continue;
    const PlainPort& target = router.ports[static_cast<std::size_t>(lane.out.port)];
    if (static_cast<int>(target.out[lane.out.lane].buffer.size()) == spec_.vc_buf_size) continue;
    able.push_back({v, port.clock->urgency(lane.buffer.front().stamp)});
  }
  return able;
}

// The crossbar. Multiplexed: at most one flit from each input port and to each output port, by a
// separable allocator. Full: every lane has a way of its own.
void PlainNetwork::stage4(PlainRouter& router) {
  std::vector<LaneAt> grants;
  if (full_crossbar()) {
    for (std::size_t p = 0; p < router.ports.size(); ++p)
      for (const Waiting& w : may_cross(router, router.ports[p]))
        grants.push_back(lane_at(p, w.lane));
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
  std::vector<std::vector<Waiting>> wishes;
  for (PlainPort& port : router.ports) wishes.push_back(may_cross(router, port));
  std::vector<LaneAt> grants;
  std::vector<bool> output_taken(ports, false);
  for (int round = 0; round < spec_.alloc_iters; ++round) {
    std::map<int, Proposal> best;  // by output port
    for (std::size_t p = 0; p < ports; ++p) {
      PlainPort& port = router.ports[p];
      std::erase_if(wishes[p], [&](const Waiting& w) {
        return output_taken[static_cast<std::size_t>(port.in[w.lane].out.port)];
      });
      if (wishes[p].empty()) continue;
      const Choice choice = port.scheduler->choose(first_class(wishes[p]));
      const Proposal mine = {lane_at(p, choice.lane), urgency_of(choice), rank_of(p, ports, now_)};
      const int output = port.in[choice.lane].out.port;
      const auto [other, first] = best.try_emplace(output, mine);
      if (!first && std::pair(mine.urgency, mine.rank) <
                        std::pair(other->second.urgency, other->second.rank)) {
        other->second = mine;
      }
    }
    for (const auto& [output, winner] : best) {
      grants.push_back(winner.from);
      output_taken[static_cast<std::size_t>(output)] = true;
      PlainPort& port = router.ports[static_cast<std::size_t>(winner.from.port)];
      port.scheduler->granted(winner.from.lane, port.in[winner.from.lane].buffer.front().is_tail());
      wishes[static_cast<std::size_t>(winner.from.port)].clear();
    }
  }
  return grants;
}

void PlainNetwork::cross(PlainRouter& router, LaneAt from) {
  PlainPort& port = router.ports[static_cast<std::size_t>(from.port)];
  InputLane& lane = port.in[from.lane];
  OutputLane& target = router.ports[static_cast<std::size_t>(lane.out.port)].out[lane.out.lane];
  Flit flit = lane.buffer.front();
  CHECK(target.owner == from);
  CHECK(flit.is_head() || target.buffer.empty() || target.buffer.back().message == flit.message);
  lane.buffer.pop_front();
  port.to_me->credits.push_back({arrival(), from.lane});
  if (full_crossbar()) {
    PlainPort& out = router.ports[static_cast<std::size_t>(lane.out.port)];
    if (flit.is_head()) out.clock->head(lane.out.lane, flit.message->packet.vtick);
    if (!stamps_at_head() || target.buffer.empty()) flit.stamp = stamp(out, lane.out.lane, now_);
  } else {
    if (traditional()) flit.stamp = static_cast<Stamp>(now_);
    if (stamps_at_head() && !lane.buffer.empty())
      lane.buffer.front().stamp = stamp(port, from.lane, now_);
  }
  target.buffer.push_back(flit);
  if (!flit.is_tail()) return;
  target.owner.reset();
  lane.state = InputLane::State::idle;
}

// Arbitration: routed heads join the line for their output lane; free lanes go to the first in
// line.
void PlainNetwork::stage3(PlainRouter& router) {
  for (std::size_t p = 0; p < router.ports.size(); ++p) {
    for (emu::Vl v = 0; v < emu::kVlCount; ++v) {
      InputLane& lane = router.ports[p].in[v];
      if (lane.state != InputLane::State::arbitrating) continue;
      lane.state = InputLane::State::waiting;
      router.ports[static_cast<std::size_t>(lane.out.port)].out[lane.out.lane].line.push_back(
          lane_at(p, v));
    }
  }
  for (PlainPort& port : router.ports) {
    for (OutputLane& lane : port.out) {
      if (lane.owner || lane.line.empty()) continue;
      const LaneAt first = lane.line.front();
      lane.line.pop_front();
      lane.owner = first;
      router.ports[static_cast<std::size_t>(first.port)].in[first.lane].state =
          InputLane::State::active;
    }
  }
}

LaneAt PlainNetwork::choose(const PlainRouter& router, const PlainMessage& message,
                            const std::vector<LaneAt>& claimed) const {
  const auto lane_of = [&](const fabric::Choice& choice) {
    return lane_at(choice.port, routes_.lanes.at(choice.set, message.packet.vl_out));
  };
  const auto choices = routes_.table.choices(router.id, message.dest);
  const LaneAt fixed = lane_of(choices.front());
  const auto of_class = static_cast<unsigned>(message.packet.traffic_class);
  if (message.packet.kind != emu::PacketKind::data || message.is_answer ||
      ((spec_.fixed_classes >> of_class) & 1) != 0) {
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
    if (adaptive ? adapts && !option.taken : true) options.push_back(option);
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
void PlainNetwork::stage2(PlainRouter& router) {
  std::vector<LaneAt> claimed;
  for (std::size_t p = 0; p < router.ports.size(); ++p) {
    for (emu::Vl v = 0; v < emu::kVlCount; ++v) {
      InputLane& lane = router.ports[p].in[v];
      if (lane.state != InputLane::State::idle || lane.buffer.empty()) continue;
      CHECK(lane.buffer.front().is_head());
      PlainMessage& message = *lane.buffer.front().message;
      lane.out = choose(router, message, claimed);
      claimed.push_back(lane.out);
      lane.state = InputLane::State::arbitrating;
      const bool asks = message.packet.kind != emu::PacketKind::data && !message.is_answer &&
                        message.rejected_by == emu::kNoRouter;
      if (!asks || hook_ == nullptr) continue;
      const bool accepted = hook_->at_route({.router = router.id,
                                             .in_port = static_cast<emu::PortId>(p),
                                             .out_port = static_cast<emu::PortId>(lane.out.port),
                                             .kind = message.packet.kind,
                                             .src = message.src,
                                             .dest = message.dest,
                                             .cookie = message.packet.cookie,
                                             .handle = message.packet.handle,
                                             .cycle = now_});
      if (!accepted && message.packet.kind == emu::PacketKind::probe)
        message.rejected_by = router.id;
    }
  }
}

// Decode: flits come off the links into their lanes and get their stamps.
void PlainNetwork::stage1(PlainRouter& router) {
  for (PlainPort& port : router.ports) {
    if (port.to_me == nullptr) continue;
    std::deque<LinkFlit>& flits = port.to_me->flits;
    for (; !flits.empty() && flits.front().arrives <= now_; flits.pop_front()) {
      CHECK(flits.front().arrives == now_);
      InputLane& lane = port.in[flits.front().lane];
      Flit flit = flits.front().flit;
      CHECK(flit.number == lane.next_number);
      lane.next_number = flit.is_tail() ? 0 : flit.number + 1;
      CHECK(static_cast<int>(lane.buffer.size()) < spec_.vc_buf_size);
      if (!full_crossbar()) {
        if (flit.is_head()) port.clock->head(flits.front().lane, flit.message->packet.vtick);
        if (!stamps_at_head() || lane.buffer.empty())
          flit.stamp = stamp(port, flits.front().lane, now_);
      }
      lane.buffer.push_back(flit);
    }
  }
}

}  // namespace model

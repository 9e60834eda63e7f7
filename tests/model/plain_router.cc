// The five stages of a router, one function each, evaluated from back to front.
#include <algorithm>
#include <map>

#include "emu/base/check.h"
#include "tests/model/plain_network.h"

namespace model {

namespace {

// Rank of an input port in this cycle, for ties: 64 orders, in which any two ports are as often one
// way round as the other. Multiplication is that of the field with eight elements.
int rank_of(int port, emu::Cycle now) {
  static constexpr int kPowers[7] = {1, 2, 4, 3, 6, 7, 5};  // of x, modulo x^3 + x + 1
  const auto log = [](int a) {
    return static_cast<int>(std::find(kPowers, kPowers + 7, a) - kPowers);
  };
  const auto turn = static_cast<int>(now % 64);
  const int factor = turn < 56 ? 1 + turn % 7 : 1;
  const int offset = turn < 56 ? turn / 7 : turn - 56;
  const int product = port == 0 ? 0 : kPowers[(log(factor) + log(port)) % 7];
  return product ^ offset;
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
    const auto able = [&](int v) {
      const OutputLane& lane = port.out[static_cast<std::size_t>(v)];
      return !lane.buffer.empty() && lane.credits > 0;
    };
    int chosen = -1;
    for (int v = emu::kVlCount - 1; v >= 0; --v)
      if (able(v) && is_control(static_cast<emu::Vl>(v))) chosen = v;
    for (int i = 1; i <= emu::kVlCount && chosen < 0; ++i) {
      const int v = (port.last_served + i) % emu::kVlCount;
      if (!able(v)) continue;
      chosen = v;
      port.last_served = v;
    }
    if (chosen < 0) continue;
    OutputLane& lane = port.out[static_cast<std::size_t>(chosen)];
    port.from_me->flits.push_back({arrival(), static_cast<emu::Vl>(chosen), lane.buffer.front()});
    lane.buffer.pop_front();
    --lane.credits;
  }
}

// Crossbar: rounds of proposals, at most one flit from each input and to each output port.
void PlainNetwork::stage4(PlainRouter& router) {
  struct Proposal {
    LaneAt from;
    Stamp urgency;
    int rank;
  };
  const std::size_t ports = router.ports.size();
  std::vector<std::vector<Waiting>> may_cross(ports);
  for (std::size_t p = 0; p < ports; ++p) {
    for (emu::Vl v = 0; v < emu::kVlCount; ++v) {
      const InputLane& lane = router.ports[p].in[v];
      if (lane.state != InputLane::State::active || lane.buffer.empty()) continue;
      const PlainPort& target = router.ports[static_cast<std::size_t>(lane.out.port)];
      if (static_cast<int>(target.out[lane.out.lane].buffer.size()) == spec_.vc_buf_size) continue;
      may_cross[p].push_back({v, lane.buffer.front().stamp});
    }
  }
  std::vector<LaneAt> grants;
  std::vector<bool> output_taken(ports, false);
  for (int round = 0; round < spec_.alloc_iters; ++round) {
    std::map<int, Proposal> best;  // by output port
    for (std::size_t p = 0; p < ports; ++p) {
      PlainPort& port = router.ports[p];
      std::erase_if(may_cross[p], [&](const Waiting& w) {
        return output_taken[static_cast<std::size_t>(port.in[w.lane].out.port)];
      });
      if (may_cross[p].empty()) continue;
      const Choice choice = port.scheduler->choose(first_class(may_cross[p]));
      const Proposal mine = {lane_at(p, choice.lane), urgency_of(choice),
                             rank_of(static_cast<int>(p), now_)};
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
      router.ports[static_cast<std::size_t>(winner.from.port)].scheduler->granted(winner.from.lane);
      may_cross[static_cast<std::size_t>(winner.from.port)].clear();
    }
  }
  // Ports in order, so that of two tails the lower port's leaves first.
  std::sort(grants.begin(), grants.end(),
            [](const LaneAt& a, const LaneAt& b) { return a.port < b.port; });
  for (const LaneAt& from : grants) cross(router, from);
}

void PlainNetwork::cross(PlainRouter& router, LaneAt from) {
  PlainPort& port = router.ports[static_cast<std::size_t>(from.port)];
  InputLane& lane = port.in[from.lane];
  OutputLane& target = router.ports[static_cast<std::size_t>(lane.out.port)].out[lane.out.lane];
  const Flit flit = lane.buffer.front();
  CHECK(target.owner == from);
  CHECK(flit.is_head() || target.buffer.empty() || target.buffer.back().message == flit.message);
  lane.buffer.pop_front();
  target.buffer.push_back(flit);
  port.to_me->credits.push_back({arrival(), from.lane});
  if (stamps_at_head() && !lane.buffer.empty())
    lane.buffer.front().stamp = lane.clock->stamp(now_, now_);
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
      if (flit.is_head()) lane.clock->head(flit.message->packet.vtick);
      if (!stamps_at_head() || lane.buffer.empty()) flit.stamp = lane.clock->stamp(now_, now_);
      lane.buffer.push_back(flit);
    }
  }
}

}  // namespace model

// Deadlock recovery by one token, as fabric/router/README.md says: it goes from router to router, a
// cycle each, until a head that waits there too long takes it, and goes on from where that message
// arrives.
#include <algorithm>
#include <set>

#include "emu/base/check.h"
#include "tests/model/plain_network.h"

namespace model {

// The message takes free lanes only, and waits until there is one.
bool PlainNetwork::recovers(const PlainRouter& router, const PlainMessage& message) const {
  const auto& fixed = message.ways->choices(router.id, message.dest).front();
  return fixed.set == fabric::LaneSet::recovery &&
         ((routes_.lanes.may_adapt >> message.packet.vl_out) & 1) != 0 &&
         token_.holder.get() != &message;
}

std::optional<LaneAt> PlainNetwork::free_lane(const PlainRouter& router,
                                              const PlainMessage& message,
                                              const std::vector<LaneAt>& claimed) const {
  const emu::LaneMask adaptive = routes_.lanes.adaptive[message.packet.vl_out];
  std::optional<LaneAt> best;
  std::size_t least = 0;
  for (const fabric::Choice& choice : message.ways->choices(router.id, message.dest).subspan(1)) {
    const PlainPort& port = router.ports[choice.port];
    std::set<emu::Vl> claimed_here;
    for (const LaneAt& other : claimed)
      if (other.port == choice.port) claimed_here.insert(other.lane);
    const auto owned = static_cast<std::size_t>(
        std::count_if(port.out.begin(), port.out.end(),
                      [](const OutputLane& lane) { return lane.owner.has_value(); }));
    const std::size_t load = owned + claimed_here.size();
    for (emu::Vl v = 0; v < lanes_; ++v) {
      const OutputLane& out = port.out[v];
      if (((adaptive >> v) & 1) == 0 || out.owner || claimed_here.contains(v)) continue;
      const int room = out.credits[0] - static_cast<int>(out.buffer.size());
      if (room < std::min<int>(message.flits, spec_.vc_buf_size)) continue;
      if (best && load >= least) continue;
      best = {choice.port, v};
      least = load;
    }
  }
  return best;
}

// Who takes the token here and now: of the heads that have waited long enough the one that has
// waited longest.
std::optional<LaneAt> PlainNetwork::lost_head(const PlainRouter& router) const {
  if (token_.holder || token_.released_at || token_.router != router.id) return {};
  std::optional<LaneAt> lost;
  int longest = spec_.recovery_cycles;
  for (std::size_t p = 0; p < router.ports.size(); ++p) {
    for (emu::Vl v = 0; v < lanes_; ++v) {
      // The cycle in which it first found none is the first that it waits.
      const int waited = router.ports[p].in[v][0].waited - 1;
      if (waited < longest) continue;
      lost = {static_cast<int>(p), v};
      longest = waited + 1;
    }
  }
  return lost;
}

void PlainNetwork::pass_token() {
  if (token_.released_at) {
    CHECK(!token_.captured_by);
    token_ = {*token_.released_at, nullptr, nullptr, {}};
  } else if (token_.captured_by) {
    token_.holder = std::move(token_.captured_by);
    token_.captured_by = nullptr;
  } else if (!token_.holder) {
    token_.router = (token_.router + 1) % routers_.size();
  }
}

// Of every class that adapts, only the message with the token is in the recovery lanes.
void PlainNetwork::check_recovery_lanes() const {
  if (spec_.routing != fabric::RoutingKind::recovery) return;
  for (const PlainRouter& router : routers_) {
    for (std::size_t p = 0; p < router.ports.size(); ++p) {
      if (graph_.routers[router.id][p].router == fabric::kNobody) continue;
      for (emu::Vl v = 0; v < emu::kVlCount; ++v) {
        const emu::Vl lane = routes_.lanes.at(fabric::LaneSet::recovery, v);
        if (((routes_.lanes.may_adapt >> v) & 1) == 0) continue;
        for (const Flit& flit : router.ports[p].in[lane][0].flits)
          CHECK(flit.message == token_.holder);
        for (const Flit& flit : router.ports[p].out[lane].buffer)
          CHECK(flit.message == token_.holder);
      }
    }
  }
}

}  // namespace model

#include "fabric/route/up_down.h"

#include <algorithm>
#include <numeric>
#include <tuple>

namespace fabric {

namespace {

constexpr int kFar = 1 << 20;

std::vector<int> distances(const Graph& graph, const std::vector<emu::RouterId>& from) {
  std::vector<int> far(graph.routers.size(), kFar);
  std::vector<emu::RouterId> queue = from;
  for (const emu::RouterId r : from) far[r] = 0;
  for (std::size_t i = 0; i < queue.size(); ++i) {
    for (const PortEnd& end : graph.routers[queue[i]]) {
      if (end.router == kNobody || far[end.router] != kFar) continue;
      far[end.router] = far[queue[i]] + 1;
      queue.push_back(end.router);
    }
  }
  return far;
}

// Whether every link joins one height to the next: a tree with one root or many.
bool is_layered(const Graph& graph, const std::vector<int>& heights) {
  for (std::size_t r = 0; r < graph.routers.size(); ++r) {
    for (const PortEnd& end : graph.routers[r]) {
      if (end.router == kNobody) continue;
      const int step = heights[r] - heights[end.router];
      if (step != 1 && step != -1) return false;
    }
  }
  return true;
}

std::vector<int> ranks_of(const std::vector<int>& heights) {
  const int most = *std::max_element(heights.begin(), heights.end());
  std::vector<int> ranks;
  for (const int height : heights) ranks.push_back(most - height);
  return ranks;
}

std::vector<emu::RouterId> routers_of_nodes(const Graph& graph) {
  std::vector<emu::RouterId> routers;
  for (const NodePlace& place : graph.nodes) routers.push_back(place.router);
  std::sort(routers.begin(), routers.end());
  routers.erase(std::unique(routers.begin(), routers.end()), routers.end());
  return routers;
}

// Routers that no node can reach are no centre: from an island without nodes all are as far.
std::vector<int> ranks_from_centre(const Graph& graph) {
  const std::vector<int> from_nodes = distances(graph, routers_of_nodes(graph));
  std::vector<int> best;
  std::pair<int, long> least = {kFar + 1, 0};
  for (std::size_t r = 0; r < graph.routers.size(); ++r) {
    if (from_nodes[r] == kFar) continue;
    const std::vector<int> far = distances(graph, {static_cast<emu::RouterId>(r)});
    const std::pair measure = {*std::max_element(far.begin(), far.end()),
                               std::accumulate(far.begin(), far.end(), 0L)};
    if (measure >= least) continue;
    least = measure;
    best = far;
  }
  return best;
}

class UpDown {
 public:
  // `kept`: fixed ways that stay where they lead on; null: none.
  UpDown(const Graph& graph, std::vector<int> ranks, RoutingKind kind,
         const RouteTable* kept = nullptr)
      : graph_(graph),
        ranks_(std::move(ranks)),
        by_load_(kind == RoutingKind::up_by_load),
        kept_(kept) {
    order_.resize(graph.routers.size());
    std::iota(order_.begin(), order_.end(), emu::RouterId{0});
    std::sort(order_.begin(), order_.end(),
              [&](emu::RouterId a, emu::RouterId b) { return is_up(b, a); });
  }

  emu::Result<RouteTable> make() {
    const auto routers = graph_.routers.size();
    RouteTable table(static_cast<int>(routers), static_cast<int>(graph_.nodes.size()));
    for (std::size_t n = 0; n < graph_.nodes.size(); ++n) {
      const auto dest = static_cast<emu::NodeId>(n);
      const NodePlace& place = graph_.nodes[dest];
      if (n == 0 || place.router != graph_.nodes[n - 1].router) measure(place.router);
      for (std::size_t i = 0; i < routers; ++i) {
        const auto r = static_cast<emu::RouterId>(i);
        if (r == place.router) {
          table.set(r, dest, place.port);
        } else if (all_[r] < kFar) {
          table.set(r, dest, choices(r, dest));
        } else if (has_nodes(r)) {
          return emu::fail("up_down: no way up, then down, from {} to {}", graph_.names[r],
                           graph_.names[place.router]);
        } else {
          table.set(r, dest, emu::PortId{0});  // nobody comes here
        }
      }
    }
    return table;
  }

 private:
  // Of a link from `from` to `to`.
  bool is_up(emu::RouterId from, emu::RouterId to) const {
    return std::tuple(ranks_[to], to) < std::tuple(ranks_[from], from);
  }
  bool has_nodes(emu::RouterId r) const {
    return std::any_of(graph_.routers[r].begin(), graph_.routers[r].end(),
                       [](const PortEnd& end) { return end.node != kNoNode; });
  }

  // Links to `dest` from every router: all the way down, and up first where that is needed. Whoever
  // has a way down takes it, so the next router needs not know how a message came.
  void measure(emu::RouterId dest) {
    down_.assign(graph_.routers.size(), kFar);
    down_[dest] = 0;
    std::vector<emu::RouterId> queue = {dest};
    for (std::size_t i = 0; i < queue.size(); ++i) {
      for (const PortEnd& end : graph_.routers[queue[i]]) {
        // Upwards from here is downwards from there.
        if (end.router == kNobody || !is_up(queue[i], end.router)) continue;
        if (down_[end.router] != kFar) continue;
        down_[end.router] = down_[queue[i]] + 1;
        queue.push_back(end.router);
      }
    }
    all_ = down_;
    for (const emu::RouterId r : order_) {
      if (down_[r] != kFar) continue;
      for (const PortEnd& end : graph_.routers[r]) {
        if (end.router == kNobody || !is_up(r, end.router)) continue;
        all_[r] = std::min(all_[r], all_[end.router] + 1);
      }
    }
  }

  std::vector<Choice> choices(emu::RouterId r, emu::NodeId dest) const {
    const bool down = down_[r] != kFar;
    std::vector<Choice> found;
    for (std::size_t p = 0; p < graph_.routers[r].size(); ++p) {
      const PortEnd& end = graph_.routers[r][p];
      if (end.router == kNobody || is_up(r, end.router) == down) continue;
      const int left = down ? down_[end.router] : all_[end.router];
      if (left + 1 == all_[r]) found.push_back({static_cast<emu::PortId>(p)});
    }
    // The fixed way of a destination: another digit of its number at each height, so that the
    // destinations below a router spread over all its links (d-mod-k).
    unsigned digit = dest;
    const int height = graph_.heights.empty() ? 0 : graph_.heights[r];
    for (int h = 0; h < height; ++h) digit /= static_cast<unsigned>(found.size());
    auto first = found.begin() + static_cast<long>(digit % found.size());
    if (kept_ != nullptr) {
      const auto stays = std::ranges::find(found, Choice{kept_->out_port(r, dest)});
      if (stays != found.end()) first = stays;
    }
    std::rotate(found.begin(), first, found.end());
    if (!by_load_) found.resize(1);
    return found;
  }

  const Graph& graph_;
  std::vector<int> ranks_;
  bool by_load_;
  const RouteTable* kept_;
  std::vector<emu::RouterId> order_;  // the root first
  std::vector<int> down_;             // of the destination measured last
  std::vector<int> all_;
};

}  // namespace

std::vector<int> make_ranks(const Graph& graph) {
  if (!graph.heights.empty()) return ranks_of(graph.heights);
  const std::vector<emu::RouterId> leaves = routers_of_nodes(graph);
  const std::vector<int> heights = distances(graph, leaves);
  if (leaves.size() < graph.routers.size() && is_layered(graph, heights)) return ranks_of(heights);
  return ranks_from_centre(graph);
}

emu::Result<RouteTable> make_up_down_table(const Graph& graph, RoutingKind kind) {
  auto table = UpDown(graph, make_ranks(graph), kind).make();
  if (table) return table;
  // Layers need not have a common top: from a centre there is always a way.
  return UpDown(graph, ranks_from_centre(graph), kind).make();
}

emu::Result<RouteTable> make_up_down_detour(const Graph& graph, const RouteTable& whole,
                                            const Graph& rest, RoutingKind kind) {
  std::vector<int> ranks = make_ranks(graph);
  if (!UpDown(graph, ranks, kind).make()) ranks = ranks_from_centre(graph);
  return UpDown(rest, std::move(ranks), kind, &whole).make();
}

}  // namespace fabric

#include "fabric/route/deadlock.h"

#include <algorithm>
#include <cstdint>
#include <set>

namespace fabric {

namespace {

// Escapes reached over adaptive links are found per destination in a bit set of all channels.
constexpr std::size_t kAdaptiveRoutersMax = 1024;

// How the sets look to one class: sets that share a lane are one group.
struct Groups {
  std::array<int, kLaneSetCount> of{};
  std::array<emu::Vl, kLaneSetCount> lane{};  // a lane of each group, for the message
  bool adapts = false;
  auto key() const { return std::pair(of, adapts); }
};

Groups groups_of(const LanePlan& plan, emu::LaneMask mask, unsigned sets) {
  std::array<emu::LaneMask, kLaneSetCount> used{};
  Groups groups;
  for (emu::Vl v = 0; v < emu::kVlCount; ++v) {
    if (((mask >> v) & 1) == 0) continue;
    groups.adapts = ((plan.may_adapt >> v) & 1) != 0;
    for (std::size_t s = 0; s < kLaneSetCount; ++s)
      used[s] = static_cast<emu::LaneMask>(used[s] | 1U << plan.lane[s][v]);
  }
  for (std::size_t s = 0; s < kLaneSetCount; ++s) {
    groups.of[s] = static_cast<int>(s);
    for (std::size_t t = 0; t < s; ++t) {
      const bool both = ((sets >> s) & (sets >> t) & 1U) != 0;
      if (both && (used[s] & used[t]) != 0) groups.of[s] = std::min(groups.of[s], groups.of[t]);
    }
    groups.lane[s] = static_cast<emu::Vl>(used[s] == 0 ? 0 : __builtin_ctz(used[s]));
  }
  return groups;
}

// Every destination of every version: a message keeps to the version that it began with.
std::vector<Way> all_ways(const Graph& graph, const RouteTable& table) {
  std::vector<Way> ways;
  for (std::size_t v = 0; v < table.versions(); ++v) {
    for (std::size_t n = 0; n < graph.nodes.size(); ++n)
      ways.push_back(table.first_way(v) + static_cast<Way>(n));
  }
  return ways;
}

// Sets in use on links between routers; on the links to HCAs nobody waits for a router.
unsigned link_sets(const Graph& graph, const RouteTable& table) {
  unsigned sets = 0;
  const std::vector<Way> ways = all_ways(graph, table);
  for (std::size_t r = 0; r < graph.routers.size(); ++r) {
    for (const Way way : ways) {
      for (const Choice& c : table.choices(static_cast<emu::RouterId>(r), way)) {
        if (graph.routers[r][c.port].router != kNobody) sets |= 1U << static_cast<unsigned>(c.set);
      }
    }
  }
  return sets;
}

class Dependencies {
 public:
  Dependencies(const Graph& graph, const RouteTable& table, const Groups& groups)
      : graph_(graph), table_(table), groups_(groups) {
    for (const auto& ports : graph.routers) {
      first_link_.push_back(links_);
      links_ += ports.size();
    }
    waits_for_.resize(links_ * kLaneSetCount);
    for (const Way way : all_ways(graph, table)) add(way);
  }

  std::vector<LinkLane> find_cycle() const;

 private:
  using Channel = std::uint32_t;
  using Bits = std::vector<std::uint64_t>;

  Channel channel(emu::RouterId router, const Choice& choice) const {
    const auto group = static_cast<std::size_t>(groups_.of[static_cast<std::size_t>(choice.set)]);
    return static_cast<Channel>((first_link_[router] + choice.port) * kLaneSetCount + group);
  }
  LinkLane lane(Channel c) const {
    const std::size_t link = c / kLaneSetCount;
    const auto after = std::upper_bound(first_link_.begin(), first_link_.end(), link);
    const auto router = static_cast<std::size_t>(after - first_link_.begin()) - 1;
    return {static_cast<emu::RouterId>(router),
            static_cast<emu::PortId>(link - first_link_[router]), groups_.lane[c % kLaneSetCount]};
  }
  // In recovery lanes there is one message at a time: it finds them free.
  bool may_wait(const Choice& choice) const {
    return choice.set != LaneSet::adaptive && !(choice.set == LaneSet::recovery && groups_.adapts);
  }
  bool may_take(const Choice& choice) const { return may_wait(choice) || groups_.adapts; }
  emu::RouterId next(emu::RouterId router, const Choice& choice) const {
    return graph_.routers[router][choice.port].router;
  }

  // Routers that a message may come to on its way, a router before those it goes on to.
  std::vector<emu::RouterId> visited(Way way_to) const;
  void add(Way way);
  void add_edge(Channel from, Channel to) {
    auto& list = waits_for_[from];
    if (std::find(list.begin(), list.end(), to) == list.end()) list.push_back(to);
  }

  const Graph& graph_;
  const RouteTable& table_;
  const Groups& groups_;
  std::vector<std::size_t> first_link_;  // [router]
  std::size_t links_ = 0;
  std::vector<std::vector<Channel>> waits_for_;
};

std::vector<emu::RouterId> Dependencies::visited(Way way_to) const {
  std::vector<bool> seen(graph_.routers.size(), false);
  std::vector<emu::RouterId> order;
  struct Step {
    emu::RouterId router;
    std::size_t next;
  };
  std::vector<Step> way;
  for (const NodePlace& place : graph_.nodes) {
    if (seen[place.router]) continue;
    seen[place.router] = true;
    way.push_back({place.router, 0});
    while (!way.empty()) {
      const auto choices = table_.choices(way.back().router, way_to);
      if (way.back().next == choices.size()) {
        order.push_back(way.back().router);
        way.pop_back();
        continue;
      }
      const Choice& choice = choices[way.back().next++];
      const emu::RouterId to = next(way.back().router, choice);
      if (to == kNobody || seen[to] || !may_take(choice)) continue;
      seen[to] = true;
      way.push_back({to, 0});
    }
  }
  std::reverse(order.begin(), order.end());
  return order;
}

void Dependencies::add(Way way) {
  const std::vector<emu::RouterId> order = visited(way);
  const bool adapts = groups_.adapts && (table_.sets() >> unsigned(LaneSet::adaptive) & 1U) != 0;
  // Channels that a message may wait for once it has come to a router: those of the router, and of
  // the routers to which free adaptive lanes may carry it.
  std::vector<std::vector<Channel>> waits(graph_.routers.size());
  for (auto r = order.rbegin(); r != order.rend(); ++r) {
    for (const Choice& choice : table_.choices(*r, way)) {
      const emu::RouterId to = next(*r, choice);
      if (to == kNobody || !may_take(choice)) continue;
      if (may_wait(choice)) waits[*r].push_back(channel(*r, choice));
      if (adapts && !may_wait(choice))
        waits[*r].insert(waits[*r].end(), waits[to].begin(), waits[to].end());
    }
    std::sort(waits[*r].begin(), waits[*r].end());
    waits[*r].erase(std::unique(waits[*r].begin(), waits[*r].end()), waits[*r].end());
  }
  for (const emu::RouterId r : order) {
    for (const Choice& choice : table_.choices(r, way)) {
      const emu::RouterId to = next(r, choice);
      if (to == kNobody || !may_wait(choice)) continue;
      for (const Channel c : waits[to]) add_edge(channel(r, choice), c);
    }
  }
}

// Channels that wait for nobody are taken away until none is left or only those that lead into
// rings; from any of these, following the edges comes round.
std::vector<LinkLane> Dependencies::find_cycle() const {
  std::vector<std::vector<Channel>> waited_by(waits_for_.size());
  std::vector<std::size_t> left(waits_for_.size());
  std::vector<Channel> free;
  for (Channel c = 0; c < waits_for_.size(); ++c) {
    left[c] = waits_for_[c].size();
    for (const Channel to : waits_for_[c]) waited_by[to].push_back(c);
    if (left[c] == 0) free.push_back(c);
  }
  while (!free.empty()) {
    const Channel c = free.back();
    free.pop_back();
    for (const Channel from : waited_by[c])
      if (--left[from] == 0) free.push_back(from);
  }
  const auto start = std::find_if(left.begin(), left.end(), [](std::size_t n) { return n != 0; });
  if (start == left.end()) return {};
  std::vector<Channel> way = {static_cast<Channel>(start - left.begin())};
  for (;;) {
    const auto& list = waits_for_[way.back()];
    const Channel to = *std::find_if(list.begin(), list.end(), [&](Channel c) { return left[c]; });
    const auto again = std::find(way.begin(), way.end(), to);
    if (again == way.end()) {
      way.push_back(to);
      continue;
    }
    std::vector<LinkLane> cycle;
    for (auto at = again; at != way.end(); ++at) cycle.push_back(lane(*at));
    return cycle;
  }
}

// Following the first choice alone, and following any, ends at the destination.
emu::Result<void> check_ways(const Graph& graph, const RouteTable& table) {
  enum class Mark : std::uint8_t { fresh, open, done };
  struct Step {
    emu::RouterId router;
    std::size_t next;
  };
  std::vector<Mark> marks;
  std::vector<Step> way;
  for (const Way way_to : all_ways(graph, table)) {
    const auto dest = static_cast<emu::NodeId>(way_to % graph.nodes.size());
    marks.assign(graph.routers.size(), Mark::fresh);
    for (const NodePlace& place : graph.nodes) {
      if (marks[place.router] != Mark::fresh) continue;
      way = {{place.router, 0}};
      marks[place.router] = Mark::open;
      while (!way.empty()) {
        const emu::RouterId r = way.back().router;
        const auto choices = table.choices(r, way_to);
        if (way.back().next == choices.size()) {
          marks[r] = Mark::done;
          way.pop_back();
          continue;
        }
        const Choice& choice = choices[way.back().next++];
        const PortEnd& end = graph.routers[r][choice.port];
        if (end.node == dest) continue;
        if (end.router == kNobody) {
          return emu::fail("routes: {} sends what is for node {} to port {}, which leads elsewhere",
                           graph.names[r], dest, choice.port);
        }
        if (marks[end.router] == Mark::open) {
          return emu::fail("routes: what is for node {} goes in circles through {}", dest,
                           graph.names[end.router]);
        }
        if (marks[end.router] == Mark::done) continue;
        marks[end.router] = Mark::open;
        way.push_back({end.router, 0});
      }
    }
  }
  return {};
}

}  // namespace

std::vector<LinkLane> find_cycle(const Graph& graph, const RouteTable& table, const LanePlan& lanes,
                                 const ClassLanes& lanes_of_class) {
  std::set<decltype(Groups{}.key())> checked;
  const unsigned sets = link_sets(graph, table);
  for (const emu::LaneMask mask : lanes_of_class) {
    if (mask == 0) continue;
    const Groups groups = groups_of(lanes, mask, sets);
    if (!checked.insert(groups.key()).second) continue;
    std::vector<LinkLane> cycle = Dependencies(graph, table, groups).find_cycle();
    if (!cycle.empty()) return cycle;
  }
  return {};
}

std::string to_text(const Graph& graph, const std::vector<LinkLane>& cycle) {
  std::string text;
  for (const LinkLane& at : cycle)
    text += fmt::format("{} lane {} -> ", graph.names[at.router], at.lane);
  return cycle.empty() ? text : text + graph.names[cycle.front().router];
}

emu::Result<void> check_no_deadlock(const Graph& graph, const RouteTable& table,
                                    const LanePlan& lanes, const ClassLanes& lanes_of_class) {
  if (auto ways = check_ways(graph, table); !ways) return ways;
  const bool adaptive = (table.sets() >> unsigned(LaneSet::adaptive) & 1U) != 0;
  if (adaptive && graph.routers.size() > kAdaptiveRoutersMax) {
    return emu::fail("routing: adaptive is checked for up to {} routers, not {}",
                     kAdaptiveRoutersMax, graph.routers.size());
  }
  const std::vector<LinkLane> cycle = find_cycle(graph, table, lanes, lanes_of_class);
  if (cycle.empty()) return {};
  return emu::fail("routing could deadlock: {}", to_text(graph, cycle));
}

}  // namespace fabric

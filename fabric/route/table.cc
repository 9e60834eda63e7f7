#include "fabric/route/table.h"

#include <algorithm>

#include "emu/base/check.h"

namespace fabric {

void RouteTable::set(emu::RouterId router, Way way, std::span<const Choice> choices) {
  // Neighbouring destinations mostly have the same list.
  if (!lists_.empty() && std::ranges::equal(list(last_), choices)) {
    rows_[router * nodes_ + way] = last_;
    return;
  }
  CHECK(!choices.empty() && choices.front().set != LaneSet::adaptive);
  const auto [at, fresh] =
      known_.try_emplace({choices.begin(), choices.end()}, static_cast<Row>(lists_.size()));
  if (fresh) {
    CHECK(lists_.size() < 0xffff);
    lists_.emplace_back(static_cast<std::uint32_t>(flat_.size()),
                        static_cast<std::uint32_t>(choices.size()));
    flat_.insert(flat_.end(), choices.begin(), choices.end());
    for (const Choice& choice : choices) sets_ |= 1U << static_cast<unsigned>(choice.set);
    has_choices_ |= choices.size() > 1;
  }
  last_ = at->second;
  rows_[router * nodes_ + way] = last_;
}

void RouteTable::put(std::size_t version, const RouteTable& other) {
  CHECK(other.size_ == size_ && version <= versions());
  if (version == versions()) rows_.resize((version + 1) * size_, 0);
  for (std::size_t i = 0; i < size_; ++i) {
    const auto router = static_cast<emu::RouterId>(i / nodes_);
    const auto dest = static_cast<Way>(i % nodes_);
    set(router, first_way(version) + dest, other.choices(router, dest));
  }
}

std::vector<Hop> path(const Graph& graph, const RouteTable& table, emu::NodeId src,
                      emu::NodeId dest, std::size_t version) {
  std::vector<Hop> hops;
  NodePlace at = graph.nodes[src];
  for (;;) {
    CHECK(hops.size() <= graph.routers.size());
    const emu::PortId out = table.out_port(at.router, table.first_way(version) + dest);
    hops.push_back({at.router, at.port, out});
    const PortEnd& end = graph.routers[at.router][out];
    if (end.node == dest) return hops;
    CHECK(end.router != kNobody);
    at = {end.router, end.port};
  }
}

}  // namespace fabric

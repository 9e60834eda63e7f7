#include "fabric/route/table.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "emu/base/check.h"

namespace fabric {

void RouteTable::set(emu::RouterId router, Way way, std::span<const Choice> choices) {
  // Neighbouring destinations mostly have the same list.
  if (!lists_.empty() && std::ranges::equal(list(last_), choices)) {
    rows_[router * nodes_ + way] = last_;
    return;
  }
  CHECK(!choices.empty() && choices.front().set != LaneSet::adaptive);
  last_ = row_of(choices);
  rows_[router * nodes_ + way] = last_;
}

// That of the list, which is a new one or known.
RouteTable::Row RouteTable::row_of(std::span<const Choice> choices) {
  const auto [at, fresh] =
      known_.try_emplace({choices.begin(), choices.end()}, static_cast<Row>(lists_.size()));
  if (fresh) {
    // Both are less than the choices of all pairs together, which memory would not hold.
    CHECK(lists_.size() < std::numeric_limits<Row>::max() &&
          flat_.size() + choices.size() <= std::numeric_limits<std::uint32_t>::max());
    lists_.emplace_back(static_cast<std::uint32_t>(flat_.size()),
                        static_cast<std::uint32_t>(choices.size()));
    flat_.insert(flat_.end(), choices.begin(), choices.end());
    for (const Choice& choice : choices) sets_ |= 1U << static_cast<unsigned>(choice.set);
    has_choices_ |= choices.size() > 1;
  }
  return at->second;
}

void RouteTable::put(std::size_t version, const RouteTable& other) {
  CHECK(other.size_ == size_ && version <= versions());
  const bool replaces = version < versions();
  if (!replaces) rows_.resize((version + 1) * size_, 0);
  for (std::size_t i = 0; i < size_; ++i) {
    const auto router = static_cast<emu::RouterId>(i / nodes_);
    const auto dest = static_cast<Way>(i % nodes_);
    set(router, first_way(version) + dest, other.choices(router, dest));
  }
  if (replaces) forget_unused();
}

// Builds the lists anew from those that rows have.
void RouteTable::forget_unused() {
  constexpr Row kUnseen = std::numeric_limits<Row>::max();
  RouteTable used(0, 0);
  std::vector<Row> moved(lists_.size(), kUnseen);
  for (Row& row : rows_) {
    if (moved[row] == kUnseen) moved[row] = used.row_of(list(row));
    row = moved[row];
  }
  used.nodes_ = nodes_;
  used.size_ = size_;
  used.rows_ = std::move(rows_);
  *this = std::move(used);
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

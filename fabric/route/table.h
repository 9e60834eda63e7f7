// From a graph to the choices that a router has for a destination. Asked by stage 2 of the engine,
// and by whoever wants the path between two nodes (admission, power).
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "emu/base/result.h"
#include "fabric/route/lanes.h"
#include "fabric/topo/graph.h"

namespace fabric {

struct Hop {
  emu::RouterId router;
  emu::PortId in_port;
  emu::PortId out_port;
  bool operator==(const Hop&) const = default;
};

struct Choice {
  emu::PortId port;
  LaneSet set = LaneSet::any;
  auto operator<=>(const Choice&) const = default;
};

// A destination, in one version of the routes; in version 0 it is the number of the node.
using Way = std::uint32_t;

// Few different lists of choices serve all pairs of router and destination: a pair holds an index.
// Of a list the first is the fixed way, which never depends on load. Where a list has choices of
// the adaptive set, those come behind the one that is not: the escape or recovery. Version 0 is of
// the whole graph, others go round links that are out of service (detour.h).
class RouteTable {
 public:
  using Row = std::uint32_t;  // a list; large graphs without any shape have more than 2^16
  RouteTable(int routers, int nodes)
      : nodes_(static_cast<std::size_t>(nodes)),
        size_(static_cast<std::size_t>(routers) * nodes_),
        rows_(size_, 0) {}

  std::span<const Choice> choices(emu::RouterId router, Way way) const {
    return list(rows_[router * nodes_ + way]);
  }
  // choices() of these will be asked soon.
  void fetch(emu::RouterId router, Way way) const {
    __builtin_prefetch(&rows_[router * nodes_ + way]);
  }
  emu::PortId out_port(emu::RouterId router, Way way) const {
    return choices(router, way).front().port;
  }
  void set(emu::RouterId router, Way way, std::span<const Choice> choices);
  void set(emu::RouterId router, Way way, emu::PortId port) {
    const Choice only = {port};
    set(router, way, {&only, 1});
  }

  // Destination 0 in a version; the others follow.
  Way first_way(std::size_t version) const { return static_cast<Way>(version * size_); }
  std::size_t versions() const { return size_ == 0 ? 1 : rows_.size() / size_; }
  // Makes version 0 of `other`, of the same graph, a version of this: a new one, or in place of
  // one, whose lists are then forgotten unless others have them too.
  void put(std::size_t version, const RouteTable& other);
  std::span<const Choice> list(Row row) const {
    return {flat_.data() + lists_[row].first, lists_[row].second};
  }
  std::size_t lists() const { return lists_.size(); }
  unsigned sets() const { return sets_; }            // bit mask of the LaneSets in use
  bool has_choices() const { return has_choices_; }  // of some destination at some router

 private:
  Row row_of(std::span<const Choice> choices);
  void forget_unused();

  std::size_t nodes_;
  std::size_t size_;       // rows of a version
  std::vector<Row> rows_;  // [version][router][destination]
  std::vector<Choice> flat_;
  std::vector<std::pair<std::uint32_t, std::uint32_t>> lists_;  // begin and size in flat_
  std::map<std::vector<Choice>, Row> known_;
  Row last_ = 0;  // set last
  unsigned sets_ = 0;
  bool has_choices_ = false;
};

// Every router of the fixed way. Stops with a CHECK when the table leads nowhere.
std::vector<Hop> path(const Graph& graph, const RouteTable& table, emu::NodeId src,
                      emu::NodeId dest, std::size_t version = 0);

}  // namespace fabric

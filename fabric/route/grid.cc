#include "fabric/route/grid.h"

#include <algorithm>

#include "emu/base/check.h"

namespace fabric {

namespace {

// What one dimension still asks for.
struct GridStep {
  int dimension;
  bool down;
  bool both;     // as far one way round the ring as the other
  bool crosses;  // the way round leads over the link between the last coordinate and 0
};

std::vector<GridStep> ways(const Grid& grid, int from, int to) {
  std::vector<GridStep> found;
  for (int d = 0; d < grid.dimensions(); ++d) {
    const int at = grid.coordinate(from, d);
    const int want = grid.coordinate(to, d);
    if (at == want) continue;
    GridStep way = {d, want < at, false, false};
    if (grid.wraps) {
      const int side = grid.sides[static_cast<std::size_t>(d)];
      const int up = (want - at + side) % side;
      way.down = 2 * up > side;
      way.both = 2 * up == side;
      way.crosses = way.down ? want > at : want < at;
    }
    found.push_back(way);
  }
  return found;
}

// Dally and Seitz: lanes of the first set as long as the way still crosses the dateline, of the
// second from there on. Of the first set no link behind the dateline is used, of the second not the
// link that crosses it: neither makes a ring.
LaneSet dateline_set(const GridStep& way) { return way.crosses ? LaneSet::first : LaneSet::second; }

class GridRoutes {
 public:
  GridRoutes(const Grid& grid, RoutingKind kind) : grid_(grid), kind_(kind) {}

  void choose(int router, int to, emu::NodeId dest, std::vector<Choice>& choices) const {
    const std::vector<GridStep> open = ways(grid_, router, to);
    const GridStep& next = open.front();
    const LaneSet set = fixed_set(next);
    // Parallel links: that of the destination is the fixed one.
    for (int i = 0; i < grid_.links; ++i) {
      choices.push_back({port(next.dimension, next.down, (dest + i) % grid_.links), set});
      if (kind_ != RoutingKind::dor_by_load) break;
    }
    if (!adaptive()) return;
    for (const GridStep& way : open) {
      for (const bool down : {way.down, !way.down}) {
        if (down != way.down && !way.both) continue;
        for (int i = 0; i < grid_.links; ++i)
          choices.push_back({port(way.dimension, down, i), LaneSet::adaptive});
      }
    }
  }

 private:
  bool recovers() const { return kind_ == RoutingKind::recovery; }
  bool adaptive() const { return kind_ == RoutingKind::adaptive || recovers(); }
  LaneSet fixed_set(const GridStep& step) const {
    if (recovers()) return LaneSet::recovery;
    if (kind_ == RoutingKind::dateline) return dateline_set(step);
    if (!adaptive()) return LaneSet::any;
    return grid_.wraps ? dateline_set(step) : LaneSet::first;
  }
  emu::PortId port(int dimension, bool down, int link) const {
    return static_cast<emu::PortId>(grid_.port(dimension, down, link));
  }

  const Grid& grid_;
  RoutingKind kind_;
};

}  // namespace

RouteTable make_grid_table(const Graph& graph, RoutingKind kind) {
  const int routers = static_cast<int>(graph.routers.size());
  const int nodes = static_cast<int>(graph.nodes.size());
  const GridRoutes routes(graph.grid, kind);
  RouteTable table(routers, nodes);
  std::vector<Choice> choices;
  for (int r = 0; r < routers; ++r) {
    for (int n = 0; n < nodes; ++n) {
      const auto router = static_cast<emu::RouterId>(r);
      const auto dest = static_cast<emu::NodeId>(n);
      const NodePlace& place = graph.nodes[dest];
      choices.clear();
      if (place.router == router) {
        choices.push_back({place.port});
      } else {
        routes.choose(r, place.router, dest, choices);
      }
      table.set(router, dest, choices);
    }
  }
  return table;
}

}  // namespace fabric

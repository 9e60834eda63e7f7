// Links that are taken out of service and put back while the fabric runs (`flitnet link`). Between
// routers: a link drains, packets that leave from now on go round it, and bookings on ways that
// changed are asked for anew (Edge::set_down). A node's own: its session ends and is refused until
// the link is back, so its port is down and what others send to it is lost, as with a pulled cable.
// In: names. Out: changes at the edge and the ports, the list for who asks.
#pragma once

#include <array>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "emu/base/json_line.h"
#include "emu/base/result.h"
#include "emu/base/units.h"
#include "emu/config/config.h"
#include "fabric/daemon/edge.h"
#include "fabric/router/network.h"

namespace fabric {

// A link by either of its ends; a node's by the router's port that it is plugged into.
struct LinkName {
  LinkEnd end;
  emu::NodeId node = emu::kNodesMax;  // below kNodesMax: the link of this node
  bool is_node() const { return node != emu::kNodesMax; }
};

class Links {
 public:
  Links(const emu::Config& config, Network& network, Edge& edge);

  // "n3", or a router and its port such as "0:4". The error says what is a link.
  emu::Result<LinkName> parse(std::string_view text) const;
  // Of routers: an error, and nothing changes, where there is no way round (Network::set_down). Of
  // a node: from now on node_down() says so; whoever has its session ends it.
  emu::Result<void> set(const LinkName& link, bool up);

  // Its session has ended: so its link went down.
  void lost(emu::NodeId node) { ++downs_of(end_of(node)); }
  // How often the link at that port went down.
  std::uint64_t downs(LinkEnd end) const { return downs_[end.router][end.port]; }

  bool node_down(emu::NodeId node) const { return node_down_[node]; }
  bool is_down(LinkEnd end) const;  // a router's port
  std::size_t down_count() const;
  // An array: every link once, by name, its far end, whether it is up.
  void write(emu::JsonWriter& json) const;

 private:
  LinkEnd other(LinkEnd end) const;
  LinkEnd end_of(emu::NodeId node) const {
    return {network_.router_of(node), network_.port_of(node)};
  }
  std::uint64_t& downs_of(LinkEnd end) { return downs_[end.router][end.port]; }
  std::string name_of(LinkEnd end) const;

  const emu::Config& config_;
  Network& network_;
  Edge& edge_;
  std::array<bool, emu::kNodesMax> node_down_{};
  std::vector<std::vector<std::uint64_t>> downs_;  // [router][port]
};

}  // namespace fabric

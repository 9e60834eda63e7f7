#include "fabric/daemon/links.h"

#include <algorithm>
#include <charconv>

#include <fmt/core.h>

namespace fabric {

namespace {

// The whole of `text` as a number below `limit`, else `limit`.
unsigned number_below(std::string_view text, unsigned limit) {
  unsigned value = limit;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() ? std::min(value, limit) : limit;
}

}  // namespace

Links::Links(const emu::Config& config, Network& network, Edge& edge)
    : config_(config), network_(network), edge_(edge) {
  for (int r = 0; r < network.routers(); ++r) {
    const int ports = network.ports(static_cast<emu::RouterId>(r));
    downs_.emplace_back(static_cast<std::size_t>(ports));
  }
}

emu::Result<LinkName> Links::parse(std::string_view text) const {
  const auto named = std::ranges::find(config_.nodes, text, &emu::NodeConfig::name);
  LinkName link;
  if (named != config_.nodes.end()) {
    link.node = static_cast<emu::NodeId>(named - config_.nodes.begin());
    link.end = end_of(link.node);
    return link;
  }
  const std::size_t colon = text.find(':');
  const auto routers = static_cast<unsigned>(network_.routers());
  const unsigned router = number_below(text.substr(0, colon), routers);
  if (colon == std::string_view::npos || router == routers) {
    return emu::fail("link {}: no node of this name, and no port of a router such as 0:4", text);
  }
  link.end.router = static_cast<emu::RouterId>(router);
  const auto ports = static_cast<unsigned>(network_.ports(link.end.router));
  const unsigned port = number_below(text.substr(colon + 1), ports);
  if (port == ports)
    return emu::fail("link {}: router {} has ports 0 to {}", text, router, ports - 1);
  link.end.port = static_cast<emu::PortId>(port);
  const emu::NodeId node = network_.node_at(link.end.router, link.end.port);
  if (node != kNoNode) link.node = node;
  if (!link.is_node() && network_.peer(link.end.router, link.end.port).router == emu::kNoRouter)
    return emu::fail("link {}: nothing is plugged in there", text);
  return link;
}

emu::Result<void> Links::set(const LinkName& link, bool up) {
  if (link.is_node()) {
    node_down_[link.node] = !up;
    return {};
  }
  std::vector<LinkEnd> down(network_.down().begin(), network_.down().end());
  std::erase_if(down, [&](LinkEnd end) { return end == link.end || end == other(link.end); });
  if (!up) down.push_back(link.end);
  const bool was_up = !is_down(link.end);
  auto done = edge_.set_down(down);
  if (!done || up || !was_up) return done;
  ++downs_of(link.end);
  ++downs_of(other(link.end));
  return done;
}

LinkEnd Links::other(LinkEnd end) const {
  const Network::Peer peer = network_.peer(end.router, end.port);
  return {peer.router, peer.port};
}

bool Links::is_down(LinkEnd end) const {
  const LinkEnd far = other(end);
  return std::ranges::any_of(network_.down(),
                             [&](LinkEnd down) { return down == end || down == far; });
}

std::size_t Links::down_count() const {
  return network_.down().size() + static_cast<std::size_t>(std::ranges::count(node_down_, true));
}

std::string Links::name_of(LinkEnd end) const { return fmt::format("{}:{}", end.router, end.port); }

void Links::write(emu::JsonWriter& json) const {
  json.open_array("links");
  for (int n = 0; n < network_.nodes(); ++n) {
    const auto node = static_cast<emu::NodeId>(n);
    const LinkEnd end = end_of(node);
    json.open().field("link", config_.nodes[node].name).field("to", name_of(end));
    json.field("up", !node_down_[node]).close();
  }
  for (int r = 0; r < network_.routers(); ++r) {
    const auto router = static_cast<emu::RouterId>(r);
    for (int p = 0; p < network_.ports(router); ++p) {
      const LinkEnd end = {router, static_cast<emu::PortId>(p)};
      const LinkEnd far = other(end);
      if (far.router == emu::kNoRouter || far < end) continue;
      json.open().field("link", name_of(end)).field("to", name_of(far));
      json.field("up", !is_down(end)).close();
    }
  }
  json.close_array();
}

}  // namespace fabric

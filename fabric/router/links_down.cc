// Links go out of service and come back: each set of them has a version of the routes, and a packet
// keeps to the version in force when its head left.
#include <algorithm>

#include "fabric/route/deadlock.h"
#include "fabric/router/impl.h"

namespace fabric {

namespace {

// The same links always look the same.
std::vector<LinkEnd> in_order(const Graph& graph, std::span<const LinkEnd> links) {
  std::vector<LinkEnd> sorted;
  for (LinkEnd link : links) {
    if (link.router < graph.routers.size() && link.port < graph.routers[link.router].size()) {
      const PortEnd& far = graph.routers[link.router][link.port];
      if (far.router != kNobody) link = std::min(link, LinkEnd{far.router, far.port});
    }
    sorted.push_back(link);
  }
  std::ranges::sort(sorted);
  const auto doubles = std::ranges::unique(sorted);
  sorted.erase(doubles.begin(), doubles.end());
  return sorted;
}

// A new version, or one that nobody goes by; version 0 is that of all links.
emu::Result<std::size_t> free_version(const Network::Impl& impl) {
  const RouteTable& table = impl.routes.table;
  if (table.versions() < Network::kRouteVersionsMax) return table.versions();
  for (std::size_t v = 1; v < table.versions(); ++v) {
    const bool used = impl.messages.any_on(table.first_way(v), table.first_way(v + 1) - 1);
    if (v != impl.version && !used) return v;
  }
  return emu::fail("links: packets under way still go by {} versions of the routes; try again",
                   Network::kRouteVersionsMax);
}

}  // namespace

emu::Result<void> Network::set_down(std::span<const LinkEnd> links) {
  Impl& impl = *impl_;
  if (impl.spec.router == RouterKind::circuit || impl.spec.router == RouterKind::cell)
    return emu::fail("links: circuits and cell switches keep to the ways they have");
  std::vector<LinkEnd> down = in_order(impl.graph, links);
  const auto known = std::ranges::find(impl.down_of_version, down);
  auto version = static_cast<std::size_t>(known - impl.down_of_version.begin());
  if (known == impl.down_of_version.end()) {
    auto detour = make_detour(impl.graph, impl.routes.table, impl.spec.routing, down);
    if (!detour) return std::unexpected(detour.error());
    auto place = free_version(impl);
    if (!place) return std::unexpected(place.error());
    version = *place;
    RouteTable all = impl.routes.table;
    all.put(version, *detour);
    // All versions at once: packets of one may wait for those of another.
    auto safe = check_no_deadlock(impl.graph, all, impl.routes.lanes, impl.spec.lanes_of_class);
    if (!safe) return safe;
    impl.routes.table = std::move(all);
    impl.down_of_version.resize(impl.routes.table.versions());
    impl.down_of_version[version] = std::move(down);
  }
  impl.version = version;
  impl.messages.set_first_way(impl.routes.table.first_way(version));
  return {};
}

std::span<const LinkEnd> Network::down() const { return impl_->down_of_version[impl_->version]; }

}  // namespace fabric

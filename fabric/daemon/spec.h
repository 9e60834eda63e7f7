// From the configuration of a cluster to what the engine, the books and the ports are built from.
// Called by fabricd; tests and benchmarks build the same fabric from the same file.
#pragma once

#include <string>
#include <string_view>

#include "emu/base/units.h"
#include "emu/clock/pace.h"
#include "emu/config/config.h"
#include "fabric/admit/book.h"
#include "fabric/port/port.h"
#include "fabric/router/network.h"
#include "fabric/router/spec.h"

namespace fabric {

// Packets that a node may have in the fabric at once: its slots in shared memory. At 400 Mb/s and
// 40 flits, five times what it sends within the launch horizon of 10 ms.
inline constexpr std::size_t kSlotsPerNode = 4096;

// A topology file; empty when it cannot be read: the graph's reader then names the file.
std::string content_of(const std::string& path);
NetworkSpec network_spec(const emu::Config& config, emu::Cycle start);
// Writes down how far apart nodes are where the sizes of the topology do not tell it: a graph from
// a file, routes that are not the shortest. Before anything that follows from it: the power cap
// and what is made of that. Of a spec that no network can be made of nothing is written.
void tell_links(emu::Config& config, const NetworkSpec& spec);
// Ports that lead to other routers, a bit each: Admission::set_router_ports.
std::uint64_t router_ports(const Network& network, emu::RouterId router);
// Whether HCAs with this congestion scheme look at the routers.
inline bool needs_state(std::string_view congestion) {
  return congestion == "alo" || congestion == "self_tuned";
}
BookLimits book_limits(const emu::Config& config, int routers);
EdgeRules edge_rules(const emu::Config& config);
emu::PaceOptions pace_options(const emu::Config& config);

}  // namespace fabric

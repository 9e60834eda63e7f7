// Who is meant by a datagram: by its LID, or hop by hop along the route that it carries
// (IBA 14.2.2).
#include "fabric/subnet/agent.h"

#include <algorithm>
#include <cstring>

#include <fmt/core.h>

#include "emu/base/guid.h"

namespace fabric {

namespace {

constexpr std::uint16_t kNotSupported = 0x000c;  // the method with this attribute (IBA 13.4.7)
constexpr std::uint16_t kInvalidField = 0x001c;
constexpr std::uint16_t kDirected = 0x8000;  // "D": on its way back

constexpr std::uint64_t kSwitchGuids = 0x10000;  // behind those of nodes

// Directed routes (IBA 14.2.1.2).
constexpr std::size_t kHopPointerAt = 6;
constexpr std::size_t kHopCountAt = 7;
constexpr std::size_t kDrSlidAt = 32;
constexpr std::size_t kDrDlidAt = 34;
constexpr std::size_t kInitialPathAt = 128;
constexpr std::size_t kReturnPathAt = 192;
constexpr unsigned kHopsMax = 63;
constexpr std::size_t kDataAt = 64;
constexpr std::size_t kDataBytes = 64;

constexpr emu::Lid kManagerLid = 1;

}  // namespace

SubnetAgent::SubnetAgent(SubnetSpec spec, const Network& network)
    : spec_(std::move(spec)), network_(network) {
  for (int n = 0; n < network_.nodes(); ++n) {
    const auto node = static_cast<emu::NodeId>(n);
    node_at_[{network_.router_of(node), network_.port_of(node)}] = node;
  }
}

SubnetAgent::Answer SubnetAgent::answer(const emu::Mad& asked, emu::NodeId source, emu::Lid dlid,
                                        std::span<std::uint8_t, kAnswerBytesMax> answer) {
  if (!emu::is_for_subnet(asked)) return {};
  std::fill_n(answer.begin(), emu::kMadBytes, std::uint8_t{0});
  const std::uint8_t mad_class = asked[emu::kMadClassAt];
  const bool directed = mad_class == emu::kClassSubnetDirected;
  const std::optional<Target> target = directed ? walk(asked, source, answer) : at_lid(dlid);
  if (!target || (mad_class == emu::kClassSubnetAdmin && dlid != kManagerLid)) return {};
  // The header comes back, of what is behind it all but the data.
  std::copy_n(asked.begin(), kDataAt, answer.begin());
  const Fields fields(answer);
  fields.put16(emu::kMadStatusAt, 0);
  fields.put8(emu::kMadMethodAt, emu::kMadGetResponse);
  const auto attribute = static_cast<std::uint16_t>(get(asked, emu::kMadAttributeAt, 2));
  const auto modifier = static_cast<std::uint32_t>(get(asked, emu::kMadModifierAt, 4));
  std::size_t bytes = emu::kMadBytes;
  std::uint16_t status = 0;
  if (mad_class == emu::kClassSubnetAdmin) {
    bytes = administration(asked, source, answer);
    if (bytes == 0) status = kNotSupported;
  } else if (mad_class == emu::kClassPerformance) {
    if (!performance(*target, asked, fields.from(kDataAt)))
      status =
          attribute == 1 || attribute == 0x12 || attribute == 0x1d ? kInvalidField : kNotSupported;
  } else {
    const bool served = asked[emu::kMadMethodAt] == emu::kMadGet && dlid != 0 &&
                        subnet_attribute(*target, attribute, modifier, fields.from(kDataAt));
    if (!served) status = kNotSupported;
  }
  if (bytes == 0) bytes = emu::kMadBytes;
  fields.put16(emu::kMadStatusAt, status | (directed ? kDirected : 0U));
  if (directed) fields.put8(kHopPointerAt, 0);
  return {bytes, lid_of(*target)};
}

std::optional<SubnetAgent::Target> SubnetAgent::at_lid(emu::Lid lid) const {
  const auto nodes = static_cast<unsigned>(network_.nodes());
  if (lid >= 1 && lid <= nodes) {
    const emu::NodeId node = emu::node_of(lid);
    if (!spec_.node_up(node)) return {};
    return Target{.is_switch = false, .node = node, .router = 0, .in_port = 1};
  }
  const unsigned router = lid - nodes - 1U;
  if (lid <= nodes || router >= static_cast<unsigned>(network_.routers())) return {};
  return Target{
      .is_switch = true, .node = 0, .router = static_cast<emu::RouterId>(router), .in_port = 0};
}

std::optional<SubnetAgent::Target> SubnetAgent::beyond(emu::RouterId router, unsigned port) const {
  if (port >= static_cast<unsigned>(network_.ports(router))) return {};
  if (const auto node = node_at_.find({router, port}); node != node_at_.end()) {
    if (!spec_.node_up(node->second)) return {};
    return Target{.is_switch = false, .node = node->second, .router = 0, .in_port = 1};
  }
  const auto out = static_cast<emu::PortId>(port);
  const Network::Peer peer = network_.peer(router, out);
  if (peer.router == emu::kNoRouter || !spec_.link_up(router, out)) return {};
  return Target{.is_switch = true, .node = 0, .router = peer.router, .in_port = peer.port + 1U};
}

// The way back is written into the answer.
std::optional<SubnetAgent::Target> SubnetAgent::walk(const emu::Mad& asked, emu::NodeId source,
                                                     std::span<std::uint8_t> answer) const {
  const unsigned hops = asked[kHopCountAt];
  if (hops > kHopsMax || get(asked, kDrSlidAt, 2) != 0xffff || get(asked, kDrDlidAt, 2) != 0xffff)
    return {};
  std::copy_n(&asked[kInitialPathAt], kHopsMax + 1, &answer[kInitialPathAt]);
  Target at{.is_switch = false, .node = source, .router = 0, .in_port = 1};
  for (unsigned hop = 1; hop <= hops; ++hop) {
    const unsigned out = asked[kInitialPathAt + hop];
    std::optional<Target> next;
    if (at.is_switch) {
      if (out != 0) next = beyond(at.router, out - 1);
    } else if (hop == 1 && out == 1) {
      next = Target{.is_switch = true,
                    .node = 0,
                    .router = network_.router_of(source),
                    .in_port = network_.port_of(source) + 1U};
    }
    if (!next) return {};
    at = *next;
    answer[kReturnPathAt + hop] = static_cast<std::uint8_t>(at.in_port);
  }
  return at;
}

emu::Lid SubnetAgent::switch_lid(emu::RouterId router) const {
  return static_cast<emu::Lid>(network_.nodes() + 1 + router);
}
emu::Lid SubnetAgent::lid_of(const Target& target) const {
  return target.is_switch ? switch_lid(target.router) : emu::lid_of(target.node);
}
std::uint64_t SubnetAgent::guid_of(const Target& target) const {
  return emu::kGuidBase + (target.is_switch ? kSwitchGuids + target.router : target.node) + 1;
}
std::string SubnetAgent::name_of(const Target& target) const {
  if (target.is_switch) return fmt::format("switch {}", target.router);
  return fmt::format("{} {}", spec_.nodes[target.node], spec_.device);
}
unsigned SubnetAgent::ports_of(const Target& target) const {
  return target.is_switch ? static_cast<unsigned>(network_.ports(target.router)) : 1;
}

bool SubnetAgent::subnet_attribute(const Target& target, std::uint16_t attribute,
                                   std::uint32_t modifier, Fields data) {
  switch (attribute) {
    case 0x10: {  // NodeDescription
      const std::string name = name_of(target);
      std::copy_n(name.begin(), std::min(name.size(), kDataBytes - 1), data.bytes().begin());
      return true;
    }
    case 0x11:
      node_info(target, data);
      return true;
    case 0x12:
      if (target.is_switch) switch_info(data);
      return target.is_switch;
    case 0x14:  // GUIDInfo
      if (modifier == 0) data.put64(0, guid_of(target));
      return true;
    case 0x15:
      return port_info(target, modifier, data);
    case 0x16:  // P_KeyTable
      if ((modifier & 0xffff) == 0) data.put16(0, 0xffff);
      return true;
    case 0x17:  // SLtoVLMappingTable
      for (std::size_t sl = 0; sl < 16; sl += 2)
        data.put8(sl / 2, spec_.lane_of_sl[sl] << 4 | spec_.lane_of_sl[sl + 1]);
      return true;
    case 0x18:
      arbitration(modifier, data);
      return true;
    case 0x19:
      return target.is_switch && forwarding(target, modifier, data);
    case 0x1b:  // MulticastForwardingTable: groups are the HCAs' affair here
      return target.is_switch;
    case 0x20:
      manager_info(target, data);
      return true;
    default:
      return false;
  }
}

// Which node or switch has this identifier, of which the lower half is the port's; 0: none.
emu::Lid SubnetAgent::lid_of_gid(std::span<const std::uint8_t> gid) const {
  const std::uint64_t number = get(gid, 8, 8) - emu::kGuidBase - 1;
  if (number < static_cast<std::uint64_t>(network_.nodes()))
    return emu::lid_of(static_cast<emu::NodeId>(number));
  if (number < kSwitchGuids ||
      number - kSwitchGuids >= static_cast<std::uint64_t>(network_.routers()))
    return 0;
  return switch_lid(static_cast<emu::RouterId>(number - kSwitchGuids));
}

}  // namespace fabric

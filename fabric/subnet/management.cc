// What the subnet management agents say (IBA 14.2.5): of nodes, switches, ports, tables.
#include <algorithm>
#include <deque>

#include "emu/base/guid.h"
#include "emu/base/link_speed.h"
#include "fabric/subnet/agent.h"

namespace fabric {

namespace {

constexpr unsigned kDown = 1;
constexpr unsigned kActive = 4;
constexpr unsigned kPolling = 2;
constexpr unsigned kLinkUp = 5;
constexpr unsigned kUnreachable = 0xff;  // in a forwarding table
constexpr unsigned kLidsPerBlock = 64;
constexpr unsigned kLidsMax = 0xc000;
constexpr unsigned kDataLanes = 5;  // VL0 to VL14
constexpr unsigned kArbitrationEntries = 16;
constexpr emu::Lid kManagerLid = 1;
constexpr unsigned kMaster = 3;

unsigned mtu_code(std::uint32_t bytes) {
  unsigned code = 1;
  while (code < 5 && (256U << (code - 1)) < bytes) ++code;
  return code;
}

}  // namespace

void SubnetAgent::node_info(const Target& target, Fields data) const {
  const std::uint64_t guid = guid_of(target);
  data.put8(0, 1);  // BaseVersion
  data.put8(1, 1);  // ClassVersion
  data.put8(2, target.is_switch ? 2 : 1);
  data.put8(3, ports_of(target));
  data.put64(4, guid);   // SystemImageGUID
  data.put64(12, guid);  // NodeGUID
  data.put64(20, guid);  // PortGUID
  data.put16(28, 1);     // PartitionCap
  data.put16(30, spec_.device_id);
  data.put8(36, target.in_port);
  data.put24(37, spec_.vendor_id);
}

void SubnetAgent::switch_info(Fields data) const {
  const auto top = static_cast<unsigned>(network_.nodes() + network_.routers());
  data.put16(0, kLidsMax - 1);  // LinearFDBCap
  data.put16(6, top);           // LinearFDBTop
  data.put8(11, 18 << 3);       // LifeTimeValue
  data.put16(14, 1);            // PartitionEnforcementCap
}

bool SubnetAgent::port_info(const Target& target, std::uint32_t port, Fields data) const {
  if (!target.is_switch && port == 0) port = 1;
  if (port > ports_of(target)) return false;
  const bool own = target.is_switch && port == 0;  // has no link
  bool up = true;
  if (target.is_switch && !own) up = beyond(target.router, port - 1).has_value();
  const emu::LinkSpeed speed = emu::link_speed_of(spec_.link_bps);
  // FDR and above are said in a field of their own (IBA 14.2.5.6).
  const unsigned extended = speed.speed >= 16 ? speed.speed / 16U : 0U;
  const unsigned signalling = extended != 0 ? 4U : speed.speed;
  const unsigned mtu = mtu_code(spec_.mtu_bytes);
  if (!target.is_switch || own) {
    data.put64(8, emu::kGidPrefix);
    data.put16(16, lid_of(target));
    data.put16(18, kManagerLid);
    const bool manager = !target.is_switch && emu::lid_of(target.node) == kManagerLid;
    data.put32(20, manager ? 0x2 : 0);  // CapabilityMask: IsSM
  }
  data.put8(28, target.in_port);
  data.put8(29, speed.width);
  data.put8(30, speed.width);
  data.put8(31, speed.width);
  data.put8(32, signalling << 4 | (up ? kActive : kDown));
  data.put8(33, (up ? kLinkUp : kPolling) << 4 | kPolling);
  data.put8(35, signalling << 4 | signalling);
  data.put8(36, mtu << 4);  // NeighborMTU
  data.put8(37, kDataLanes << 4);
  data.put8(38, std::min<unsigned>(spec_.weights.high_limit, 255));
  data.put8(39, kArbitrationEntries);
  data.put8(40, kArbitrationEntries);
  data.put8(41, mtu);  // MTUCap
  data.put8(42, 19);   // HOQLife: for ever
  data.put8(43, kDataLanes << 4);
  data.put8(50, 1);   // GUIDCap
  data.put8(51, 18);  // SubnetTimeOut
  data.put8(52, 16);  // RespTimeValue
  data.put8(62, extended << 4 | extended);
  data.put8(63, extended);
  return true;
}

// Towards nodes as packets go that leave now; towards switches, to which only datagrams go, on a
// shortest way.
bool SubnetAgent::forwarding(const Target& target, std::uint32_t block, Fields data) {
  if (block >= kLidsMax / kLidsPerBlock) return false;
  const auto nodes = static_cast<unsigned>(network_.nodes());
  const auto routers = static_cast<unsigned>(network_.routers());
  for (unsigned i = 0; i < kLidsPerBlock; ++i) {
    const unsigned lid = block * kLidsPerBlock + i;
    unsigned port = kUnreachable;
    if (lid >= 1 && lid <= nodes) {
      port = network_.route(target.router, emu::node_of(static_cast<emu::Lid>(lid))) + 1U;
    } else if (lid > nodes && lid - nodes - 1 < routers) {
      port = ways_to_switch(static_cast<emu::RouterId>(lid - nodes - 1))[target.router];
    }
    data.put8(i, port);
  }
  return true;
}

const std::vector<std::uint8_t>& SubnetAgent::ways_to_switch(emu::RouterId to) {
  const auto down = network_.down();
  if (!std::ranges::equal(down, ways_down_)) {
    ways_.clear();
    ways_down_.assign(down.begin(), down.end());
  }
  const auto [found, added] = ways_.try_emplace(to);
  std::vector<std::uint8_t>& ways = found->second;
  if (!added) return ways;
  ways.assign(static_cast<std::size_t>(network_.routers()), kUnreachable);
  ways[to] = 0;
  std::deque<emu::RouterId> next = {to};
  for (; !next.empty(); next.pop_front()) {
    const emu::RouterId at = next.front();
    for (int p = 0; p < network_.ports(at); ++p) {
      const auto port = static_cast<emu::PortId>(p);
      const Network::Peer peer = network_.peer(at, port);
      if (peer.router == emu::kNoRouter || ways[peer.router] != kUnreachable ||
          !spec_.link_up(at, port)) {
        continue;
      }
      ways[peer.router] = static_cast<std::uint8_t>(peer.port + 1U);
      next.push_back(peer.router);
    }
  }
  return ways;
}

// Blocks 1 and 2 have the table of low priority, 3 and 4 that of high; each has 32 entries.
void SubnetAgent::arbitration(std::uint32_t modifier, Fields data) const {
  const std::uint32_t block = modifier >> 16;
  if (block != 1 && block != 3) return;
  const auto& weights = block == 3 ? spec_.weights.high : spec_.weights.low;
  std::size_t entry = 0;
  for (unsigned vl = 0; vl < kArbitrationEntries - 1; ++vl) {  // VL15 goes before all
    if (weights[vl] == 0) continue;
    data.put8(2 * entry, vl);
    data.put8(2 * entry + 1, std::min<unsigned>(weights[vl], 255));
    ++entry;
  }
}

void SubnetAgent::manager_info(const Target& target, Fields data) {
  data.put64(0, guid_of(target));
  data.put32(16, ++asked_);  // ActCount
  const bool manager = !target.is_switch && emu::lid_of(target.node) == kManagerLid;
  data.put8(20, manager ? kMaster : 0);
}

}  // namespace fabric

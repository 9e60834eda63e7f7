// What a manager or ibnetdiscover finds by asking port after port, and what switches say of LIDs.
#include <map>
#include <queue>
#include <set>

#include "emu/base/guid.h"
#include "emu/base/link_speed.h"
#include "fabric/subnet/management.h"
#include "tests/unit/fabric/subnet/subnet_world.h"

namespace fabric {
namespace {

constexpr unsigned kDirection = 0x8000;
using Links = std::set<std::pair<std::pair<std::uint64_t, int>, std::pair<std::uint64_t, int>>>;

class DiscoveryTest : public SubnetTest {
 protected:
  // Breadth first, as ibnetdiscover does: a new device, its ports, over each that is up.
  Links discover(emu::NodeId from) {
    Links links;
    std::set<std::uint64_t> known;
    std::queue<Route> routes;
    routes.push({});
    while (!routes.empty()) {
      const Route route = routes.front();
      routes.pop();
      const auto info = walk(route, kNodeInfo, 0, from);
      EXPECT_TRUE(info) << "a port that is up leads somewhere";
      if (!info) continue;
      EXPECT_EQ(status(*info), kDirection);
      const std::uint64_t guid = number(&(*info)[64 + 12], 8);
      if (!known.insert(guid).second) continue;
      const bool is_switch = (*info)[64 + 2] == 2;
      if (!is_switch && !route.empty()) continue;
      for (std::uint8_t port = 1; port <= (*info)[64 + 3]; ++port) {
        const auto port_info = walk(route, kPortInfo, port, from);
        EXPECT_TRUE(port_info);
        if (!port_info || (*port_info)[64 + 33] >> 4 != 5) continue;
        Route further = route;
        further.push_back(port);
        const auto far = walk(further, kNodeInfo, 0, from);
        EXPECT_TRUE(far);
        if (!far) continue;
        links.insert({{guid, port}, {number(&(*far)[64 + 12], 8), (*far)[64 + 36]}});
        EXPECT_EQ((*far)[192 + further.size()], (*far)[64 + 36]) << "the way back";
        routes.push(further);
      }
    }
    return links;
  }
  // The same as the network has it; of nodes only the sender's port is told from its side.
  Links graph(emu::NodeId from) const {
    Links links;
    for (int r = 0; r < network_->routers(); ++r) {
      const auto router = static_cast<emu::RouterId>(r);
      for (int p = 0; p < network_->ports(router); ++p) {
        const auto far = network_->peer(router, static_cast<emu::PortId>(p));
        if (far.router == emu::kNoRouter || is_down({router, static_cast<emu::PortId>(p)}))
          continue;
        links.insert({{emu::switch_guid_of(router), p + 1},
                      {emu::switch_guid_of(far.router), far.port + 1}});
      }
    }
    for (int n = 0; n < network_->nodes(); ++n) {
      const auto node = static_cast<emu::NodeId>(n);
      const std::pair<std::uint64_t, int> at = {emu::switch_guid_of(network_->router_of(node)),
                                                network_->port_of(node) + 1};
      if (!away_[node]) links.insert({at, {emu::guid_of(node), 1}});
      if (node == from) links.insert({{emu::guid_of(node), 1}, at});
    }
    return links;
  }
  bool is_down(LinkEnd end) const {
    const auto far = network_->peer(end.router, end.port);
    return std::ranges::any_of(network_->down(), [&](LinkEnd down) {
      return down == end || down == LinkEnd{far.router, far.port};
    });
  }
  // Takes the first link down round which the routing knows a way.
  void take_a_link_down() {
    for (emu::RouterId router = 0; router < kRouters; ++router) {
      for (int p = 0; p < network_->ports(router); ++p) {
        const LinkEnd link = {router, static_cast<emu::PortId>(p)};
        if (network_->peer(router, link.port).router == emu::kNoRouter) continue;
        if (network_->set_down({&link, 1})) return;
      }
    }
    FAIL() << "no link could be taken down";
  }
};

TEST_F(DiscoveryTest, FindsTheGraphFromEveryNode) {
  for (emu::NodeId n = 0; n < kNodes; ++n) EXPECT_EQ(discover(n), graph(n));
  EXPECT_EQ(graph(0).size(), 24U + 9 + 1);
}

TEST_F(DiscoveryTest, FindsNoLinkThatIsDownAndNoNodeThatIsAway) {
  take_a_link_down();
  away_[7] = true;
  EXPECT_EQ(discover(0), graph(0));
  EXPECT_EQ(graph(0).size(), 22U + 8 + 1);
  EXPECT_FALSE(get(8, kNodeInfo)) << "nobody is there";
  const auto port = get(switch_lid(7), kPortInfo, network_->port_of(7) + 1U);
  ASSERT_TRUE(port);
  EXPECT_EQ((*port)[64 + 32] & 15, 1);
  EXPECT_EQ((*port)[64 + 33] >> 4, 2);
  away_[7] = false;
  ASSERT_TRUE(network_->set_down({}));
  EXPECT_EQ(discover(0), graph(0));
}

TEST_F(DiscoveryTest, LinearTablesLeadToEveryLid) {
  const auto follow = [&](emu::Lid lid) {
    Route route = {1};
    for (int hops = 0; hops < 20; ++hops) {
      const auto block = walk(route, kLinearForwardingTable, lid / 64);
      if (!block) break;
      const auto info = walk(route, kNodeInfo);
      if ((*info)[64 + 2] != 2) break;
      const std::uint8_t port = (*block)[64 + lid % 64];
      if (port == 0) break;
      EXPECT_NE(port, 0xff);
      route.push_back(port);
    }
    const auto port_info = walk(route, kPortInfo, 0);
    return port_info ? number(&(*port_info)[64 + 16], 2) : 0;
  };
  for (const bool detour : {false, true}) {
    if (detour) take_a_link_down();
    for (emu::Lid lid = 1; lid <= kNodes + kRouters; ++lid) EXPECT_EQ(follow(lid), lid);
  }
  const auto block = get(switch_lid(0), kLinearForwardingTable, 0);
  EXPECT_EQ((*block)[64], 0xff);
  EXPECT_EQ((*block)[64 + kNodes + kRouters + 1], 0xff);
  const auto info = get(switch_lid(0), kSwitchInfo);
  EXPECT_EQ(number(&(*info)[64 + 6], 2), static_cast<unsigned>(kNodes + kRouters));
  EXPECT_EQ(status(*get(switch_lid(0), kLinearForwardingTable, 0x300)), 0x1cU);
  EXPECT_EQ(status(*get(1, kLinearForwardingTable, 0)), 0x0cU);
}

// No packet comes by a root of a tree that has lost the only link down to a leaf, and so the
// routing has no way from it: the table leads round.
TEST(SubnetMap, TablesLeadOnWhereNoPacketComesBy) {
  NetworkSpec spec;
  spec.topology = TopologyKind::ary_tree;
  spec.arity = spec.levels = 2;
  spec.routing = RoutingKind::up_down;
  spec.lane_vtick = default_lane_vticks(spec.lanes_of_class);
  auto network = std::move(*Network::make(spec));
  SubnetMap map(*network, [](emu::NodeId) { return true; });
  int cut = 0;
  for (int r = 0; r < network->routers(); ++r) {
    for (int p = 0; p < network->ports(static_cast<emu::RouterId>(r)); ++p) {
      const LinkEnd link = {static_cast<emu::RouterId>(r), static_cast<emu::PortId>(p)};
      if (network->peer(link.router, link.port).router == emu::kNoRouter) continue;
      ASSERT_TRUE(network->set_down({&link, 1}));
      ++cut;
      map.follow();
      for (int from = 0; from < network->routers(); ++from) {
        for (emu::Lid lid = 1; lid <= map.lid_max(); ++lid) {
          Device at = switch_device(static_cast<emu::RouterId>(from));
          for (int hops = 0; hops < network->routers() && map.lid(at) != lid; ++hops) {
            const auto far = map.far_end({at, map.linear_port(at.index, lid)});
            ASSERT_TRUE(far) << "a port that is up, from " << from << " to LID " << lid;
            at = far->device;
            if (!at.is_switch) break;
          }
          EXPECT_EQ(map.lid(at), lid) << "from " << from;
        }
      }
    }
  }
  EXPECT_GE(cut, 8);
}

TEST_F(DiscoveryTest, WaysThatLeadNowhereAreNotAnswered) {
  EXPECT_TRUE(walk({}, kNodeInfo));
  EXPECT_TRUE(walk({1}, kNodeInfo));
  EXPECT_FALSE(walk({2}, kNodeInfo)) << "an HCA has one port";
  EXPECT_FALSE(walk({1, 0}, kNodeInfo));
  EXPECT_FALSE(walk({1, 200}, kNodeInfo));
  EXPECT_FALSE(walk({1, 1, 1}, kNodeInfo)) << "an HCA forwards nothing";
  EXPECT_FALSE(walk(Route(64, 1), kNodeInfo));
  MadPayload partly = directed({1}, kNodeInfo);
  set_number(&partly[32], 2, 1);
  EXPECT_FALSE(ask(partly, 0, emu::kPermissiveLid));
  EXPECT_FALSE(get(0, kNodeInfo));
  EXPECT_FALSE(get(kNodes + kRouters + 1, kNodeInfo));
  MadPayload answer = question(emu::kClassSubnetLid, kNodeInfo);
  answer[emu::kMadMethodAt] = emu::kMadGetResponse;
  EXPECT_FALSE(ask(answer, 0, 1));
}

// As ibportstate asks for a switch's neighbours: by LID to the switch, by a route from there.
TEST_F(DiscoveryTest, RoutesMayBeginWhereALidLeads) {
  const emu::Lid lid = switch_lid(0);
  const auto asked = [&](const Route& route) {
    MadPayload mad = directed(route, 0x11);
    set_number(&mad[32], 2, 1);  // DrSLID: the sender
    return mad;
  };
  const auto own = ask(asked({}), 0, lid);
  ASSERT_TRUE(own);
  EXPECT_EQ(number(&(*own)[64 + 12], 8), emu::switch_guid_of(0));
  for (std::uint8_t port = 1; port <= 3; ++port) {
    const auto far = ask(asked({port}), 0, lid);
    const auto same = ask(directed({1, port}, 0x11), 0, emu::kPermissiveLid);
    ASSERT_EQ(far.has_value(), same.has_value());
    if (!far) continue;
    EXPECT_EQ(number(&(*far)[64 + 12], 8), number(&(*same)[64 + 12], 8));
  }
  EXPECT_FALSE(ask(asked({1}), 0, 2)) << "another HCA forwards nothing";
  EXPECT_FALSE(ask(asked({}), 0, 9999)) << "nobody has this LID";
}

TEST_F(DiscoveryTest, AttributesSayWhatVerbsSay) {
  const auto info = get(3, kPortInfo, 1);
  const std::uint8_t* d = &(*info)[64];
  EXPECT_EQ(status(*info), 0U);
  EXPECT_EQ(answered_.lid, 3);
  EXPECT_EQ(status(*get(3, kPortInfo, 0x80000001)), 0U) << "as smpquery -x asks";
  EXPECT_EQ(number(d + 8, 8), emu::kGidPrefix);
  EXPECT_EQ(number(d + 16, 2), 3U);
  EXPECT_EQ(number(d + 18, 2), 1U);
  EXPECT_EQ(d[31], 2) << "4x";
  EXPECT_EQ(d[32] & 15, 4) << "active";
  EXPECT_EQ(d[62] >> 4, 2) << "EDR";
  EXPECT_EQ(d[36] >> 4, 4) << "2048";
  EXPECT_EQ(emu::link_speed_of(400'000'000).speed, 1);
  EXPECT_EQ(emu::link_speed_of(50'000'000'000).extended(), 0);
  const auto guids = get(3, kGuidInfo);
  EXPECT_EQ(number(&(*guids)[64], 8), emu::guid_of(2));
  EXPECT_STREQ(reinterpret_cast<const char*>(&(*get(3, kNodeDescription))[64]), "n2 dev");
  EXPECT_STREQ(reinterpret_cast<const char*>(&(*get(10, kNodeDescription))[64]), "corner");
  EXPECT_STREQ(reinterpret_cast<const char*>(&(*get(11, kNodeDescription))[64]), "switch 1");
  EXPECT_EQ((*get(3, kSlToVlTable))[64 + 1], 0x23);
  EXPECT_EQ((*get(3, kVlArbitrationTable, 3 << 16))[64 + 3], 16);
  EXPECT_EQ((*get(3, kVlArbitrationTable, 1 << 16))[64 + 1], 0);
  EXPECT_EQ(status(*get(3, kVlArbitrationTable, 5 << 16)), 0x1cU);
  EXPECT_EQ(number(&(*get(3, kPkeyTable))[64], 2), 0xffffU);
  EXPECT_EQ(status(*get(3, kPortInfo, 2)), 0x1cU);
  EXPECT_EQ(status(*get(3, 0x7777)), 0x0cU);
  EXPECT_EQ(status(*get(3, kSwitchInfo)), 0x0cU);
}

TEST_F(DiscoveryTest, TheManagerIsAtLidOneAndNothingCanBeSet) {
  const auto master = get(1, kSubnetManagerInfo, 0, 5);
  EXPECT_EQ(number(&(*master)[64], 8), emu::guid_of(0));
  EXPECT_EQ((*master)[64 + 20], 3);
  EXPECT_EQ((*get(2, kSubnetManagerInfo))[64 + 20], 0);
  away_[0] = true;
  EXPECT_TRUE(get(1, kSubnetManagerInfo, 0, 5)) << "the manager is the fabric itself";
  EXPECT_FALSE(get(1, kNodeInfo, 0, 5));
  for (const std::uint16_t attribute : {kPortInfo, kSwitchInfo, kLinearForwardingTable}) {
    const MadPayload set = question(emu::kClassSubnetLid, attribute, 0, emu::kMadSet);
    EXPECT_EQ(status(*ask(set, 5, switch_lid(0))), 0x0cU);
  }
}

}  // namespace
}  // namespace fabric

// Links out of service: what is taken down takes no new packet, nothing is lost, the result depends
// on no thread, batch or engine, and what cannot be done is refused and changes nothing.
#include <gtest/gtest.h>

#include <map>

#include "emu/base/prng.h"
#include "fabric/router/network.h"
#include "tests/unit/sanitized.h"

namespace fabric {
namespace {

NetworkSpec tree_spec() {
  NetworkSpec spec;
  spec.topology = TopologyKind::fat_tree;
  spec.lane_vtick = default_lane_vticks(spec.lanes_of_class);
  return spec;
}

std::uint64_t sent(const Network& network, LinkEnd link) {
  std::uint64_t flits = 0;
  for (const LaneCounters& lane : network.router_counters(link.router, link.port).sent)
    flits += lane.flits;
  return flits;
}

// Leaf 3's first link up: every way of nodes 12 ... 15 that goes by it must change.
constexpr LinkEnd kLeafUp = {3, 4};
constexpr LinkEnd kMiddleUp = {17, 5};

class Load {
 public:
  explicit Load(std::uint64_t seed) : random_(seed) {}
  void submit(Network& network, int packets) {
    for (int i = 0; i < packets; ++i) {
      hca::SendPacket packet;
      packet.cookie = ++count_;
      packet.flits = static_cast<std::uint16_t>(1 + random_.below(40));
      packet.dest = static_cast<emu::NodeId>(random_.below(64));
      packet.vl_in = packet.vl_out = static_cast<emu::Vl>(random_.below(15));
      const auto src = static_cast<emu::NodeId>(random_.below(64));
      ASSERT_TRUE(network.submit(src, packet));
    }
  }
  std::uint64_t count() const { return count_; }

 private:
  emu::Prng random_;
  std::uint64_t count_ = 0;
};

void drain(Network& network) {
  for (int i = 0; i < 1000 && !network.idle(); ++i) network.step(100);
  ASSERT_TRUE(network.idle());
}

TEST(LinksDown, ADrainedLinkCarriesNothingMoreAndNothingIsLost) {
  auto network = *Network::make(tree_spec());
  Load load(7);
  load.submit(*network, 2000);
  network->step(200);
  const LinkEnd down[] = {kLeafUp, kMiddleUp};
  ASSERT_TRUE(network->set_down(down));
  // What had begun goes on: the link is in use for a while, then never again.
  const std::uint64_t before = sent(*network, kLeafUp);
  ASSERT_GT(before, 0U);
  std::uint64_t last = before;
  for (int i = 0; i < 20; ++i) {
    load.submit(*network, 100);
    network->step(500);
    const std::uint64_t now = sent(*network, kLeafUp);
    EXPECT_TRUE(i < 10 || now == last) << "a new packet on a link that is down";
    last = now;
  }
  EXPECT_GT(last, before) << "what was under way went another way, or nothing was";
  ASSERT_TRUE(network->set_down({}));
  load.submit(*network, 2000);
  drain(*network);
  EXPECT_GT(sent(*network, kLeafUp), last) << "back in service, and nobody uses it";
  EXPECT_EQ(network->delivered().size(), load.count());
  EXPECT_EQ(network->audit(), "");
  EXPECT_EQ(network->stuck(), "");
}

// Version by version the same links mean the same ways, whichever end they are named by.
TEST(LinksDown, OnlyWaysOverTheLinkChange) {
  auto network = *Network::make(tree_spec());
  std::map<std::pair<emu::RouterId, emu::NodeId>, emu::PortId> whole;
  for (emu::RouterId r = 0; r < 40; ++r)
    for (emu::NodeId n = 0; n < 64; ++n) whole[{r, n}] = network->route(r, n);
  ASSERT_TRUE(network->set_down({{kLeafUp}}));
  int changed = 0;
  for (const auto& [at, port] : whole) {
    const emu::PortId now = network->route(at.first, at.second);
    const Network::Peer peer = network->peer(at.first, now);
    EXPECT_FALSE(at.first == kLeafUp.router && now == kLeafUp.port);
    EXPECT_FALSE(peer.router == kLeafUp.router && peer.port == kLeafUp.port);
    changed += now != port ? 1 : 0;
  }
  EXPECT_GT(changed, 0);
  // Leaf 3 has 60 nodes above it and a link in four fails; others change towards its four nodes.
  EXPECT_LT(changed, 15 + 39 * 4 + 1);
  const Network::Peer far = network->peer(kLeafUp.router, kLeafUp.port);
  ASSERT_TRUE(network->set_down({{LinkEnd{far.router, far.port}}}));
  ASSERT_EQ(network->down().size(), 1U);
  EXPECT_EQ(network->down()[0], kLeafUp);
  ASSERT_TRUE(network->set_down({}));
  for (const auto& [at, port] : whole) EXPECT_EQ(network->route(at.first, at.second), port);
}

std::uint64_t digest_of(NetworkSpec spec, emu::Cycle batch) {
  auto network = *Network::make(spec);
  Load load(11);
  for (int round = 0; round < 6; ++round) {
    load.submit(*network, 300);
    for (emu::Cycle left = 400; left > 0; left -= std::min(left, batch))
      network->step(std::min(left, batch));
    const LinkEnd down[] = {{static_cast<emu::RouterId>(round), 5}, {20, 6}};
    EXPECT_TRUE(network->set_down({down, static_cast<std::size_t>(round % 3)}));
  }
  drain(*network);
  EXPECT_EQ(network->delivered().size(), load.count());
  return network->digest();
}

TEST(LinksDown, SameResultOnThreadsInBatchesAndInBothEngines) {
  NetworkSpec spec = tree_spec();
  const std::uint64_t digest = digest_of(spec, 400);
  EXPECT_EQ(digest_of(spec, 1), digest);
  spec.threads = 2;
  EXPECT_EQ(digest_of(spec, 400), digest);
  EXPECT_EQ(digest_of(spec, 7), digest);
  spec.threads = 1;
  spec.general_engine = true;
  EXPECT_EQ(digest_of(spec, 400), digest);
}

std::string refusal(Network& network, std::vector<LinkEnd> down) {
  const auto result = network.set_down(down);
  return result ? "" : result.error().message;
}

// A ring of four: round a link of its root only ways are left that go up again after down. That is
// no fault of the topology, which has a way, and what helps is said: a network without the link.
TEST(LinksDown, ARefusalTellsAWayThatUpDownMayNotTake) {
  NetworkSpec ring;
  ring.topology = TopologyKind::mesh;
  ring.sides = {2, 2};
  ring.routing = RoutingKind::up_down;
  ring.lane_vtick = default_lane_vticks(ring.lanes_of_class);
  auto network = *Network::make(ring);
  const auto link_between = [&](emu::RouterId a, emu::RouterId b) {
    for (int p = 0; p < network->ports(a); ++p)
      if (network->peer(a, static_cast<emu::PortId>(p)).router == b)
        return LinkEnd{a, static_cast<emu::PortId>(p)};
    return LinkEnd{};
  };
  const std::string way_left = refusal(*network, {link_between(0, 1)});
  EXPECT_NE(way_left.find("no way up, then down, from"), std::string::npos) << way_left;
  EXPECT_NE(way_left.find("another way is left"), std::string::npos) << way_left;
  EXPECT_NE(way_left.find("a network without them"), std::string::npos) << way_left;
  const std::string cut_off = refusal(*network, {link_between(0, 1), link_between(1, 3)});
  EXPECT_NE(cut_off.find("no way leads from"), std::string::npos) << cut_off;
  EXPECT_EQ(cut_off.find("another way"), std::string::npos) << cut_off;
  EXPECT_EQ(refusal(*network, {link_between(1, 3)}), "");
}

TEST(LinksDown, WhatCannotBeIsRefusedAndChangesNothing) {
  auto network = *Network::make(tree_spec());
  ASSERT_TRUE(network->set_down({{kLeafUp}}));
  EXPECT_NE(refusal(*network, {{3, 4}, {3, 5}, {3, 6}, {3, 7}}).find("no way"), std::string::npos);
  EXPECT_NE(refusal(*network, {{3, 0}}).find("3:0"), std::string::npos);  // an HCA's link
  EXPECT_NE(refusal(*network, {{99, 0}}).find("99:0"), std::string::npos);
  EXPECT_EQ(network->down().size(), 1U);
  EXPECT_NE(network->route(3, 16 + 0), kLeafUp.port);

  NetworkSpec mesh;
  mesh.topology = TopologyKind::mesh;
  mesh.mesh_k = 3;
  auto grid = *Network::make(mesh);
  EXPECT_NE(refusal(*grid, {{0, 1}}).find("up_down"), std::string::npos);
  mesh.routing = RoutingKind::up_down;
  EXPECT_EQ(refusal(**Network::make(mesh), {{0, 1}}), "");

  NetworkSpec circuits = tree_spec();
  circuits.router = RouterKind::circuit;
  EXPECT_NE(refusal(**Network::make(circuits), {kLeafUp}).find("circuits"), std::string::npos);
}

// A version is free again once nobody goes by it.
TEST(LinksDown, VersionsAreUsedAgain) {
  auto network = *Network::make(tree_spec());
  Load load(13);
  for (int i = 0; i < (test::kSanitized ? 30 : 100); ++i) {
    const LinkEnd down[] = {{static_cast<emu::RouterId>(i % 16), 4},
                            {static_cast<emu::RouterId>(16 + i % 15), 5}};
    load.submit(*network, 20);
    network->step(50);
    if (i % 10 == 9) drain(*network);
    network->clear_events();
    ASSERT_EQ(refusal(*network, {down[0], down[1]}), "") << i;
  }
}

TEST(LinksDown, TooManyVersionsInUseAreRefused) {
  auto network = *Network::make(tree_spec());
  std::string said;
  for (emu::RouterId leaf = 0; leaf < 16; ++leaf) {
    hca::SendPacket packet;
    packet.flits = 400;
    packet.dest = static_cast<emu::NodeId>(63 - leaf);
    ASSERT_TRUE(network->submit(static_cast<emu::NodeId>(leaf), packet));
    network->step(2);
    said = refusal(*network, {{leaf, 4}});
  }
  EXPECT_NE(said.find("try again"), std::string::npos) << said;
  drain(*network);
  network->clear_events();
  EXPECT_EQ(refusal(*network, {{15, 4}}), "");
}

}  // namespace
}  // namespace fabric

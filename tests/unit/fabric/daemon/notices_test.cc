// Routers that tell sources, in a live network: for which scheme, to whom, and that the scheme may
// change while messages are in the routers.
#include "fabric/daemon/notices.h"

#include <gtest/gtest.h>

#include <string>

#include "fabric/daemon/spec.h"

namespace fabric {
namespace {

struct Scene {
  explicit Scene(const std::string& toml)
      : config(emu::Config::parse(toml, "test").value()),
        network(Network::make(network_spec(config, 0)).value()) {}
  std::string refusal(emu::Congestion scheme) {
    const auto made = Notices::make(config, scheme, *network);
    return made ? "" : made.error().message;
  }
  // Everybody sends best effort to node 0.
  void send(int messages) {
    for (int i = 0; i < messages; ++i) {
      for (int n = 1; n < network->nodes(); ++n) {
        hca::SendPacket packet;
        packet.handle = handle++;
        packet.flits = 8;
        packet.dest = 0;
        packet.vl_in = packet.vl_out = static_cast<emu::Vl>(handle % 4);
        packet.traffic_class = emu::TrafficClass::best_effort;
        ASSERT_TRUE(network->submit(static_cast<emu::NodeId>(n), packet));
      }
    }
  }
  // As the loop of fabricd does. Returns the sources that were told.
  std::vector<emu::NodeId> run(Notices& notices, int turns) {
    std::vector<emu::NodeId> told;
    for (int t = 0; t < turns; ++t) {
      network->step(50);
      notices.look();
      for (const hca::DeliveredEvent& event : network->delivered())
        notices.arrived(event.handle, event.src, event.node, event.tail_cycle);
      network->clear_events();
      for (const emu::Notice& notice : notices.news()) {
        EXPECT_NE(notice.source, 0) << "it sends nothing";
        told.push_back(notice.source);
      }
      notices.heard();
    }
    return told;
  }

  emu::Config config;
  std::unique_ptr<Network> network;
  std::uint32_t handle = 0;
};

const std::string kMesh = "[network]\ntopology = \"mesh:2x2\"\n";

TEST(Notices, OnlyRoutersThatSeeItAreAsked) {
  Scene fast(kMesh);
  EXPECT_NE(fast.refusal(emu::Congestion::ibcc).find("network.engine = \"general\""),
            std::string::npos);
  EXPECT_NE(fast.refusal(emu::Congestion::vct1).find("network.router = \"vct\""),
            std::string::npos);
  Scene general(kMesh + "engine = \"general\"\n");
  EXPECT_EQ(general.refusal(emu::Congestion::dcqcn), "");
  // Who asks for marks from the start has routers that mark.
  Scene marks(kMesh + "[controls]\ncongestion = \"ibcc\"\n");
  EXPECT_EQ(marks.refusal(emu::Congestion::ibcc), "");
  EXPECT_FALSE(Notices::wanted(emu::Congestion::credit));
  EXPECT_FALSE(Notices::wanted(emu::Congestion::alo));
}

TEST(Notices, WhoSendsToABusyOutputIsTold) {
  for (const auto scheme : {emu::Congestion::ibcc, emu::Congestion::dcqcn, emu::Congestion::vct1,
                            emu::Congestion::vct2}) {
    const bool marks = scheme == emu::Congestion::ibcc || scheme == emu::Congestion::dcqcn;
    Scene scene(kMesh + (marks ? "engine = \"general\"\n"
                               : "router = \"vct\"\nvc_buf_size = 64\npacket_size = 16\n"));
    auto notices = std::move(*Notices::make(scene.config, scheme, *scene.network));
    EXPECT_TRUE(notices->all_have_senders());
    scene.send(60);
    EXPECT_FALSE(scene.run(*notices, 100).empty()) << emu::name_of(scheme);
    EXPECT_GT(notices->congestion(), 0U);
    EXPECT_EQ(notices->marked() > 0, marks);
  }
}

// Routers without HCAs have nobody to send what they say; of marks the destination says it.
TEST(Notices, MarksNeedNoSenderAtTheRouter) {
  const std::string tree = "[network]\ntopology = \"tree:2x2\"\n";
  Scene marks(tree + "engine = \"general\"\n");
  EXPECT_TRUE(
      (*Notices::make(marks.config, emu::Congestion::ibcc, *marks.network))->all_have_senders());
  Scene blames(tree + "router = \"vct\"\nvc_buf_size = 64\npacket_size = 16\n");
  EXPECT_FALSE(
      (*Notices::make(blames.config, emu::Congestion::vct1, *blames.network))->all_have_senders());
}

// A scheme that begins while messages are in the routers sees their tails leave without having seen
// their heads come.
TEST(Notices, TheSchemeMayChangeUnderLoad) {
  Scene scene(kMesh + "router = \"vct\"\nvc_buf_size = 64\npacket_size = 16\n");
  scene.send(100);
  std::unique_ptr<Notices> notices;
  for (int round = 0; round < 12; ++round) {
    const emu::Congestion schemes[] = {emu::Congestion::vct1, emu::Congestion::ibcc,
                                       emu::Congestion::vct2, emu::Congestion::dcqcn};
    auto next = std::move(*Notices::make(scene.config, schemes[round % 4], *scene.network));
    notices = std::move(next);
    notices->listen();  // the one before has taken the network's ear with it
    (void)scene.run(*notices, 3);
    if (round == 6) scene.send(50);
  }
  (void)scene.run(*notices, 200);
  EXPECT_TRUE(scene.network->idle());
  EXPECT_EQ(scene.network->audit(), "");
  const std::uint64_t before = notices->marked();
  scene.send(20);
  (void)scene.run(*notices, 60);
  EXPECT_GT(notices->marked(), before) << "and counts as if it had been there from the start";
}

// Nor does it take their leaving for that of others: a queue that never drains would be none.
TEST(Notices, ASchemeThatBeginsInCongestionSeesIt) {
  for (const auto scheme : {emu::Congestion::ibcc, emu::Congestion::dcqcn, emu::Congestion::vct1,
                            emu::Congestion::vct2}) {
    Scene scene("[network]\ntopology = \"single:8\"\n" +
                std::string(Notices::marks(scheme)
                                ? "engine = \"general\"\n"
                                : "router = \"vct\"\nvc_buf_size = 64\npacket_size = 16\n"));
    scene.send(60);
    scene.network->step(1000);
    auto notices = std::move(*Notices::make(scene.config, scheme, *scene.network));
    std::size_t told = 0;
    for (int round = 0; round < 10; ++round) {
      scene.send(20);
      told += scene.run(*notices, 10).size();
    }
    EXPECT_FALSE(scene.network->idle()) << "it must not drain";
    EXPECT_GT(told, 0U) << emu::name_of(scheme);
  }
}

TEST(Notices, CountsGoOnFromThoseOfTheOneBefore) {
  Scene scene(kMesh + "engine = \"general\"\n");
  auto first = std::move(*Notices::make(scene.config, emu::Congestion::ibcc, *scene.network));
  scene.send(60);
  (void)scene.run(*first, 100);
  auto second = std::move(*Notices::make(scene.config, emu::Congestion::dcqcn, *scene.network));
  second->count_on_from(first->counts());
  EXPECT_GT(second->marked(), 0U);
  EXPECT_EQ(second->congestion(), first->congestion());
}

}  // namespace
}  // namespace fabric

// What tests of the subnet's agents stand on: a small mesh, its agents, and who asks them.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "emu/packet/mad.h"
#include "fabric/subnet/agent.h"

namespace fabric {

inline std::uint64_t number(const std::uint8_t* at, int bytes) {
  std::uint64_t value = 0;
  for (int i = 0; i < bytes; ++i) value = value << 8 | at[i];
  return value;
}
inline void set_number(std::uint8_t* at, int bytes, std::uint64_t value) {
  for (int i = 0; i < bytes; ++i) at[i] = static_cast<std::uint8_t>(value >> (8 * (bytes - 1 - i)));
}

using Route = std::vector<std::uint8_t>;  // ports, the sender's own first

// 3 x 3 routers of a mesh, a node at each; up_down, which knows ways round links that are down.
class SubnetTest : public testing::Test {
 protected:
  static constexpr int kNodes = 9;
  static constexpr int kRouters = 9;

  void SetUp() override {
    NetworkSpec network;
    network.topology = TopologyKind::mesh;
    network.mesh_k = 3;
    network.routing = RoutingKind::up_down;
    network.lane_vtick = default_lane_vticks(network.lanes_of_class);
    auto made = Network::make(network);
    ASSERT_TRUE(made) << made.error().message;
    network_ = std::move(*made);
    SubnetSpec spec;
    for (int n = 0; n < kNodes; ++n) spec.node_names.push_back("n" + std::to_string(n) + " dev");
    spec.switch_names = {"corner"};
    spec.link_bps = 100'000'000'000;
    spec.device_id = 4099;
    spec.vlarb_high = {{4, 8}, {5, 16}};
    for (std::size_t sl = 0; sl < 16; ++sl) spec.sl2vl[sl] = static_cast<emu::Vl>(sl % 4);
    agent_ = std::make_unique<SubnetAgent>(
        spec, *network_,
        [this](emu::NodeId n) {
          ++asked_of_nodes_;
          return !away_[n];
        },
        [this](LinkEnd end) { return end.port == 0 ? downs_[end.router] : 0; },
        [this](emu::NodeId n) { return multicasts_[n]; });
  }

  static MadPayload question(std::uint8_t mad_class, std::uint16_t attribute,
                             std::uint32_t modifier = 0, std::uint8_t method = emu::kMadGet) {
    MadPayload mad{};
    mad[0] = 1;
    mad[emu::kMadClassAt] = mad_class;
    mad[emu::kMadClassVersionAt] = mad_class == emu::kClassSubnetAdmin ? 2 : 1;
    mad[emu::kMadMethodAt] = method;
    set_number(&mad[emu::kMadTransactionAt], 8, 0x1234567890);
    set_number(&mad[emu::kMadAttributeAt], 2, attribute);
    set_number(&mad[emu::kMadModifierAt], 4, modifier);
    return mad;
  }
  static MadPayload directed(const Route& route, std::uint16_t attribute,
                             std::uint32_t modifier = 0) {
    MadPayload mad = question(emu::kClassSubnetDirected, attribute, modifier);
    mad[7] = static_cast<std::uint8_t>(route.size());
    set_number(&mad[32], 4, 0xffffffff);
    std::copy(route.begin(), route.end(), &mad[129]);
    return mad;
  }

  // Nothing: nobody answered, and then the question is as it was.
  std::optional<MadPayload> ask(MadPayload mad, emu::NodeId source, emu::Lid dlid) {
    const MadPayload before = mad;
    const bool subnet = (mad[emu::kMadClassAt] & 0x7f) == emu::kClassSubnetLid;
    answered_ = agent_->answer(mad, source, dlid, subnet ? 0 : 1);
    if (answered_.bytes != 0) return mad;
    EXPECT_EQ(mad, before);
    return std::nullopt;
  }
  std::optional<MadPayload> get(emu::Lid dlid, std::uint16_t attribute, std::uint32_t modifier = 0,
                                emu::NodeId source = 0) {
    return ask(question(emu::kClassSubnetLid, attribute, modifier), source, dlid);
  }
  std::optional<MadPayload> walk(const Route& route, std::uint16_t attribute,
                                 std::uint32_t modifier = 0, emu::NodeId source = 0) {
    return ask(directed(route, attribute, modifier), source, emu::kPermissiveLid);
  }
  static unsigned status(const MadPayload& mad) {
    return static_cast<unsigned>(number(&mad[emu::kMadStatusAt], 2));
  }
  static emu::Lid switch_lid(int router) { return static_cast<emu::Lid>(kNodes + 1 + router); }

  std::unique_ptr<Network> network_;
  std::array<bool, kNodes> away_{};
  int asked_of_nodes_ = 0;                       // whether one is there
  std::array<std::uint64_t, kRouters> downs_{};  // of the first port of each
  std::unique_ptr<SubnetAgent> agent_;
  std::array<PerformanceManagement::Multicasts, kNodes> multicasts_{};
  Answered answered_;
};

}  // namespace fabric

// Connections count on it: what one lane of an HCA sends to one other arrives in the order sent,
// by every router whose routes are fixed, but for circuits.
#include "tests/unit/fabric/router/design_net.h"

#include <map>
#include <tuple>

#include "emu/base/prng.h"
#include "tests/unit/sanitized.h"

namespace fabric {
namespace {

constexpr std::uint64_t kMessages = test::kSanitized ? 2'000 : 20'000;

struct Orders {
  std::uint64_t in_order = 0;
  std::uint64_t overtaken = 0;
};

// Random packets between all nodes, more than the links carry for a while.
Orders orders_of(const NetworkSpec& spec, std::uint64_t seed) {
  emu::Prng random(seed);
  auto network = make(spec);
  std::map<std::tuple<emu::NodeId, emu::NodeId, emu::TrafficClass>, std::uint64_t> newest;
  Orders orders;
  const auto take = [&] {
    for (const auto& event : network->delivered()) {
      std::uint64_t& before = newest[{event.src, event.node, event.traffic_class}];
      ++(event.cookie > before ? orders.in_order : orders.overtaken);
      before = std::max(before, event.cookie);
    }
    network->clear_events();
  };
  const auto nodes = static_cast<std::uint32_t>(network->nodes());
  for (std::uint64_t number = 1; number <= kMessages; ++number) {
    const auto src = static_cast<emu::NodeId>(random.below(nodes));
    const auto dest = static_cast<emu::NodeId>(random.below(nodes));
    const bool real_time = random.below(2) != 0;
    // A class has one lane of its own between two nodes, as the packets of a connection have.
    const auto flits = static_cast<std::uint16_t>(1 + random.below(40));
    hca::SendPacket packet =
        packet_to(dest, flits, real_time ? 12 : 3,
                  real_time ? emu::TrafficClass::real_time : emu::TrafficClass::best_effort);
    packet.cookie = number;
    if (!network->submit(src, packet)) continue;
    network->step(1 + random.below(12));
    take();
  }
  for (int i = 0; i < 10'000 && orders.in_order + orders.overtaken < kMessages; ++i) {
    network->step(10);
    take();
  }
  return orders;
}

NetworkSpec torus(RouterKind router, emu::SchedulerKind scheduler) {
  NetworkSpec spec = general(router);
  spec.general_engine = false;
  spec.topology = TopologyKind::torus;
  spec.sides = {3, 2};
  spec.vc_buf_size = 40;
  spec.scheduler = scheduler;
  return spec;
}

TEST(Order, OfALaneAndADestinationIsKept) {
  for (const RouterKind router : kWormRouters) {
    for (const auto scheduler : {emu::SchedulerKind::virtual_clock, emu::SchedulerKind::wrr}) {
      for (const bool by_general : {false, true}) {
        NetworkSpec spec = torus(router, scheduler);
        spec.general_engine = by_general;
        const Orders orders = orders_of(spec, 5);
        EXPECT_GT(orders.in_order, kMessages / 2);
        EXPECT_EQ(orders.overtaken, 0U)
            << static_cast<int>(router) << " " << static_cast<int>(scheduler);
      }
    }
  }
  const Orders cells = orders_of(torus(RouterKind::cell, emu::SchedulerKind::round_robin), 5);
  EXPECT_GT(cells.in_order, kMessages / 2);
  EXPECT_EQ(cells.overtaken, 0U);
}

// Not by circuits: each packet has its own, on lanes that need not be the one before's, and the
// tail of that may still wait in the network.
TEST(Order, OfCircuitsIsNot) {
  const Orders orders = orders_of(torus(RouterKind::circuit, emu::SchedulerKind::wrr), 5);
  EXPECT_GT(orders.in_order, kMessages / 2);
  EXPECT_GT(orders.overtaken, 0U);
}

}  // namespace
}  // namespace fabric

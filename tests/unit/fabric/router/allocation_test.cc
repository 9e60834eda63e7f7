// After construction nothing is allocated: a counting operator new watches a loaded network.
#include <gtest/gtest.h>

#include "emu/base/prng.h"
#include "fabric/router/network.h"
#include "tests/unit/allocations.h"
#include "tests/unit/sanitized.h"

namespace fabric {
namespace {

long allocations_under_load(emu::SchedulerKind kind, TopologyKind topology, NetworkSpec spec = {},
                            int rounds = test::kSanitized ? 400 : 2000) {
  spec.scheduler = kind;
  spec.topology = topology;
  spec.mesh_k = 3;
  spec.packets_per_node = 64;
  spec.weights.high.fill(3);
  spec.lane_vtick = default_lane_vticks(spec.lanes_of_class);
  const auto network = Network::make(spec).value();
  emu::Prng random(1);
  const auto nodes = static_cast<std::uint32_t>(network->nodes());
  const long before = test::allocations();
  for (int i = 0; i < rounds; ++i) {
    for (std::uint32_t n = 0; n < nodes; ++n) {
      hca::SendPacket packet;
      packet.dest = static_cast<emu::NodeId>(random.below(nodes));
      packet.flits = static_cast<std::uint16_t>(1 + random.below(40));
      packet.vl_in = packet.vl_out = static_cast<emu::Vl>(random.below(16));
      packet.launch = network->now() + random.below(100);
      if (random.below(10) == 0) packet.kind = emu::PacketKind::probe;
      network->submit(static_cast<emu::NodeId>(n), packet);  // full at times: the limit is met
    }
    network->step(20);
    if (i % 3 == 0) network->clear_events();
  }
  return test::allocations() - before;
}

TEST(Allocation, NoneAfterStart) {
  for (int kind = 0; kind < emu::kSchedulerKindCount; ++kind) {
    EXPECT_EQ(allocations_under_load(static_cast<emu::SchedulerKind>(kind), TopologyKind::single),
              0);
    EXPECT_EQ(allocations_under_load(static_cast<emu::SchedulerKind>(kind), TopologyKind::mesh), 0);
  }
}

TEST(Allocation, NoneAfterStartInTheGeneralEngine) {
  for (int router = 0; router < static_cast<int>(kRouterNames.size()); ++router) {
    for (const CrossbarKind crossbar : {CrossbarKind::multiplexed, CrossbarKind::full}) {
      NetworkSpec spec;
      spec.general_engine = true;
      spec.router = static_cast<RouterKind>(router);
      spec.crossbar = crossbar;
      spec.vc_buf_size = 40;  // cut-through holds whole packets
      EXPECT_EQ(allocations_under_load(emu::SchedulerKind::fgfq, TopologyKind::mesh, spec, 300), 0);
    }
  }
}

}  // namespace
}  // namespace fabric

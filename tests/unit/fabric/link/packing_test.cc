#include "fabric/link/packing.h"

#include <gtest/gtest.h>

#include "fabric/topo/shape.h"

namespace fabric {
namespace {

TEST(Packing, OnlyPortsThatLeadSomewhere) {
  const Graph mesh = make_mesh(4, 1).value();
  const Packing packing(mesh, 1);
  ASSERT_EQ(packing.blocks().size(), 1U);  // 16 HCAs, 24 links of two ends
  EXPECT_EQ(packing.blocks()[0].ports, 64U);
  EXPECT_EQ(packing.blocks()[0].routers, 16U);
  // Router 0 is in a corner: its HCA, one link up in each dimension, none down.
  EXPECT_EQ(packing.place(0, 0), 0U);
  EXPECT_EQ(packing.place(0, 1), 1U);
  EXPECT_EQ(packing.place(0, 2), Packing::kNowhere);
  EXPECT_EQ(packing.place(0, 3), 2U);
  EXPECT_EQ(packing.place(0, 4), Packing::kNowhere);
  EXPECT_EQ(packing.first_port(1), 3U);
}

// Every router lies in one block, side by side with the one before it; no block has more than 64
// ports, and none could have taken the first router of the next.
TEST(Packing, RoutersLieSideBySide) {
  for (const Graph& graph : {make_mesh(4, 2).value(), make_mesh(9, 1).value(),
                             make_fat_tree().value(), make_ary_tree(3, 3).value()}) {
    for (const int threads : {1, 2, 3, 16}) {
      const Packing packing(graph, threads);
      unsigned ports = 0;
      unsigned routers = 0;
      for (std::size_t i = 0; i < packing.blocks().size(); ++i) {
        const Packing::Block& block = packing.blocks()[i];
        EXPECT_EQ(block.first_router, routers);
        EXPECT_LE(block.ports, emu::kBlockPorts);
        unsigned next = 0;
        for (unsigned r = routers; r < routers + block.routers; ++r) {
          const auto router = static_cast<emu::RouterId>(r);
          EXPECT_EQ(packing.block_of(router), i);
          EXPECT_EQ(packing.first_port(router), next);
          for (unsigned p = 0; p < graph.routers[r].size(); ++p) {
            const PortEnd& end = graph.routers[r][p];
            const bool nowhere = end.node == kNoNode && end.router == kNobody;
            EXPECT_EQ(packing.place(router, p), nowhere ? Packing::kNowhere : next++);
          }
          EXPECT_EQ(packing.end_port(router), next);
        }
        EXPECT_EQ(block.ports, next);
        routers += block.routers;
        ports += next;
      }
      EXPECT_EQ(routers, graph.routers.size());
      // A router that does not fit leaves less than its own ports free.
      EXPECT_LE(packing.blocks().size(), ports / (32 - 7) + 1);
      if (ports >= 64U * static_cast<unsigned>(threads)) {
        EXPECT_GE(packing.blocks().size(), static_cast<std::size_t>(threads));
      }
    }
  }
}

}  // namespace
}  // namespace fabric

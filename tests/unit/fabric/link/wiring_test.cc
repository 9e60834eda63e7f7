#include "fabric/link/wiring.h"

#include <gtest/gtest.h>

#include "fabric/topo/shape.h"

namespace fabric {
namespace {

TEST(Wiring, SingleSwitchMovesWholeVectors) {
  for (const int nodes : {1, 5, 8}) {
    const Wiring wiring = make_wiring(make_single(nodes).value());
    ASSERT_EQ(wiring.units(), 2);
    EXPECT_TRUE(wiring.outlets[0].aligned);
    EXPECT_TRUE(wiring.outlets[1].aligned);
  }
}

TEST(Wiring, MeshOutletsArePairs) {
  const Graph graph = make_mesh(4, 2).value();
  const Wiring wiring = make_wiring(graph);
  ASSERT_EQ(wiring.routers, 16);
  ASSERT_EQ(wiring.groups, 4);
  int ends = 0;
  for (std::size_t u = 0; u < wiring.outlets.size(); ++u) {
    EXPECT_FALSE(wiring.outlets[u].aligned);
    for (unsigned p = 0; p < emu::kPortsMax; ++p) {
      const emu::Outlet& outlet = wiring.outlets[u];
      if (((outlet.connected >> p) & 1U) == 0) continue;
      ++ends;
      const emu::Outlet& back = wiring.outlets[outlet.unit[p]];
      EXPECT_TRUE((back.connected >> outlet.port[p]) & 1U);
      EXPECT_EQ(back.unit[outlet.port[p]], u);
      EXPECT_EQ(back.port[outlet.port[p]], p);
    }
  }
  EXPECT_EQ(ends, 2 * 32 + 2 * 24);
}

TEST(BoxWheel, RowsComeRoundAfterTheDelay) {
  for (const int delay : {1, 2, 3, 4, 15}) {
    BoxWheel wheel(2, delay, 1, 1);
    const auto ahead = static_cast<emu::Cycle>(delay);
    for (emu::Cycle t = 1000; t < 1040; ++t) {
      for (emu::Cycle d = 1; d <= ahead; ++d) EXPECT_NE(wheel.row(t), wheel.row(t + d));
      wheel.row(t + ahead)[1].name[3] = static_cast<std::uint32_t>(t);
    }
    EXPECT_EQ(wheel.row(1039 + ahead)[1].name[3], 1039U);
  }
}

}  // namespace
}  // namespace fabric

#include "fabric/link/rows.h"

#include <gtest/gtest.h>

#include <set>

#include "fabric/topo/shape.h"

namespace fabric {
namespace {

TEST(LinkRows, EveryLinkLeadsToThePortOfItsOtherEnd) {
  const Graph graph = make_mesh(4, 2).value();
  const Packing packing(graph, 1);
  const LinkRows rows(packing, graph.nodes.size(), 1, 1);
  EXPECT_EQ(rows.router_blocks(), 2U);
  EXPECT_EQ(rows.node_blocks(), 1U);
  std::set<emu::LinkPlace> places;
  int links = 0;
  for (std::size_t i = 0; i < graph.routers.size(); ++i) {
    const auto router = static_cast<emu::RouterId>(i);
    for (unsigned p = 0; p < graph.routers[i].size(); ++p) {
      const PortEnd& end = graph.routers[i][p];
      const bool nowhere = end.node == kNoNode && end.router == kNobody;
      EXPECT_EQ(packing.place(router, p) == Packing::kNowhere, nowhere);
      if (nowhere) continue;
      const emu::LinkPlace peer = rows.peer_of(end);
      EXPECT_EQ(rows.is_router(peer), end.node == kNoNode);
      EXPECT_EQ(peer, end.node == kNoNode ? rows.port_of(end.router, end.port)
                                          : rows.port_of_node(end.node));
      EXPECT_TRUE(places.insert(peer).second) << "two writers of one word";
      ++links;
    }
  }
  EXPECT_EQ(links, 32 + 48);
  EXPECT_EQ(emu::block_of_place(rows.port_of_node(31)), 2U);
  EXPECT_EQ(emu::port_of_place(rows.port_of_node(31)), 31U);
}

TEST(LinkRows, RowsComeRoundAfterTheDelay) {
  const Graph graph = make_mesh(3, 1).value();
  const Packing packing(graph, 1);
  for (const int delay : {1, 2, 3, 4, 15}) {
    LinkRows rows(packing, graph.nodes.size(), delay, 1);
    const auto ahead = static_cast<emu::Cycle>(delay);
    const emu::LinkPlace place = rows.port_of(8, 1);
    for (emu::Cycle t = 1000; t < 1040; ++t) {
      for (emu::Cycle d = 1; d <= ahead; ++d) EXPECT_NE(rows.row(t), rows.row(t + d));
      emu::put_flit(rows.row(t + ahead), place, static_cast<emu::LaneMask>(t));
      emu::put_credit(rows.row(t + ahead), place, static_cast<emu::LaneMask>(t + 1));
      emu::put_name(rows.row(t + ahead), place, static_cast<std::uint32_t>(t));
    }
    const emu::LinkBlock& block = rows.row(1039 + ahead)[emu::block_of_place(place)];
    EXPECT_EQ(block.flits[emu::port_of_place(place)], 1039U);
    EXPECT_EQ(block.credits[emu::port_of_place(place)], 1040U);
    EXPECT_EQ(block.names[emu::port_of_place(place)], 1039U);
    EXPECT_NE(block.named[emu::port_of_place(place)], 0U);
  }
}

// A part that is ahead writes where one that is behind has not read yet.
TEST(LinkRows, PartsMayBeApart) {
  const Graph graph = make_mesh(3, 1).value();
  const Packing packing(graph, 1);
  for (const int delay : {1, 2, 3, 4, 15}) {
    LinkRows rows(packing, graph.nodes.size(), delay, delay);
    std::set<const emu::LinkBlock*> distinct;
    for (int d = 0; d < 2 * delay; ++d)
      distinct.insert(rows.row(1000 + static_cast<emu::Cycle>(d)));
    EXPECT_EQ(distinct.size(), static_cast<std::size_t>(2 * delay));
  }
}

}  // namespace
}  // namespace fabric

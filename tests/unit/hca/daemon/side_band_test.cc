// What the fabric's page says of the routers, as a congestion scheme of the host half hears it.
#include "hca/daemon/side_band.h"

#include <gtest/gtest.h>

#include <cstdio>

#include "tests/unit/hca/host/pair.h"

namespace {

// Whether ALO lets a message go by `ports`, while the page shows free lanes of port 2 alone.
bool alo_sends_by(std::uint64_t ports) {
  const std::string path = testing::TempDir() + "flitnet-side-band";
  std::remove(path.c_str());
  auto writer = emu::StateWriter::open(path);
  EXPECT_TRUE(writer);
  for (emu::NodeId dest = 0; dest < 2; ++dest) writer->set_way(0, dest, ports, 1);
  writer->ways_told();
  writer->begin();
  writer->free_lanes(0, 2, 0xffff);
  writer->end({.cycle = 77});
  emu::Config config;
  config.nodes.resize(2);
  hca::SideBand side_band(path, config, 0);
  test::Pair pair;
  hca::Host& host = pair.cluster.host(0);
  EXPECT_TRUE(host.set_congestion("alo", hca::CqLayout::global));
  side_band.follow_ways(host);
  side_band.follow_scheme(host);
  EXPECT_TRUE(side_band.tell(host, pair.cluster.now()));
  pair.expect_recv(1, pair.b.sge(0, 100));
  const hca::Sge from = pair.a.sge(0, 10);
  EXPECT_EQ(pair.post({.sges = {&from, 1}}), 0);
  host.advance(pair.cluster.now());
  std::remove(path.c_str());
  return !pair.cluster.sent().empty();
}

TEST(SideBand, APortThatThePageDoesNotShowIsFree) {
  EXPECT_FALSE(alo_sends_by(1 << 4));
  EXPECT_FALSE(alo_sends_by(1 << 15));
  EXPECT_TRUE(alo_sends_by(1 << 16));
  EXPECT_TRUE(alo_sends_by(1 << 20)) << "port 20 is not port 4";
}

// Where the routing may choose, one port that is free is enough, whichever the fixed way is.
TEST(SideBand, EveryPortThatTheRoutingMayChooseIsUseful) {
  EXPECT_FALSE(alo_sends_by(1 << 4 | 1 << 5));
  EXPECT_TRUE(alo_sends_by(1 << 4 | 1 << 2));
}

}  // namespace

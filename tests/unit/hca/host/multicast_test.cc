// Groups of UD: a copy for every node, delivered to who is attached and to nobody else.
#include <gtest/gtest.h>

#include <cerrno>

#include "tests/unit/hca/host/pair.h"

namespace {

using hca::WcStatus;

constexpr emu::Gid kGroup = {0xff, 0x12, 0x40, 0x01, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1};
constexpr emu::Gid kOther = {0xff, 0x12, 0x40, 0x01, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 1, 1, 1, 2};
constexpr emu::Lid kGroupLid = 0xc101;
constexpr std::uint32_t kQkey = 0x11;

// One program with a datagram QP on each of three nodes.
class Multicast : public testing::Test {
 protected:
  Multicast() : cluster({}, {}, 3) {
    for (int n = 0; n < 3; ++n) {
      test::Side& side = sides[n];
      side.app = std::make_unique<sim::App>(cluster.host(n));
      side.bytes.resize(4096);
      side.keys = side.app->reg(side.bytes.data(), side.bytes.size(), test::kAll);
      side.cq = side.app->make_cq(64);
      side.qp = side.app->make_qp(hca::QpType::ud, side.cq, side.cq, {16, 16, 2, 2, 64});
      EXPECT_EQ(side.app->ready_ud(side.qp, kQkey, cluster.now()), 0);
      const hca::Sge into = side.sge(1024, 512);
      EXPECT_EQ(side.app->post_recv(side.qp, 100, {&into, 1}), 0);
    }
  }
  int attach(int n, const emu::Gid& gid = kGroup) {
    test::Side& side = sides[n];
    return cluster.host(n).attach_mcast(side.app->client(), side.qp.number, gid, kGroupLid);
  }
  void send(int n, const emu::Gid& gid = kGroup) {
    test::Side& side = sides[n];
    side.bytes[0] = 77;
    const hca::Sge from = side.sge(0, 32);
    sim::Send wish{.wr_id = 5,
                   .sges = {&from, 1},
                   .remote_qpn = 0xffffff,
                   .remote_qkey = kQkey,
                   .dlid = kGroupLid};
    hca::WqeExtension route{};
    route.is_global = 1;
    route.hop_limit = 1;
    std::copy(gid.begin(), gid.end(), route.dgid);
    wish.extension = &route;
    EXPECT_EQ(side.app->post(side.qp, wish), 0);
    side.app->ring(cluster.now());
    cluster.run();
  }
  std::vector<hca::Cqe> received(int n) {
    std::vector<hca::Cqe> got;
    for (const hca::Cqe& cqe : sides[n].take()) {
      if (cqe.opcode == hca::WcOpcode::recv) got.push_back(cqe);
      if (cqe.opcode == hca::WcOpcode::send) ++sent;
    }
    return got;
  }

  test::Cluster cluster;
  test::Side sides[3];
  int sent = 0;
};

TEST_F(Multicast, ReachesMembersOnEveryNode) {
  ASSERT_EQ(attach(0), 0);
  ASSERT_EQ(attach(2), 0);
  send(0);
  const auto own = received(0);
  const auto far = received(2);
  EXPECT_EQ(sent, 1);  // one completion for all copies
  ASSERT_EQ(own.size(), 1u);
  ASSERT_EQ(far.size(), 1u);
  EXPECT_TRUE(received(1).empty());
  EXPECT_EQ(far[0].byte_len, 72u);
  EXPECT_EQ(far[0].wc_flags & hca::kWcGrh, hca::kWcGrh);
  EXPECT_EQ(far[0].src_qp, sides[0].qp.number);
  EXPECT_EQ(sides[2].bytes[1024 + 40], 77);
  // A node without members drops it; the sender needs no membership.
  EXPECT_EQ(cluster.host(1).counters().dropped_no_qp, 1u);
  send(1);
  EXPECT_TRUE(received(2).empty());  // no receive is posted any more
  EXPECT_EQ(cluster.host(2).counters().dropped_no_receive, 1u);
}

// A copy takes the link's time as any packet does; the one for the node itself does not leave it.
TEST_F(Multicast, CopiesAreCountedAsTheyPassThePort) {
  const auto all = [this](int n) { return cluster.host(n).counters(); };
  ASSERT_EQ(attach(2), 0);
  send(0);
  send(0, kOther);
  EXPECT_EQ(all(0).port_packets_sent, 4u);
  EXPECT_EQ(all(0).port_multicast_sent, 4u);
  EXPECT_EQ(all(0).port_multicast_received, 0u);
  for (const int n : {1, 2}) {
    EXPECT_EQ(all(n).port_packets_received, 2u);
    EXPECT_EQ(all(n).port_multicast_received, 2u);
    EXPECT_EQ(all(n).port_multicast_sent, 0u);
  }
  test::Side& side = sides[1];
  const hca::Sge from = side.sge(0, 32);
  const sim::Send wish{.wr_id = 6,
                       .sges = {&from, 1},
                       .remote_qpn = sides[2].qp.number,
                       .remote_qkey = kQkey,
                       .dlid = emu::lid_of(2)};
  EXPECT_EQ(side.app->post(side.qp, wish), 0);
  side.app->ring(cluster.now());
  cluster.run();
  EXPECT_EQ(all(1).port_packets_sent, 1u);
  EXPECT_EQ(all(1).port_multicast_sent, 0u);
  EXPECT_EQ(all(2).port_packets_received, 3u);
  EXPECT_EQ(all(2).port_multicast_received, 2u);
}

TEST_F(Multicast, GroupsAreApart) {
  ASSERT_EQ(attach(1, kOther), 0);
  send(0, kGroup);
  EXPECT_TRUE(received(1).empty());
  send(0, kOther);
  EXPECT_EQ(received(1).size(), 1u);
}

TEST_F(Multicast, AttachedOnceDetachedOnce) {
  hca::Host& host = cluster.host(1);
  const auto client = sides[1].app->client();
  const std::uint32_t qpn = sides[1].qp.number;
  EXPECT_EQ(attach(1), 0);
  EXPECT_EQ(attach(1), 0);
  EXPECT_EQ(host.destroy_qp(client, qpn), EBUSY);
  EXPECT_EQ(host.detach_mcast(client, qpn, kOther, kGroupLid), EINVAL);
  EXPECT_EQ(host.detach_mcast(client, qpn, kGroup, kGroupLid), 0);
  EXPECT_EQ(host.detach_mcast(client, qpn, kGroup, kGroupLid), EINVAL);
  send(0);
  EXPECT_TRUE(received(1).empty());
}

// As often as with other LIDs, and received once: the kernel keeps both, an HCA goes by the GID.
TEST_F(Multicast, DetachedWithTheLidThatItWasAttachedWith) {
  constexpr emu::Lid kOtherLid = 0xc102;
  hca::Host& host = cluster.host(1);
  const auto client = sides[1].app->client();
  const std::uint32_t qpn = sides[1].qp.number;
  EXPECT_EQ(attach(1), 0);
  EXPECT_EQ(host.detach_mcast(client, qpn, kGroup, kOtherLid), EINVAL);
  EXPECT_EQ(host.attach_mcast(client, qpn, kGroup, kOtherLid), 0);
  send(0);
  EXPECT_EQ(received(1).size(), 1u);
  EXPECT_EQ(host.detach_mcast(client, qpn, kGroup, kGroupLid), 0);
  EXPECT_EQ(host.detach_mcast(client, qpn, kGroup, kGroupLid), EINVAL);
  EXPECT_EQ(host.destroy_qp(client, qpn), EBUSY);
  EXPECT_EQ(host.detach_mcast(client, qpn, kGroup, kOtherLid), 0);
}

TEST_F(Multicast, OnlyDatagramsAndOnlyGroups) {
  hca::Host& host = cluster.host(1);
  sim::App& app = *sides[1].app;
  const auto rc = app.make_qp(hca::QpType::rc, sides[1].cq, sides[1].cq, {4, 4, 1, 1, 0});
  EXPECT_EQ(host.attach_mcast(app.client(), rc.number, kGroup, kGroupLid), EINVAL);
  const std::uint32_t qpn = sides[1].qp.number;
  EXPECT_EQ(host.attach_mcast(app.client(), qpn, kGroup, 3), EINVAL);
  EXPECT_EQ(host.attach_mcast(app.client(), qpn, emu::Gid{0xfe, 0x80}, kGroupLid), EINVAL);
  EXPECT_EQ(host.attach_mcast(app.client(), qpn, kGroup, 0), EINVAL);
  EXPECT_EQ(host.attach_mcast(app.client() + 1, qpn, kGroup, kGroupLid), ENOENT);
}

}  // namespace

// RoCE v2: peers are named by GIDs, LIDs stay below; datagrams between IPv4 addresses begin with an
// IPv4 header.
#include <gtest/gtest.h>

#include <cerrno>
#include <cstring>

#include "hca/host/gid.h"
#include "tests/unit/hca/host/pair.h"

namespace {

using hca::WcStatus;

hca::HostOptions roce() {
  hca::HostOptions options;
  options.roce = true;
  options.address_of = {0x7f010001, 0x7f010002};
  return options;
}

emu::Gid gid_of(emu::NodeId node, std::uint8_t index) {
  hca::HostOptions options = roce();
  options.nodes = 2;
  return hca::gid_of(options, node, index);
}

void name(const emu::Gid& gid, std::uint8_t index, hca::AddressVector& av) {
  av = {};
  std::copy(gid.begin(), gid.end(), av.dgid);
  av.port_num = 1;
  av.is_global = 1;
  av.sgid_index = index;
  av.hop_limit = 64;
}

TEST(Gid, OfPorts) {
  EXPECT_EQ(gid_of(1, 1), hca::ip_gid(0x7f010002));
  EXPECT_EQ(gid_of(0, 0)[15], 1);
  EXPECT_TRUE(hca::is_ip_gid(gid_of(0, 1)));
  EXPECT_FALSE(hca::is_ip_gid(gid_of(0, 0)));
  hca::HostOptions options = roce();
  options.nodes = 2;
  EXPECT_EQ(hca::node_of_gid(options, gid_of(1, 0)), 1);
  EXPECT_EQ(hca::node_of_gid(options, hca::ip_gid(0x7f010003)), std::nullopt);
  options.roce = false;
  EXPECT_EQ(hca::node_of_gid(options, hca::ip_gid(0x7f010002)), std::nullopt);
}

TEST(Roce, ConnectionsByGid) {
  sim::Completions cqs[2];
  test::Cluster cluster({}, roce());
  sim::App apps[] = {sim::App(cluster.host(0)), sim::App(cluster.host(1))};
  for (const std::uint8_t index : {std::uint8_t{0}, std::uint8_t{1}}) {
    sim::Queue qps[2];
    for (int n = 0; n < 2; ++n) {
      cqs[n] = apps[n].make_cq(16);
      qps[n] = apps[n].make_qp(hca::QpType::uc, cqs[n], cqs[n], {4, 4, 1, 1, 64});
    }
    for (int n = 0; n < 2; ++n) {
      hca::QpAttributes a{};
      a.port_num = 1;
      a.path_mtu = 4;
      a.state = hca::QpState::init;
      a.dest_qp_num = qps[1 - n].number;
      ASSERT_EQ(
          apps[n].modify(qps[n], a,
                         hca::kQpState | hca::kQpPkeyIndex | hca::kQpPort | hca::kQpAccessFlags,
                         cluster.now()),
          0);
      a.state = hca::QpState::rtr;
      const std::uint32_t mask =
          hca::kQpState | hca::kQpAv | hca::kQpPathMtu | hca::kQpDestQpn | hca::kQpRqPsn;
      a.av.dlid = 2;  // a LID alone names nobody
      EXPECT_EQ(apps[n].modify(qps[n], a, mask, cluster.now()), EINVAL);
      name(hca::ip_gid(0x7f010009), index, a.av);
      EXPECT_EQ(apps[n].modify(qps[n], a, mask, cluster.now()), EINVAL);
      name(gid_of(static_cast<emu::NodeId>(1 - n), index), 2, a.av);
      EXPECT_EQ(apps[n].modify(qps[n], a, mask, cluster.now()), EINVAL);
      name(gid_of(static_cast<emu::NodeId>(1 - n), index), index, a.av);
      ASSERT_EQ(apps[n].modify(qps[n], a, mask, cluster.now()), 0);
      a.state = hca::QpState::rts;
      ASSERT_EQ(apps[n].modify(qps[n], a, hca::kQpState | hca::kQpSqPsn, cluster.now()), 0);
      EXPECT_EQ(cluster.host(n).query_qp(apps[n].client(), qps[n].number)->av.dlid, 0);
    }
    ASSERT_EQ(apps[1].post_recv(qps[1], 1, {}), 0);
    ASSERT_EQ(apps[0].post(qps[0], {.wr_id = 1}), 0);
    apps[0].ring(cluster.now());
    cluster.run();
    hca::Cqe cqe;
    ASSERT_TRUE(sim::App::poll(cqs[1], cqe));
    EXPECT_EQ(cqe.status, WcStatus::success);
    EXPECT_EQ(cqe.slid, 0);
    EXPECT_EQ(cqe.wc_flags, 0u);  // a GRH is said of datagrams only
  }
}

TEST(Roce, DatagramsBeginWithAnIpv4Header) {
  test::Cluster cluster({}, roce());
  sim::App from(cluster.host(0));
  sim::App to(cluster.host(1));
  std::vector<std::uint8_t> room(256, 0xee);
  const hca::MrKeys keys = to.reg(room.data(), room.size(), test::kAll, false);
  sim::Completions cqs[] = {from.make_cq(16), to.make_cq(16)};
  sim::Queue a = from.make_qp(hca::QpType::ud, cqs[0], cqs[0], {4, 4, 1, 1, 64});
  sim::Queue b = to.make_qp(hca::QpType::ud, cqs[1], cqs[1], {4, 4, 1, 1, 64});
  ASSERT_EQ(from.ready_ud(a, 7, cluster.now()), 0);
  ASSERT_EQ(to.ready_ud(b, 7, cluster.now()), 0);
  std::vector<std::uint8_t> words = {1, 2, 3, 4};
  const hca::MrKeys own = from.reg(words.data(), words.size(), test::kAll);
  const hca::Sge said{reinterpret_cast<std::uint64_t>(words.data()), 4, own.lkey};
  for (const std::uint8_t index : {std::uint8_t{1}, std::uint8_t{0}}) {
    const hca::Sge piece{reinterpret_cast<std::uint64_t>(room.data()), 200, keys.lkey};
    ASSERT_EQ(to.post_recv(b, 1, {&piece, 1}), 0);
    hca::WqeExtension way{};
    const emu::Gid gid = gid_of(1, index);
    std::copy(gid.begin(), gid.end(), way.dgid);
    way.is_global = 1;
    way.sgid_index = index;
    way.hop_limit = 33;
    way.traffic_class = 0x20;
    ASSERT_EQ(from.post(a, {.sges = {&said, 1},
                            .extension = &way,
                            .remote_qpn = b.number,
                            .remote_qkey = 7,
                            .dlid = emu::lid_of(1)}),
              0);
    from.ring(cluster.now());
    cluster.run();
    hca::Cqe cqe;
    ASSERT_TRUE(sim::App::poll(cqs[1], cqe));
    EXPECT_EQ(cqe.byte_len, 44u);
    EXPECT_EQ(room[40], 1);
    if (index == 0) {
      EXPECT_EQ(room[0] >> 4, 6);
      continue;
    }
    const std::uint8_t wanted[] = {0x45, 0x20, 0, 20 + 8 + 12 + 8 + 4 + 4};
    EXPECT_TRUE(std::equal(std::begin(wanted), std::end(wanted), &room[20]));
    EXPECT_EQ(room[28], 33);
    EXPECT_EQ(room[29], 17);
    const std::uint8_t ends[] = {127, 1, 0, 1, 127, 1, 0, 2};
    EXPECT_TRUE(std::equal(std::begin(ends), std::end(ends), &room[32]));
    std::uint32_t sum = 0;
    for (std::size_t i = 20; i < 40; i += 2) sum += std::uint32_t{room[i]} << 8 | room[i + 1];
    EXPECT_EQ((sum & 0xffff) + (sum >> 16), 0xffffu);  // the checksum makes it so
  }
}

// Ethernet has no LIDs: whatever a program says, 0 as a rule, its group is the GID's.
TEST(Roce, GroupsHaveNoLid) {
  test::Cluster cluster({}, roce());
  sim::App app(cluster.host(0));
  sim::Completions cq = app.make_cq(4);
  const sim::Queue qp = app.make_qp(hca::QpType::ud, cq, cq, {4, 4, 1, 1, 64});
  constexpr emu::Gid kIpGroup = {0xff, 0x0e, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1};
  hca::Host& host = cluster.host(0);
  EXPECT_EQ(host.attach_mcast(app.client(), qp.number, kIpGroup, 0), 0);
  EXPECT_EQ(host.destroy_qp(app.client(), qp.number), EBUSY);
  EXPECT_EQ(host.detach_mcast(app.client(), qp.number, kIpGroup, 0), 0);
  EXPECT_EQ(host.destroy_qp(app.client(), qp.number), 0);
}

}  // namespace

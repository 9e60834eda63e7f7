// Shared receive queues: several QPs take from one, in the order in which messages begin.
#include <gtest/gtest.h>

#include <cerrno>

#include "tests/unit/hca/host/pair.h"

namespace {

using hca::AsyncEvent;
using hca::QpState;
using hca::WcStatus;
using test::Pair;

// Beside the pair's own QPs, `count` connections from a to b whose receives are shared.
struct Sharing {
  explicit Sharing(std::size_t count, std::uint32_t limit = 0,
                   const test::PairOptions& options = {})
      : pair(options), srq(pair.b.app->make_srq(8, 2, limit)) {
    for (std::size_t i = 0; i < count; ++i) {
      from.push_back(pair.a.app->make_qp(hca::QpType::rc, pair.a.cq, pair.a.cq, {8, 8, 2, 2, 0}));
      to.push_back(pair.b.app->make_qp(hca::QpType::rc, pair.b.cq, pair.b.cq, {8, 0, 2, 1, 0},
                                       false, srq.number));
      sim::Path path = options.path;
      path.dest = 1;
      path.dest_qpn = to[i].number;
      EXPECT_EQ(pair.a.app->connect(from[i], path, pair.cluster.now()), 0);
      path.dest = 0;
      path.dest_qpn = from[i].number;
      EXPECT_EQ(pair.b.app->connect(to[i], path, pair.cluster.now()), 0);
    }
  }
  void post(std::uint64_t wr_id, std::uint32_t length) {
    const hca::Sge piece = pair.b.sge(wr_id * 8192, length);
    ASSERT_EQ(sim::App::post_shared(srq, wr_id, {&piece, 1}), 0);
  }
  void send(std::size_t i, std::uint32_t length) {
    const hca::Sge piece = pair.a.sge(i * 100, length);
    ASSERT_EQ(pair.a.app->post(from[i], {.wr_id = i, .sges = {&piece, 1}}), 0);
    pair.a.app->ring(pair.cluster.now());
  }
  Pair pair;
  sim::Shared srq;
  std::vector<sim::Queue> from, to;
};

TEST(Srq, QpsTakeInTurn) {
  Sharing sharing(3);
  for (std::uint64_t id = 1; id <= 3; ++id) sharing.post(id, 8000);
  for (const std::size_t i : {2u, 0u, 1u}) sharing.send(i, 5000);
  const auto [sent, received] = sharing.pair.run();
  EXPECT_EQ(test::statuses(sent), std::vector(3, WcStatus::success));
  ASSERT_EQ(received.size(), 3u);
  for (const hca::Cqe& cqe : received) {
    EXPECT_EQ(cqe.status, WcStatus::success);
    std::size_t i = 0;
    while (sharing.to[i].number != cqe.qp_num) ++i;
    EXPECT_EQ(sharing.pair.b.bytes[cqe.wr_id * 8192 + 4999], sharing.pair.a.bytes[i * 100 + 4999]);
  }
  EXPECT_EQ(sharing.srq.page->head.load(), 3u);
}

// Empty, it answers "not ready"; what is posted then is taken.
TEST(Srq, EmptyIsNotReady) {
  test::PairOptions options;
  options.path.min_rnr_timer = 14;
  Sharing sharing(1, 0, options);
  sharing.send(0, 100);
  EXPECT_TRUE(sharing.pair.run(sharing.pair.cluster.now() + 100'000).first.empty());
  EXPECT_GT(sharing.pair.cluster.host(1).counters().rnr_naks_sent, 0u);
  sharing.post(1, 100);
  const auto [sent, received] = sharing.pair.run();
  EXPECT_EQ(test::statuses(sent), std::vector{WcStatus::success});
  EXPECT_EQ(received.size(), 1u);
}

// The limit tells once, and again when it is set again.
TEST(Srq, LimitTellsOnce) {
  Sharing sharing(1, 2);
  for (std::uint64_t id = 1; id <= 4; ++id) sharing.post(id, 100);
  const auto told = [&] {
    return sharing.pair.cluster.told(1).heard(AsyncEvent::srq_limit_reached);
  };
  sharing.send(0, 10);
  sharing.send(0, 10);
  sharing.pair.run();
  EXPECT_FALSE(told());
  sharing.send(0, 10);
  sharing.pair.run();
  EXPECT_TRUE(told());
  sharing.pair.cluster.told(1).asyncs.clear();
  sharing.send(0, 10);
  sharing.pair.run();
  EXPECT_FALSE(told());
  hca::Host& host = sharing.pair.cluster.host(1);
  const hca::ClientId client = sharing.pair.b.app->client();
  EXPECT_EQ(host.query_srq(client, sharing.srq.number)->limit, 0u);
  EXPECT_EQ(host.set_srq_limit(client, sharing.srq.number, 9), EINVAL);
  EXPECT_EQ(host.set_srq_limit(client, sharing.srq.number, 1), 0);
  sharing.post(5, 100);
  sharing.send(0, 10);
  sharing.pair.run();
  EXPECT_TRUE(told());
}

// A QP's failure takes nothing from the others, and says that it will take no more.
TEST(Srq, OthersOutliveAFailedQp) {
  Sharing sharing(2);
  sharing.post(1, 10);
  sharing.post(2, 1000);
  sharing.send(0, 100);  // longer than its receive
  auto [sent, received] = sharing.pair.run();
  EXPECT_EQ(test::statuses(sent), std::vector{WcStatus::rem_inv_req_err});
  EXPECT_EQ(test::statuses(received), std::vector{WcStatus::loc_len_err});
  EXPECT_TRUE(sharing.pair.cluster.told(1).heard(AsyncEvent::qp_last_wqe_reached));
  sharing.send(1, 100);
  std::tie(sent, received) = sharing.pair.run();
  ASSERT_EQ(test::statuses(received), std::vector{WcStatus::success});
  EXPECT_EQ(received[0].wr_id, 2u);
}

// Datagrams from a to `count` QPs of b, whose receives are shared.
struct Datagrams {
  static constexpr std::uint32_t kQkey = 0x1234;
  explicit Datagrams(std::size_t count)
      : srq(pair.b.app->make_srq(4, 1)),
        from(pair.a.app->make_qp(hca::QpType::ud, pair.a.cq, pair.a.cq, {8, 8, 2, 2, 0})) {
    EXPECT_EQ(pair.a.app->ready_ud(from, kQkey, pair.cluster.now()), 0);
    for (std::size_t i = 0; i < count; ++i) {
      to.push_back(pair.b.app->make_qp(hca::QpType::ud, pair.b.cq, pair.b.cq, {8, 0, 2, 1, 0},
                                       false, srq.number));
      EXPECT_EQ(pair.b.app->ready_ud(to[i], kQkey, pair.cluster.now()), 0);
    }
  }
  int post(std::uint64_t wr_id, std::uint32_t length) {
    const hca::Sge piece = pair.b.sge(wr_id * 1024, length);
    return sim::App::post_shared(srq, wr_id, {&piece, 1});
  }
  std::vector<hca::Cqe> send(std::size_t i, std::uint32_t length) {
    const hca::Sge piece = pair.a.sge(0, length);
    sim::Send send{.sges = {&piece, 1}};
    send.remote_qpn = to[i].number;
    send.remote_qkey = kQkey;
    send.dlid = 2;
    EXPECT_EQ(pair.a.app->post(from, send), 0);
    pair.a.app->ring(pair.cluster.now());
    return pair.run().second;
  }
  Pair pair;
  sim::Shared srq;
  sim::Queue from;
  std::vector<sim::Queue> to;
};

// A datagram longer than its receive takes it from the SRQ: it completes, so that it can be posted
// again, and the QP goes on.
TEST(Srq, DatagramTooLong) {
  Datagrams datagrams(3);
  for (std::uint64_t id = 1; id <= 4; ++id) ASSERT_EQ(datagrams.post(id, 140), 0);
  for (const std::size_t i : {0u, 1u, 0u}) {
    const auto received = datagrams.send(i, 200);
    ASSERT_EQ(test::statuses(received), std::vector{WcStatus::loc_len_err});
    EXPECT_EQ(received[0].qp_num, datagrams.to[i].number);
  }
  const auto received = datagrams.send(0, 100);
  ASSERT_EQ(test::statuses(received), std::vector{WcStatus::success});
  EXPECT_EQ(received[0].wr_id, 4u);
  EXPECT_EQ(datagrams.srq.page->head.load(), 4u);
  EXPECT_TRUE(datagrams.send(2, 10).empty());  // there is none for it
  ASSERT_EQ(datagrams.post(5, 140), 0);
  EXPECT_EQ(test::statuses(datagrams.send(2, 10)), std::vector{WcStatus::success});
}

// The same of a UC message whose end is lost: the next message takes the next receive.
TEST(Srq, UcMessageCutShort) {
  test::PairOptions options;
  options.host.seals = false;  // packets are changed on their way
  Pair pair(options);
  sim::Shared srq = pair.b.app->make_srq(4, 1);
  sim::Queue from = pair.a.app->make_qp(hca::QpType::uc, pair.a.cq, pair.a.cq, {8, 8, 2, 2, 0});
  const sim::Queue to = pair.b.app->make_qp(hca::QpType::uc, pair.b.cq, pair.b.cq, {8, 0, 2, 1, 0},
                                            false, srq.number);
  sim::Path path;
  path.dest = 1;
  path.dest_qpn = to.number;
  ASSERT_EQ(pair.a.app->connect(from, path, pair.cluster.now()), 0);
  path.dest = 0;
  path.dest_qpn = from.number;
  ASSERT_EQ(pair.b.app->connect(to, path, pair.cluster.now()), 0);
  for (std::uint64_t id = 1; id <= 2; ++id) {
    const hca::Sge piece = pair.b.sge(id * 8192, 8192);
    ASSERT_EQ(sim::App::post_shared(srq, id, {&piece, 1}), 0);
  }
  bool cuts = true;
  pair.cluster.on_send = [&](const emu::TxDesc&, std::span<const std::uint8_t> packet) {
    const auto opcode = static_cast<emu::Opcode>(packet[emu::kLrhBytes]);
    std::uint8_t& psn = const_cast<std::uint8_t&>(packet[emu::kLrhBytes + emu::kBthBytes - 1]);
    if (cuts && opcode == emu::Opcode::uc_send_last) psn += 1;
  };
  const hca::Sge piece = pair.a.sge(0, 5000);
  ASSERT_EQ(pair.a.app->post(from, {.sges = {&piece, 1}}), 0);
  pair.a.app->ring(pair.cluster.now());
  auto received = pair.run().second;
  ASSERT_EQ(test::statuses(received), std::vector{WcStatus::rem_inv_req_err});
  EXPECT_EQ(received[0].wr_id, 1u);
  cuts = false;
  ASSERT_EQ(pair.a.app->post(from, {.sges = {&piece, 1}}), 0);
  pair.a.app->ring(pair.cluster.now());
  received = pair.run().second;
  ASSERT_EQ(test::statuses(received), std::vector{WcStatus::success});
  EXPECT_EQ(received[0].wr_id, 2u);
}

// Numbers of others, impossible sizes and busy objects are refused.
TEST(Srq, Objects) {
  Sharing sharing(1);
  hca::Host& host = sharing.pair.cluster.host(1);
  const hca::ClientId client = sharing.pair.b.app->client();
  EXPECT_EQ(host.destroy_srq(client, sharing.srq.number), EBUSY);
  EXPECT_EQ(host.destroy_srq(client, 77), ENOENT);
  EXPECT_EQ(host.destroy_srq(client + 1, sharing.srq.number), ENOENT);
  std::vector<std::uint8_t> region(1 << 16);
  EXPECT_EQ(host.create_srq(client, {sharing.pair.b.app->pd(), 0, 1, 0}, region).error(), EINVAL);
  EXPECT_EQ(host.create_srq(client, {999, 1, 1, 0}, region).error(), ENOENT);
  EXPECT_EQ(host.create_srq(client, {sharing.pair.b.app->pd(), 1, 99, 0}, region).error(), EINVAL);
  hca::QpSpec spec;
  spec.pd = sharing.pair.b.app->pd();
  spec.send_cq = spec.recv_cq = sharing.pair.b.cq.number;
  spec.srq = 77;
  spec.capacity = {1, 0, 1, 1, 0};
  EXPECT_EQ(host.create_qp(client, spec, region).error(), ENOENT);
  ASSERT_EQ(host.destroy_qp(client, sharing.to[0].number), 0);
  EXPECT_EQ(host.destroy_srq(client, sharing.srq.number), 0);
}

// An impossible tail fails the QP that looks, not the node.
TEST(Srq, ScribbledTail) {
  Sharing sharing(1);
  sharing.srq.page->tail.store(1000);
  sharing.send(0, 10);
  sharing.pair.run();
  EXPECT_TRUE(sharing.pair.cluster.told(1).heard(AsyncEvent::qp_fatal));
  EXPECT_EQ(sharing.pair.cluster.host(1).counters().ring_faults, 1u);
}

}  // namespace

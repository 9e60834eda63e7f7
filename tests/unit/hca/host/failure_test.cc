// Every error that the host half can report: who sees which status, and that nobody else is
// disturbed.
#include <gtest/gtest.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "emu/packet/build.h"
#include "emu/packet/headers.h"
#include "tests/unit/hca/host/pair.h"

namespace {

using hca::AsyncEvent;
using hca::QpState;
using hca::WcStatus;
using hca::WrOpcode;
using test::Pair;
using test::PairOptions;

std::vector<WcStatus> list(std::initializer_list<WcStatus> statuses) { return statuses; }

QpState state_of(Pair& pair, int side) {
  test::Side& me = side == 0 ? pair.a : pair.b;
  return pair.cluster.host(side).query_qp(me.app->client(), me.qp.number)->state;
}

// What the responder's log is told of a request that it refused as an invalid one.
hca::Trouble why_refused(Pair& pair) {
  for (const hca::Trouble& told : pair.cluster.told(1).troubles)
    if (told.kind == hca::TroubleKind::request) return told;
  return {};
}

// A key that is wrong, of another PD or dead fails the request, the one behind it is flushed.
TEST(Failure, LocalProtection) {
  Pair pair;
  hca::Sge bad = pair.a.sge(0, 100);
  bad.lkey ^= 1;
  const hca::Sge good = pair.a.sge(0, 100);
  pair.expect_recv(1, pair.b.sge(0, 100));
  pair.expect_recv(2, pair.b.sge(0, 100));
  ASSERT_EQ(pair.post({.wr_id = 1, .sges = {&good, 1}}), 0);
  ASSERT_EQ(pair.post({.wr_id = 2, .sges = {&bad, 1}}), 0);
  ASSERT_EQ(pair.post({.wr_id = 3, .flags = 0, .sges = {&good, 1}}), 0);
  const auto [sent, received] = pair.run();
  EXPECT_EQ(test::statuses(sent),
            list({WcStatus::success, WcStatus::loc_prot_err, WcStatus::wr_flush_err}));
  EXPECT_EQ(test::statuses(received), list({WcStatus::success}));
  EXPECT_EQ(state_of(pair, 0), QpState::err);
  EXPECT_EQ(state_of(pair, 1), QpState::rts);
}

// Beyond the end of a region by one byte is beyond.
TEST(Failure, Bounds) {
  Pair pair;
  const hca::Sge over = pair.a.sge(pair.a.bytes.size() - 99, 100);
  ASSERT_EQ(pair.post({.sges = {&over, 1}}), 0);
  EXPECT_EQ(test::statuses(pair.run().first), list({WcStatus::loc_prot_err}));
}

// An opcode that is not served, too many pieces, too much inline: the request is at fault.
TEST(Failure, LocalOperation) {
  for (int what = 0; what < 3; ++what) {
    Pair pair;
    const hca::Sge one = pair.a.sge(0, 8);
    ASSERT_EQ(pair.a.app->post(pair.a.qp, {.sges = {&one, 1}}), 0);
    auto* wqe = reinterpret_cast<hca::SendWqe*>(pair.a.qp.region + pair.a.qp.layout.sq_offset);
    if (what == 0) wqe->opcode = static_cast<WrOpcode>(200);
    if (what == 1) wqe->num_sge = 255;
    if (what == 2) {
      wqe->flags |= hca::kWqeInline;
      wqe->inline_length = 0xffffffff;
    }
    pair.a.app->ring(pair.cluster.now());
    EXPECT_EQ(test::statuses(pair.run().first), list({WcStatus::loc_qp_op_err})) << what;
  }
}

// A remote key that is wrong, or does not allow it, or an address outside: remote access error; the
// responder's QP goes to ERR and says so.
TEST(Failure, RemoteAccess) {
  for (int what = 0; what < 3; ++what) {
    PairOptions options;
    if (what == 1) options.access = hca::kAccessLocalWrite;
    Pair pair(options);
    const hca::Sge from = pair.a.sge(0, 2000);
    sim::Send send{.opcode = WrOpcode::rdma_write,
                   .sges = {&from, 1},
                   .remote_addr = pair.b.address(0),
                   .rkey = pair.b.keys.rkey};
    if (what == 0) send.rkey += 1;
    if (what == 2) send.remote_addr = pair.b.address(pair.b.bytes.size() - 1999);
    ASSERT_EQ(pair.post(send), 0);
    EXPECT_EQ(test::statuses(pair.run().first), list({WcStatus::rem_access_err})) << what;
    EXPECT_TRUE(pair.cluster.told(1).heard(AsyncEvent::qp_access_err));
    EXPECT_EQ(state_of(pair, 1), QpState::err);
  }
}

// What the responder's QP was never enabled for is no request of its receive queue, whatever the
// key: invalid request, not remote access (IBA 11.6.2).
TEST(Failure, OperationNotEnabled) {
  using enum WrOpcode;
  for (const WrOpcode opcode : {rdma_write, rdma_read, atomic_cas, atomic_fadd, atomic_write}) {
    for (const bool good_key : {true, false}) {
      PairOptions options;
      options.path.access = test::kAll;
      if (opcode == rdma_write || opcode == atomic_write)
        options.path.access &= ~hca::kAccessRemoteWrite;
      if (opcode == rdma_read) options.path.access &= ~hca::kAccessRemoteRead;
      if (opcode == atomic_cas || opcode == atomic_fadd)
        options.path.access &= ~hca::kAccessRemoteAtomic;
      Pair pair(options);
      const hca::Sge piece = pair.a.sge(0, 8);
      sim::Send send{.opcode = opcode, .remote_addr = pair.b.address(64)};
      if (opcode != atomic_write) send.sges = {&piece, 1};
      send.rkey = pair.b.keys.rkey + (good_key ? 0 : 1);
      ASSERT_EQ(pair.post(send), 0);
      EXPECT_EQ(test::statuses(pair.run().first), list({WcStatus::rem_inv_req_err}));
      EXPECT_TRUE(pair.cluster.told(1).heard(AsyncEvent::qp_req_err));
      EXPECT_FALSE(pair.cluster.told(1).heard(AsyncEvent::qp_access_err));
      EXPECT_EQ(state_of(pair, 1), QpState::err);
    }
  }
}

// A wrong key of a READ.
TEST(Failure, RemoteAccessOfRead) {
  Pair pair;
  const hca::Sge to = pair.a.sge(0, 2000);
  ASSERT_EQ(pair.post({.opcode = WrOpcode::rdma_read,
                       .sges = {&to, 1},
                       .remote_addr = pair.b.address(0),
                       .rkey = 12345}),
            0);
  EXPECT_EQ(test::statuses(pair.run().first), list({WcStatus::rem_access_err}));
}

// No HCA asks for more than a message has; its packets would be more than there are PSNs.
TEST(Failure, ReadOfMoreThanAMessage) {
  test::PairOptions options;
  options.host.seals = false;
  Pair pair(options);
  const hca::MrKeys all =
      pair.b.app->reg(pair.b.bytes.data(), std::size_t{5} << 30, test::kAll, false);
  pair.cluster.on_send = [](const emu::TxDesc&, std::span<const std::uint8_t> packet) {
    constexpr std::size_t kLength = emu::kLrhBytes + emu::kBthBytes + emu::kRethBytes - 4;
    if (packet[emu::kLrhBytes] == static_cast<std::uint8_t>(emu::Opcode::rc_read_request))
      std::memset(const_cast<std::uint8_t*>(&packet[kLength]), 0xff, 4);
  };
  const hca::Sge to = pair.a.sge(0, 2000);
  ASSERT_EQ(pair.post({.opcode = WrOpcode::rdma_read,
                       .sges = {&to, 1},
                       .remote_addr = pair.b.address(0),
                       .rkey = all.rkey}),
            0);
  EXPECT_EQ(test::statuses(pair.run().first), list({WcStatus::rem_inv_req_err}));
  EXPECT_EQ(why_refused(pair).request, hca::RequestFault::length);
}

// As where the cluster files of two hosts have another network.packet_size.
TEST(Failure, APacketLongerThanThePathTakes) {
  test::PairOptions options;
  options.mtu_b = 1;  // IBV_MTU_256
  Pair pair(options);
  pair.expect_recv(1, pair.b.sge(0, 2000));
  const hca::Sge from = pair.a.sge(0, 2000);
  ASSERT_EQ(pair.post({.sges = {&from, 1}}), 0);
  EXPECT_EQ(test::statuses(pair.run().first), list({WcStatus::rem_inv_req_err}));
  EXPECT_EQ(why_refused(pair).request, hca::RequestFault::packet);
  EXPECT_EQ(why_refused(pair).size, 256u);
  EXPECT_GT(why_refused(pair).length, 256u);
}

// Who has no resources for READs refuses them.
TEST(Failure, ReadOfNoResources) {
  test::PairOptions options;
  options.path.reads_served = 0;
  Pair pair(options);
  const hca::Sge to = pair.a.sge(0, 2000);
  ASSERT_EQ(pair.post({.opcode = WrOpcode::rdma_read,
                       .sges = {&to, 1},
                       .remote_addr = pair.b.address(0),
                       .rkey = pair.b.keys.rkey}),
            0);
  EXPECT_EQ(test::statuses(pair.run().first), list({WcStatus::rem_inv_req_err}));
  EXPECT_TRUE(pair.cluster.told(1).heard(AsyncEvent::qp_req_err));
  EXPECT_EQ(why_refused(pair).request, hca::RequestFault::no_depth);
}

// Who may have no READ outstanding waits, as on hardware, and people are told why, once.
TEST(Failure, AReadThatMayNotBeOutstanding) {
  test::PairOptions options;
  options.path.reads = 0;
  Pair pair(options);
  const hca::Sge to = pair.a.sge(0, 8);
  for (std::uint64_t id = 5; id < 7; ++id) {
    ASSERT_EQ(pair.post({.opcode = WrOpcode::rdma_read,
                         .wr_id = id,
                         .sges = {&to, 1},
                         .remote_addr = pair.b.address(0),
                         .rkey = pair.b.keys.rkey}),
              0);
    EXPECT_TRUE(pair.run().first.empty());
  }
  const auto& told = pair.cluster.told(0).troubles;
  ASSERT_EQ(told.size(), 1u);
  EXPECT_EQ(told[0].kind, hca::TroubleKind::no_reads);
  EXPECT_EQ(told[0].wr_id, 5u);
}

// A message longer than the receive: local length error there, remote invalid request here.
TEST(Failure, Length) {
  Pair pair;
  pair.expect_recv(1, pair.b.sge(0, 1999));
  const hca::Sge from = pair.a.sge(0, 2000);
  ASSERT_EQ(pair.post({.sges = {&from, 1}}), 0);
  const auto [sent, received] = pair.run();
  EXPECT_EQ(test::statuses(sent), list({WcStatus::rem_inv_req_err}));
  EXPECT_EQ(test::statuses(received), list({WcStatus::loc_len_err}));
}

// A receive with a bad key: local protection error there, remote operation error here.
TEST(Failure, RemoteOperation) {
  Pair pair;
  hca::Sge bad = pair.b.sge(0, 2000);
  bad.lkey += 256;
  pair.expect_recv(1, bad);
  const hca::Sge from = pair.a.sge(0, 100);
  ASSERT_EQ(pair.post({.sges = {&from, 1}}), 0);
  const auto [sent, received] = pair.run();
  EXPECT_EQ(test::statuses(sent), list({WcStatus::rem_op_err}));
  EXPECT_EQ(test::statuses(received), list({WcStatus::loc_prot_err}));
}

// Keys are looked up where bytes go: what a message does not touch of its receive may be anything.
TEST(Failure, UntouchedReceive) {
  for (const hca::QpType type : {hca::QpType::rc, hca::QpType::uc}) {
    PairOptions options;
    options.type = type;
    Pair pair(options);
    const hca::Sge from = pair.a.sge(0, 64);
    const hca::Sge junk{0x1000, 64, 0xdead};
    const hca::Sge pieces[] = {pair.b.sge(0, 64), junk};
    sim::Send write{.opcode = WrOpcode::rdma_write_imm,
                    .sges = {&from, 1},
                    .remote_addr = pair.b.address(1000),
                    .rkey = pair.b.keys.rkey};
    pair.expect_recv(1, junk);
    ASSERT_EQ(pair.post(write), 0);
    pair.expect_recv(2, junk);
    ASSERT_EQ(pair.post({}), 0);  // of no bytes
    ASSERT_EQ(pair.b.app->post_recv(pair.b.qp, 3, pieces), 0);
    ASSERT_EQ(pair.post({.sges = {&from, 1}}), 0);
    auto [sent, received] = pair.run();
    EXPECT_EQ(test::statuses(sent), std::vector(3, WcStatus::success));
    EXPECT_EQ(test::statuses(received), std::vector(3, WcStatus::success));
    EXPECT_EQ(std::memcmp(&pair.b.bytes[0], &pair.a.bytes[0], 64), 0);
    const hca::Sge more = pair.a.sge(0, 65);
    ASSERT_EQ(pair.b.app->post_recv(pair.b.qp, 4, pieces), 0);
    ASSERT_EQ(pair.post({.sges = {&more, 1}}), 0);
    EXPECT_EQ(test::statuses(pair.run().second), std::vector{WcStatus::loc_prot_err});
  }
}

// How long the sender waits, in ns, until it gives up on a peer that has posted no receive.
double waits_for_receive_ns(Pair& pair) {
  const hca::Sge from = pair.a.sge(0, 100);
  EXPECT_EQ(pair.post({.sges = {&from, 1}}), 0);
  const emu::Cycle start = pair.cluster.now();
  EXPECT_EQ(test::statuses(pair.run().first), list({WcStatus::rnr_retry_exc_err}));
  return static_cast<double>(emu::CycleTime{}.ns(pair.cluster.now() - start));
}
const auto kRnrTimer14Ns = static_cast<double>(emu::rnr_timer_ns(14));

// No receive posted: as many waits as rnr_retry allows, each as long as the peer's timer says.
TEST(Failure, ReceiverNotReady) {
  PairOptions options;
  options.path.rnr_retry = 2;
  options.path.min_rnr_timer = 14;  // 1.28 ms (IBA table 45)
  Pair pair(options);
  const double waited_ns = waits_for_receive_ns(pair);
  EXPECT_GE(waited_ns, 2 * kRnrTimer14Ns);
  EXPECT_LT(waited_ns, 3 * kRnrTimer14Ns);
  EXPECT_EQ(pair.cluster.host(1).counters().rnr_naks_sent, 3u);
}

// The timer has five bits; DLSlime asks for 32, which is as long as 0.
TEST(Failure, BitsAboveTheTimersAreNotLookedAt) {
  PairOptions options;
  options.path.rnr_retry = 1;
  options.path.min_rnr_timer = 32 + 14;
  Pair pair(options);
  const double waited_ns = waits_for_receive_ns(pair);
  EXPECT_GE(waited_ns, kRnrTimer14Ns);
  EXPECT_LT(waited_ns, 2 * kRnrTimer14Ns);
}

// rnr_retry 7 waits for ever: a receive posted after many waits takes the message.
TEST(Failure, ReceiverNotReadyForEver) {
  PairOptions options;
  options.path.rnr_retry = 7;
  options.path.min_rnr_timer = 14;
  Pair pair(options);
  const hca::Sge from = pair.a.sge(0, 100);
  ASSERT_EQ(pair.post({.sges = {&from, 1}}), 0);
  EXPECT_TRUE(pair.run(pair.cluster.now() + 200'000).first.empty());
  EXPECT_GT(pair.cluster.host(1).counters().rnr_naks_sent, 20u);
  pair.expect_recv(1, pair.b.sge(0, 100));
  EXPECT_EQ(test::statuses(pair.run().first), list({WcStatus::success}));
}

// A peer that is gone: retry_cnt repetitions, 4.096 us * 2^timeout apart, then retry exceeded. Both
// queues are flushed in order, and later posts too.
TEST(Failure, RetryExceeded) {
  PairOptions options;
  options.path.retry_cnt = 3;
  options.path.timeout = 12;  // 16.8 ms
  Pair pair(options);
  const hca::Sge from = pair.a.sge(0, 100);
  pair.b.app.reset();
  pair.a.app->post_recv(pair.a.qp, 50, {});
  pair.a.app->post_recv(pair.a.qp, 51, {});
  for (unsigned i = 0; i < 3; ++i)
    ASSERT_EQ(pair.post({.wr_id = i, .flags = 0, .sges = {&from, 1}}), 0);
  const emu::Cycle start = pair.cluster.now();
  pair.cluster.run();
  const auto done = pair.a.take();
  EXPECT_EQ(test::statuses(done),
            list({WcStatus::retry_exc_err, WcStatus::wr_flush_err, WcStatus::wr_flush_err,
                  WcStatus::wr_flush_err, WcStatus::wr_flush_err}));
  EXPECT_EQ(done[3].wr_id, 50u);
  EXPECT_EQ(done[4].wr_id, 51u);
  const double waited = static_cast<double>(emu::CycleTime{}.ns(pair.cluster.now() - start));
  EXPECT_NEAR(waited / (4 * 4096.0 * 4096), 1.0, 0.01);
  ASSERT_EQ(pair.post({.wr_id = 9, .flags = 0, .sges = {&from, 1}}), 0);
  EXPECT_EQ(test::statuses(pair.a.take()), list({WcStatus::wr_flush_err}));
}

// A program that dies while messages are on their way to and from its memory answers nothing, as if
// its node had lost power: its peer retries and gives up.
TEST(Failure, PeerEndsInAMessage) {
  for (const WrOpcode opcode : {WrOpcode::send, WrOpcode::rdma_write, WrOpcode::rdma_read}) {
    PairOptions options;
    options.mapped = false;
    options.path.retry_cnt = 2;
    Pair pair(options);
    pair.expect_recv(1, pair.b.sge(0, 20000));
    // Both programs have the same number on their nodes: the requester's memory is not asked for.
    pair.a.keys = pair.a.app->reg(pair.a.bytes.data(), pair.a.bytes.size(), test::kAll);
    const hca::Sge piece = pair.a.sge(0, 20000);
    pair.cluster.memory().end(pair.b.app->client());
    ASSERT_EQ(pair.post({.opcode = opcode,
                         .sges = {&piece, 1},
                         .remote_addr = pair.b.address(0),
                         .rkey = pair.b.keys.rkey}),
              0);
    EXPECT_EQ(test::statuses(pair.run().first), list({WcStatus::retry_exc_err}))
        << static_cast<int>(opcode);
    EXPECT_EQ(pair.cluster.host(1).counters().naks_sent, 0u);
  }
}

// The same while a READ of more packets than a burst holds is answered: the fault is met when the
// first of them are on their way, and there is nothing left to answer then.
TEST(Failure, PeerEndsInALongRead) {
  PairOptions options;
  options.mapped = false;
  options.path.retry_cnt = 1;
  Pair pair(options);
  pair.a.keys = pair.a.app->reg(pair.a.bytes.data(), pair.a.bytes.size(), test::kAll);
  const hca::Sge into = pair.a.sge(0, 600'000);
  pair.cluster.memory().end(pair.b.app->client());
  ASSERT_EQ(pair.post({.opcode = WrOpcode::rdma_read,
                       .sges = {&into, 1},
                       .remote_addr = pair.b.address(0),
                       .rkey = pair.b.keys.rkey}),
            0);
  EXPECT_EQ(test::statuses(pair.run().first), list({WcStatus::retry_exc_err}));
  EXPECT_EQ(state_of(pair, 1), QpState::err);
}

// A client's memory that is not there any more: local protection for the sender, and for the
// receiver's side remote operation error; other clients of the same burst go on.
TEST(Failure, MemoryFaults) {
  for (int what = 0; what < 4; ++what) {
    PairOptions options;
    options.mapped = false;
    Pair pair(options);
    test::Side& gone = what == 0 || what == 3 ? pair.a : pair.b;
    pair.cluster.memory().unmap(&gone.bytes[5000], 100);
    pair.expect_recv(1, pair.b.sge(0, 8000));
    const hca::Sge from = pair.a.sge(0, 8000);
    sim::Send send{.sges = {&from, 1}};
    if (what >= 2) {
      send.opcode = WrOpcode::rdma_read;
      send.remote_addr = pair.b.address(0);
      send.rkey = pair.b.keys.rkey;
    }
    ASSERT_EQ(pair.post(send), 0);
    const auto [sent, received] = pair.run();
    const WcStatus expected =
        what == 0 || what == 3 ? WcStatus::loc_prot_err : WcStatus::rem_op_err;
    ASSERT_EQ(sent.size(), 1u) << what;
    EXPECT_EQ(sent[0].status, expected) << what;
    if (what == 1) {
      EXPECT_EQ(test::statuses(received), list({WcStatus::loc_prot_err}));
    }
  }
}

// A program that scribbles over its indexes loses that QP only.
TEST(Failure, ScribbledRing) {
  Pair pair;
  sim::Queue other = pair.a.app->make_qp(hca::QpType::rc, pair.a.cq, pair.a.cq, {4, 4, 1, 1, 0});
  pair.a.qp.page->sq_tail.store(1'000'000);
  ASSERT_EQ(pair.a.app->post(other, {}), 0);
  pair.a.qp.page->rung.store(0);
  const hca::Sge from = pair.a.sge(0, 8);
  pair.a.qp.page->sq_head.store(1'000'000);
  ASSERT_EQ(pair.post({.sges = {&from, 1}}), 0);
  pair.run();
  EXPECT_TRUE(pair.cluster.told(0).heard(AsyncEvent::qp_fatal));
  EXPECT_EQ(state_of(pair, 0), QpState::err);
  EXPECT_EQ(pair.cluster.host(0).query_qp(pair.a.app->client(), other.number)->state,
            QpState::reset);
}

// More completions than the CQ holds: the CQ is in error, its QPs stop, the event is told.
TEST(Failure, CqOverrun) {
  Pair pair;
  sim::Completions small = pair.b.app->make_cq(2);
  sim::Queue qp = pair.b.app->make_qp(hca::QpType::rc, small, small, {8, 8, 1, 1, 0});
  for (int i = 0; i < 5; ++i) pair.b.app->post_recv(qp, 1, {});
  sim::Path path;
  ASSERT_EQ(pair.b.app->connect(qp, path, pair.cluster.now()), 0);
  ASSERT_EQ(pair.b.app->modify(qp, {.state = QpState::err}, hca::kQpState, pair.cluster.now()), 0);
  EXPECT_TRUE(pair.cluster.told(1).heard(AsyncEvent::cq_err));
  EXPECT_EQ(small.page->overrun.load(), 1u);
  EXPECT_EQ(small.page->tail.load(), 2u);
}

// Bytes in ERR: receives posted to a failed QP come back flushed when it is rung.
TEST(Failure, PostsInErrorAreFlushed) {
  Pair pair;
  ASSERT_EQ(
      pair.a.app->modify(pair.a.qp, {.state = QpState::err}, hca::kQpState, pair.cluster.now()), 0);
  pair.a.app->post_recv(pair.a.qp, 77, {});
  ASSERT_EQ(pair.post({.wr_id = 78}), 0);
  const auto done = pair.a.take();
  ASSERT_EQ(done.size(), 2u);
  EXPECT_EQ(done[0].wr_id, 78u);
  EXPECT_EQ(done[1].wr_id, 77u);
}

// After RESET a QP is as new: the same pair exchanges messages again.
TEST(Failure, ResetAndAgain) {
  Pair pair;
  for (int round = 0; round < 2; ++round) {
    for (test::Side* me : {&pair.a, &pair.b}) {
      ASSERT_EQ(
          me->app->modify(me->qp, {.state = QpState::reset}, hca::kQpState, pair.cluster.now()), 0);
      me->qp.credit_used = 0;
    }
    sim::Path path;
    path.dest = 1;
    path.dest_qpn = pair.b.qp.number;
    ASSERT_EQ(pair.a.app->connect(pair.a.qp, path, pair.cluster.now()), 0);
    path.dest = 0;
    path.dest_qpn = pair.a.qp.number;
    ASSERT_EQ(pair.b.app->connect(pair.b.qp, path, pair.cluster.now()), 0);
    pair.expect_recv(1, pair.b.sge(0, 4000));
    const hca::Sge from = pair.a.sge(0, 4000);
    ASSERT_EQ(pair.post({.sges = {&from, 1}}), 0);
    const auto [sent, received] = pair.run();
    EXPECT_EQ(test::statuses(sent), list({WcStatus::success}));
    EXPECT_EQ(test::statuses(received), list({WcStatus::success}));
  }
}

// Also one that had asked for a READ response again: it would never ask for that of its next life.
TEST(Failure, ResetForgetsWhatWasAskedForAgain) {
  PairOptions options;
  options.path.timeout = 0;  // what is lost and not asked for is lost for ever
  Pair pair(options);
  bool loses = false;
  int requests = 0;
  pair.cluster.on_deliver = [&](hca::Arrival& arrival) {
    constexpr auto kFirst = static_cast<std::uint8_t>(emu::Opcode::rc_read_response_first);
    if (!loses || arrival.bytes[emu::kLrhBytes] != kFirst) return;
    arrival.desc.length = 0;
    loses = false;
  };
  pair.cluster.on_send = [&](const emu::TxDesc&, std::span<const std::uint8_t> packet) {
    constexpr auto kRead = static_cast<std::uint8_t>(emu::Opcode::rc_read_request);
    if (packet[emu::kLrhBytes] == kRead) ++requests;
  };
  const hca::Sge into = pair.a.sge(0, 5000);
  const auto read = [&] {
    loses = true;
    ASSERT_EQ(pair.post({.opcode = WrOpcode::rdma_read,
                         .sges = {&into, 1},
                         .remote_addr = pair.b.address(0),
                         .rkey = pair.b.keys.rkey}),
              0);
  };
  read();
  for (int i = 0; i < 5000 && requests < 2; ++i) pair.cluster.run(pair.cluster.now() + 1);
  ASSERT_EQ(requests, 2);
  for (test::Side* me : {&pair.b, &pair.a}) {
    const emu::Cycle now = pair.cluster.now();
    ASSERT_EQ(me->app->modify(me->qp, {.state = QpState::reset}, hca::kQpState, now), 0);
    sim::Path path;
    path.timeout = 0;
    path.dest = me == &pair.a ? 1 : 0;
    path.dest_qpn = (me == &pair.a ? pair.b : pair.a).qp.number;
    path.send_psn = me == &pair.a ? 0xfffff0 : 7;
    path.recv_psn = me == &pair.a ? 7 : 0xfffff0;
    ASSERT_EQ(me->app->connect(me->qp, path, now), 0);
  }
  pair.run(pair.cluster.now() + 10'000);
  read();
  EXPECT_EQ(test::statuses(pair.run().first), list({WcStatus::success}));
}

// UD: a failed send stops the send queue only; SQE -> RTS goes on.
TEST(Failure, UdSendQueueError) {
  test::Cluster cluster({});
  sim::App app(cluster.host(0));
  auto cq = app.make_cq(16);
  auto qp = app.make_qp(hca::QpType::ud, cq, cq, {4, 4, 1, 1, 64});
  ASSERT_EQ(app.ready_ud(qp, 1, cluster.now()), 0);
  const hca::Sge bad{8, 8, 0xdead};
  ASSERT_EQ(app.post(qp, {.sges = {&bad, 1}, .dlid = 2}), 0);
  ASSERT_EQ(app.post(qp, {.dlid = 2}), 0);
  app.ring(cluster.now());
  cluster.run();
  hca::Cqe cqe;
  ASSERT_TRUE(sim::App::poll(cq, cqe));
  EXPECT_EQ(cqe.status, WcStatus::loc_prot_err);
  ASSERT_TRUE(sim::App::poll(cq, cqe));
  EXPECT_EQ(cqe.status, WcStatus::wr_flush_err);
  EXPECT_EQ(cluster.host(0).query_qp(app.client(), qp.number)->state, QpState::sqe);
  ASSERT_EQ(app.modify(qp, {.state = QpState::rts}, hca::kQpState, cluster.now()), 0);
  ASSERT_EQ(app.post(qp, {.dlid = 2}), 0);
  app.ring(cluster.now());
  cluster.run();
  ASSERT_TRUE(sim::App::poll(cq, cqe));
  EXPECT_EQ(cqe.status, WcStatus::success);
}

// A READ response of another length than was asked for, or a NAK of a kind that does not exist: the
// responder is broken, the request says so.
class BadResponse : public testing::Test {
 protected:
  void ask() {
    const hca::Sge into = pair.a.sge(0, 100);
    ASSERT_EQ(pair.post({.opcode = WrOpcode::rdma_read,
                         .sges = {&into, 1},
                         .remote_addr = pair.b.address(0),
                         .rkey = pair.b.keys.rkey}),
              0);
    pair.cluster.run(pair.cluster.now() + 20);  // the question has left, no answer is there yet
    headers.lrh = {0, 0, emu::lid_of(0), emu::lid_of(1)};
    headers.bth.dest_qp = pair.a.qp.number;
    headers.bth.psn = 0xfffff0;
    headers.aeth.syndrome = emu::kSyndromeAck | emu::kAckNoCredits;
  }
  std::vector<WcStatus> answer(std::size_t payload) {
    std::array<std::byte, emu::kPacketBytesMax> bytes{};
    const std::size_t offset = emu::write_headers(bytes, headers, payload);
    hca::Arrival arrival{};
    arrival.desc.length = static_cast<std::uint16_t>(emu::seal_packet(bytes, offset + payload));
    arrival.desc.src = 1;
    arrival.bytes = reinterpret_cast<const std::uint8_t*>(bytes.data());
    pair.cluster.host(0).receive({&arrival, 1}, pair.cluster.now());
    return test::statuses(pair.a.take());
  }
  Pair pair;
  emu::PacketHeaders headers;
};

TEST_F(BadResponse, OfAnotherLength) {
  ask();
  headers.bth.opcode = emu::Opcode::rc_read_response_only;
  EXPECT_EQ(answer(8), list({WcStatus::bad_resp_err}));
  EXPECT_EQ(state_of(pair, 0), QpState::err);
}

TEST_F(BadResponse, ANakOfNoKnownKind) {
  ask();
  headers.bth.opcode = emu::Opcode::rc_ack;
  headers.aeth.syndrome = emu::kSyndromeNak | 17;
  EXPECT_EQ(answer(0), list({WcStatus::general_err}));
}

}  // namespace

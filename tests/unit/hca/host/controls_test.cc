// Admission and credit at the HCA (ACP section 4).
#include <gtest/gtest.h>

#include <cerrno>
#include <set>

#include "emu/base/prng.h"
#include "hca/host/admit.h"
#include "tests/unit/hca/host/pair.h"

namespace {

using hca::AdmissionVerdict;
using test::Pair;
using test::PairOptions;

PairOptions real_time() {
  PairOptions options;
  options.path.sl = 1;
  return options;
}

int ask(Pair& pair, std::uint64_t rate_bps) {
  return pair.cluster.host(0).request_rate(pair.a.app->client(), pair.a.qp.number, rate_bps, 0,
                                           pair.cluster.now());
}

// The own link is asked first: what does not fit is refused without a probe.
TEST(Admission, OwnLinkFirst) {
  PairOptions options = real_time();
  options.host.reservable_bps = 5'960'000;
  Pair pair(options);
  ASSERT_EQ(ask(pair, 5'960'001), 0);
  const auto& told = pair.cluster.told(0).admissions;
  ASSERT_EQ(told.size(), 1u);
  EXPECT_EQ(told[0].verdict, AdmissionVerdict::refused_by_hca);
  EXPECT_TRUE(pair.cluster.sent().empty());
  EXPECT_EQ(pair.cluster.host(0).counters().reserved_bps, 0u);
  EXPECT_EQ(ask(pair, 5'960'000), 0);
  EXPECT_EQ(pair.cluster.host(0).counters().reserved_bps, 5'960'000u);
}

// ACK books, a second request while the first is out is busy, rate 0 gives back with a release.
TEST(Admission, GrantAndRelease) {
  Pair pair(real_time());
  ASSERT_EQ(ask(pair, 100'000'000), 0);
  EXPECT_EQ(ask(pair, 1), EBUSY);
  pair.run();
  ASSERT_EQ(pair.cluster.told(0).admissions.size(), 1u);
  EXPECT_EQ(pair.cluster.told(0).admissions[0].verdict, AdmissionVerdict::granted);
  EXPECT_EQ(pair.cluster.host(0).counters().reserved_bps, 100'000'000u);
  EXPECT_EQ(pair.cluster.sent().back().kind, emu::PacketKind::probe);
  EXPECT_EQ(pair.cluster.sent().back().vl_in, emu::kControlVl);
  ASSERT_EQ(ask(pair, 0), 0);
  pair.run();
  EXPECT_EQ(pair.cluster.host(0).counters().reserved_bps, 0u);
  EXPECT_EQ(pair.cluster.sent().back().kind, emu::PacketKind::release);
}

// FGVC's Vtick (MW 3.2): packets say at what rate their connection is booked, and only they.
TEST(Admission, PacketsCarryTheBookedRate) {
  Pair pair(real_time());
  const hca::Sge bytes = pair.a.sge(0, 64);
  pair.expect_recv(0, pair.b.sge(0, 64));
  ASSERT_EQ(pair.post({.sges = {&bytes, 1}}), 0);
  pair.run();
  EXPECT_EQ(pair.cluster.sent().front().vtick, 0);
  ASSERT_EQ(ask(pair, 100'000'000), 0);
  pair.run();
  pair.expect_recv(1, pair.b.sge(0, 64));
  ASSERT_EQ(pair.post({.sges = {&bytes, 1}}), 0);
  pair.run();
  const auto& sent = pair.cluster.sent();
  EXPECT_EQ(sent[sent.size() - 2].vtick, 4);  // 400 Mb/s / 100 Mb/s
  EXPECT_EQ(sent.back().vtick, 0) << "an acknowledgement is not of the stream";
}

// qos_sl2vl: a service level that is mapped to one lane uses that lane.
TEST(Lanes, FollowTheServiceLevel) {
  PairOptions options;
  options.path.sl = 3;
  options.host.lanes_of_sl[3] = 1U << 2;
  Pair pair(options);
  const hca::Sge bytes = pair.a.sge(0, 64);
  for (std::uint64_t i = 0; i < 8; ++i) {
    pair.expect_recv(i, pair.b.sge(0, 64));
    ASSERT_EQ(pair.post({.sges = {&bytes, 1}}), 0);
  }
  pair.run();
  for (const emu::TxDesc& desc : pair.cluster.sent()) {
    EXPECT_EQ(desc.vl_in, 2);
    EXPECT_EQ(desc.vl_out, 2);
  }
}

// Datagrams of one QP to one node never overtake one another: programs find them in order, as
// behind hardware. Timed ones are generated load, which takes lanes evenly as the papers' does.
TEST(Lanes, OfDatagrams) {
  PairOptions options;
  options.host.lanes_of_sl[0] = 0x00f0;
  Pair pair(options);
  std::vector<sim::Queue> queues;
  for (int i = 0; i < 16; ++i) {
    queues.push_back(pair.a.app->make_qp(hca::QpType::ud, pair.a.cq, pair.a.cq, {64, 1, 1, 1, 0}));
    ASSERT_EQ(pair.a.app->ready_ud(queues.back(), 0x1234, pair.cluster.now()), 0);
  }
  const hca::Sge bytes = pair.a.sge(0, 64);
  const auto lanes_of = [&](sim::Queue& qp, std::uint64_t launch_ns) {
    pair.cluster.sent().clear();
    for (int i = 0; i < 40; ++i) {
      const sim::Send send{.sges = {&bytes, 1}, .remote_qpn = 9, .dlid = 2, .launch_ns = launch_ns};
      EXPECT_EQ(pair.a.app->post(qp, send), 0);
    }
    pair.a.app->ring(pair.cluster.now());
    pair.run();
    std::set<std::pair<int, int>> lanes;
    for (const emu::TxDesc& desc : pair.cluster.sent()) lanes.emplace(desc.vl_in, desc.vl_out);
    return lanes;
  };
  std::set<std::pair<int, int>> of_all;
  for (sim::Queue& qp : queues) {
    const auto of_one = lanes_of(qp, 0);
    EXPECT_EQ(of_one.size(), 1U);
    of_all.insert(of_one.begin(), of_one.end());
  }
  EXPECT_GE(of_all.size(), 3U) << "queue pairs spread over the lanes";
  EXPECT_GE(lanes_of(queues[0], 1).size(), 10U) << "of 16 pairs of lanes";
}

// NACK names the router, the own booking goes back and a release follows the probe.
TEST(Admission, RefusedByRouter) {
  PairOptions options = real_time();
  options.link.verdict = emu::Verdict::nack;
  Pair pair(options);
  ASSERT_EQ(ask(pair, 100'000'000), 0);
  pair.run();
  const auto& told = pair.cluster.told(0).admissions;
  ASSERT_EQ(told.size(), 1u);
  EXPECT_EQ(told[0].verdict, AdmissionVerdict::refused_by_router);
  EXPECT_EQ(told[0].router, 3);
  EXPECT_EQ(pair.cluster.host(0).counters().reserved_bps, 0u);
  EXPECT_EQ(pair.cluster.sent().back().kind, emu::PacketKind::release);
}

// A probe without answer is repeated, then given up within a second; with a release, to be sure.
TEST(Admission, NoAnswer) {
  PairOptions options = real_time();
  options.link.answers = false;
  Pair pair(options);
  ASSERT_EQ(ask(pair, 1'000'000), 0);
  pair.run();
  ASSERT_EQ(pair.cluster.told(0).admissions.size(), 1u);
  EXPECT_EQ(pair.cluster.told(0).admissions[0].verdict, AdmissionVerdict::no_answer);
  EXPECT_EQ(pair.cluster.sent().size(), hca::kProbeAttempts + 1u);
  EXPECT_LT(emu::CycleTime{}.ns(pair.cluster.now()), 1'000'000'000u);
}

// A connection is known by its node and number, and a release may be on its way for as long as
// packets are handed on ahead: the node that begins anew must not take it for its own.
TEST(Admission, ANewLifeTakesOtherNumbers) {
  PairOptions options = real_time();
  for (const std::uint64_t first : {std::uint64_t{1}, (std::uint64_t{1} << 60) + 7}) {
    options.host.first_connection = first;
    Pair pair(options);
    for (std::uint64_t asked = 0; asked < 2; ++asked) {
      ASSERT_EQ(ask(pair, 100'000'000), 0);
      pair.run();
      EXPECT_EQ(pair.cluster.probes().back().connection, first + asked);
      EXPECT_EQ(pair.cluster.told(0).admissions.back().verdict, AdmissionVerdict::granted);
    }
    ASSERT_EQ(ask(pair, 0), 0);
    pair.run();
    EXPECT_EQ(pair.cluster.probes().back().connection, first + 1) << "released";
  }
}

// What a process had booked goes back when it dies, destroys its QP or lets it fail.
TEST(Admission, DeathReleases) {
  for (int how = 0; how < 3; ++how) {
    Pair pair(real_time());
    ASSERT_EQ(ask(pair, 100'000'000), 0);
    pair.run();
    if (how == 0) pair.a.app.reset();
    if (how == 1) pair.cluster.host(0).destroy_qp(pair.a.app->client(), pair.a.qp.number);
    if (how == 2) {
      pair.a.app->modify(pair.a.qp, {.state = hca::QpState::err}, hca::kQpState, 0);
    }
    pair.cluster.run();
    EXPECT_EQ(pair.cluster.host(0).counters().reserved_bps, 0u);
    EXPECT_EQ(pair.cluster.sent().back().kind, emu::PacketKind::release) << how;
  }
}

// ACP 4.1: the final data packet carries the release. Here it leaves behind the last packet that is
// on its way; a new rate is asked for at once.
TEST(Admission, TheReleaseFollowsTheLastPacket) {
  for (const bool another : {false, true}) {
    PairOptions options = real_time();
    options.host.controls.power_control = false;
    Pair pair(options);
    ASSERT_EQ(ask(pair, 10'000'000), 0);
    pair.run();
    pair.expect_recv(1, pair.b.sge(0, 100000));
    const hca::Sge from = pair.a.sge(0, 612 * 20);
    const emu::Cycle start = pair.cluster.now() + 2000;
    const std::uint64_t launch_ns = options.host.cycle_time.ns(start) + 1;
    ASSERT_EQ(pair.post({.sges = {&from, 1}, .launch_ns = launch_ns}), 0);
    pair.cluster.host(0).advance(pair.cluster.now());
    const emu::Cycle last = pair.cluster.sent().back().launch_cycle;
    ASSERT_GE(last, start);
    ASSERT_EQ(ask(pair, another ? 20'000'000 : 0), 0);
    pair.cluster.host(0).advance(pair.cluster.now());
    bool found = false;
    for (const emu::TxDesc& desc : pair.cluster.sent()) {
      if (desc.kind != emu::PacketKind::release) continue;
      found = true;
      EXPECT_EQ(desc.launch_cycle, another ? 0 : last + 1);
    }
    EXPECT_TRUE(found);
  }
}

// How long the handshake took is counted, for ACKs and NACKs alike.
TEST(Admission, SetUpIsMeasured) {
  Pair pair(real_time());
  ASSERT_EQ(ask(pair, 10'000'000), 0);
  const emu::Cycle asked = pair.cluster.now();
  pair.run();
  const hca::HostCounters& counters = pair.cluster.host(0).counters();
  EXPECT_EQ(counters.admissions_answered, 1U);
  EXPECT_GT(counters.admission_cycles_total, 0U);
  EXPECT_LE(counters.admission_cycles_total, pair.cluster.now() - asked);
}

// After a restart of the fabric what was granted is probed again, without telling anybody.
TEST(Admission, RenewedAfterRestart) {
  Pair pair(real_time());
  ASSERT_EQ(ask(pair, 100'000'000), 0);
  pair.run();
  const std::size_t before = pair.cluster.sent().size();
  pair.cluster.host(0).fabric_restarted(pair.cluster.now());
  pair.run();
  EXPECT_EQ(pair.cluster.sent().size(), before + 1);
  EXPECT_EQ(pair.cluster.told(0).admissions.size(), 1u);
  EXPECT_EQ(pair.cluster.host(0).counters().reserved_bps, 100'000'000u);
}

// Links changed, and with them the connection's way: it is asked for again as after a restart.
TEST(Admission, RenewedWhenItsWayChanges) {
  Pair pair(real_time());
  ASSERT_EQ(ask(pair, 100'000'000), 0);
  pair.run();
  const std::size_t before = pair.cluster.sent().size();
  const emu::ProbeBody asked = pair.cluster.probes().back();
  const emu::Answer other{asked.connection + 1, 0, emu::kNoRouter, emu::Verdict::again, {}};
  pair.cluster.host(0).answered({&other, 1}, pair.cluster.now());
  pair.run();
  EXPECT_EQ(pair.cluster.sent().size(), before) << "of a connection that is not there";
  const emu::Answer again{asked.connection, 0, emu::kNoRouter, emu::Verdict::again, {}};
  pair.cluster.host(0).answered({&again, 1}, pair.cluster.now());
  pair.run();
  EXPECT_EQ(pair.cluster.sent().size(), before + 1);
  EXPECT_EQ(pair.cluster.probes().back().connection, asked.connection);
  EXPECT_EQ(pair.cluster.told(0).admissions.size(), 1u);
  EXPECT_TRUE(pair.cluster.told(0).asyncs.empty());
  EXPECT_EQ(pair.cluster.host(0).counters().reserved_bps, 100'000'000u);
}

// The way round has no room: nobody asked just now, so an event says that the reservation is gone.
TEST(Admission, WhoseRenewalIsRefusedHearsOfIt) {
  Pair pair(real_time());
  ASSERT_EQ(ask(pair, 100'000'000), 0);
  pair.run();
  pair.cluster.link().verdict = emu::Verdict::nack;
  const emu::Answer again{
      pair.cluster.probes().back().connection, 0, emu::kNoRouter, emu::Verdict::again, {}};
  pair.cluster.host(0).answered({&again, 1}, pair.cluster.now());
  pair.run();
  ASSERT_EQ(pair.cluster.told(0).asyncs.size(), 1u);
  EXPECT_EQ(pair.cluster.told(0).asyncs[0],
            std::pair(hca::AsyncEvent::path_mig_err, pair.a.qp.number));
  EXPECT_EQ(pair.cluster.told(0).admissions.size(), 1u);
  EXPECT_EQ(pair.cluster.host(0).counters().reserved_bps, 0u);
  EXPECT_EQ(pair.cluster.sent().back().kind, emu::PacketKind::release);
}

// Who gives back what is just asked for again knows that it is gone.
TEST(Admission, ARenewalThatIsCancelledIsNoEvent) {
  Pair pair(real_time());
  ASSERT_EQ(ask(pair, 100'000'000), 0);
  pair.run();
  pair.cluster.link().answers = false;
  const emu::Answer again{
      pair.cluster.probes().back().connection, 0, emu::kNoRouter, emu::Verdict::again, {}};
  pair.cluster.host(0).answered({&again, 1}, pair.cluster.now());
  pair.a.app->modify(pair.a.qp, {.state = hca::QpState::err}, hca::kQpState, 0);
  pair.cluster.run();
  EXPECT_FALSE(pair.cluster.told(0).heard(hca::AsyncEvent::path_mig_err));
  EXPECT_EQ(pair.cluster.host(0).counters().reserved_bps, 0u);
}

// C_i = (b_i / B) M: so many packets ahead and not one more; each injection lets one more in.
TEST(Credit, RealTimePostFailsWithoutCredit) {
  PairOptions options = real_time();
  options.host.hca_buffer_packets = 80;  // 100 of 400 Mb/s: 20 packets
  Pair pair(options);
  ASSERT_EQ(ask(pair, 100'000'000), 0);
  pair.run();
  for (int i = 0; i < 10; ++i) pair.expect_recv(1, pair.b.sge(0, 10000));
  const hca::Sge from = pair.a.sge(0, 612 * 8);
  const std::uint64_t later = emu::CycleTime{}.ns(pair.cluster.now() + 20'000);
  const sim::Send send{.sges = {&from, 1}, .launch_ns = later, .launch_span_ns = 100'000};
  EXPECT_EQ(pair.post(send), 0);
  EXPECT_EQ(pair.post(send), 0);
  EXPECT_EQ(pair.post(send), ENOMEM);  // 16 of 20 are used
  pair.run();
  EXPECT_EQ(pair.post(send), 0);
  pair.cluster.host(0).set_controls({.congestion_control = false});
  for (int i = 0; i < 4; ++i) EXPECT_EQ(pair.post(send), 0);
}

// However slow the stream: one packet waits for its time while the next one is posted.
TEST(Credit, TheSlowestStreamIsPostedAhead) {
  Pair pair(real_time());
  ASSERT_EQ(ask(pair, 1'000), 0);
  pair.run();
  const hca::Sge from = pair.a.sge(0, 100);
  const std::uint64_t later = emu::CycleTime{}.ns(pair.cluster.now() + 20'000);
  const sim::Send send{.sges = {&from, 1}, .launch_ns = later};
  EXPECT_EQ(pair.post(send), 0);
  EXPECT_EQ(pair.post(send), 0);
  EXPECT_EQ(pair.post(send), ENOMEM);
}

// A program that ignores the credit word waits in the HCA and harms nobody.
TEST(Credit, CheckedAgainByTheHost) {
  PairOptions options = real_time();
  options.host.hca_buffer_packets = 8;  // 2 packets
  Pair pair(options);
  ASSERT_EQ(ask(pair, 100'000'000), 0);
  pair.run();
  pair.a.qp.page->credit_limited.store(0);
  pair.expect_recv(1, pair.b.sge(0, 10000));
  const hca::Sge from = pair.a.sge(0, 612 * 8);
  EXPECT_EQ(pair.post({.sges = {&from, 1}}), 0);
  pair.cluster.sent().clear();
  pair.cluster.host(0).advance(pair.cluster.now());
  EXPECT_EQ(pair.cluster.sent().size(), 2u);
  EXPECT_EQ(pair.run().first.size(), 1u);
}

// Best effort: at most C_b packets handed on and not injected; without control as many as slots.
TEST(Credit, BestEffortWaits) {
  for (const bool control : {true, false}) {
    PairOptions options;
    options.host.best_effort_credits = 5;
    options.host.controls.congestion_control = control;
    options.host.controls.power_control = false;
    Pair pair(options);
    pair.expect_recv(1, pair.b.sge(0, 100000));
    const hca::Sge from = pair.a.sge(0, 612 * 50);
    ASSERT_EQ(pair.post({.sges = {&from, 1}}), 0);
    pair.cluster.host(0).advance(pair.cluster.now());
    EXPECT_EQ(pair.cluster.sent().size(), control ? 5u : 50u);
    EXPECT_EQ(pair.run().first.size(), 1u);
  }
}

}  // namespace

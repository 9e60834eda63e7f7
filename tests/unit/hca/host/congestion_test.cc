// The schemes of best effort's congestion control, each by itself and in a host.
#include "hca/host/congestion.h"

#include <gtest/gtest.h>

#include "emu/base/prng.h"
#include "emu/config/config.h"
#include "tests/unit/hca/host/pair.h"

namespace {

using hca::CongestionOptions;
using hca::CqLayout;
using test::Pair;
using test::PairOptions;

std::unique_ptr<hca::CongestionControl> made(std::string_view name,
                                             const CongestionOptions& options = {}) {
  auto control = hca::make_congestion(name, options);
  EXPECT_NE(control, nullptr) << name;
  return control;
}

TEST(Congestion, EverySchemeOfTheListIsMadeByItsName) {
  for (const auto& scheme : hca::congestion_schemes()) {
    const auto control = made(scheme.name);
    EXPECT_TRUE(control->may_send(0, 0)) << scheme.name << " blocks an empty network";
    EXPECT_GE(control->groups(), 1);
    // What the configuration says of it.
    EXPECT_EQ(control->needs() != hca::Signal::nothing,
              emu::hears_of_routers(emu::congestion_of(scheme.name).value()))
        << scheme.name;
  }
  EXPECT_EQ(hca::make_congestion("hope", {}), nullptr);
}

TEST(Congestion, CreditComesBackWithTheInjection) {
  const auto credit = made("credit", {.credits = 3});
  std::uint16_t tag = 0;
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(credit->may_send(1, 0));
    tag = credit->handed_on(1, 40, 0);
  }
  EXPECT_FALSE(credit->may_send(1, 0));
  EXPECT_TRUE(credit->blocked(0));
  credit->came_back(tag, 0);
  EXPECT_TRUE(credit->may_send(2, 0));
  credit->handed_on(2, 40, 0);
  credit->restart();
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(credit->may_send(0, 0));
    credit->handed_on(0, 40, 0);
  }
  EXPECT_FALSE(credit->may_send(0, 0));
}

// ACP 4.3: a queue per destination, or per quadrant; each waits for itself only.
TEST(Congestion, CompletionQueuesHaveCreditsOfTheirOwn) {
  CongestionOptions options;
  options.credits = 8;
  options.quadrant_of = {0, 0, 1, 1, 2, 2, 3, 3};
  options.layout = CqLayout::quad;
  const auto quad = made("credit", options);
  EXPECT_EQ(quad->groups(), 4);
  for (int i = 0; i < 2; ++i) quad->handed_on(2, 40, 0);
  EXPECT_FALSE(quad->may_send(3, 0)) << "of the same quadrant";
  EXPECT_TRUE(quad->may_send(4, 0));
  EXPECT_FALSE(quad->blocked(0));
  // Where there are no quarters one queue has all credits.
  options.quadrant_of.assign(8, 0);
  options.quadrants = 1;
  const auto whole = made("credit", options);
  EXPECT_EQ(whole->groups(), 1);
  for (int i = 0; i < 7; ++i) whole->handed_on(2, 40, 0);
  EXPECT_TRUE(whole->may_send(3, 0));
  options.layout = CqLayout::separate;
  const auto separate = made("credit", options);
  EXPECT_EQ(separate->groups(), 8);
  const std::uint16_t tag = separate->handed_on(2, 40, 0);
  EXPECT_LT(tag, hca::kCongestionTags);
  EXPECT_FALSE(separate->may_send(2, 0));
  EXPECT_TRUE(separate->may_send(3, 0));
}

// Baydal: every useful port has a free lane, or one of them has all.
TEST(Congestion, AtLeastOne) {
  CongestionOptions options;
  options.useful_ports = {0b001, 0b110};  // node 0 by port 0; node 1 by ports 1 and 2
  const auto alo = made("alo", options);
  const auto look = [&](std::array<std::uint16_t, 3> free) {
    alo->fabric_state({.free_lanes = free, .lanes = 0x000f}, 0);
  };
  look({0x0001, 0x0002, 0x0004});
  EXPECT_TRUE(alo->may_send(0, 0));
  EXPECT_TRUE(alo->may_send(1, 0));
  look({0x0000, 0x0002, 0x0000});
  EXPECT_FALSE(alo->may_send(0, 0));
  EXPECT_FALSE(alo->may_send(1, 0)) << "port 2 has no free lane, port 1 not all";
  look({0x00f0, 0x000f, 0x0000});
  EXPECT_FALSE(alo->may_send(0, 0)) << "lanes of another class are none";
  EXPECT_TRUE(alo->may_send(1, 0)) << "all lanes of port 1 are free";
  look({0x0003, 0x0000, 0x0000});
  for (int i = 0; i < 2; ++i) {
    EXPECT_TRUE(alo->may_send(0, 0));
    alo->handed_on(0, 40, 0);
  }
  EXPECT_FALSE(alo->may_send(0, 0)) << "two lanes were free, two messages took them";
  // A busy host looks rarely; meanwhile messages leave by their link, one after another.
  EXPECT_FALSE(alo->may_send(0, 39));
  EXPECT_TRUE(alo->may_send(0, 40)) << "the first is gone";
  alo->handed_on(0, 40, 40);
  EXPECT_FALSE(alo->may_send(0, 79)) << "the second and the third are not";
  EXPECT_TRUE(alo->may_send(0, 80));
  alo->handed_on(0, 40, 80);
  look({0x0000, 0x0000, 0x0000});
  EXPECT_FALSE(alo->may_send(0, 1000)) << "others have the lanes";
}

// Thottethodi: blocked above the threshold; it falls with throughput and rises while it does not.
TEST(Congestion, SelfTunedThresholdFollowsThroughput) {
  const auto tuned = made("self_tuned");
  std::uint64_t delivered = 0;
  emu::Cycle now = 0;
  const auto live = [&](std::uint32_t full, std::uint64_t rate, int periods) {
    for (int i = 0; i < 3 * periods; ++i) {
      now += 32;
      delivered += 32 * rate;
      tuned->fabric_state({.full_buffers = full, .buffers = 1000, .delivered_flits = delivered},
                          now);
      (void)tuned->may_send(0, 0);
    }
  };
  live(0, 10, 2);
  EXPECT_TRUE(tuned->may_send(0, 0));
  live(50, 10, 1);  // 5 % full: above the first threshold of 1 %
  EXPECT_FALSE(tuned->may_send(0, 0));
  live(50, 10, 6);  // throughput holds: the threshold climbs a per cent a period
  EXPECT_TRUE(tuned->may_send(0, 0));
  live(50, 6, 1);  // it fell by 40 %: down by 4 %
  EXPECT_FALSE(tuned->may_send(0, 0));
}

constexpr auto kCongestion = emu::NoticeKind::congestion;
constexpr auto kRelief = emu::NoticeKind::relief;

// VCT 4.1: a step more for each notice, a step less for each timeout without one; the delay counts
// from the tail of the message before.
TEST(Congestion, VctApproach1StepsByNoticesAndTimeouts) {
  const auto vct = made("vct1");
  EXPECT_EQ(vct->needs(), hca::Signal::blame);
  for (int i = 0; i < 5; ++i) vct->handed_on(1, 4, 0);
  EXPECT_TRUE(vct->may_send(1, 0)) << "nobody complains: any number at once";
  vct->restart();
  vct->notice(kCongestion, emu::kAnyDest, 1000);
  vct->notice(kCongestion, emu::kAnyDest, 1010);
  EXPECT_EQ(vct->delay_cycles(1010), 64U);
  EXPECT_TRUE(vct->may_send(1, 1011)) << "the last message left long ago";
  vct->handed_on(1, 4, 1011);
  EXPECT_FALSE(vct->may_send(1, 1030)) << "one at a time";
  vct->came_back(0, 1020);
  EXPECT_FALSE(vct->may_send(1, 1050));
  EXPECT_EQ(vct->ready_at(), 1074U) << "64 cycles after 1020, or 32 once the timeout has come";
  EXPECT_FALSE(vct->may_send(1, 1073)) << "64 cycles from the last tail, and no timeout yet";
  EXPECT_TRUE(vct->may_send(1, 1074)) << "64 without a notice: 32 are left";
  EXPECT_EQ(vct->delay_cycles(1074), 32U);
  EXPECT_TRUE(vct->may_send(1, 1138));
  EXPECT_EQ(vct->delay_cycles(1138), 0U);
}

// Whoever waits for what it is told is neither late nor early.
TEST(Congestion, VctApproach1SaysWhenItIsReady) {
  emu::Prng random(7);
  for (int round = 0; round < 300; ++round) {
    CongestionOptions options;
    options.reaction.vct_step_cycles = 1 + random.below(70);
    options.reaction.vct_timeout_cycles = 1 + random.below(70);
    const auto vct = made("vct1", options);
    emu::Cycle now = 1000;
    for (std::uint64_t notices = random.below(9); notices > 0; --notices)
      vct->notice(kCongestion, emu::kAnyDest, now);
    vct->handed_on(1, 4, now);
    vct->came_back(0, now += random.below(100));
    const emu::Cycle ready = std::max(now, vct->ready_at());
    while (!vct->may_send(1, now)) ++now;
    EXPECT_EQ(now, ready) << "round " << round;
  }
}

// VCT 5: from congestion to relief the delay grows with each message, then it shrinks with each.
TEST(Congestion, VctApproach2StepsByMessages) {
  CongestionOptions options;
  options.reaction.vct_messages = 2;
  const auto vct = made("vct2", options);
  emu::Cycle now = 0;
  const auto inject = [&](int messages) {
    for (int i = 0; i < messages; ++i) {
      now = std::max(now, vct->ready_at());
      ASSERT_TRUE(vct->may_send(1, now));
      vct->handed_on(1, 4, now);
      vct->came_back(0, now += 4);
    }
  };
  inject(10);
  EXPECT_EQ(vct->delay_cycles(now), 0U);
  vct->notice(kCongestion, emu::kAnyDest, now);
  EXPECT_EQ(vct->delay_cycles(now), 32U);
  vct->notice(kCongestion, emu::kAnyDest, now);
  EXPECT_EQ(vct->delay_cycles(now), 32U) << "another router says the same";
  inject(4);
  EXPECT_EQ(vct->delay_cycles(now), 96U) << "a step every two messages";
  vct->notice(kRelief, emu::kAnyDest, now);
  EXPECT_EQ(vct->delay_cycles(now), 96U) << "not at once";
  inject(2);
  EXPECT_EQ(vct->delay_cycles(now), 64U);
  inject(6);
  EXPECT_EQ(vct->delay_cycles(now), 0U);
}

// A burst that is under way when the notice comes was once counted message by message: a connection
// that had filled its lanes waited a thousand steps behind it.
TEST(Congestion, VctApproach2CountsWhatItDelays) {
  const auto vct = made("vct2");
  for (int i = 0; i < 100; ++i) vct->handed_on(1, 4, 0);
  vct->came_back(0, 4);
  vct->notice(kCongestion, emu::kAnyDest, 5);
  EXPECT_EQ(vct->delay_cycles(5), 32U);
  emu::Cycle now = 4;
  for (int i = 0; i < 99; ++i) {
    EXPECT_FALSE(vct->may_send(1, now)) << "they leave first";
    vct->came_back(0, now += 4);
  }
  EXPECT_EQ(vct->delay_cycles(now), 32U);
  for (int i = 1; i <= 3; ++i) {
    now = vct->ready_at();
    ASSERT_TRUE(vct->may_send(1, now));
    vct->handed_on(1, 4, now);
    vct->came_back(0, now += 4);
    EXPECT_EQ(vct->delay_cycles(now), 32U * static_cast<unsigned>(1 + i));
  }
  for (int i = 0; i < 10; ++i) vct->handed_on(1, 4, now);
  vct->notice(kRelief, emu::kAnyDest, now);
  vct->notice(kCongestion, emu::kAnyDest, now);
  vct->restart();  // none of the ten comes back
  vct->handed_on(1, 4, now);
  vct->came_back(0, now + 4);
  EXPECT_EQ(vct->delay_cycles(now), 96U) << "it counts from here, and nobody says that it lasts";

  CongestionOptions options;
  options.reaction.vct_counts_held = false;
  const auto all = made("vct2", options);
  for (int i = 0; i < 10; ++i) all->handed_on(1, 4, 0);
  all->notice(kCongestion, emu::kAnyDest, 5);
  for (int i = 0; i < 10; ++i) all->came_back(0, 10);
  EXPECT_EQ(all->delay_cycles(10), 32U * 11) << "every one injected since";
}

// IBA A10.2: each BECN one entry further into the table of that destination, the timer back.
TEST(Congestion, InfinibandTableByDestination) {
  CongestionOptions options;
  options.quadrant_of.resize(4);
  options.time.cycle_ps = 80'000;
  const emu::Cycle timer = options.time.cycle_at(150 * 1024);
  const auto control = made("ibcc", options);
  EXPECT_EQ(control->needs(), hca::Signal::marks);
  control->handed_on(2, 40, 100);
  EXPECT_TRUE(control->may_send(2, 100)) << "no BECN, no delay";
  for (int i = 0; i < 3; ++i) control->notice(kCongestion, 2, 100);
  control->handed_on(2, 40, 100);
  EXPECT_FALSE(control->may_send(2, 100 + 40 * 4 - 1));
  EXPECT_TRUE(control->may_send(2, 100 + 40 * 4)) << "a packet and three of its lengths";
  EXPECT_TRUE(control->may_send(1, 100)) << "another destination";
  EXPECT_NE(control->group(1), control->group(2));
  const emu::Cycle later = 100 + 2 * timer;
  control->handed_on(2, 40, later);
  EXPECT_FALSE(control->may_send(2, later + 40 * 2 - 1));
  EXPECT_TRUE(control->may_send(2, later + 40 * 2)) << "the timer went back two entries";
  control->handed_on(2, 40, later + timer);
  EXPECT_TRUE(control->may_send(2, later + timer));
  for (int i = 0; i < 1000; ++i) control->notice(kCongestion, 2, later);
  EXPECT_LE(control->delay_cycles(later), 127U * 40) << "the table has an end";
}

TEST(Congestion, InfinibandTableAsConfigured) {
  CongestionOptions options;
  options.quadrant_of.resize(2);
  options.time.cycle_ps = 80'000;
  options.reaction.ccti_increase = 2;
  options.reaction.ccti_limit = 5;
  options.reaction.ccti_timer_ns = 8'000;  // 100 cycles
  const auto control = made("ibcc", options);
  control->notice(kCongestion, 1, 100);
  EXPECT_EQ(control->delay_cycles(100), 2U * 40);
  for (int i = 0; i < 9; ++i) control->notice(kCongestion, 1, 100);
  EXPECT_EQ(control->delay_cycles(100), 5U * 40);
  control->handed_on(1, 40, 300);
  EXPECT_EQ(control->delay_cycles(300), 3U * 40);
}

TEST(Congestion, HostHasItsCreditsPerDestination) {
  PairOptions options;
  options.host.best_effort_credits = 40;
  options.host.completion_queues = CqLayout::separate;
  options.host.controls.power_control = false;
  Pair pair(options);
  const auto nodes = pair.cluster.host(0).options().nodes;
  pair.expect_recv(1, pair.b.sge(0, 100000));
  const hca::Sge from = pair.a.sge(0, 612 * 50);
  ASSERT_EQ(pair.post({.sges = {&from, 1}}), 0);
  pair.cluster.host(0).advance(pair.cluster.now());
  EXPECT_EQ(pair.cluster.sent().size(), 40U / nodes);
  // Nothing to do until a packet has been injected.
  EXPECT_GT(pair.cluster.host(0).next_event(), pair.cluster.now());
  EXPECT_GT(pair.cluster.host(0).counters().credit_waits, 0U);
  EXPECT_EQ(pair.run().first.size(), 1U);
}

TEST(Congestion, SchemesChangeWhilePacketsAreOnTheirWay) {
  PairOptions options;
  options.host.best_effort_credits = 5;
  options.host.controls.power_control = false;
  Pair pair(options);
  hca::Host& host = pair.cluster.host(0);
  pair.expect_recv(1, pair.b.sge(0, 100000));
  const hca::Sge from = pair.a.sge(0, 612 * 50);
  ASSERT_EQ(pair.post({.sges = {&from, 1}}), 0);
  host.advance(pair.cluster.now());
  EXPECT_EQ(pair.cluster.sent().size(), 5U);
  EXPECT_FALSE(host.set_congestion("hope", CqLayout::global));
  ASSERT_TRUE(host.set_congestion("none", CqLayout::global));
  host.advance(pair.cluster.now());
  EXPECT_EQ(pair.cluster.sent().size(), 50U);
  ASSERT_TRUE(host.set_congestion("credit", CqLayout::global));
  EXPECT_EQ(pair.run().first.size(), 1U);
  // What came back was tagged by schemes of the past: the credits are five again, not more.
  pair.cluster.sent().clear();
  pair.expect_recv(2, pair.b.sge(0, 100000));
  ASSERT_EQ(pair.post({.sges = {&from, 1}}), 0);
  host.advance(pair.cluster.now());
  EXPECT_EQ(pair.cluster.sent().size(), 5U);
  EXPECT_EQ(pair.run().first.size(), 1U);
}

// What routers tell: to this HCA's scheme, or through the network to the HCA that it is meant for.
TEST(Congestion, NoticesReachTheSourceThemselvesOrByDatagram) {
  for (const char* scheme : {"ibcc", "dcqcn", "vct1"}) {
    Pair pair;
    hca::Host& source = pair.cluster.host(0);
    hca::Host& dest = pair.cluster.host(1);
    for (hca::Host* host : {&source, &dest})
      ASSERT_TRUE(host->set_congestion(scheme, CqLayout::global));
    emu::Notice notice{};
    notice.source = 0;
    notice.dest = std::string_view(scheme) == "vct1" ? emu::kAnyDest : 1;
    notice.kind = emu::NoticeKind::congestion;
    dest.notice(notice, pair.cluster.now());  // it is not meant for it
    EXPECT_EQ(source.congestion_delay(), 0U);
    dest.advance(pair.cluster.now());
    pair.cluster.run(pair.cluster.now() + 100);
    const emu::Cycle once = source.congestion_delay();
    EXPECT_GT(once, 0U) << scheme;
    EXPECT_EQ(dest.congestion_delay(), 0U) << scheme;
    source.notice(notice, pair.cluster.now());
    EXPECT_GT(source.congestion_delay(), once) << scheme;
  }
}

// A source that sends nothing asks its scheme nothing; what is told of it follows time all the
// same.
TEST(Congestion, TheDelayThatIsToldEndsWithTimeAlone) {
  for (const char* scheme : {"vct1", "ibcc", "dcqcn"}) {
    Pair pair;
    hca::Host& source = pair.cluster.host(0);
    ASSERT_TRUE(source.set_congestion(scheme, CqLayout::global));
    emu::Notice notice{};
    notice.source = 0;
    notice.dest = std::string_view(scheme) == "vct1" ? emu::kAnyDest : 1;
    notice.kind = emu::NoticeKind::congestion;
    source.notice(notice, pair.cluster.now());
    EXPECT_GT(source.congestion_delay(), 0U) << scheme;
    source.advance(pair.cluster.now() + 1'000'000);
    EXPECT_EQ(source.congestion_delay(), 0U) << scheme;
  }
}

// The word that ends a source's waiting is not lost with a full queue of datagrams.
TEST(Congestion, AReliefThatFindsTheQueueFullIsOwed) {
  Pair pair;
  hca::Host& source = pair.cluster.host(0);
  hca::Host& router = pair.cluster.host(1);
  for (hca::Host* host : {&source, &router})
    ASSERT_TRUE(host->set_congestion("vct2", CqLayout::global));
  emu::Notice notice{};
  notice.dest = emu::kAnyDest;
  for (std::uint32_t n = 0; n < hca::kMadsWaitingMax; ++n)
    router.notice(notice, pair.cluster.now());
  notice.kind = emu::NoticeKind::relief;
  router.notice(notice, pair.cluster.now());
  router.advance(pair.cluster.now());
  pair.cluster.run(pair.cluster.now() + 100'000);
  EXPECT_GT(source.congestion_delay(), 0U);
  const hca::Sge from = pair.a.sge(0, 10);
  for (int i = 0; i < 3; ++i) {
    pair.expect_recv(2, pair.b.sge(0, 100));
    ASSERT_EQ(pair.post({.sges = {&from, 1}}), 0);
    EXPECT_EQ(pair.run().first.size(), 1U);
  }
  EXPECT_EQ(source.congestion_delay(), 0U);  // else three steps more
}

}  // namespace

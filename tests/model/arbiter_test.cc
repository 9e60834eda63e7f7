// Each scheduler of emu/lane against its plain version: the same random events, the same choices.
#include <gtest/gtest.h>

#include <deque>

#include "emu/base/prng.h"
#include "emu/lane/port_stamps.h"
#include "emu/lane/port_turns.h"
#include "emu/lane/stamps.h"
#include "emu/lane/turns.h"
#include "fabric/router/general_arbiter.h"
#include "fabric/router/general_clock.h"
#include "fabric/router/match.h"
#include "fabric/router/s5_output.h"
#include "tests/model/plain_scheduler.h"
#include "tests/unit/sanitized.h"

namespace model {
namespace {

using emu::SchedulerKind;
constexpr emu::LaneMask kControl = 0x8000;

std::vector<Waiting> lanes_of(emu::LaneMask mask) {
  std::vector<Waiting> waiting;
  for (emu::Vl v = 0; v < emu::kVlCount; ++v)
    if ((mask >> v) & 1) waiting.push_back({v, 0});
  return waiting;
}

emu::LaneMask random_mask(emu::Prng& random) {
  auto mask = static_cast<emu::LaneMask>(random());
  if (random.below(2) == 0) mask = static_cast<emu::LaneMask>(mask & random());
  if (random.below(4) != 0) mask = static_cast<emu::LaneMask>(mask & ~kControl);
  return mask;
}

template <class Fast, class Ports, emu::Isa kIsa>
void compare_turns_by(SchedulerKind kind, std::uint64_t seed) {
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  emu::Prng random(seed);
  emu::VlWeights weights;
  for (auto& w : weights.high) w = static_cast<std::uint16_t>(random.below(seed % 7 == 0 ? 30 : 5));
  for (auto& w : weights.low) w = static_cast<std::uint16_t>(random.below(3));
  weights.pointer = seed % 2 == 0 ? emu::PointerKind::fast : emu::PointerKind::slow;
  weights.high_limit =
      seed % 3 == 0 ? emu::kLimitUnbounded : static_cast<std::uint16_t>(random.below(7));
  weights.whole_packets = seed % 5 < 3;
  Fast fast;
  fast.configure(kind, {}, kControl);
  Ports ports;  // the same, port by port
  ports.configure(kind, {}, kControl);
  std::vector<std::unique_ptr<PlainScheduler>> plain;
  for (unsigned port = 0; port < emu::kPortsMax; ++port) {
    fast.set_weights(port, weights);
    ports.set_weights(port, weights);
    plain.push_back(make_plain_scheduler(kind, weights, kControl));
  }
  for (int i = 0; i < (test::kSanitized ? 500 : 4000); ++i) {
    emu::Lanes8 eligible{};
    for (unsigned port = 0; port < emu::kPortsMax; ++port) eligible[port] = random_mask(random);
    const emu::Picks picks = fast.pick(eligible);
    emu::Lanes8 granted{};
    emu::Lanes8 ended{};
    for (unsigned port = 0; port < emu::kPortsMax; ++port) {
      if (eligible[port] == 0) {
        ASSERT_EQ(picks.lanes[port], 0);
        ASSERT_EQ(picks.keys[port], emu::kNoStamp);
        continue;
      }
      const Choice choice = plain[port]->choose(lanes_of(eligible[port]));
      ASSERT_EQ(picks.lanes[port], 1 << choice.lane) << "event " << i;
      ASSERT_EQ(picks.keys[port], choice.urgency == kMostUrgent ? 0 : choice.urgency)
          << "event " << i;
      const emu::PortPick pick = ports.template pick<kIsa>(port, eligible[port]);
      ASSERT_EQ(pick.lane, choice.lane) << "event " << i;
      ASSERT_EQ(pick.urgency, picks.keys[port]) << "event " << i;
      if (random.below(3) == 0) continue;  // not granted: nothing may change
      granted[port] = picks.lanes[port];
      const bool ends = random.below(4) == 0;
      if (ends) ended[port] = picks.lanes[port];
      ports.granted(emu::block_lane(port, pick.lane));
      if constexpr (requires { ports.ended(0); }) {
        if (ends) ports.ended(emu::block_lane(port, pick.lane));
      }
      plain[port]->granted(choice.lane, ends);
    }
    fast.template granted<kIsa>(granted);
    if constexpr (requires { fast.ended(ended); }) {
      if (emu::any(ended)) fast.ended(ended);
    }
  }
}
template <class Fast, class Ports>
void compare_turns(SchedulerKind kind, std::uint64_t seed) {
  compare_turns_by<Fast, Ports, emu::Isa::base>(kind, seed);
#if defined(__x86_64__)
  if (emu::best_isa(emu::Isa::avx512) == emu::Isa::avx512)
    compare_turns_by<Fast, Ports, emu::Isa::avx512>(kind, seed);
#endif
}

TEST(Arbiter, RoundRobin) {
  for (std::uint64_t seed = 1; seed <= 6; ++seed)
    compare_turns<emu::RoundRobin, emu::PortTurns>(SchedulerKind::round_robin, seed);
}
TEST(Arbiter, TwoLevel) {
  for (std::uint64_t seed = 1; seed <= 24; ++seed)
    compare_turns<emu::TwoLevel, emu::PortWeights>(SchedulerKind::two_level, seed);
}

// Which table goes, h or l, flit by flit: of those that wait, h and l, or both, b; capitals where
// the flit that goes is a tail. High has a Limit of three flits.
std::string tables_that_go(const std::string& waits, bool whole_packets) {
  emu::VlWeights weights;
  weights.high[4] = weights.low[0] = 2;
  weights.high_limit = 3;
  weights.whole_packets = whole_packets;
  emu::TwoLevel fast;
  fast.configure(SchedulerKind::two_level, {}, kControl);
  fast.set_weights(2, weights);
  emu::PortWeights ports;
  ports.configure(SchedulerKind::two_level, {}, kControl);
  ports.set_weights(2, weights);
  fabric::general::Arbiter general;
  general.configure(SchedulerKind::two_level, 1, false);
  general.set_weights(weights);
  const auto plain = make_plain_scheduler(SchedulerKind::two_level, weights, kControl);
  std::string order;
  for (const char c : waits) {
    const bool ends = c < 'a';
    const char who = ends ? static_cast<char>(c - 'A' + 'a') : c;
    const auto lanes = static_cast<emu::LaneMask>((who != 'l' ? 0x10 : 0) | (who != 'h' ? 1 : 0));
    const Choice choice = plain->choose(lanes_of(lanes));
    plain->granted(choice.lane, ends);
    order += choice.lane == 4 ? 'h' : 'l';
    emu::Lanes8 eligible{};
    eligible[2] = lanes;
    const emu::Picks picks = fast.pick(eligible);
    if (ends) {
      fast.sent<emu::Isa::base>(picks.lanes, picks.lanes, 0);
      fast.ended(picks.lanes);
    } else {
      fast.granted<emu::Isa::base>(picks.lanes);
    }
    EXPECT_EQ(picks.lanes[2], 1 << choice.lane) << order;
    const emu::PortPick pick = ports.pick<emu::Isa::base>(2, lanes);
    ports.sent(emu::block_lane(2, pick.lane), ends, 0);
    EXPECT_EQ(pick.lane, choice.lane) << order;
    const auto nothing = [](auto) { return fabric::general::Chosen{}; };
    const auto chosen = general.choose(
        {lanes, 0, 0, 0}, [](unsigned) { return 0; }, nothing);
    general.granted(chosen, ends, 0);
    EXPECT_EQ(chosen.lane, choice.lane) << order;
  }
  return order;
}

// InfiniBand 7.6.9.2: when the Limit of high priority is used up, one packet of the low table goes.
TEST(Arbiter, APacketOfTheLowTableGoesBehindTheLimit) {
  // Messages of two flits: the second reaches the Limit. Then of high three, of low five.
  EXPECT_EQ(tables_that_go("bBbBbBbBbBbBbB", true), "hhhhllhhhhllhh");
  EXPECT_EQ(tables_that_go("bbBbbbbBbbBbbbbBb", true), "hhhlllllhhhlllllh");
  // The turn's flits may come one by one: high goes between them, and none of it counts.
  EXPECT_EQ(tables_that_go("bbBbbhHhhhHbbHBbbb", true), "hhhllhhhhhhllhlhhh");
  // A low packet in nobody's way is one as well: high is not kept waiting.
  EXPECT_EQ(tables_that_go("bblLbBbbBl", true), "hhllhhhhhl");
  // Part of one is none.
  EXPECT_EQ(tables_that_go("bblbBBb", true), "hhlhhlh");
  // Nor does high owe anything for flits in a row while nobody of low waited.
  EXPECT_EQ(tables_that_go("hHhhHbBbBbb", true), "hhhhhhhhhll");
}
// Counted in flits, packets are no matter.
TEST(Arbiter, AFlitOfTheLowTableGoesBehindALimitInFlits) {
  EXPECT_EQ(tables_that_go("bBbbbBbbBbbb", false), "hhhlhhhlhhhl");
  EXPECT_EQ(tables_that_go("bllbbbbbb", false), "hllhhhlhh");
}

TEST(Arbiter, OneLevel) {
  for (std::uint64_t seed = 1; seed <= 12; ++seed)
    compare_turns<emu::TwoLevel, emu::PortWeights>(SchedulerKind::wrr, seed);
}

// The general engine's clock and the plain one, side by side.
class FairClocks {
 public:
  FairClocks(SchedulerKind kind, emu::Cycle start)
      : kind_(kind),
        now_(start),
        plain_(make_plain_clock(kind, fabric::CounterKind::epoch, emu::kVlCount, start)) {
    clock_.configure({kind, fabric::CounterKind::epoch}, start);
  }
  void vtick(unsigned lane, emu::Vtick vtick) {
    if (kind_ == SchedulerKind::fair_queueing) {
      clock_.set_vtick(lane, vtick, now_);
      plain_->set_vtick(lane, vtick);
    } else {
      clock_.head(lane, vtick, now_);
      plain_->head(lane, vtick);
    }
  }
  void arrive(unsigned lane) {
    const Stamp stamp = plain_->stamp(lane, now_, now_);
    queued_[lane].push_back({clock_.stamp(lane, now_, now_), stamp});
  }
  void leave(unsigned lane) { queued_[lane].pop_front(); }
  bool empty(unsigned lane) const { return queued_[lane].empty(); }
  void next_cycle() {
    ++now_;
    plain_->tick(now_);
    EXPECT_EQ(plain_->changed(), now_ % emu::kStampPeriod == 0);
    if (now_ % emu::kStampPeriod != 0) return;
    clock_.age(now_);
    for (auto& lane : queued_) {
      for (auto& [stamp, plain] : lane) {
        stamp = clock_.aged(stamp);
        plain = plain_->reread(plain);
      }
    }
  }
  // How far beyond R: of the first flit of the lane, or of the last.
  Stamp first(unsigned lane) { return urgency(queued_[lane].front()); }
  Stamp last(unsigned lane) { return urgency(queued_[lane].back()); }

 private:
  using Both = std::pair<Stamp, Stamp>;
  Stamp urgency(const Both& both) {
    const Stamp found = clock_.urgency(both.first, now_);
    EXPECT_EQ(found, plain_->urgency(both.second)) << "cycle " << now_;
    return found;
  }
  SchedulerKind kind_;
  emu::Cycle now_;
  fabric::general::PortClock clock_;
  std::unique_ptr<PlainClock> plain_;
  std::array<std::deque<Both>, emu::kVlCount> queued_;
};

// R leaves behind what is never served, by 2^31 a cycle where best effort is alone; F leaves R
// behind where a queue gets more than its part. Neither goes on until 64 bits wrap.
TEST(FairClock, StampsStayWithinReachOfTheRound) {
  for (const auto kind : {SchedulerKind::fair_queueing, SchedulerKind::fgfq}) {
    FairClocks clocks(kind, 5 * emu::kStampPeriod - 10);
    clocks.vtick(1, emu::kVtickMax);
    clocks.vtick(2, emu::kVtickMax);
    clocks.arrive(1);  // and is never served
    for (int i = 0; i < 1000; ++i) {
      clocks.arrive(2);
      clocks.next_cycle();
      clocks.leave(2);
    }
    const Stamp round = Stamp{emu::kVtickMax} << 16;
    EXPECT_LT(clocks.first(1), -400 * round);
    for (unsigned i = 0; i < emu::kStampPeriod; ++i) clocks.next_cycle();
    EXPECT_GE(clocks.first(1), 0) << "older than the epoch";
    constexpr Stamp kMost = Stamp{1} << 52;
    for (Stamp i = 0; i < kMost / round + 10; ++i) {
      clocks.arrive(2);
      if (i > 0) clocks.leave(2);
    }
    EXPECT_EQ(clocks.last(2), kMost);
  }
}

TEST(FairClock, RandomArrivalsOverEpochs) {
  for (std::uint64_t seed = 1; seed <= 4; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    emu::Prng random(seed);
    FairClocks clocks(seed % 2 == 0 ? SchedulerKind::fair_queueing : SchedulerKind::fgfq,
                      16384 * 5 - 3000);
    for (int i = 0; i < (test::kSanitized ? 20'000 : 60'000); ++i) {
      const unsigned lane = random.below(emu::kVlCount);
      static constexpr emu::Vtick kVticks[] = {0, 1, 3, 100, emu::kVtickMax};
      if (random.below(16) == 0) clocks.vtick(lane, kVticks[random.below(5)]);
      if (random.below(2) == 0) clocks.arrive(lane);
      // The odd lanes are served rarely.
      const unsigned served = random.below(emu::kVlCount);
      if (!clocks.empty(served) && (served % 2 == 0 || random.below(200) == 0)) {
        clocks.first(served);
        clocks.leave(served);
      }
      clocks.next_cycle();
      if (testing::Test::HasFailure()) return;
    }
  }
}

emu::Lanes8 one_lane(unsigned port, emu::Vl lane) {
  return emu::kOneLane.of[emu::lane_slot(port, lane)];
}

// One input port with 16 lanes of up to 15 or 127 flits: arrivals, grants, epochs.
template <int kPlanes>
void compare_stamps(SchedulerKind kind, std::uint64_t seed) {
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  emu::Prng random(seed);
  std::array<emu::Vtick, emu::kVlCount> vticks{};
  for (auto& v : vticks)
    v = static_cast<emu::Vtick>(random.below(2) == 0 ? random.below(50) : random.below(32768));
  emu::Cycle now = 16384 * 5 - 3000;
  emu::BidRows bids;
  emu::InputStamps<kPlanes> fast;
  fast.configure(kind, vticks, kControl);
  emu::PortBids port_bids;
  emu::InputClocks<kPlanes> clocks;
  clocks.configure(kind, vticks, kControl);
  const auto plain = make_plain_scheduler(kind, {}, kControl);
  const auto clock = make_plain_clock(kind, fabric::CounterKind::epoch, emu::kVlCount, now);
  std::array<std::deque<Stamp>, emu::kVlCount> queued;
  for (std::size_t v = 0; v < emu::kVlCount; ++v) clock->set_vtick(v, vticks[v]);
  constexpr unsigned kPort = 3;
  for (int i = 0; i < 60000; ++i) {
    const auto lane = static_cast<emu::Vl>(random.below(emu::kVlCount));
    if (queued[lane].size() < (1U << kPlanes) - 1 && random.below(2) == 0) {
      if (random.below(8) == 0) {
        const auto vtick = static_cast<emu::Vtick>(random.below(400));
        fast.head(kPort, lane, vtick);
        clocks.head(emu::block_lane(kPort, lane), vtick);
        clock->head(lane, vtick);
      }
      const emu::Lanes8 flit = one_lane(kPort, lane);
      const bool first = queued[lane].empty();
      fast.template arrive<emu::Isa::base>(bids, flit, first ? flit : emu::kNoLanes8,
                                           emu::stamp_now(now));
      clocks.template arrive<false>(port_bids, emu::block_lane(kPort, lane), emu::stamp_now(now));
      queued[lane].push_back(clock->stamp(lane, now, now));
    }
    const emu::LaneMask may = random_mask(random);
    std::vector<Waiting> waiting;
    emu::LaneMask mask = 0;
    for (emu::Vl v = 0; v < emu::kVlCount; ++v) {
      if (((may >> v) & 1) == 0 || queued[v].empty()) continue;
      waiting.push_back({v, queued[v].front()});
      mask = static_cast<emu::LaneMask>(mask | 1 << v);
    }
    if (!waiting.empty()) {
      const Choice choice = plain->choose(waiting);
      const emu::Bid bid = fabric::bid_of(bids, kPort, mask, 0, {fast.control(), emu::kNoLanes8});
      ASSERT_EQ(emu::lane_of_bid(bid), choice.lane) << "event " << i;
      ASSERT_EQ(emu::lane_of_bid(emu::least_bid<emu::Isa::base>(port_bids, kPort, mask)),
                choice.lane)
          << "event " << i;
      fast.template leave<emu::Isa::base>(bids, one_lane(kPort, choice.lane));
      clocks.template granted<false>(port_bids, emu::block_lane(kPort, choice.lane),
                                     emu::stamp_now(now));
      queued[choice.lane].pop_front();
    }
    if (++now % emu::kStampPeriod != 0) continue;
    fast.age(bids, emu::kStampPeriod);
    clocks.age(port_bids, emu::kStampPeriod);
    clock->tick(now);
    for (auto& stamps : queued)
      for (Stamp& stamp : stamps) stamp = clock->reread(stamp);
  }
}

// Flits that crossed before the epoch of their stamps have come together: the lowest lane is first.
TEST(Arbiter, OrderOfComingAsFarBackAsStampsTell) {
  const emu::Cycle begin = 16384 * 5;
  for (const int epochs : {0, 1, 2}) {
    fabric::InOrderOfComing<4> order;
    const emu::Lanes8 early = one_lane(3, 5);
    const emu::Lanes8 late = one_lane(3, 2);
    order.came<emu::Isa::base>(early, early, begin + 100);
    order.came<emu::Isa::base>(late, late, begin + 101);
    for (int i = 0; i < epochs; ++i) order.age(emu::kStampPeriod);
    const emu::Lanes8 first = order.pick<emu::Isa::base>(early | late, emu::kNoLanes8);
    EXPECT_EQ(first[3], epochs < 2 ? early[3] : late[3]) << epochs << " epochs later";
  }
}

TEST(Arbiter, Fcfs) {
  for (std::uint64_t seed = 1; seed <= 3; ++seed) compare_stamps<4>(SchedulerKind::fcfs, seed);
}
TEST(Arbiter, VirtualClock) {
  for (std::uint64_t seed = 1; seed <= 3; ++seed)
    compare_stamps<4>(SchedulerKind::virtual_clock, seed);
}
TEST(Arbiter, FineGrainedVirtualClock) {
  for (std::uint64_t seed = 1; seed <= 3; ++seed) compare_stamps<7>(SchedulerKind::fgvc, seed);
}

}  // namespace
}  // namespace model

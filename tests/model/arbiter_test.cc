// Each scheduler of emu/lane against its plain version: the same random events, the same choices.
#include <gtest/gtest.h>

#include <deque>

#include "emu/base/prng.h"
#include "emu/lane/port_stamps.h"
#include "emu/lane/port_turns.h"
#include "emu/lane/stamps.h"
#include "emu/lane/turns.h"
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
  for (auto& w : weights.high) w = static_cast<std::uint16_t>(random.below(5));
  for (auto& w : weights.low) w = static_cast<std::uint16_t>(random.below(3));
  weights.pointer = seed % 2 == 0 ? emu::PointerKind::fast : emu::PointerKind::slow;
  weights.high_limit =
      seed % 3 == 0 ? emu::kLimitUnbounded : static_cast<std::uint16_t>(random.below(7));
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
      ports.granted(emu::block_lane(port, pick.lane), 0);
      plain[port]->granted(choice.lane);
    }
    fast.template granted<kIsa>(granted);
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
TEST(Arbiter, OneLevel) {
  for (std::uint64_t seed = 1; seed <= 12; ++seed)
    compare_turns<emu::TwoLevel, emu::PortWeights>(SchedulerKind::wrr, seed);
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
      clocks.arrive(emu::block_lane(kPort, lane), emu::stamp_now(now));
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
      ASSERT_EQ(clocks.template pick<emu::Isa::base>(kPort, mask).lane, choice.lane)
          << "event " << i;
      fast.template leave<emu::Isa::base>(bids, one_lane(kPort, choice.lane));
      clocks.granted(emu::block_lane(kPort, choice.lane), emu::stamp_now(now));
      queued[choice.lane].pop_front();
    }
    if (++now % emu::kStampPeriod != 0) continue;
    fast.age(bids, emu::kStampPeriod);
    clocks.age(emu::kStampPeriod);
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

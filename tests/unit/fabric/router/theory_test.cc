// Every scheduler against its theory, in both engines: shares of backlogged lanes, what is exact in
// a frame, the Limit of high priority, and how long a lane can be kept waiting.
#include <algorithm>
#include <string>

#include "tests/unit/fabric/router/design_net.h"

namespace fabric {
namespace {

using emu::SchedulerKind;

bool only_general(SchedulerKind kind) {
  return kind == SchedulerKind::fair_queueing || kind == SchedulerKind::fgfq;
}

NetworkSpec spec_of(SchedulerKind scheduler, bool general_engine) {
  NetworkSpec spec = general();
  spec.general_engine = general_engine;
  spec.scheduler = scheduler;
  return spec;
}

// A message for node 1 on each of lanes 1 ... 4, as long as its lane's rate: shares that follow
// 1 / Vtick to within one percent let all four end within one percent of the whole. From one
// sender, whose link they share, or from one each, to share the output port of the router.
void expect_vtick_ratios(NetworkSpec spec, bool one_sender, const std::string& what) {
  constexpr std::array<emu::Vtick, 5> kVticks = {1, 4, 4, 8, 16};
  constexpr int kRounds = 6400;
  SCOPED_TRACE(what);
  for (emu::Vl v = 1; v <= 4; ++v) spec.lane_vtick[v] = kVticks[v];
  auto network = make(spec);
  int whole = 0;
  for (emu::Vl v = 1; v <= 4; ++v) {
    const int flits = kRounds / kVticks[v];
    hca::SendPacket packet = packet_to(1, static_cast<std::uint16_t>(flits), v);
    packet.vtick = kVticks[v];
    whole += flits;
    ASSERT_TRUE(network->submit(static_cast<emu::NodeId>(one_sender ? 0 : 1 + v), packet));
  }
  const auto events = drain(*network, 6000);
  ASSERT_EQ(events.size(), 4U);
  EXPECT_LE(events.back().tail_cycle, static_cast<emu::Cycle>(whole) + 10) << "the link stood idle";
  for (const auto& event : events)
    EXPECT_GE(event.tail_cycle, 0.99 * whole) << "lane " << int{event.vl};
}

std::string name_of(SchedulerKind kind, bool general_engine) {
  return "scheduler " + std::to_string(static_cast<int>(kind)) +
         (general_engine ? " general" : " fast");
}

constexpr SchedulerKind kByStamps[] = {SchedulerKind::virtual_clock, SchedulerKind::head_of_line,
                                       SchedulerKind::fgvc, SchedulerKind::fair_queueing,
                                       SchedulerKind::fgfq};

TEST(Shares, StampsFollowVticksOnTheHcasLink) {
  for (const bool general_engine : {false, true})
    for (const SchedulerKind kind : kByStamps)
      if (general_engine || !only_general(kind))
        expect_vtick_ratios(spec_of(kind, general_engine), true, name_of(kind, general_engine));
}

// Of a full crossbar the scheduler sits at the output: four inputs share it by their Vticks.
TEST(Shares, StampsFollowVticksBetweenInputsOfAFullCrossbar) {
  for (const SchedulerKind kind : kByStamps) {
    NetworkSpec spec = spec_of(kind, true);
    spec.crossbar = CrossbarKind::full;
    expect_vtick_ratios(spec, false, name_of(kind, true));
  }
}

// Of a multiplexed one it sits at the inputs, and the stamps of different inputs are compared.
TEST(Shares, StampsFollowVticksBetweenInputsOfAMultiplexedCrossbar) {
  for (const bool general_engine : {false, true})
    for (const SchedulerKind kind : kByStamps)
      if (general_engine || !only_general(kind))
        expect_vtick_ratios(spec_of(kind, general_engine), false, name_of(kind, general_engine));
}

// The lanes of the first `count` messages that leave node 0, while all of `lanes` have messages of
// so many flits to send. With one flit, that is who sends in each cycle. The router takes them more
// slowly than they come; its buffers are large enough for the test.
std::vector<emu::Vl> flits_in_order(NetworkSpec spec, emu::LaneMask lanes, std::size_t count,
                                    std::uint16_t flits = 1) {
  spec.vc_buf_size = 127;
  auto network = make(spec);
  for (int i = 0; i < 150; ++i) {
    for (emu::Vl v = 0; v < emu::kVlCount; ++v) {
      if (((lanes >> v) & 1) == 0) continue;
      hca::SendPacket packet = packet_to(static_cast<emu::NodeId>(1 + v % 7), flits, v);
      packet.handle = v;
      packet.vtick = spec.lane_vtick[v];
      EXPECT_TRUE(network->submit(0, packet));
    }
  }
  network->step(count * flits);
  std::vector<emu::Vl> order;
  for (const auto& event : network->injected()) order.push_back(static_cast<emu::Vl>(event.handle));
  EXPECT_EQ(order.size(), count) << "a cycle without a flit";
  return order;
}

// Control keeps node 0's link busy for 200 cycles; lane 1 has waited from the first of them, lane 2
// from the last. By how many cycles the last flit of lane 1 leaves before that of lane 2.
emu::Cycle lead_of_the_earlier(SchedulerKind kind, bool general_engine) {
  NetworkSpec spec = spec_of(kind, general_engine);
  spec.lane_vtick[1] = spec.lane_vtick[2] = 2;
  spec.vc_buf_size = 127;
  auto network = make(spec);
  EXPECT_TRUE(network->submit(0, packet_to(3, 200, 15, emu::TrafficClass::control)));
  hca::SendPacket early = packet_to(1, 60, 1);
  hca::SendPacket late = packet_to(2, 60, 2);
  late.launch = 199;
  early.vtick = late.vtick = 2;
  EXPECT_TRUE(network->submit(0, early));
  EXPECT_TRUE(network->submit(0, late));
  const auto events = drain(*network, 600);
  EXPECT_EQ(events.size(), 3U);
  if (events.size() != 3) return 0;
  EXPECT_EQ(events[1].vl, 1);
  return events[2].tail_cycle - events[1].tail_cycle;
}

// First come, first served, whatever the Vticks. Stamps of arrival remember who came first as well,
// by as much as the wait; stamps at the head of the line do not: both lanes take turns.
TEST(Stamps, ArrivalAndHeadOfLineTellWhoCameFirst) {
  for (const bool general_engine : {false, true}) {
    EXPECT_EQ(lead_of_the_earlier(SchedulerKind::fcfs, general_engine), 60U);
    EXPECT_EQ(lead_of_the_earlier(SchedulerKind::virtual_clock, general_engine), 60U);
    EXPECT_LE(lead_of_the_earlier(SchedulerKind::head_of_line, general_engine), 2U);
    EXPECT_LE(lead_of_the_earlier(SchedulerKind::round_robin, general_engine), 2U);
  }
}

TEST(WeightedRoundRobin, EveryFrameIsExact) {
  constexpr std::array<std::uint16_t, 5> kWeights = {0, 8, 4, 3, 1};
  for (const int engine : {0, 1, 2}) {
    for (const auto pointer : {emu::PointerKind::fast, emu::PointerKind::slow}) {
      const bool general_engine = engine > 0;
      NetworkSpec spec = spec_of(SchedulerKind::wrr, general_engine);
      if (engine == 2) {  // the HCA's own scheduler, whatever the routers have
        spec.scheduler = SchedulerKind::fcfs;
        spec.hca_scheduler = SchedulerKind::wrr;
      }
      spec.weights = {};
      for (std::size_t v = 1; v <= 4; ++v) spec.weights.high[v] = kWeights[v];
      spec.weights.pointer = pointer;
      const auto order = flits_in_order(spec, 0x1e, 160);
      for (std::size_t frame = 0; frame < 10; ++frame) {
        const auto begin = order.begin() + static_cast<std::ptrdiff_t>(frame * 16);
        for (emu::Vl v = 1; v <= 4; ++v)
          EXPECT_EQ(std::count(begin, begin + 16, v), kWeights[v])
              << "frame " << frame << " lane " << int{v} << (general_engine ? " general" : " fast");
        // fast: a flit each as long as they have weight left; slow: an entry at a time.
        if (pointer == emu::PointerKind::fast) {
          std::vector<emu::Vl> first(begin, begin + 4);
          std::sort(first.begin(), first.end());
          EXPECT_EQ(first, (std::vector<emu::Vl>{1, 2, 3, 4}));
        } else {
          EXPECT_TRUE(std::is_sorted(begin, begin + 16));
        }
      }
    }
  }
}

// While the low table waits the high one sends at most Limit flits in a row, and then one of the
// low table goes.
TEST(TwoLevel, LimitOfHighPriorityIsABound) {
  for (const bool general_engine : {false, true}) {
    for (const unsigned given : {0U, 1U, 5U, 40U, 300U, unsigned{emu::kLimitUnbounded}}) {
      const auto limit = static_cast<std::uint16_t>(given);
      NetworkSpec spec = spec_of(SchedulerKind::two_level, general_engine);
      spec.weights = {};
      for (emu::Vl v = 4; v < 10; ++v) spec.weights.high[v] = 3;
      for (emu::Vl v = 0; v < 4; ++v) spec.weights.low[v] = 2;
      spec.weights.high_limit = limit;
      const auto order = flits_in_order(spec, 0x03ff, limit < 100 ? 120 : 620);
      for (std::size_t i = 0; i < order.size(); ++i) {
        const bool high = order[i] >= 4;
        if (limit == emu::kLimitUnbounded) {
          EXPECT_TRUE(high) << "low goes only when nobody of high waits";
          continue;
        }
        // Exactly: neither more nor fewer, for both tables always have something.
        EXPECT_EQ(high, i % (given + 1) < limit) << "flit " << i << " limit " << int{limit};
      }
    }
  }
}

// InfiniBand, VL arbitration: the packet that reaches the Limit is the last of the high table, and
// then one packet of the low table goes.
TEST(TwoLevel, BehindTheLimitAPacketOfTheLowTableGoes) {
  constexpr std::uint16_t kFlits = 7;
  for (const bool general_engine : {false, true}) {
    for (const std::uint16_t limit : std::initializer_list<std::uint16_t>{1, 7, 8, 20, 21, 60}) {
      NetworkSpec spec = spec_of(SchedulerKind::two_level, general_engine);
      spec.weights = {};
      spec.weights.high[4] = 3;
      spec.weights.low[0] = 2;
      spec.weights.high_limit = limit;
      spec.weights.whole_packets = true;
      const std::size_t high_packets = (limit + kFlits - 1U) / kFlits;
      const auto order = flits_in_order(spec, 0x0011, 60, kFlits);
      for (std::size_t i = 0; i < order.size(); ++i) {
        EXPECT_EQ(order[i] == 4, i % (high_packets + 1) < high_packets)
            << "packet " << i << " limit " << int{limit} << (general_engine ? " general" : " fast");
      }
    }
  }
}

// The longest that each of four backlogged lanes waits between two flits. With stamps: until its
// own is the smallest, which n others put off by at most what they may send in its Vtick. With
// turns: the others' turns.
TEST(Starvation, GapsAreBoundedByTheory) {
  constexpr std::array<unsigned, 5> kVticks = {1, 3, 6, 12, 24};
  constexpr std::array<unsigned, 5> kWeights = {0, 8, 4, 3, 1};
  double whole = 0;
  for (std::size_t v = 1; v <= 4; ++v) whole += 1.0 / kVticks[v];
  for (const bool general_engine : {false, true}) {
    for (int k = 0; k < emu::kSchedulerKindCount; ++k) {
      const auto kind = static_cast<SchedulerKind>(k);
      if (!general_engine && only_general(kind)) continue;
      // Messages of one flit: a stamp that starts afresh at each header is a stamp of now + Vtick.
      const bool afresh = kind == SchedulerKind::fgvc || kind == SchedulerKind::fgfq;
      if (kind == SchedulerKind::fcfs || afresh) continue;
      NetworkSpec spec = spec_of(kind, general_engine);
      spec.weights = {};
      for (std::size_t v = 1; v <= 4; ++v) {
        spec.lane_vtick[v] = static_cast<emu::Vtick>(kVticks[v]);
        spec.weights.high[v] = static_cast<std::uint16_t>(kWeights[v]);
      }
      const auto order = flits_in_order(spec, 0x1e, 160);
      for (emu::Vl v = 1; v <= 4; ++v) {
        double bound = 4;  // round robin: one of each
        if (kind == SchedulerKind::wrr || kind == SchedulerKind::two_level) bound = 16;
        if (emu::has_lane_vticks(kind)) bound = kVticks[v] * whole + 4;
        auto last = order.begin();
        for (auto i = order.begin(); i != order.end(); ++i) {
          if (*i != v) continue;
          EXPECT_LE(i - last, bound) << name_of(kind, general_engine) << " lane " << int{v};
          last = i;
        }
        EXPECT_LE(order.end() - last, bound + 1) << name_of(kind, general_engine);
      }
    }
  }
}

}  // namespace
}  // namespace fabric

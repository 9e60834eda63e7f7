// What defines crossbars, schedulers and routers of the general engine, each as one test; latency
// by formula; shares. Preemption, circuits and cut-through: switching_test.cc.
#include <array>
#include <string>

#include "emu/base/prng.h"
#include "tests/unit/fabric/router/design_net.h"

namespace fabric {
namespace {

using emu::SchedulerKind;

TEST(ZeroLoad, LatencyIsThePipelineFormula) {
  for (const CrossbarKind crossbar : {CrossbarKind::multiplexed, CrossbarKind::full}) {
    for (const RouterKind router : kWormRouters) {
      for (const int delay : {1, 3}) {
        NetworkSpec spec = general(router);
        spec.crossbar = crossbar;
        spec.link_delay = delay;
        spec.topology = TopologyKind::mesh;
        spec.sides = {5, 2};
        for (emu::NodeId dest = 0; dest < 5; ++dest) {
          auto network = make(spec);
          ASSERT_TRUE(network->submit(0, packet_to(dest, 7, 5)));
          const auto events = drain(*network, 200);
          ASSERT_EQ(events.size(), 1U);
          const emu::Cycle hops = dest + 1U;
          const auto d = static_cast<emu::Cycle>(delay);
          EXPECT_EQ(events[0].tail_cycle - events[0].head_cycle, hops * (4 + d) + d + 6);
        }
      }
    }
  }
}

// Accepted over offered under uniform Poisson load on lanes 0 ... `lanes` - 1.
double accepted_of(const NetworkSpec& spec, double offered, emu::Cycle cycles, int lanes) {
  auto network = make(spec);
  emu::Prng random(9);
  const auto nodes = static_cast<std::uint32_t>(network->nodes());
  std::vector<double> next(nodes, 0);
  double flits_in = 0;
  double flits_out = 0;
  while (network->now() < cycles) {
    const emu::Cycle end = network->now() + 64;
    for (std::uint32_t n = 0; n < nodes; ++n) {
      for (; next[n] < static_cast<double>(end); next[n] += random.exponential(40 / offered)) {
        auto packet =
            packet_to(static_cast<emu::NodeId>((n + 1 + random.below(nodes - 1)) % nodes), 40,
                      static_cast<emu::Vl>(random.below(static_cast<std::uint32_t>(lanes))));
        packet.launch = static_cast<emu::Cycle>(next[n]);
        EXPECT_TRUE(network->submit(static_cast<emu::NodeId>(n), packet));
        flits_in += 40;
      }
    }
    network->step(64);
    for (const auto& event : network->delivered()) flits_out += event.flits;
    network->clear_events();
  }
  return flits_out / flits_in;
}

TEST(Throughput, BelowSaturationAcceptedIsOffered) {
  for (const RouterKind router : kWormRouters) {
    for (const CrossbarKind crossbar : {CrossbarKind::multiplexed, CrossbarKind::full}) {
      NetworkSpec spec = general(router);
      spec.crossbar = crossbar;
      EXPECT_GT(accepted_of(spec, 0.6, 40'000, 15), 0.98);
    }
  }
}

// MediaWorm figure 8: four lanes and a full crossbar carry more than four lanes of a multiplexed
// one, nearly as much as sixteen.
TEST(FullCrossbar, BeatsTheMultiplexedOneAtFourLanes) {
  NetworkSpec spec = general();
  spec.packets_per_node = 20'000;
  const double multiplexed = accepted_of(spec, 0.9, 40'000, 4);
  const double sixteen = accepted_of(spec, 0.9, 40'000, 15);
  spec.crossbar = CrossbarKind::full;
  const double full = accepted_of(spec, 0.9, 40'000, 4);
  EXPECT_GT(full, multiplexed + 0.05);
  EXPECT_GT(full, sixteen - 0.1);
}

// In a full crossbar two lanes of one input reach two outputs in the same cycle; in a multiplexed
// one they take turns.
TEST(FullCrossbar, LanesOfOneInputDoNotShareAWay) {
  const auto window_of_crossings = [](CrossbarKind crossbar) {
    NetworkSpec spec = general();
    spec.crossbar = crossbar;
    spec.energy_window = 1;
    auto network = make(spec);
    // Two worms of node 0 to two busy outputs pile up in its input buffers.
    for (emu::NodeId n = 1; n <= 2; ++n) {
      EXPECT_TRUE(network->submit(n, packet_to(static_cast<emu::NodeId>(n + 2), 60, 5)));
      EXPECT_TRUE(network->submit(
          0, packet_to(static_cast<emu::NodeId>(n + 2), 60, static_cast<emu::Vl>(5 + n % 2))));
    }
    network->step(400);
    std::uint32_t most = 0;
    for (const ActivityWindow& w : network->activity()) most = std::max(most, w.crossed);
    return most;
  };
  // One of node 1 or 2 is done first: one lane of node 0 crosses beside the other of them, or both.
  EXPECT_EQ(window_of_crossings(CrossbarKind::multiplexed), 2U);
  EXPECT_EQ(window_of_crossings(CrossbarKind::full), 3U);
}

TEST(Radix, SixtyFourPorts) {
  NetworkSpec spec = general();
  spec.general_engine = false;  // the fast engine does not do it
  spec.nodes = 64;
  auto network = make(spec);
  for (emu::NodeId n = 0; n < 64; ++n)
    for (emu::NodeId d = 0; d < 64; d = static_cast<emu::NodeId>(d + 7))
      ASSERT_TRUE(network->submit(n, packet_to(d, 5, static_cast<emu::Vl>(n % 15))));
  EXPECT_EQ(drain(*network, 3000).size(), 64U * 10);
  spec.nodes = 65;
  EXPECT_NE(Network::make(spec).error().message.find("64"), std::string::npos);
}

// A traditional router treats control as anything else: behind a crowd on other lanes it waits its
// turn; in the non-preemptive router it goes first.
TEST(Traditional, ControlGoesBeforeNobody) {
  const auto latency_of_control = [](RouterKind router, bool general_engine) {
    NetworkSpec spec = general(router);
    spec.general_engine = general_engine;
    auto network = make(spec);
    // Six inputs crowd the way to node 7.
    for (emu::NodeId n = 1; n < 7; ++n)
      for (emu::Vl v = 4; v < 8; ++v) EXPECT_TRUE(network->submit(n, packet_to(7, 200, v)));
    network->step(300);
    EXPECT_TRUE(network->submit(0, packet_to(7, 20, 15, emu::TrafficClass::control)));
    network->step(6000);
    for (const auto& event : network->delivered())
      if (event.traffic_class == emu::TrafficClass::control) return event.tail_cycle - event.launch;
    return emu::kNever;
  };
  for (const bool general_engine : {false, true}) {
    EXPECT_LT(latency_of_control(RouterKind::non_preemptive, general_engine), 50U);
    EXPECT_GT(latency_of_control(RouterKind::traditional, general_engine), 100U);
  }
}

// Lanes 1 ... 4 of one sender have more for node 1 than can leave: shares of what arrived.
std::array<double, 5> shares(NetworkSpec spec, const std::array<emu::Vtick, 5>& vticks) {
  for (emu::Vl v = 0; v < emu::kVlCount; ++v) spec.lane_vtick[v] = v < 5 ? vticks[v] : 1;
  auto network = make(spec);
  for (int i = 0; i < 1000; ++i) {
    for (emu::Vl v = 1; v <= 4; ++v) {
      hca::SendPacket packet = packet_to(1, 20, v);
      packet.vtick = vticks[v];
      EXPECT_TRUE(network->submit(0, packet));
    }
  }
  network->step(20'000);
  std::array<double, 5> flits{};
  for (const auto& event : network->delivered()) flits[event.vl] += event.flits;
  const double sum = flits[1] + flits[2] + flits[3] + flits[4];
  EXPECT_GT(sum, 19'500) << "the link stood idle";
  for (double& f : flits) f /= sum;
  return flits;
}

// Backlogged lanes share a link in proportion to 1 / Vtick, within one percent.
TEST(Shares, StampsFollowVticks) {
  struct Case {
    SchedulerKind scheduler;
    CounterKind counters;
  };
  for (const Case c : {Case{SchedulerKind::virtual_clock, CounterKind::epoch},
                       Case{SchedulerKind::virtual_clock, CounterKind::wide},
                       Case{SchedulerKind::head_of_line, CounterKind::wide},
                       Case{SchedulerKind::fair_queueing, CounterKind::wide}}) {
    for (const CrossbarKind crossbar : {CrossbarKind::multiplexed, CrossbarKind::full}) {
      NetworkSpec spec = general();
      spec.scheduler = c.scheduler;
      spec.counters = c.counters;
      spec.crossbar = crossbar;
      const auto flits = shares(spec, {1, 4, 4, 8, 16});
      const double whole = 1. / 4 + 1. / 4 + 1. / 8 + 1. / 16;
      EXPECT_NEAR(flits[1] * whole, 1. / 4, 0.01 / 4) << static_cast<int>(c.scheduler);
      EXPECT_NEAR(flits[2] * whole, 1. / 4, 0.01 / 4) << static_cast<int>(c.scheduler);
      EXPECT_NEAR(flits[3] * whole, 1. / 8, 0.01 / 8) << static_cast<int>(c.scheduler);
      EXPECT_NEAR(flits[4] * whole, 1. / 16, 0.01 / 16) << static_cast<int>(c.scheduler);
    }
  }
}

// Messages carry their Vtick: the lanes' shares follow it message by message. A message starts
// afresh at its header, so a lane that is behind loses its debt 20 flits at a time: 2 %.
TEST(Shares, FineGrainedFairQueueingFollowsTheMessages) {
  NetworkSpec spec = general();
  spec.scheduler = SchedulerKind::fgfq;
  const auto flits = shares(spec, {1, 4, 4, 8, 8});
  EXPECT_NEAR(flits[1], 1. / 3, 0.02);
  EXPECT_NEAR(flits[2], 1. / 3, 0.02);
  EXPECT_NEAR(flits[3], 1. / 6, 0.02);
  EXPECT_NEAR(flits[4], 1. / 6, 0.02);
}

// What VirtualClock does and Fair Queueing does not: a lane that used idle bandwidth alone is
// punished when another wakes. Lane 1 sends alone for a while, far beyond its rate; then lane 2
// comes.
TEST(FairQueueing, DoesNotPunishForIdleBandwidth) {
  const auto share_of_first = [](SchedulerKind scheduler) {
    NetworkSpec spec = general();
    spec.scheduler = scheduler;
    spec.counters = CounterKind::wide;
    spec.lane_vtick.fill(8);
    auto network = make(spec);
    // Regulated at the HCA: what counts is the crossbar input, so each lane has its own sender.
    for (int i = 0; i < 60; ++i) EXPECT_TRUE(network->submit(0, packet_to(1, 20, 1)));
    network->step(600);
    for (int i = 0; i < 30; ++i) EXPECT_TRUE(network->submit(0, packet_to(1, 20, 2)));
    network->clear_events();
    network->step(400);
    double first = 0;
    double all = 0;
    for (const auto& event : network->delivered()) {
      all += event.flits;
      if (event.vl == 1) first += event.flits;
    }
    return first / all;
  };
  EXPECT_NEAR(share_of_first(SchedulerKind::fair_queueing), 0.5, 0.1);
  EXPECT_LT(share_of_first(SchedulerKind::virtual_clock), 0.25);
}

// Every frame of WRR gives each waiting lane exactly its weight: messages as long as what k frames
// give their lanes all end in the k-th frame.
TEST(WeightedRoundRobin, IsExactInAFrame) {
  for (const emu::PointerKind pointer : {emu::PointerKind::fast, emu::PointerKind::slow}) {
    for (const int frames : {1, 2, 7, 100}) {
      NetworkSpec spec = general();
      spec.scheduler = SchedulerKind::wrr;
      spec.weights.high = {};
      const std::array<int, 5> weights = {0, 8, 4, 3, 1};
      for (std::size_t v = 1; v <= 4; ++v)
        spec.weights.high[v] = static_cast<std::uint16_t>(weights[v]);
      spec.weights.pointer = pointer;
      auto network = make(spec);
      for (emu::Vl v = 1; v <= 4; ++v) {
        const auto flits = static_cast<std::uint16_t>(weights[v] * frames);
        ASSERT_TRUE(network->submit(0, packet_to(1, flits, v)));
      }
      const auto events = drain(*network, 2000);
      ASSERT_EQ(events.size(), 4U);
      EXPECT_LT(events[3].tail_cycle - events[0].tail_cycle, 16U) << frames << " frames";
    }
  }
}

// A waiting lane with stamps waits at most until its stamp is the smallest: with Vtick 100 about
// 100 cycles a flit, whatever the others do; a lane of a WRR table at most a frame. And some cycles
// for the next head to get its output lane.
TEST(Starvation, IsBounded) {
  for (const SchedulerKind scheduler :
       {SchedulerKind::virtual_clock, SchedulerKind::fair_queueing, SchedulerKind::wrr,
        SchedulerKind::round_robin, SchedulerKind::two_level}) {
    NetworkSpec spec = general();
    spec.scheduler = scheduler;
    spec.lane_vtick.fill(4);
    spec.lane_vtick[4] = 100;
    spec.weights.high.fill(20);
    spec.weights.high[4] = scheduler == SchedulerKind::two_level ? 0 : 1;
    spec.weights.low[4] = 1;
    spec.weights.high_limit = 60;
    auto network = make(spec);
    for (int i = 0; i < 400; ++i)
      for (emu::Vl v = 1; v <= 3; ++v) ASSERT_TRUE(network->submit(0, packet_to(1, 20, v)));
    for (int i = 0; i < 20; ++i) ASSERT_TRUE(network->submit(0, packet_to(1, 1, 4)));
    emu::Cycle last = 0;
    int came = 0;
    network->step(3000);
    for (const auto& event : network->delivered()) {
      if (event.vl != 4) continue;
      EXPECT_LE(event.tail_cycle - last, 130U) << static_cast<int>(scheduler);
      last = event.tail_cycle;
      ++came;
    }
    EXPECT_EQ(came, 20) << static_cast<int>(scheduler);
  }
}

// In blocks of B flits a lane that is chosen goes on B times; two lanes with equal claims alternate
// block by block.
TEST(Blocks, LanesAlternateBlockByBlock) {
  for (const int block : {1, 5, 10}) {
    NetworkSpec spec = general();
    spec.scheduler = SchedulerKind::round_robin;
    spec.block_flits = block;
    auto network = make(spec);
    // Two messages of 50 flits end `block` flits apart when their blocks alternate.
    ASSERT_TRUE(network->submit(0, packet_to(1, 50, 1)));
    ASSERT_TRUE(network->submit(0, packet_to(1, 50, 2)));
    const auto events = drain(*network, 400);
    ASSERT_EQ(events.size(), 2U);
    EXPECT_EQ(events[1].tail_cycle - events[0].tail_cycle, static_cast<emu::Cycle>(block));
  }
}

// A lane of two flits waits for credits most of the time: another one fills the gaps, unless the
// block keeps the port.
TEST(Blocks, ABlockThatWaitsKeepsItsPort) {
  const auto last_tail = [](bool waits) -> emu::Cycle {
    NetworkSpec spec = general();
    spec.scheduler = SchedulerKind::round_robin;
    spec.block_flits = 10;
    spec.block_waits = waits;
    spec.vc_buf_size = 2;
    auto network = make(spec);
    for (emu::Vl v = 1; v <= 4; ++v) EXPECT_TRUE(network->submit(0, packet_to(1, 50, v)));
    const auto events = drain(*network, 2000);
    EXPECT_EQ(events.size(), 4U);
    return events.empty() ? 0 : events.back().tail_cycle;
  };
  const emu::Cycle filled = last_tail(false);
  EXPECT_LT(filled, 250U);  // 200 flits, nearly one a cycle
  EXPECT_GE(last_tail(true), 3 * filled / 2);
}

// Nothing follows a probe until it is answered: a block that it kept waiting would idle the port,
// and with probes that are refused and asked again for ever the data of other circuits never got
// it.
TEST(Blocks, AProbeDoesNotKeepThePort) {
  NetworkSpec spec = general();
  spec.router = RouterKind::circuit;
  spec.block_flits = 64;
  spec.block_waits = true;
  auto network = make(spec);
  for (emu::Vl v = 1; v <= 2; ++v) EXPECT_TRUE(network->submit(0, packet_to(v, 1, v)));
  const auto events = drain(*network, 2000);
  ASSERT_EQ(events.size(), 2U);
  // Their circuits are made at the same time, not one behind the other.
  EXPECT_LE(events[1].tail_cycle, events[0].tail_cycle + 2);
}

// RN 3.1: when a 16-bit counter overflows it becomes 0 and the others lose its value. With Vticks
// of 1000 and 30000 that happens every few flits and the lanes are as good as equal; counters of 64
// bits give the second lane one flit in thirty.
TEST(Overflow, StartsThePortAfresh) {
  const auto messages_of_slow = [](CounterKind counters) {
    NetworkSpec spec = general();
    spec.scheduler = SchedulerKind::virtual_clock;
    spec.counters = counters;
    spec.lane_vtick.fill(1000);
    spec.lane_vtick[2] = 30'000;
    auto network = make(spec);
    for (int i = 0; i < 30; ++i)
      for (emu::Vl v = 1; v <= 2; ++v) EXPECT_TRUE(network->submit(0, packet_to(1, 20, v)));
    network->step(600);
    int of_slow = 0;
    for (const auto& event : network->delivered()) of_slow += event.vl == 2;
    return of_slow;
  };
  EXPECT_LE(messages_of_slow(CounterKind::wide), 1);
  EXPECT_GE(messages_of_slow(CounterKind::overflow), 3);
}

}  // namespace
}  // namespace fabric

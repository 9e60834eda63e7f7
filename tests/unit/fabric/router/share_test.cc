// Throughput below saturation, and shares of a link that follow Vtick and weights.
#include <gtest/gtest.h>

#include <array>

#include "emu/base/prng.h"
#include "fabric/router/network.h"
#include "tests/unit/sanitized.h"

namespace fabric {
namespace {

using emu::SchedulerKind;

double accepted_of(NetworkSpec spec, double offered, emu::Cycle cycles) {
  spec.lane_vtick = default_lane_vticks(spec.lanes_of_class);
  const auto network = Network::make(spec).value();
  emu::Prng random(9);
  const auto nodes = static_cast<std::uint32_t>(network->nodes());
  std::vector<double> next(nodes, 0);
  double flits_in = 0;
  double flits_out = 0;
  while (network->now() < cycles) {
    const emu::Cycle end = network->now() + 64;
    for (std::uint32_t n = 0; n < nodes; ++n) {
      for (; next[n] < static_cast<double>(end); next[n] += random.exponential(40 / offered)) {
        hca::SendPacket packet;
        packet.launch = static_cast<emu::Cycle>(next[n]);
        packet.flits = 40;
        packet.dest = static_cast<emu::NodeId>((n + 1 + random.below(nodes - 1)) % nodes);
        packet.vl_in = packet.vl_out = static_cast<emu::Vl>(random.below(15));
        packet.vtick = 14;
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

constexpr emu::Cycle kLong = test::kSanitized ? 100'000 : 200'000;

TEST(Throughput, FastBelowSaturationAcceptedIsOffered) {
  for (const SchedulerKind kind :
       {SchedulerKind::round_robin, SchedulerKind::fgvc, SchedulerKind::fcfs}) {
    NetworkSpec spec;
    spec.scheduler = kind;
    EXPECT_GT(accepted_of(spec, 0.5, kLong), 0.99);
    EXPECT_GT(accepted_of(spec, 0.75, kLong), 0.99);
    spec.alloc_iters = 8;
    EXPECT_GT(accepted_of(spec, 0.85, kLong), 0.99);
    spec.topology = TopologyKind::mesh;
    spec.mesh_k = 4;
    EXPECT_GT(accepted_of(spec, 0.35, 3 * kLong / 10), 0.99);
  }
}

// Uniform load of 0.95: what the allocator lets through grows with its rounds.
TEST(Throughput, RoundsOfTheAllocatorRaiseSaturation) {
  for (const SchedulerKind kind : {SchedulerKind::round_robin, SchedulerKind::virtual_clock}) {
    NetworkSpec spec;
    spec.scheduler = kind;
    spec.packets_per_node = 60'000;
    double accepted[3];
    for (int i = 0; i < 3; ++i) {
      spec.alloc_iters = 1 << i;
      accepted[i] = 0.95 * accepted_of(spec, 0.95, 100'000);
    }
    EXPECT_GT(accepted[0], 0.55);
    EXPECT_GT(accepted[1], 0.77);
    EXPECT_GT(accepted[1], accepted[0] + 0.15);
    EXPECT_GT(accepted[2], accepted[1] + 0.01);
  }
}

// Lanes 1 ... 4 have far more packets for node 1 than can leave; their shares of what arrived.
// As one sender they share its HCA's link, as four senders the output port of the router.
std::array<double, 5> shares(NetworkSpec spec, std::array<emu::Vtick, 5> vticks, bool one_sender) {
  spec.packets_per_node = 4000;
  const auto network = Network::make(spec).value();
  for (int i = 0; i < 1000; ++i) {
    for (emu::Vl v = 1; v <= 4; ++v) {
      hca::SendPacket packet;
      packet.flits = 20;
      packet.dest = 1;
      packet.vl_in = packet.vl_out = v;
      packet.vtick = vticks[v];
      EXPECT_TRUE(network->submit(static_cast<emu::NodeId>(one_sender ? 0 : 2 + v), packet));
    }
  }
  network->step(15'000);
  std::array<double, 5> flits{};
  for (const auto& event : network->delivered()) flits[event.vl] += event.flits;
  const double sum = flits[1] + flits[2] + flits[3] + flits[4];
  EXPECT_GT(sum, 14'500) << "the link stood idle";
  for (double& f : flits) f /= sum;
  return flits;
}

TEST(Shares, VirtualClockFollowsVtick) {
  for (const SchedulerKind kind : {SchedulerKind::virtual_clock, SchedulerKind::head_of_line}) {
    NetworkSpec spec;
    spec.scheduler = kind;
    // Rates 1/4, 1/4, 1/8, and best effort for the rest.
    const std::array<emu::Vtick, 5> vticks = {0, 4, 4, 8, emu::kVtickMax};
    for (emu::Vl v = 0; v < emu::kVlCount; ++v) spec.lane_vtick[v] = v < 5 ? vticks[v] : 1;
    const auto flits = shares(spec, vticks, true);
    // Everybody is backlogged: the link is shared in proportion to the rates, within one percent.
    EXPECT_NEAR(flits[1], 0.4, 0.004);
    EXPECT_NEAR(flits[2], 0.4, 0.004);
    EXPECT_NEAR(flits[3], 0.2, 0.002);
    EXPECT_LT(flits[4], 0.01);
  }
}

TEST(Shares, WeightsAreFollowedOnTheLink) {
  for (const auto pointer : {emu::PointerKind::fast, emu::PointerKind::slow}) {
    NetworkSpec spec;
    spec.scheduler = SchedulerKind::two_level;
    spec.weights.high[1] = 8;
    spec.weights.high[2] = 4;
    spec.weights.high[3] = 4;
    spec.weights.low[4] = 1;
    spec.weights.high_limit = 4;  // one flit of low after four of high
    spec.weights.pointer = pointer;
    const auto flits = shares(spec, {}, true);
    EXPECT_NEAR(flits[1], 0.4, 0.02);
    EXPECT_NEAR(flits[2], 0.2, 0.02);
    EXPECT_NEAR(flits[3], 0.2, 0.02);
    EXPECT_NEAR(flits[4], 0.2, 0.02);
  }
}

// Weights of several messages, and buffers that run empty while the HCA sends on another lane: a
// lane that has nothing for some cycles keeps what is left of its weight.
TEST(Shares, LongWeightsOutliveGaps) {
  for (const bool general_engine : {false, true}) {
    for (const auto pointer : {emu::PointerKind::fast, emu::PointerKind::slow}) {
      for (const int buffer : {10, 40}) {
        NetworkSpec spec;
        spec.scheduler = SchedulerKind::wrr;
        spec.general_engine = general_engine;
        spec.vc_buf_size = buffer;
        spec.weights.pointer = pointer;
        for (std::uint16_t v = 1; v <= 4; ++v)
          spec.weights.high[v] = static_cast<std::uint16_t>(40 * v);
        const auto flits = shares(spec, {}, true);
        for (std::size_t v = 1; v <= 4; ++v)
          EXPECT_NEAR(flits[v], 0.1 * static_cast<double>(v), 0.01)
              << (general_engine ? "general, " : "fast, ") << "buffer " << buffer << " lane " << v;
      }
    }
  }
}

// Five messages of the high table, which are 100 flits, then one of the low one.
TEST(Shares, LimitOfHighPriorityCountsMessages) {
  for (const bool general_engine : {false, true}) {
    for (const std::uint16_t limit : std::initializer_list<std::uint16_t>{85, 100}) {
      NetworkSpec spec;
      spec.scheduler = SchedulerKind::two_level;
      spec.general_engine = general_engine;
      spec.weights.high[1] = spec.weights.low[4] = 64;
      spec.weights.high_limit = limit;
      spec.weights.whole_packets = true;
      const auto flits = shares(spec, {}, true);
      EXPECT_NEAR(flits[1], 5.0 / 6, 0.01) << "limit " << limit;
      EXPECT_NEAR(flits[4], 1.0 / 6, 0.01) << "limit " << limit;
    }
  }
}

TEST(Shares, InputsWithoutStampsShareAnOutputEvenly) {
  NetworkSpec spec;
  spec.scheduler = SchedulerKind::round_robin;
  const auto flits = shares(spec, {}, false);
  // Any two inputs are even; of four the first of a cycle is so within an eighth (rank.h).
  for (std::size_t v = 1; v <= 4; ++v) EXPECT_NEAR(flits[v], 0.25, 0.035);
}

TEST(Shares, RealTimeGoesBeforeBestEffortOfOtherInputs) {
  NetworkSpec spec;
  spec.scheduler = SchedulerKind::fgvc;
  const auto flits = shares(spec, {0, 4, emu::kVtickMax, emu::kVtickMax, emu::kVtickMax}, false);
  EXPECT_GT(flits[1], 0.95);
}

// Lanes 2 ... 4 of real time and lane 1 of best effort, all backlogged: best effort gets what is
// left over, which is nothing, and the others share as before, on the HCA's link and at an output
// port alike.
TEST(Shares, StrictClassesStarveBestEffortOnly) {
  for (const SchedulerKind kind : {SchedulerKind::round_robin, SchedulerKind::two_level}) {
    for (const bool strict : {false, true}) {
      for (const bool one_sender : {false, true}) {
        NetworkSpec spec;
        spec.scheduler = kind;
        spec.strict_classes = strict;
        spec.weights.high.fill(4);
        spec.lanes_of_class = {0x8000, 0x001c, 0x0002};
        const auto flits = shares(spec, {0, 4, 4, 4, 4}, one_sender);
        if (strict) {
          EXPECT_LT(flits[1], 0.002);
          for (std::size_t v = 2; v <= 4; ++v) EXPECT_GT(flits[v], 0.25);
        } else {
          EXPECT_GT(flits[1], 0.15);
        }
      }
    }
  }
}

// Lanes of an HCA whose messages wait for longer than its counters can tell share its link all the
// same: none is forgotten behind those of lower numbers.
TEST(Share, LanesOfAnOldBacklogAreNotForgotten) {
  for (const auto kind :
       {emu::SchedulerKind::fcfs, emu::SchedulerKind::virtual_clock, emu::SchedulerKind::fgvc}) {
    NetworkSpec spec;
    spec.nodes = 2;
    spec.scheduler = kind;
    spec.packets_per_node = 8192;
    spec.lane_vtick = default_lane_vticks(spec.lanes_of_class);
    for (const bool general : {false, true}) {
      spec.general_engine = general;
      const auto network = Network::make(spec).value();
      std::array<int, emu::kVlCount> left{};
      std::array<int, emu::kVlCount> sent{};
      for (int turn = 0; turn < 3000; ++turn) {
        for (unsigned lane = 4; lane < 15; ++lane) {
          for (; left[lane] < 256; ++left[lane]) {
            hca::SendPacket packet;
            packet.dest = 1;
            packet.flits = 40;
            packet.vl_in = packet.vl_out = static_cast<emu::Vl>(lane);
            packet.vtick = 11;
            packet.handle = lane;
            ASSERT_TRUE(network->submit(0, packet));
          }
        }
        network->step(100);
        for (const auto& event : network->injected()) {
          --left[event.handle];
          if (turn >= 2000) ++sent[event.handle];
        }
        network->clear_events();
      }
      for (unsigned lane = 4; lane < 15; ++lane)
        EXPECT_NEAR(sent[lane], 1000 * 100 / 40 / 11, 5) << "lane " << lane;
    }
  }
}

}  // namespace
}  // namespace fabric

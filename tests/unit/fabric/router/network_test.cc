// What a caller of Network may rely on: latency at zero load, launches, events, admission,
// counters, independence of batches and of the order of routers.
#include "fabric/router/network.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "emu/base/prng.h"

namespace fabric {
namespace {

NetworkSpec mesh(int side, int nodes_per_router) {
  NetworkSpec spec;
  spec.topology = TopologyKind::mesh;
  spec.mesh_k = side;
  spec.nodes_per_router = nodes_per_router;
  spec.lane_vtick = default_lane_vticks(spec.lanes_of_class);
  return spec;
}

hca::SendPacket packet_by_lane_5(emu::NodeId dest, std::uint16_t flits) {
  hca::SendPacket packet;
  packet.dest = dest;
  packet.flits = flits;
  packet.vl_in = packet.vl_out = 5;
  packet.cookie = dest;
  return packet;
}

// Head leaves in the launch cycle; tail arrives h (4 + d) + d + N - 1 later.
TEST(Network, ZeroLoadLatencyIsThePipeline) {
  for (const int delay : {1, 2, 3}) {
    NetworkSpec spec = mesh(5, 1);
    spec.link_delay = delay;
    const auto network = Network::make(spec).value();
    for (emu::NodeId dest = 0; dest < network->nodes(); ++dest) {
      for (const int flits : {1, 2, 40}) {
        auto packet = packet_by_lane_5(dest, static_cast<std::uint16_t>(flits));
        packet.launch = network->now() + 7;
        ASSERT_TRUE(network->submit(0, packet));
        network->step(300);
        ASSERT_EQ(network->delivered().size(), 1U);
        const auto& event = network->delivered()[0];
        EXPECT_EQ(event.head_cycle, packet.launch);
        const int hops = network->hops(0, dest);
        EXPECT_EQ(event.tail_cycle - event.head_cycle,
                  static_cast<emu::Cycle>(hops * (4 + delay) + delay + flits - 1))
            << hops << " hops, " << flits << " flits, delay " << delay;
        network->clear_events();
      }
    }
  }
}

// Who is submitted in the very cycle for which another waits does not overtake it: a caller that
// sleeps until a launch hands in what it got meanwhile first.
TEST(Network, PacketsOfALaneKeepTheirOrderInTheCycleOfALaunch) {
  NetworkSpec single;
  single.lane_vtick = default_lane_vticks(single.lanes_of_class);
  NetworkSpec general = single;
  general.general_engine = true;
  NetworkSpec cells = single;
  cells.router = RouterKind::cell;
  NetworkSpec threads = mesh(4, 1);
  threads.threads = 2;
  for (const NetworkSpec& spec : {single, general, cells, mesh(2, 1), threads}) {
    const auto network = Network::make(spec).value();
    for (const bool asks : {false, true}) {
      const emu::Cycle at = network->now() + 10;
      for (std::uint64_t cookie = 0; cookie < 6; ++cookie) {
        auto packet = packet_by_lane_5(1, 3);
        packet.cookie = cookie;
        if (cookie < 3 || asks) packet.launch = at;
        ASSERT_TRUE(network->submit(0, packet));
        if (cookie == 2) network->run_until(at);
      }
      network->step(200);
      ASSERT_EQ(network->delivered().size(), 6U);
      for (std::uint64_t cookie = 0; cookie < 6; ++cookie) {
        EXPECT_EQ(network->injected()[cookie].cookie, cookie);
        EXPECT_EQ(network->delivered()[cookie].cookie, cookie);
      }
      network->clear_events();
    }
  }
}

// What is handed in where another waits for this very cycle becomes ready with it, by the Vticks
// that hold then, whichever thread steps the other one's HCA.
TEST(Network, WhoWaitsForThisCycleCountsOnAnyThread) {
  for (const RouterKind router : {RouterKind::non_preemptive, RouterKind::traditional}) {
    NetworkSpec spec = mesh(4, 1);
    spec.router = router;
    spec.hca_scheduler = emu::SchedulerKind::virtual_clock;
    for (const int threads : {1, 2}) {
      spec.threads = threads;
      const auto network = Network::make(spec).value();
      auto waits = packet_by_lane_5(1, 3);
      waits.launch = 10;
      ASSERT_TRUE(network->submit(0, waits));
      network->run_until(waits.launch);
      auto packet = packet_by_lane_5(14, 1);
      for (const emu::Vl lane : {emu::Vl{5}, emu::Vl{6}}) {
        packet.vl_in = lane;
        packet.cookie = lane;
        ASSERT_TRUE(network->submit(15, packet));
      }
      network->set_wire_vtick(15, 5, 2000);
      network->step(2);
      ASSERT_EQ(network->injected().size(), 2U);
      EXPECT_EQ(network->injected()[0].cookie, 6U) << threads << " threads";
    }
  }
}

TEST(Network, SpecErrorsNameFieldAndRange) {
  NetworkSpec spec;
  spec.vc_buf_size = 4096;
  const auto result = Network::make(spec);
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().message, "vc_buf_size: 4096 is not in 1 ... 4095");
}

TEST(Network, LaunchesWaitAndKeepTheirOrder) {
  const auto network = Network::make({}).value();
  for (int i = 0; i < 5; ++i) {
    auto packet = packet_by_lane_5(1, 10);
    packet.launch = 1000 - static_cast<emu::Cycle>(i / 2) * 100;
    packet.cookie = static_cast<std::uint64_t>(i);
    network->submit(0, packet);
  }
  EXPECT_TRUE(network->idle());
  EXPECT_EQ(network->next_event_cycle(), 800U);
  network->run_until(2000);
  EXPECT_EQ(network->now(), 2000U);
  ASSERT_EQ(network->delivered().size(), 5U);
  const std::uint64_t order[] = {4, 2, 3, 0, 1};
  const emu::Cycle heads[] = {800, 900, 910, 1000, 1010};
  for (std::size_t i = 0; i < 5; ++i) {
    EXPECT_EQ(network->delivered()[i].cookie, order[i]);
    EXPECT_EQ(network->delivered()[i].head_cycle, heads[i]);
    EXPECT_EQ(network->injected()[i].tail_cycle, heads[i] + 9);
  }
  EXPECT_EQ(network->next_event_cycle(), emu::kNever);
}

// A head is routed in the cycle in which the tail before it in its lane crosses and crosses two
// later: one lane alone leaves its link a cycle for each packet, the flits of another fill it.
TEST(Network, OneLaneLosesACycleAPacketAndTwoLanesNone) {
  constexpr emu::Cycle kFlits = 40;
  for (const int lanes : {1, 2}) {
    const auto network = Network::make({}).value();
    constexpr int kPackets = 60;
    for (int i = 0; i < kPackets; ++i) {
      auto packet = packet_by_lane_5(1, kFlits);
      packet.vl_in = packet.vl_out = static_cast<emu::Vl>(i % lanes);
      ASSERT_TRUE(network->submit(0, packet));
    }
    network->step(static_cast<int>(kPackets * (kFlits + 2)));
    const auto delivered = network->delivered();
    ASSERT_EQ(delivered.size(), std::size_t{kPackets});
    const emu::Cycle passed = delivered[49].tail_cycle - delivered[9].tail_cycle;
    // Tails that come together are told in one cycle or two.
    EXPECT_NEAR(static_cast<double>(passed), 40.0 * (lanes == 1 ? kFlits + 1 : kFlits), 2.0);
  }
}

TEST(Network, FullWireSaysNoUntilEventsAreCleared) {
  NetworkSpec spec;
  spec.packets_per_node = 3;
  const auto network = Network::make(spec).value();
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(network->submit(2, packet_by_lane_5(3, 5)));
  EXPECT_FALSE(network->submit(2, packet_by_lane_5(3, 5)));
  EXPECT_TRUE(network->submit(4, packet_by_lane_5(3, 5)));
  network->step(200);
  EXPECT_EQ(network->delivered().size(), 4U);
  EXPECT_FALSE(network->submit(2, packet_by_lane_5(3, 5)));
  network->clear_events();
  EXPECT_EQ(network->room(2), 3);
  EXPECT_TRUE(network->submit(2, packet_by_lane_5(3, 5)));
}

// Refuses at one router; remembers who was asked.
class RefuseAt final : public ControlHook {
 public:
  explicit RefuseAt(emu::RouterId router) : router_(router) {}
  bool at_route(const ControlHead& head) override {
    asked.push_back(head.router);
    return head.router != router_;
  }
  std::vector<emu::RouterId> asked;

 private:
  emu::RouterId router_;
};

TEST(Network, ProbeIsAnsweredAndRefusedByName) {
  RefuseAt hook(1);
  const auto network = Network::make(mesh(3, 1), &hook).value();
  auto probe = packet_by_lane_5(8, 10);  // over routers 0 1 2 5 8
  probe.kind = emu::PacketKind::probe;
  probe.vl_in = probe.vl_out = emu::kControlVl;
  probe.cookie = 99;
  probe.handle = 7;
  network->submit(0, probe);
  probe.dest = 3;  // over routers 0 3
  probe.cookie = 100;
  network->submit(0, probe);
  network->step(300);
  EXPECT_TRUE(network->delivered().empty());
  ASSERT_EQ(network->answers().size(), 2U);
  EXPECT_EQ(network->answers()[0].cookie, 100U);
  EXPECT_EQ(network->answers()[0].rejected_by, emu::kNoRouter);
  const auto& refused = network->answers()[1];
  EXPECT_EQ(refused.cookie, 99U);
  EXPECT_EQ(refused.handle, 7U);
  EXPECT_EQ(refused.rejected_by, 1);
  EXPECT_EQ(refused.node, 0);
  EXPECT_EQ(refused.dest, 8);
  EXPECT_EQ(network->injected().size(), 2U) << "answers are not the source's packets";
  std::sort(hook.asked.begin(), hook.asked.end());
  EXPECT_EQ(hook.asked, (std::vector<emu::RouterId>{0, 0, 1, 3})) << "a refused probe asks nobody";
  hook.asked.clear();
  probe.kind = emu::PacketKind::release;
  probe.dest = 8;
  network->submit(0, probe);
  network->step(300);
  EXPECT_EQ(hook.asked, (std::vector<emu::RouterId>{0, 1, 2, 5, 8}));
  EXPECT_EQ(network->delivered().size(), 1U);
}

TEST(Network, CountersAndEnergyWindowsCountEveryFlit) {
  const auto network = Network::make(mesh(2, 1)).value();
  for (int i = 0; i < 30; ++i) network->submit(0, packet_by_lane_5(3, 40));  // routers 0 1 3
  network->run_until(5000);
  std::uint64_t arrived = 0;
  std::uint64_t crossed = 0;
  std::uint64_t sent = 0;
  std::uint64_t heads = 0;
  for (const ActivityWindow& window : network->activity()) {
    EXPECT_EQ(window.begin % 500, 0U);
    EXPECT_LE(window.crossed, 500U);
    EXPECT_NE(window.router, 2);
    arrived += window.arrived;
    crossed += window.crossed;
    sent += window.sent;
    heads += window.heads;
  }
  EXPECT_EQ(arrived, 30U * 40 * 3);
  EXPECT_EQ(crossed, arrived);
  EXPECT_EQ(sent, arrived);
  EXPECT_EQ(heads, 30U * 3);
  EXPECT_EQ(network->wire_counters(0).sent[5].flits, 1200U);
  EXPECT_EQ(network->wire_counters(3).received[5].packets, 30U);
  EXPECT_EQ(network->router_counters(1, network->route(1, 3)).sent[5].flits, 1200U);
  EXPECT_EQ(network->occupancy(1, 0).input[5], 0);
}

TEST(Network, WaitCyclesAreCountedWhereCreditsLack) {
  NetworkSpec spec;
  spec.vc_buf_size = 2;  // less than the round trip of a credit
  const auto network = Network::make(spec).value();
  network->submit(0, packet_by_lane_5(1, 100));
  network->step(1000);
  ASSERT_EQ(network->delivered().size(), 1U);
  EXPECT_GT(network->wire_counters(0).wait_cycles, 10U);
  EXPECT_EQ(network->wire_counters(1).wait_cycles, 0U);
}

TEST(Network, ClockCanStartAndJumpAnywhere) {
  NetworkSpec spec;
  spec.start = 123456789;
  const auto network = Network::make(spec).value();
  EXPECT_EQ(network->now(), 123456789U);
  network->skip_to(1'000'000'000'000);
  network->submit(0, packet_by_lane_5(1, 40));
  network->step(100);
  ASSERT_EQ(network->delivered().size(), 1U);
  EXPECT_EQ(network->delivered()[0].tail_cycle, 1'000'000'000'045U);
}

// The same load, stepped by one or by many cycles, routers in order or shuffled: one digest.
std::uint64_t digest_of(bool shuffled, emu::Cycle batch, emu::Isa isa = emu::Isa::avx512) {
  NetworkSpec spec = mesh(4, 2);
  spec.isa_max = isa;
  const auto network = Network::make(spec).value();
  emu::Prng load(5);
  emu::Prng order_random(batch);
  for (int round = 0; round < 40; ++round) {
    for (emu::NodeId node = 0; node < network->nodes(); ++node) {
      auto packet = packet_by_lane_5(static_cast<emu::NodeId>(load.below(32)), 40);
      packet.vl_in = packet.vl_out = static_cast<emu::Vl>(load.below(16));
      packet.launch = network->now() + load.below(120);
      network->submit(node, packet);
    }
    for (emu::Cycle c = 0; c < 120; c += batch) {
      if (shuffled) {
        std::vector<emu::RouterId> order;
        for (emu::RouterId r = 0; r < 16; ++r) order.push_back(r);
        for (std::uint32_t i = 16; i > 1; --i)
          std::swap(order[i - 1], order[order_random.below(i)]);
        network->set_step_order(order);
      }
      network->step(batch);
    }
    network->clear_events();
  }
  EXPECT_EQ(network->audit(), "");
  return network->digest();
}

TEST(Network, DigestDependsNeitherOnBatchesNorOnOrder) {
  const std::uint64_t digest = digest_of(false, 120);
  EXPECT_EQ(digest_of(false, 1), digest);
  EXPECT_EQ(digest_of(true, 1), digest);
  EXPECT_EQ(digest_of(true, 40), digest);
  for (const emu::Isa isa : {emu::Isa::base, emu::Isa::avx2})
    EXPECT_EQ(digest_of(false, 120, isa), digest) << "another processor, another result";
}

}  // namespace
}  // namespace fabric

// A network stepped by several threads: everything that a caller can see is the same. The plain
// model, whose runs draw their number of threads (tests/model), says that it is also right; here
// TSan looks on.
#include <gtest/gtest.h>

#include <algorithm>
#include <tuple>
#include <vector>

#include "emu/base/prng.h"
#include "fabric/crew/crew.h"
#include "fabric/router/network.h"
#include "tests/unit/sanitized.h"

namespace fabric {
namespace {

// Refuses every third cookie; its count would be wrong if two threads asked at once.
class Book final : public ControlHook {
 public:
  bool at_route(const ControlHead& head) override {
    ++asked;
    return head.cookie % 3 != 0;
  }
  std::uint64_t asked = 0;
};

struct Settings {
  int threads;
  int link_delay = 1;
  std::vector<int> sides = {5, 3};
  int nodes_per_router = 3;  // groups of eight HCAs hang at routers of two parts
  emu::Cycle batch = 64;
  bool shuffled = false;
  emu::SchedulerKind scheduler = emu::SchedulerKind::virtual_clock;
  RouterKind router = RouterKind::non_preemptive;
};

struct Seen {
  std::vector<std::tuple<emu::Cycle, emu::NodeId, std::uint64_t>> delivered;
  std::vector<std::tuple<emu::Cycle, emu::NodeId, std::uint64_t, emu::RouterId>> answers;
  std::vector<std::tuple<emu::Cycle, emu::RouterId, std::uint32_t, std::uint32_t>> windows;
  std::uint64_t digest = 0;
  std::uint64_t asked = 0;
  bool operator==(const Seen&) const = default;
};

hca::SendPacket packet_of(emu::Prng& random, int nodes, emu::Cycle from, std::uint64_t cookie) {
  hca::SendPacket packet;
  packet.dest = static_cast<emu::NodeId>(random.below(static_cast<std::uint32_t>(nodes)));
  packet.flits = static_cast<std::uint16_t>(1 + random.below(40));
  packet.vl_in = packet.vl_out = static_cast<emu::Vl>(random.below(15));
  packet.launch = from + random.below(200);
  packet.cookie = cookie;
  if (random.below(8) == 0) {
    packet.kind = emu::PacketKind::probe;
    packet.vl_in = packet.vl_out = emu::kControlVl;
  }
  return packet;
}

void look(Network& network, Seen& seen) {
  for (const auto& e : network.delivered())
    seen.delivered.emplace_back(e.tail_cycle, e.node, e.cookie);
  for (const auto& e : network.answers())
    seen.answers.emplace_back(e.cycle, e.node, e.cookie, e.rejected_by);
  for (const auto& w : network.activity())
    seen.windows.emplace_back(w.begin, w.router, w.arrived, w.sent);
  network.clear_events();
}

// Races show in half of the rounds.
constexpr int kRounds = test::kThreadSanitized ? 4 : 8;

Seen run(const Settings& settings) {
  NetworkSpec spec;
  spec.topology = TopologyKind::mesh;
  spec.sides = settings.sides;
  spec.nodes_per_router = settings.nodes_per_router;
  spec.lane_vtick = default_lane_vticks(spec.lanes_of_class);
  spec.threads = settings.threads;
  spec.link_delay = settings.link_delay;
  spec.scheduler = settings.scheduler;
  spec.router = settings.router;
  Book book;
  Seen seen;
  const auto network = Network::make(spec, &book).value();
  emu::Prng random(11);
  emu::Prng order_random(settings.batch);
  std::vector<emu::RouterId> order;
  for (int r = 0; r < network->routers(); ++r) order.push_back(static_cast<emu::RouterId>(r));
  std::uint64_t cookie = 0;
  for (int round = 0; round < kRounds; ++round) {
    for (int n = 0; n < network->nodes(); ++n)
      network->submit(static_cast<emu::NodeId>(n),
                      packet_of(random, network->nodes(), network->now(), ++cookie));
    for (emu::Cycle c = 0; c < 192; c += settings.batch) {
      for (std::size_t i = order.size(); settings.shuffled && i > 1; --i)
        std::swap(order[i - 1], order[order_random.below(static_cast<std::uint32_t>(i))]);
      if (settings.shuffled) network->set_step_order(order);
      network->step(settings.batch);
      EXPECT_EQ(network->audit(), "");
    }
    look(*network, seen);
  }
  network->run_until(40'000);
  EXPECT_TRUE(network->idle());
  look(*network, seen);
  seen.digest = network->digest();
  seen.asked = book.asked;
  return seen;
}

void expect_same(const Settings& settings) {
  const auto with = [&](int threads, emu::Cycle batch, bool shuffled) {
    Settings some = settings;
    some.threads = threads;
    some.batch = batch;
    some.shuffled = shuffled;
    return run(some);
  };
  const Seen alone = with(1, 64, false);
  ASSERT_GT(alone.delivered.size(), 25U * kRounds);
  ASSERT_GT(alone.answers.size(), 2U * kRounds);
  ASSERT_GT(alone.windows.size(), 2U * kRounds);
  for (const int threads : {2, 4, kThreadsMax})
    EXPECT_EQ(alone, with(threads, 64, false)) << threads << " threads";
  EXPECT_EQ(alone.digest, with(3, 1, true).digest)
      << "3 threads, routers shuffled, a cycle at a time";
}

// Fifteen routers, one by one, in at most as many parts, more than there are groups of eight HCAs.
TEST(Threads, SameEventsWhateverTheirNumber) {
  for (const int delay : {1, 3})
    expect_same({.threads = 1, .link_delay = delay, .router = RouterKind::traditional});
}

// Four blocks of routers and two of HCAs, which two to four parts share.
TEST(Threads, SameEventsWhereTheyShareBlocks) {
  for (const auto kind : {emu::SchedulerKind::virtual_clock, emu::SchedulerKind::two_level,
                          emu::SchedulerKind::round_robin})
    for (const int delay : {1, 3}) {
      if (test::kSanitized && delay != 1 && kind != emu::SchedulerKind::virtual_clock) continue;
      expect_same({.threads = 1,
                   .link_delay = delay,
                   .sides = {5, 5},
                   .nodes_per_router = 4,
                   .scheduler = kind});
    }
}

TEST(Threads, GeneralEngineRefusesThem) {
  for (const bool asked_for : {false, true}) {
    for (const auto crossbar : {CrossbarKind::multiplexed, CrossbarKind::full}) {
      NetworkSpec spec;
      spec.threads = 2;
      spec.general_engine = asked_for;
      spec.crossbar = crossbar;
      const auto network = Network::make(spec);
      const bool fast = crossbar == CrossbarKind::multiplexed;
      ASSERT_EQ(network.has_value(), fast && !asked_for);
      if (network) continue;
      EXPECT_EQ(network.error().message, fast ? "threads: 2; engine = \"general\" steps on 1"
                                              : "threads: 2; this design's engine steps on 1");
    }
  }
}

// Every part sees what the others wrote before the last meeting.
TEST(Crew, NobodyLeavesAMeetingEarly) {
  constexpr int kParts = 3;
  constexpr int kMeetings = 200;
  int written[kParts] = {};
  bool early[kParts] = {};
  Crew* crew = nullptr;
  Crew three(kParts, [&](int part) {
    for (int meeting = 1; meeting <= kMeetings; ++meeting) {
      ++written[part];
      crew->meet();
      for (const int count : written) early[part] |= count % kMeetings != meeting % kMeetings;
      crew->meet();
    }
  });
  crew = &three;
  for (int round = 1; round <= 5; ++round) {
    three.run();
    for (const int count : written) EXPECT_EQ(count, round * kMeetings);
  }
  for (const bool left : early) EXPECT_FALSE(left);
}

}  // namespace
}  // namespace fabric

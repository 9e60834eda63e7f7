// The general engine against the plain model: every design on every kind of network, drawn from the
// seed. FLITNET_SOAK_SECONDS in the environment: as many more seeds as fit (./flitnet soak model).
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "emu/base/prng.h"
#include "tests/model/random_load.h"
#include "tests/unit/sanitized.h"

namespace model {
namespace {

using emu::SchedulerKind;
using fabric::CounterKind;
using fabric::CrossbarKind;
using fabric::RouterKind;
using fabric::TopologyKind;

class Draw {
 public:
  explicit Draw(std::uint64_t seed) : random_(seed) {}
  int below(int bound) {
    return static_cast<int>(random_.below(static_cast<std::uint32_t>(bound)));
  }
  bool one_in(int n) { return below(n) == 0; }
  template <class T, std::size_t kCount>
  T of(const T (&choices)[kCount]) {
    return choices[random_.below(kCount)];
  }

 private:
  emu::Prng random_;
};

void draw_topology(Draw& draw, fabric::NetworkSpec& spec) {
  spec.nodes = 2 + draw.below(7);
  if (draw.one_in(4)) return;
  if (draw.one_in(4)) {
    spec.nodes = 9 + draw.below(16);  // one switch of a large radix
    return;
  }
  static constexpr TopologyKind kKinds[] = {TopologyKind::mesh, TopologyKind::torus,
                                            TopologyKind::fat_mesh, TopologyKind::ary_tree};
  spec.topology = draw.of(kKinds);
  spec.sides = {2 + draw.below(3), 2 + draw.below(2)};
  spec.nodes_per_router = 1 + draw.below(2);
  spec.arity = 2 + draw.below(2);
  spec.levels = 2;
  if (spec.topology == TopologyKind::torus) spec.sides = {3 + draw.below(2), 3};
  if (spec.topology == TopologyKind::mesh && draw.one_in(3))
    spec.routing = fabric::RoutingKind::adaptive;
  if (spec.topology == TopologyKind::fat_mesh && draw.one_in(2))
    spec.routing = fabric::RoutingKind::dor_by_load;
  if (spec.topology == TopologyKind::ary_tree && draw.one_in(2))
    spec.routing = fabric::RoutingKind::up_by_load;
}

// On half of the grids whose router has no fixed ways.
void draw_recovery(Draw& draw, fabric::NetworkSpec& spec) {
  const bool grid = spec.topology == TopologyKind::mesh || spec.topology == TopologyKind::torus ||
                    spec.topology == TopologyKind::fat_mesh;
  const bool fits = spec.router == RouterKind::non_preemptive ||
                    spec.router == RouterKind::traditional ||
                    spec.router == RouterKind::cut_through;
  if (!grid || !fits || draw.one_in(2)) return;
  spec.routing = fabric::RoutingKind::recovery;
  spec.fixed_classes = 0;
  static constexpr int kTimeouts[] = {1, 8, 32};
  spec.recovery_cycles = draw.of(kTimeouts);
}

RunOptions draw_run(std::uint64_t seed) {
  Draw draw(seed);
  RunOptions o;
  fabric::NetworkSpec& spec = o.spec;
  o.seed = seed;
  spec.general_engine = true;
  draw_topology(draw, spec);
  spec.router = static_cast<RouterKind>(draw.below(static_cast<int>(fabric::kRouterNames.size())));
  spec.crossbar = static_cast<CrossbarKind>(draw.below(2));
  spec.counters = static_cast<CounterKind>(draw.below(3));
  spec.scheduler = static_cast<SchedulerKind>(draw.below(emu::kSchedulerKindCount));
  if (draw.one_in(3))
    spec.hca_scheduler = static_cast<SchedulerKind>(draw.below(emu::kSchedulerKindCount));
  static constexpr int kBlocks[] = {1, 1, 5, 10};
  spec.block_flits = draw.of(kBlocks);
  spec.block_waits = spec.block_flits > 1 && seed % 2 == 0;  // draws stay those of earlier soaks
  static constexpr int kBuffers[] = {1, 2, 7, 10, 10, 16, 40, 300};
  spec.vc_buf_size = draw.of(kBuffers);
  spec.link_delay = draw.one_in(2) ? 1 : 1 + draw.below(5);
  spec.alloc_iters = 1 + draw.below(4);
  spec.strict_classes = draw.one_in(3);
  spec.control_first = seed % 4 != 1;
  spec.circuits = 1 + draw.below(32);
  spec.flow = static_cast<fabric::FlowKind>(draw.below(2));
  spec.quench_flits = 1 + draw.below(12);
  spec.receive_cycles = draw.one_in(3) ? draw.below(30) : 0;
  spec.accelerate = draw.one_in(2);
  spec.lanes_of_class = {0xc000, 0x3ff0, 0x000f};
  spec.lane_vtick = fabric::default_lane_vticks(spec.lanes_of_class);
  spec.fixed_classes = draw.one_in(3) ? 0b011 : 0;
  for (unsigned v = 0; v < emu::kVlCount; ++v) {
    spec.weights.high[v] = static_cast<std::uint16_t>(v >= 4 ? 4 : 0);
    spec.weights.low[v] = static_cast<std::uint16_t>(v < 4 ? 2 : 0);
  }
  if (draw.one_in(2)) spec.start = 16384 * static_cast<emu::Cycle>(1 + draw.below(9)) - 300;
  o.lanes = draw.one_in(2) ? emu::kVlCount : 1 + draw.below(5);
  o.hot_spot = draw.one_in(3);
  o.flits_max = draw.one_in(3) ? 3 : 60;
  o.load = 0.1 + 0.1 * draw.below(12);
  o.shuffle_routers = draw.one_in(2);
  o.jump_idle = draw.one_in(2);
  if (spec.router == RouterKind::cut_through) {
    o.flits_max = std::min(o.flits_max, spec.vc_buf_size);
    spec.answer_flits = static_cast<std::uint16_t>(std::min(10, spec.vc_buf_size));
  }
  const bool rings = spec.topology == TopologyKind::torus;
  if (spec.router == RouterKind::cell && rings) spec.routing = fabric::RoutingKind::up_down;
  draw_recovery(draw, spec);
  o.cycles = spec.nodes > 8 || spec.topology != TopologyKind::single ? 200 : 500;
  return o;
}

std::string name_of(const fabric::NetworkSpec& spec) {
  return std::string(fabric::kRouterNames[static_cast<std::size_t>(spec.router)]) + " " +
         std::string(fabric::kCrossbarNames[static_cast<std::size_t>(spec.crossbar)]) + " " +
         std::string(fabric::kCounterNames[static_cast<std::size_t>(spec.counters)]) +
         " scheduler " + std::to_string(static_cast<int>(spec.scheduler)) + " at HCAs " +
         std::to_string(static_cast<int>(spec.wire_scheduler())) + " block " +
         std::to_string(spec.block_flits) + (spec.block_waits ? " that waits" : "") + " buffer " +
         std::to_string(spec.vc_buf_size);
}

void run_seed(std::uint64_t seed) {
  const RunOptions o = draw_run(seed);
  SCOPED_TRACE(name_of(o.spec));
  compare_run(o);
}

TEST(EveryDesign, RandomNetworksAtRandomLoads) {
  constexpr std::uint64_t kSeeds = test::kSanitized ? 20 : 50;
  for (std::uint64_t seed = 1; seed <= kSeeds && !HasFatalFailure(); ++seed) run_seed(seed);
}

// Seeds with which the soak found something.
TEST(EveryDesign, WhatTheSoakFound) {
  run_seed(1'000'059);   // circuits: a circuit that nobody closed
  run_seed(2'000'007);   // cells on a torus
  run_seed(43'000'370);  // circuits whose blocks wait, a buffer of two flits: slow, not stuck
  run_seed(2'001'147);   // a probe cut in two by preemption asked admission again
}

// What was drawn, as near to it as the fast engine does it.
RunOptions draw_fast_run(std::uint64_t seed) {
  RunOptions o = draw_run(seed);
  fabric::NetworkSpec& spec = o.spec;
  spec.general_engine = false;
  spec.router = seed % 3 == 0 ? RouterKind::traditional : RouterKind::non_preemptive;
  spec.crossbar = CrossbarKind::multiplexed;
  spec.counters = CounterKind::epoch;
  spec.scheduler = static_cast<SchedulerKind>(seed % 7);
  const bool stamps = emu::goes_by_stamps(spec.router_scheduler());
  if (!stamps || !emu::goes_by_stamps(spec.wire_scheduler())) spec.hca_scheduler.reset();
  spec.block_flits = 1;
  spec.vc_buf_size = std::min(spec.vc_buf_size, 127);
  spec.nodes = std::min(spec.nodes, 8);
  if (spec.routing == fabric::RoutingKind::recovery) spec.routing = fabric::RoutingKind::automatic;
  return o;
}

// Both engines do alike whatever the fast one does; the draw decides which one a seed compares with
// the plain model, here the same seeds go to both.
TEST(EveryDesign, BothEnginesAgreeWhereBothDo) {
  for (std::uint64_t seed = 1; seed <= 14 && !HasFatalFailure(); ++seed) {
    RunOptions o = draw_fast_run(seed * 1000);
    o.cycles = 200;
    o.load = std::min(o.load, 0.7);
    if (seed > 7) {  // schedulers of their own at the HCAs, and half of the routers traditional
      constexpr SchedulerKind kStamped[] = {SchedulerKind::fcfs, SchedulerKind::virtual_clock,
                                            SchedulerKind::fgvc, SchedulerKind::head_of_line};
      o.spec.router = seed % 2 == 0 ? RouterKind::traditional : RouterKind::non_preemptive;
      o.spec.scheduler = kStamped[seed % 4];
      o.spec.hca_scheduler = kStamped[(seed / 4 + seed + 1) % 4];
    }
    for (const bool general : {false, true}) {
      SCOPED_TRACE(general ? "general" : "fast");
      o.spec.general_engine = general;
      compare_run(o);
    }
  }
}

TEST(EveryDesign, Soak) {
  const char* seconds = std::getenv("FLITNET_SOAK_SECONDS");
  if (seconds == nullptr) GTEST_SKIP() << "only with FLITNET_SOAK_SECONDS";
  const char* first = std::getenv("FLITNET_SOAK_SEED");
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(std::atoll(seconds));
  std::uint64_t seed = first != nullptr ? std::strtoull(first, nullptr, 10) : 1'000'000;
  const std::uint64_t begin = seed;
  do {
    if (seed % 2 == 0) {
      run_seed(seed);
    } else {
      RunOptions o = draw_fast_run(seed);
      // Fat ones may have more ports than the fast engine's.
      if (o.spec.topology == TopologyKind::mesh || o.spec.topology == TopologyKind::torus)
        o.spec.threads = static_cast<int>(1 + seed / 6 % 3);
      o.spec.isa_max = static_cast<emu::Isa>(seed / 18 % 3);
      SCOPED_TRACE(name_of(o.spec));
      compare_run(o);
    }
    ++seed;
  } while (std::chrono::steady_clock::now() < end && !HasFailure());
  std::printf("seeds %llu ... %llu\n", static_cast<unsigned long long>(begin),
              static_cast<unsigned long long>(seed - 1));
}

}  // namespace
}  // namespace model

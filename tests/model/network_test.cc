// Fast engine against plain model under random load: every scheduler on the single switch and on
// meshes, many seeds, each printed when it fails.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <iterator>
#include <optional>

#include "tests/model/random_load.h"
#include "tests/unit/sanitized.h"

namespace model {
namespace {

using emu::SchedulerKind;

struct Schedulers {
  const char* name;
  SchedulerKind kind;
  fabric::RouterKind router = fabric::RouterKind::non_preemptive;
  std::optional<SchedulerKind> at_hcas = {};
};
constexpr Schedulers kSchedulers[] = {
    {"fcfs", SchedulerKind::fcfs},
    {"rr", SchedulerKind::round_robin},
    {"vclk", SchedulerKind::virtual_clock},
    {"fgvc", SchedulerKind::fgvc},
    {"wrr", SchedulerKind::wrr},
    {"two_level", SchedulerKind::two_level},
    {"vclk_hol", SchedulerKind::head_of_line},
    {"fgvc_from_fcfs", SchedulerKind::fgvc, fabric::RouterKind::non_preemptive,
     SchedulerKind::fcfs},
    {"traditional", SchedulerKind::fcfs, fabric::RouterKind::traditional},
    {"traditional_from_fgvc", SchedulerKind::fcfs, fabric::RouterKind::traditional,
     SchedulerKind::fgvc},
    {"fcfs_from_vclk", SchedulerKind::fcfs, fabric::RouterKind::non_preemptive,
     SchedulerKind::virtual_clock},
    {"vclk_from_fcfs", SchedulerKind::virtual_clock, fabric::RouterKind::non_preemptive,
     SchedulerKind::fcfs},
    {"traditional_from_vclk_hol", SchedulerKind::fcfs, fabric::RouterKind::traditional,
     SchedulerKind::head_of_line},
};
// Seeds choose by it, among other things by other numbers.
static_assert(std::size(kSchedulers) == 13);

class EveryScheduler : public testing::TestWithParam<Schedulers> {
 protected:
  RunOptions options() const {
    RunOptions o;
    o.spec.scheduler = GetParam().kind;
    o.spec.router = GetParam().router;
    o.spec.hca_scheduler = GetParam().at_hcas;
    o.spec.lane_vtick = fabric::default_lane_vticks(o.spec.lanes_of_class);
    for (unsigned v = 0; v < emu::kVlCount; ++v) {
      o.spec.weights.high[v] = static_cast<std::uint16_t>(v >= 4 ? 4 : 0);
      o.spec.weights.low[v] = static_cast<std::uint16_t>(v < 4 ? 2 : 0);
    }
    return o;
  }
  static RunOptions mesh(RunOptions o, int side, int nodes_per_router) {
    o.spec.topology = fabric::TopologyKind::mesh;
    o.spec.mesh_k = side;
    o.spec.nodes_per_router = nodes_per_router;
    return o;
  }
};

TEST_P(EveryScheduler, SingleSwitchAtAllLoads) {
  for (std::uint64_t seed = 1; seed <= 6; ++seed) {
    RunOptions o = options();
    o.seed = seed;
    o.load = 0.2 * static_cast<double>(seed);
    compare_engines(o);
    if (HasFatalFailure()) return;
  }
}

TEST_P(EveryScheduler, SingleSwitchHotSpotWithFewLanes) {
  for (std::uint64_t seed = 11; seed <= 14; ++seed) {
    RunOptions o = options();
    o.seed = seed;
    o.load = 0.7;
    o.hot_spot = true;
    o.lanes = seed % 2 == 0 ? 2 : 5;
    o.cycles = 2500;
    compare_engines(o);
    if (HasFatalFailure()) return;
  }
}

TEST_P(EveryScheduler, ShortMessagesFillTheRings) {
  for (std::uint64_t seed = 21; seed <= 24; ++seed) {
    RunOptions o = options();
    o.seed = seed;
    o.flits_max = 3;
    o.load = 1.0;
    o.hot_spot = seed % 2 == 0;
    o.lanes = 3;
    o.cycles = 1500;
    o.spec.vc_buf_size = seed % 2 == 0 ? 15 : seed % 4 == 1 ? 10 : 64;
    compare_engines(o);
    if (HasFatalFailure()) return;
  }
}

TEST_P(EveryScheduler, BufferSizesAndLinkDelays) {
  std::uint64_t seed = 31;
  for (const int buffer : {1, 2, 7, 15, 16, 127}) {
    for (const int delay : {1, 2, 5}) {
      RunOptions o = options();
      o.seed = seed++;
      o.spec.vc_buf_size = buffer;
      o.spec.link_delay = delay;
      o.spec.nodes = 3 + delay;
      o.cycles = 800;
      compare_engines(o);
      if (HasFatalFailure()) return;
    }
  }
}

// The engine hears of heads and tails past the links only where node n is at port n.
TEST_P(EveryScheduler, SingleSwitchWithHcasAtOtherPorts) {
  RunOptions o = options();
  o.spec.topology = fabric::TopologyKind::file;
  o.spec.graph_source = "net.toml";
  o.spec.graph_text = "[[switch]]\nname = \"a\"\nports = 8\n";
  for (const int port : {6, 0, 7, 3, 1})
    o.spec.graph_text += fmt::format("[[node]]\nat = \"a:{}\"\n", port);
  o.seed = 46;
  o.load = 0.8;
  o.lanes = 4;
  compare_engines(o);
}

TEST_P(EveryScheduler, SingleSwitchWithLongLinks) {
  for (std::uint64_t seed = 47; seed <= 49; ++seed) {
    RunOptions o = options();
    o.seed = seed;
    o.spec.link_delay = 15;
    o.spec.vc_buf_size = seed == 47 ? 12 : 40;
    o.load = 0.9;
    o.lanes = 3;
    o.flits_max = seed == 49 ? 3 : o.flits_max;
    o.hot_spot = seed == 48;
    compare_engines(o);
    if (HasFatalFailure()) return;
  }
}

TEST_P(EveryScheduler, Meshes) {
  std::uint64_t seed = 51;
  for (const int side : {2, 3, 4}) {
    for (const int nodes_per_router : {1, 2}) {
      RunOptions o = mesh(options(), side, nodes_per_router);
      o.seed = seed++;
      o.load = 0.4;
      o.cycles = 1200;
      o.shuffle_routers = true;
      o.hot_spot = side == 3;
      compare_engines(o);
      if (HasFatalFailure()) return;
    }
  }
}

// More than one router: what the single switch is tested with, in the layout of many.
TEST_P(EveryScheduler, MeshesWithBuffersDelaysAndEpochs) {
  std::uint64_t seed = 81;
  for (const int buffer : {1, 7, 16, 127}) {
    RunOptions o = mesh(options(), 2, 2);
    o.seed = seed++;
    o.spec.vc_buf_size = buffer;
    o.spec.link_delay = 1 + buffer % 5;
    o.spec.start = 16384 * seed - 300;
    o.lanes = buffer == 7 ? 3 : emu::kVlCount;
    o.load = 0.8;
    o.hot_spot = buffer == 16;
    o.cycles = 600;
    compare_engines(o);
    if (HasFatalFailure()) return;
  }
  RunOptions o = mesh(options(), 3, 1);
  o.seed = seed;
  o.spec.start = (1ULL << 40) - 500;
  o.load = 0.02;
  o.cycles = 3000;
  o.jump_idle = true;
  compare_engines(o);
}

struct Net {
  const char* name;
  fabric::TopologyKind topology;
  std::vector<int> sides;
  fabric::RoutingKind routing;
};

// The plain model of forty routers takes its time.
bool is_large(const Net& net) { return net.topology == fabric::TopologyKind::fat_tree; }

RunOptions options_on(const Net& net, std::uint64_t seed) {
  RunOptions o;
  o.spec.topology = net.topology;
  o.spec.sides = net.sides;
  o.spec.routing = net.routing;
  const Schedulers& schedulers = kSchedulers[seed % std::size(kSchedulers)];
  o.spec.scheduler = schedulers.kind;
  o.spec.router = schedulers.router;
  o.spec.hca_scheduler = schedulers.at_hcas;
  o.load = is_large(net) ? 0.2 : 0.4;
  o.seed = seed;
  return o;
}

// Every routing on every kind of topology; two lanes of control, as datelines need them.
TEST(Topologies, EveryRouting) {
  using fabric::RoutingKind;
  using fabric::TopologyKind;
  const std::vector<Net> nets = {
      {"mesh", TopologyKind::mesh, {2, 3, 2}, RoutingKind::dimension_order},
      {"mesh adaptive", TopologyKind::mesh, {4, 3}, RoutingKind::adaptive},
      {"mesh up/down", TopologyKind::mesh, {3, 3}, RoutingKind::up_down},
      {"torus", TopologyKind::torus, {4, 4}, RoutingKind::dateline},
      {"torus of three", TopologyKind::torus, {3, 2, 3}, RoutingKind::automatic},
      {"torus adaptive", TopologyKind::torus, {5, 3}, RoutingKind::adaptive},
      {"torus up by load", TopologyKind::torus, {4, 3}, RoutingKind::up_by_load},
      {"fat mesh", TopologyKind::fat_mesh, {2, 2}, RoutingKind::dimension_order},
      {"fat mesh by load", TopologyKind::fat_mesh, {3, 2}, RoutingKind::dor_by_load},
      {"fat tree", TopologyKind::fat_tree, {}, RoutingKind::up_down},
      {"fat tree by load", TopologyKind::fat_tree, {}, RoutingKind::up_by_load},
      {"tree", TopologyKind::ary_tree, {}, RoutingKind::up_down},
      {"tree by load", TopologyKind::ary_tree, {}, RoutingKind::up_by_load},
  };
  std::uint64_t seed = 101;
  for (const Net& net : nets) {
    for (const bool crowded : {false, true}) {
      const bool large = is_large(net);
      if ((large || test::kSanitized) && crowded) continue;
      SCOPED_TRACE(net.name);
      RunOptions o = options_on(net, seed++);
      o.spec.arity = 2;
      o.spec.links = 2;
      o.spec.lanes_of_class = {0xc000, 0x3ff0, 0x000f};
      o.spec.lane_vtick = fabric::default_lane_vticks(o.spec.lanes_of_class);
      o.spec.fixed_classes = o.seed % 3 == 0 ? 0b011 : 0;
      o.spec.vc_buf_size = crowded ? 3 : 10;
      o.lanes = crowded ? 4 : emu::kVlCount;
      o.hot_spot = crowded;
      o.cycles = large ? 120 : 300;
      o.flits_max = 30;
      o.shuffle_routers = true;
      compare_engines(o);
      if (testing::Test::HasFatalFailure()) return;
    }
  }
}

// Few lanes and more load than they carry: heads wait for free lanes, and for the token.
TEST(Topologies, DeadlocksAreRecoveredFrom) {
  using fabric::RouterKind;
  using fabric::RoutingKind;
  using fabric::TopologyKind;
  const std::vector<Net> nets = {
      {"ring", TopologyKind::torus, {5}, RoutingKind::recovery},
      {"torus", TopologyKind::torus, {4, 3}, RoutingKind::recovery},
      {"mesh", TopologyKind::mesh, {3, 3}, RoutingKind::recovery},
      {"fat mesh", TopologyKind::fat_mesh, {2, 2}, RoutingKind::recovery},
  };
  std::uint64_t seed = 301;
  for (const Net& net : nets) {
    for (const RouterKind router :
         {RouterKind::non_preemptive, RouterKind::traditional, RouterKind::cut_through}) {
      SCOPED_TRACE(net.name);
      RunOptions o = options_on(net, seed++);
      o.spec.router = router;
      o.spec.lanes_of_class = {0x8008, 0x3ff0, 0x0003};
      o.spec.lane_vtick = fabric::default_lane_vticks(o.spec.lanes_of_class);
      o.spec.recovery_cycles = 8;
      o.spec.vc_buf_size = 12;
      o.spec.link_delay = 1 + static_cast<int>(seed % 2);
      o.lanes = 2;
      o.flits_max = router == RouterKind::cut_through ? 12 : 20;
      o.load = 0.8;
      o.cycles = 300;
      o.shuffle_routers = true;
      o.jump_idle = seed % 2 == 0;
      o.recovers = net.topology == TopologyKind::torus;
      compare_run(o);
      if (testing::Test::HasFatalFailure()) return;
    }
  }
}

// Links go out of service and come back under load, on whatever routes up and down.
TEST(Topologies, LinksFailAtRandom) {
  using fabric::RoutingKind;
  using fabric::TopologyKind;
  const std::vector<Net> nets = {
      {"fat tree", TopologyKind::fat_tree, {}, RoutingKind::automatic},
      {"tree by load", TopologyKind::ary_tree, {}, RoutingKind::up_by_load},
      {"mesh", TopologyKind::mesh, {3, 3}, RoutingKind::up_down},
      {"torus by load", TopologyKind::torus, {4, 3}, RoutingKind::up_by_load},
      {"fat mesh", TopologyKind::fat_mesh, {2, 3}, RoutingKind::up_down},
  };
  std::uint64_t seed = 201;
  for (const Net& net : nets) {
    for (const bool general : {false, true}) {
      const bool large = is_large(net);
      if (large && general) continue;
      SCOPED_TRACE(net.name);
      RunOptions o = options_on(net, seed++);
      o.spec.arity = 3;
      o.spec.levels = 2;
      o.spec.lane_vtick = fabric::default_lane_vticks(o.spec.lanes_of_class);
      o.spec.general_engine = general;
      o.links_fail = true;
      o.cycles = large ? 500 : 1500;
      if (general) {
        compare_run(o);
      } else {
        compare_engines(o);
      }
      if (testing::Test::HasFatalFailure()) return;
    }
  }
}

// Stamps are renumbered every 16384 cycles; old flits, debts and idle time must survive that.
TEST_P(EveryScheduler, AcrossStampEpochs) {
  for (std::uint64_t seed = 61; seed <= 63; ++seed) {
    RunOptions o = options();
    o.seed = seed;
    o.spec.start = 16384 * seed - 1000;
    o.cycles = 3000;
    o.load = 1.2;
    o.spec.packets_per_node = 20000;
    compare_engines(o);
    o.spec.start = (1ULL << 40) - 500;
    o.load = 0.02;
    o.jump_idle = true;
    compare_engines(o);
    if (HasFatalFailure()) return;
  }
}

// The queue of a lane at the HCA grows far older than a stamp can tell.
TEST_P(EveryScheduler, BacklogOlderThanAnEpoch) {
  RunOptions o = options();
  o.seed = 71;
  o.spec.nodes = 3;
  o.hot_spot = true;
  o.load = 2.5;
  o.cycles = 15000;
  o.spec.packets_per_node = 60000;
  compare_engines(o);
}

INSTANTIATE_TEST_SUITE_P(All, EveryScheduler, testing::ValuesIn(kSchedulers),
                         [](const auto& param) { return std::string(param.param.name); });

}  // namespace
}  // namespace model

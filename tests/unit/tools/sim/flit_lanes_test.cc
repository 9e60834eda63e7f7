// What waits before the wire halves: no class takes the whole table of the engine, no lane runs dry
// between two looks, and `run.lanes` is the cluster file's word for lanes.
#include <gtest/gtest.h>

#include <fmt/format.h>

#include <string_view>

#include "tests/unit/tools/sim/runs.h"

namespace tools {
namespace {

// Best effort in twelve lanes, all to one node of 512, with control messages beside it: these are
// few and go first. With neither a limit for each lane nor a part of the table for each, the table
// is full in the second batch, and in the third hardly a message of control gets through.
TEST(FlitLanes, OverloadLeavesTheTableToOtherClasses) {
  const auto run = play_point(R"([network]
topology = "torus:8x8x8"
[qos]
scheduler = "rr"
[controls]
admission = false
[workload]
streams = "none"
load = 2.0
pattern = "hot_spot"
hot_share = 1.0
message_flits = 2
control_per_frame = 50
frame_ms = 1.6
control_flits = 2
[run]
batch_cycles = 1300
batches = 3
lanes = [0xc000, 0x3000, 0x0fff]
)");
  const auto control = static_cast<std::size_t>(emu::TrafficClass::control);
  for (const Batch& batch : run->measure().batches()) {
    const ClassBatch& one = batch.classes[control];
    EXPECT_GT(one.messages, 1000);
    EXPECT_NEAR(one.flits / one.offered_flits, 1, 0.1);
  }
  EXPECT_GT(run->waiting(), 100'000U) << "no overload";
}

// A message of one flit a cycle: results are those of any look. Routers with lanes pass one every
// other cycle.
TEST(FlitLanes, HowOftenSourcesAreLookedAtDoesNotMatter) {
  for (const char* router : {"cell", "np", "p", "vct"}) {
    const auto run_at = [&](int look_cycles) {
      return play_point(fmt::format(R"([network]
topology = "single:2"
router = "{}"
vc_buf_size = 64
[controls]
admission = false
[workload]
flows = ["a 0>1 1.0 1"]
message_flits = 2
[run]
batch_cycles = 5000
batches = 4
look_cycles = {}
)",
                                    router, look_cycles));
    };
    const auto seldom = run_at(2000);
    const auto usual = run_at(0);
    const auto often = run_at(16);
    EXPECT_EQ(usual->json(), often->json()) << router;
    EXPECT_EQ(usual->json(), seldom->json()) << router;
    const double most = std::string_view(router) == "cell" ? 20'000 : 10'000;
    EXPECT_GT(sum(*usual, &ClassBatch::flits), 0.98 * most) << router;
  }
}

// Weights, VirtualClock's rates and what admission books follow lanes of [run] as those of [qos].
TEST(FlitLanes, LanesOfTheRunAreThoseOfTheClusterFile) {
  for (const char* scheduler : {"fgvc", "vclk", "wrr", "two_level"}) {
    for (const bool hca : {false, true}) {
      const auto run_with = [&](const char* in_qos, const char* in_run) {
        return play_point(fmt::format(R"([network]
topology = "single:4"
link_mbps = 400
[qos]
scheduler = "{}"
{}
[controls]
admission = {}
power_control = false
congestion = "none"
[workload]
load = 0.95
real_time_share = 0.5
streams = "cbr"
[run]
batch_cycles = 10000
batches = 3
hca = {}
{}
)",
                                      scheduler, in_qos, hca, hca, in_run))
            ->json();
      };
      EXPECT_EQ(run_with("", "lanes = [0x8000, 0x7f00, 0x00ff]"),
                run_with("vls_control = \"15\"\nvls_real_time = \"8-14\"\n"
                         "vls_best_effort = \"0-7\"",
                         ""))
          << scheduler << (hca ? ", admission" : "");
    }
  }
}

}  // namespace
}  // namespace tools

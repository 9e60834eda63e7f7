// The energy and the power cap of points on the real engine.
#include <gtest/gtest.h>

#include <fstream>

#include "tests/unit/tools/sim/runs.h"

namespace tools {
namespace {

// A window has no more of a long message than can pass in it, on the link and by an HCA.
TEST(FlitPower, NoWindowHasMoreThanAFlitACycle) {
  const auto run = play_point(R"([network]
topology = "mesh:2"
[controls]
admission = false
power_control = false
[workload]
flows = ["a 0>1 0.5 2048"]
message_flits = 40
[run]
batch_cycles = 20000
batches = 3
)");
  const emu::EnergyTable energy;
  for (const Batch& batch : run->measure().batches()) {
    EXPECT_GT(batch.window_pj, 0);
    EXPECT_LE(batch.window_pj, 500 * (2 * energy.router_flit_pj() + energy.link_flit_pj()));
    EXPECT_LE(batch.hca_window_pj, 501 * energy.hca_own_flit_pj() + energy.hca_packet_pj());
  }
}

// PowerHerd spends its cap and no more, however long messages are and whatever waits in the buffers
// for its links when a window ends: the routers of cut-through take whole packets in.
TEST(FlitPower, PowerHerdKeepsEveryWindowBelowTheCap) {
  for (const char* router : {"np", "vct"}) {
    for (const int flits : {5, 40, 400}) {
      for (const double cap_w : {0.1, 0.6}) {
        SCOPED_TRACE(fmt::format("{}, {} flits, {} W", router, flits, cap_w));
        const bool whole = std::string_view(router) == "vct";
        const auto run =
            play_point(fmt::format(R"([network]
topology = "mesh:4x4"
router = "{}"
vc_buf_size = {}
link_mbps = 2500
alloc_iters = 4
[qos]
scheduler = "rr"
[controls]
admission = false
congestion = "none"
peak_power = "powerherd"
power_cap_w = {}
[workload]
streams = "none"
load = 0.7
message_flits = {}
[run]
hca = true
batch_cycles = 10000
batches = 3
lanes = [0x8000, 0, 0x7fff]
)",
                                   router, whole ? std::max(flits, 40) : 10, cap_w, flits));
        const double cap_pj = cap_w * 500 * 51'200;
        for (const Batch& batch : run->measure().batches()) {
          EXPECT_GT(batch.window_pj, 0.8 * cap_pj);
          EXPECT_LE(batch.window_pj, cap_pj * (1 + 1e-9));
        }
      }
    }
  }
}

// Best effort alone, more than the cap lets go: what bursts an HCA has are those that its part of
// the cap pays in a window. Where that does not pay one packet to the farthest node it is the mean
// that keeps to the cap.
TEST(FlitPower, BestEffortKeepsEveryWindowBelowTheCap) {
  const auto window_and_mean_w = [](double cap_w, int flits, int flit_bits = 128,
                                    const char* congestion = "none") {
    const auto run = play_point(fmt::format(R"([network]
topology = "mesh:4x4"
link_mbps = 2500
flit_bits = {}
alloc_iters = 4
[qos]
scheduler = "rr"
[controls]
admission = false
congestion = "{}"
power_cap_w = {}
power_rt_share = 0.0
[workload]
streams = "none"
load = 0.7
message_flits = {}
[run]
hca = true
batch_cycles = 20000
batches = 4
lanes = [0x8000, 0, 0x7fff]
)",
                                            flit_bits, congestion, cap_w, flits));
    double window_pj = 0;
    double energy_pj = 0;
    for (const Batch& batch : run->measure().batches()) {
      window_pj = std::max(window_pj, batch.window_pj);
      energy_pj += batch.energy_pj;
    }
    const double window_ps = 500 * 400.0 * flit_bits;
    return std::pair(window_pj / window_ps, energy_pj / (160 * window_ps));
  };
  for (const int flits : {4, 40}) {
    for (const double cap_w : {0.26, 0.65}) {
      const auto [window_w, mean_w] = window_and_mean_w(cap_w, flits);
      EXPECT_LE(window_w, 1.02 * cap_w) << flits << " flits";
      EXPECT_GT(mean_w, 0.7 * cap_w) << flits << " flits";
    }
  }
  // Of narrow flits the least cap is higher, and whichever scheme holds best effort back, it holds.
  for (const char* congestion : {"alo", "credit"})
    EXPECT_LE(window_and_mean_w(0.35, 40, 32, congestion).first, 0.35) << congestion;
  EXPECT_LE(window_and_mean_w(0.06, 40).second, 0.06);
  // What takes more than the budget is paid for all the same.
  EXPECT_LE(window_and_mean_w(0.26, 400).second, 0.26);
}

// A topology from a file has the cap, and so the traffic, of the same one by its sizes.
TEST(FlitPower, TheCapKnowsTheLinksOfATopologyFile) {
  const std::string path = testing::TempDir() + "chain.toml";
  std::ofstream chain(path);
  for (int i = 0; i < 4; ++i)
    chain << fmt::format("[[switch]]\nname = \"s{0}\"\nports = 8\n[[node]]\nat = \"s{0}:0\"\n", i);
  for (int i = 0; i < 3; ++i)
    chain << fmt::format("[[link]]\nends = [\"s{}:2\", \"s{}:1\"]\n", i, i + 1);
  chain.close();
  for (const char* peak : {"scheme", "powerherd"}) {
    SCOPED_TRACE(peak);
    const auto flits = [&](const std::string& topology) {
      const auto run = play_point(fmt::format(R"([network]
topology = "{}"
nodes = 4
routing = "up_down"
[qos]
scheduler = "rr"
[controls]
admission = false
congestion = "none"
peak_power = "{}"
power_cap_load = 0.3
[workload]
load = 0.4
streams = "none"
message_flits = 40
[run]
hca = true
batch_cycles = 20000
batches = 2
)",
                                              topology, peak));
      return sum(*run, &ClassBatch::flits);
    };
    const double by_sizes = flits("mesh:4");
    EXPECT_GT(by_sizes, 0.1 * 4 * 40'000 * 0.2);
    EXPECT_NEAR(flits("file:" + path), by_sizes, 0.02 * by_sizes);
  }
}

// What a flit at an HCA costs by the configuration is in what is measured, as it is in the cap.
TEST(FlitPower, HcasHaveTheirPart) {
  const auto run_with = [](int hca_flit_pj) {
    return play_point(fmt::format(R"([network]
topology = "mesh:2x2"
[energy]
hca_flit_pj = {}
[controls]
admission = false
[workload]
flows = ["a 0>3 0.25"]
message_flits = 40
[run]
batch_cycles = 20000
batches = 2
)",
                                  hca_flit_pj));
  };
  const auto energy_pj = [](const FlitRun& run) {
    double sum = 0;
    for (const Batch& batch : run.measure().batches()) sum += batch.energy_pj;
    return sum;
  };
  const auto without = run_with(0);
  const auto with = run_with(1000);
  const double flits = sum(*with, &ClassBatch::flits);
  EXPECT_EQ(flits, sum(*without, &ClassBatch::flits));
  // A message may be half-way when the run ends.
  EXPECT_NEAR(energy_pj(*with) - energy_pj(*without), 2 * flits * 1000, 2 * 40 * 1000);
}

}  // namespace
}  // namespace tools

// Routers that see congestion, on the real engine: what they tell, how it travels, what comes of
// it.
#include <gtest/gtest.h>

#include "tests/unit/tools/sim/runs.h"

namespace tools {
namespace {

std::unique_ptr<FlitRun> played(double load, const std::string& controls,
                                const std::string& network, const std::string& workload = "",
                                int batch_cycles = 4000) {
  const std::string text = fmt::format(R"([network]
{2}
control_packet_size = 1
[qos]
scheduler = "rr"
[controls]
admission = false
power_control = false
{1}
[workload]
streams = "none"
message_flits = 4
load = {0:.2f}
{3}
[run]
hca = true
batch_cycles = {4}
batches = 3
lanes = [0xc000, 0, 0x000f]
)",
                                       load, controls, network, workload, batch_cycles);
  auto run = play_point(text);
  EXPECT_EQ(run->network().stuck(), "");
  return run;
}

const std::string kVctTorus =
    "topology = \"torus:4x4\"\nrouter = \"vct\"\nvc_buf_size = 16\npacket_size = 16";

TEST(Notices, AnEasyLoadIsNobodysFault) {
  for (const char* scheme : {"vct1", "vct2"}) {
    const auto run = played(0.05, fmt::format("congestion = \"{}\"", scheme), kVctTorus);
    EXPECT_LT(run->notices()->congestion(), 20U) << scheme;
    EXPECT_NEAR(sum(*run, &ClassBatch::flits) / sum(*run, &ClassBatch::offered_flits), 1, 0.02);
  }
}

// Beyond saturation sources are blamed and hold back: messages wait in the HCA, not in the network.
TEST(Notices, SourcesHoldBackBeyondSaturation) {
  const auto free = played(1.0, "congestion = \"none\"", kVctTorus);
  const double free_latency =
      sum(*free, &ClassBatch::network_cycles) / sum(*free, &ClassBatch::messages);
  for (const char* scheme : {"vct1", "vct2"}) {
    const auto run = played(1.0, fmt::format("congestion = \"{}\"", scheme), kVctTorus);
    EXPECT_GT(run->notices()->congestion(), 100U) << scheme;
    const double latency =
        sum(*run, &ClassBatch::network_cycles) / sum(*run, &ClassBatch::messages);
    EXPECT_LT(latency, free_latency) << scheme;
    EXPECT_GT(sum(*run, &ClassBatch::flits), 0.5 * sum(*free, &ClassBatch::flits)) << scheme;
  }
}

// Approach 2 tells less (the paper's reason for it), and takes back what it said.
TEST(Notices, ReliefFollowsCongestion) {
  const auto pulses =
      played(1.0, "congestion = \"vct2\"", kVctTorus, "pulse_load = 0.0\npulse_cycles = 3000");
  EXPECT_GT(pulses->notices()->relief(), 0U);
  EXPECT_LE(pulses->notices()->relief(), pulses->notices()->congestion());
}

// As messages notices load the network, take time, and arrive: all of them.
TEST(Notices, MessagesCarryThemThroughTheNetwork) {
  const auto run = played(0.9, "congestion = \"vct1\"\nnotice = \"message\"", kVctTorus);
  const double carried = sum(*run, &ClassBatch::messages, emu::TrafficClass::control);
  const double offered = sum(*run, &ClassBatch::offered_flits, emu::TrafficClass::control);
  EXPECT_GT(run->notices()->congestion(), 100U);
  EXPECT_GT(carried, 50);
  EXPECT_LE(carried, static_cast<double>(run->notices()->congestion()));
  EXPECT_GE(carried, offered - 20) << "a flit each; some are under way at the end";
  EXPECT_GT(sum(*run, &ClassBatch::network_cycles, emu::TrafficClass::control) / carried, 9);
  const auto instant = played(0.9, "congestion = \"vct1\"", kVctTorus);
  EXPECT_EQ(sum(*instant, &ClassBatch::messages, emu::TrafficClass::control), 0);
}

TEST(Notices, TheSameSeedTellsTheSame) {
  const std::string controls = "congestion = \"vct2\"\nnotice = \"message\"";
  EXPECT_EQ(played(0.8, controls, kVctTorus)->json(), played(0.8, controls, kVctTorus)->json());
}

// Marked packets hold their sources back, destination by destination: a hot node does not block the
// others' packets as long, and the network stays emptier.
// Flows of a flit a cycle draw nothing: what is left for the seed of a run is which packets routers
// mark. Replications of one cluster file must not all have the same draws.
TEST(Notices, EachRunMarksByDrawsOfItsOwn) {
  const auto digest = [](const char* scheme, int seed) {
    const auto run = play_point(fmt::format(R"([network]
topology = "mesh:2x2"
[controls]
admission = false
power_control = false
congestion = "{}"
mark_from = 1
mark_all = 60
[workload]
flows = ["a 1>0 1", "a 3>0 1"]
message_flits = 1
header_flits = 0
[run]
hca = true
seed = {}
batch_cycles = 4000
batches = 2
lanes = [0x8000, 0, 0x000f]
)",
                                            scheme, seed));
    EXPECT_EQ(run->notices() != nullptr && run->notices()->marked() > 10,
              std::string_view(scheme) == "dcqcn");
    return run->network().digest();
  };
  EXPECT_EQ(digest("none", 1), digest("none", 2));
  EXPECT_EQ(digest("dcqcn", 1), digest("dcqcn", 1));
  EXPECT_NE(digest("dcqcn", 1), digest("dcqcn", 2));
}

TEST(Notices, MarksHoldBackWhoSendsToTheHotNode) {
  const std::string mesh = "topology = \"mesh:4x4\"";
  const std::string hot = "pattern = \"hot_spot\"\nhot_share = 0.5";
  const auto free = played(0.6, "congestion = \"none\"", mesh, hot);
  EXPECT_EQ(free->notices(), nullptr);
  for (const char* scheme : {"ibcc", "dcqcn"}) {
    const auto run =
        played(0.6, fmt::format("congestion = \"{}\"\nmark_from = 2", scheme), mesh, hot);
    EXPECT_GT(run->notices()->marked(), 100U) << scheme;
    EXPECT_GT(run->notices()->congestion(), 10U) << scheme;
    EXPECT_LE(run->notices()->congestion(), run->notices()->marked()) << scheme;
    EXPECT_LT(sum(*run, &ClassBatch::network_cycles) / sum(*run, &ClassBatch::messages),
              sum(*free, &ClassBatch::network_cycles) / sum(*free, &ClassBatch::messages))
        << scheme;
  }
}

TEST(Notices, BadCombinationsAreNamed) {
  const auto refused = [](const std::string& text) {
    const auto point = parse_point(text, "a test");
    return point ? std::string() : point.error().message;
  };
  EXPECT_NE(refused("[controls]\ncongestion = \"vct1\"").find("router vct"), std::string::npos);
  EXPECT_NE(refused("[network]\nrouter = \"pcs\"\n[controls]\ncongestion = \"ibcc\"").find("marks"),
            std::string::npos);
  EXPECT_NE(refused("[controls]\nmark_from = 9\nmark_all = 9").find("mark_all"), std::string::npos);
}

// The VCT paper's network: 512 nodes.
TEST(Notices, ACubeOfMoreNodesThanALiveClusterRuns) {
  const auto run = played(0.3, "congestion = \"vct1\"",
                          "topology = \"torus:5x5x5\"\nrouter = \"vct\"\nvc_buf_size = 16\n"
                          "packet_size = 16",
                          "pulse_load = 0.0\npulse_cycles = 300", 500);
  EXPECT_GT(sum(*run, &ClassBatch::messages), 1000);
}

}  // namespace
}  // namespace tools

// Points on the real engine, small ones.
#include <gtest/gtest.h>

#include <numeric>

#include "tests/unit/tools/sim/runs.h"

namespace tools {
namespace {

const std::string kBestEffort = R"([network]
alloc_iters = 4
[workload]
streams = "none"
message_flits = 40
[run]
batch_cycles = 20000
batches = 4
lanes = [0, 0x8000, 0x7fff]
)";

std::string with(const std::string& base, const std::string& line) {
  std::string text = base;
  return text.insert(text.find("message_flits"), line + "\n");
}

TEST(FlitRun, EmptyNetworkHasTheLatencyOfItsStages) {
  const auto run = play_point(with(kBestEffort, "load = 0.001"));
  // One router, link delay 1: head after 6 cycles, tail 39 later.
  EXPECT_GT(sum(*run, &ClassBatch::messages), 5);
  EXPECT_NEAR(sum(*run, &ClassBatch::network_cycles) / sum(*run, &ClassBatch::messages), 45, 2);
}

TEST(FlitRun, DeliversWhatIsOfferedUntilSaturation) {
  const auto light = play_point(with(kBestEffort, "load = 0.5"));
  EXPECT_NEAR(sum(*light, &ClassBatch::flits) / sum(*light, &ClassBatch::offered_flits), 1, 0.01);
  const auto heavy = play_point(with(kBestEffort, "load = 1.2"));
  EXPECT_LT(sum(*heavy, &ClassBatch::flits), 0.95 * 8 * 80'000);
  EXPECT_GT(sum(*heavy, &ClassBatch::flits), 0.6 * 8 * 80'000);
  EXPECT_GT(sum(*heavy, &ClassBatch::offered_flits), 1.1 * 8 * 80'000);
}

// However short the batches, each has its part of the energy, and wherever the last one ends.
TEST(FlitRun, EveryBatchHasItsEnergy) {
  const auto energies = [](const std::string& batches) {
    const auto run = play_point("[workload]\nstreams = \"none\"\nload = 0.5\n[run]\n" + batches);
    std::vector<double> found;
    for (const Batch& batch : run->measure().batches()) found.push_back(batch.energy_pj);
    return found;
  };
  const auto whole = energies("batch_cycles = 6000\nbatches = 1\n");
  for (const auto& batches : {energies("batch_cycles = 100\nbatches = 60\n"),
                              energies("batch_cycles = 750\nbatches = 8\n"),
                              energies("batch_cycles = 1499\nbatches = 4\n")}) {
    const double mean = whole[0] / static_cast<double>(batches.size());
    EXPECT_NEAR(std::accumulate(batches.begin(), batches.end(), 0.0), whole[0], 1e-3 * whole[0]);
    for (std::size_t b = batches.size() / 6; b < batches.size(); ++b)  // behind the first window
      EXPECT_NEAR(batches[b], mean, 0.4 * mean) << "batch " << b << " of " << batches.size();
  }
}

TEST(FlitRun, ThePointAndTheSeedAreTheRun) {
  const std::string text = with(kBestEffort, "load = 0.4");
  EXPECT_EQ(play_point(text)->json(), play_point(text)->json());
  EXPECT_NE(play_point(text)->json(), play_point(text + "seed = 2\n")->json());
}

TEST(FlitRun, FramesOfAStreamArriveEvery33Milliseconds) {
  const auto run = play_point(R"([network]
link_mbps = 100
flit_bits = 128
[workload]
load = 0.5
real_time_share = 1.0
message_flits = 40
[run]
batch_cycles = 26042
batches = 8
lanes = [0, 0xfff0, 0x000f]
)");
  double intervals = 0;
  double deviation = 0;
  double square = 0;
  for (const Batch& batch : run->measure().batches()) {
    intervals += batch.intervals;
    deviation += batch.deviation_ms;
    square += batch.deviation_sq;
  }
  // 12 streams a node; after the first two batches every one completes a frame a batch.
  EXPECT_GT(intervals, 8 * 12 * 5);
  EXPECT_NEAR(deviation / intervals, 0, 0.3);
  EXPECT_LT(square / intervals, 4);
}

// GigaNet's port contention on a switch of 4: streams in nobody's way keep their rate if a queue
// stops its own source, and lose it if it can only stop a link.
TEST(FlitRun, FlowsOfACellSwitchAreCountedByTheirLabel) {
  const auto flow_text = [](const char* control) {
    return play_point(fmt::format(R"([network]
nodes = 4
router = "cell"
flow_control = "{}"
vc_buf_size = 64
[controls]
admission = false
[workload]
message_flits = 10
flows = ["free 1>2", "free 2>3", "free 3>1", "hot 1>0", "hot 2>0", "hot 3>0"]
[run]
batch_cycles = 3000
batches = 4
)",
                                  control))
        ->json();
  };
  // Flits of the first flow in the last batch.
  const auto first = [](const std::string& json) {
    const std::size_t at = json.find("\"flow_flits\":[[") + 15;
    const std::string row = json.substr(at, json.find(']', at) - at);
    return std::stod(row.substr(row.rfind(',') + 1));
  };
  const std::string by_stream = flow_text("stream");
  EXPECT_NE(by_stream.find(R"("flow_labels":["free","free","free","hot","hot","hot"])"),
            std::string::npos);
  EXPECT_NEAR(first(by_stream), 2000, 100);  // two thirds: what the hot stream leaves
  EXPECT_NEAR(first(flow_text("link")), 1000, 100);
}

// Connections are attempted until the load is there, and a drawn lane that is taken drops one.
TEST(FlitRun, CircuitsStandUntilTheLoadIsThere) {
  const auto run = play_point(R"([network]
router = "pcs"
circuits = 24
link_mbps = 100
flit_bits = 32
vc_buf_size = 20
[controls]
admission = false
[workload]
load = 0.6
real_time_share = 1.0
placement = "uniform"
message_flits = 20
header_flits = 0
circuit_attempts = 2000
[run]
batch_cycles = 104167
batches = 2
lanes = [0, 0xffff, 0]
)");
  const std::string json = run->json();
  const auto value = [&](const std::string& key) {
    return std::stod(json.substr(json.find("\"" + key + "\":") + key.size() + 3));
  };
  EXPECT_EQ(value("granted"), 120);  // 0.6 of 8 links in streams of 4 Mb/s
  // Lane after lane is taken: 192 ln(192 / 72) = 188 on average.
  EXPECT_GT(value("asked"), 150);
  EXPECT_LT(value("asked"), 240);
  const Batch& last = run->measure().batches().back();
  const auto real_time = static_cast<std::size_t>(emu::TrafficClass::real_time);
  EXPECT_NEAR(last.classes[real_time].flits / 8 / 104167, 0.6, 0.03);
}

// MPEG-2 sequences are two to five times as fast as `stream_kbps` and differ: what stands is
// counted by its rate. Windows of power are the engine's, whenever the last circuit stood.
TEST(FlitRun, CircuitsOfUnequalStreamsMakeTheLoad) {
  const auto run = play_point(R"([network]
router = "pcs"
circuits = 24
link_mbps = 100
flit_bits = 32
vc_buf_size = 20
[controls]
admission = false
[workload]
load = 0.4
real_time_share = 1.0
streams = "mpeg2"
placement = "uniform"
message_flits = 20
circuit_attempts = 2000
[run]
batch_cycles = 104167
batches = 13
lanes = [0, 0xffff, 0]
)");
  // A batch is a frame time; in the first the streams begin, the others are twelve, a whole GOP.
  constexpr auto kRealTime = emu::TrafficClass::real_time;
  const double begun =
      run->measure().batches().front().classes[static_cast<std::size_t>(kRealTime)].flits;
  const double flits = sum(*run, &ClassBatch::flits, kRealTime) - begun;
  EXPECT_NEAR(flits / 8 / 12 / 104167, 0.4 * 20 / 19, 0.02) << "and headers";
  EXPECT_EQ(run->network().now() % emu::kPowerWindowCycles, 0U);
}

// A message leaves at the end of its part of the frame time: frames of any size end alike.
TEST(FlitRun, TheRegulatorLeavesNoJitterOfItsOwn) {
  const auto deviation = [](const char* regulator) {
    const auto run = play_point(fmt::format(R"([network]
link_mbps = 100
[workload]
load = 0.3
real_time_share = 1.0
regulator = "{}"
[run]
batch_cycles = 26042
batches = 6
lanes = [0, 0xfff0, 0x000f]
)",
                                            regulator));
    double square = 0;
    double count = 0;
    for (const Batch& batch : run->measure().batches()) {
      square += batch.deviation_sq;
      count += batch.intervals;
    }
    EXPECT_GT(count, 100);
    return std::sqrt(square / count);
  };
  EXPECT_LT(deviation("end") * 3, deviation("begin"));
}

// Admission (ACP 4.1): streams ask by probes through the network; what does not fit stays away, and
// what was granted is booked at the routers.
TEST(FlitRun, StreamsThatDoNotFitAreRefused) {
  const auto run_at = [](double load, const char* admission) {
    auto point = parse_point(fmt::format(R"([network]
topology = "mesh:2x2"
[controls]
admission = {}
power_control = false
[qos]
scheduler = "two_level"
[workload]
streams = "on_off"
stream_kbps = 40000
placement = "uniform"
load = {:.2f}
real_time_share = 0.9
[run]
hca = true
batch_cycles = 20000
batches = 2
)",
                                         admission, load),
                             "a test");
    EXPECT_TRUE(point) << (point ? "" : point.error().message);
    auto run = FlitRun::make(*point);
    EXPECT_TRUE(run) << (run ? "" : run.error().message);
    (*run)->play();
    return (*run)->json();
  };
  EXPECT_NE(run_at(0.4, "true").find("\"asked\":16,\"granted\":16"), std::string::npos);
  const std::string full = run_at(1.8, "true");
  EXPECT_NE(full.find("\"asked\":64"), std::string::npos) << full.substr(0, 200);
  EXPECT_EQ(full.find("\"granted\":64"), std::string::npos);
  EXPECT_NE(run_at(1.8, "false").find("\"asked\":0,"), std::string::npos);
}

// A host may take longer for a probe than any network does.
TEST(FlitRun, SlowHostsAnswerProbesToo) {
  const auto run = play_point(R"([network]
topology = "single:2"
router = "cell"
link_mbps = 100000
[controls]
admission = true
power_control = false
[workload]
streams = "cbr"
stream_kbps = 1000000
frame_ms = 1
load = 0.01
real_time_share = 1
[run]
hca = true
receive_us = 1000
batch_cycles = 1000
batches = 1
)");
  EXPECT_NE(run->json().find(R"("asked":2,"granted":2)"), std::string::npos) << run->json();
}

// What admission sent before the workload began is no energy of its first window.
TEST(FlitRun, ProbesAreInNoWindowOfTheHcas) {
  const auto run = play_point(R"([network]
topology = "mesh:2x2"
[controls]
power_control = false
[workload]
streams = "cbr"
load = 0.4
real_time_share = 0.9
[run]
hca = true
batch_cycles = 5000
batches = 2
)");
  ASSERT_GT(run->bookings()->granted(), 4U);
  const auto& batches = run->measure().batches();
  EXPECT_LT(batches[0].hca_pj, 1.5 * batches[1].hca_pj);
}

TEST(FlitRun, AsManyNodesAsTheTopologyHas) {
  for (const char* hca : {"false", "true"}) {
    const auto point = parse_point(fmt::format(R"([network]
topology = "mesh:4x4"
nodes = 10
[controls]
admission = false
[workload]
load = 0.1
[run]
hca = {}
)",
                                               hca),
                                   "a test");
    ASSERT_TRUE(point) << point.error().message;
    const auto run = FlitRun::make(*point);
    ASSERT_FALSE(run);
    EXPECT_EQ(run.error().message, "the configuration names 10 nodes, its topology has 16");
  }
}

TEST(FlitRun, OnOffConnectionsKeepTheirMeanRate) {
  const auto run = play_point(R"([workload]
streams = "on_off"
stream_kbps = 20000
load = 0.5
real_time_share = 1.0
[run]
batch_cycles = 100000
batches = 4
lanes = [0, 0xfff0, 0x000f]
)");
  double offered = 0;
  for (const Batch& batch : run->measure().batches()) {
    offered += batch.classes[static_cast<std::size_t>(emu::TrafficClass::real_time)].offered_flits;
  }
  // 10 connections a node, 40/39 with headers; ON and OFF of 1 ms in 128 ms.
  EXPECT_NEAR(offered / 8 / 400'000, 0.5 * 40 / 39, 0.06);
}

// Of few messages an ON time, and from the first cycle on: connections began long ago.
TEST(FlitRun, SlowOnOffConnectionsKeepTheirRateFromTheStart) {
  const auto run = play_point(R"([network]
link_mbps = 1600
[workload]
streams = "on_off"
stream_kbps = 1000
load = 0.5
real_time_share = 1.0
[run]
batch_cycles = 3125
batches = 8
lanes = [0, 0xfff0, 0x000f]
)");
  double offered = 0;
  for (const Batch& batch : run->measure().batches()) {
    const auto& real_time = batch.classes[static_cast<std::size_t>(emu::TrafficClass::real_time)];
    EXPECT_NEAR(static_cast<double>(real_time.offered_flits) / 8 / 3125, 0.5 * 40 / 39, 0.12);
    offered += static_cast<double>(real_time.offered_flits);
  }
  EXPECT_NEAR(offered / 8 / 25'000, 0.5 * 40 / 39, 0.04);
}

TEST(FlitRun, LinkDelaysOfTheSchemaAreThoseOfTheEngine) {
  const auto point = [](int cycles) {
    return parse_point(fmt::format("[network]\nlink_delay = {}\n", cycles), "a test");
  };
  const auto longest = point(15);
  ASSERT_TRUE(longest);
  EXPECT_TRUE(FlitRun::make(*longest));
  EXPECT_FALSE(point(16));
}

TEST(FlitRun, RefusesWhatDoesNotGoTogether) {
  const auto refusal = [](const std::string& text) {
    auto point = parse_point(text, "point.toml");
    EXPECT_TRUE(point) << point.error().message;
    auto made = FlitRun::make(*point);
    return made ? std::string() : made.error().message;
  };
  const std::string vct =
      "[network]\nrouter = \"vct\"\nvc_buf_size = 10\npacket_size = 10\n"
      "control_packet_size = 4\n";
  EXPECT_NE(refusal(vct).find("messages of 40 flits"), std::string::npos);
  EXPECT_EQ(refusal(vct + "[workload]\nmessage_flits = 10\n"), "");
  EXPECT_NE(refusal("[network]\npass_through = true\n").find("live cluster"), std::string::npos);
  EXPECT_NE(refusal("[workload]\ncircuit_attempts = 5\n").find("pcs"), std::string::npos);
  EXPECT_NE(refusal("[network]\nrouter = \"pcs\"\n[controls]\nadmission = false\n"
                    "[workload]\ncircuit_attempts = 5\nphases = [0.2, 0.8]\n")
                .find("workload.phases: not with"),
            std::string::npos);
  EXPECT_NE(refusal("[workload]\nstreams = \"mpeg2\"\nphases = [0.8, 0.2]\n[run]\nhca = true\n")
                .find("shares cannot fall"),
            std::string::npos);
  EXPECT_NE(refusal("[workload]\nstreams = \"vbr\"\nstream_kbps = 1\nload = 2.0\n"
                    "real_time_share = 1.0\n")
                .find("streams, at most"),
            std::string::npos);
  EXPECT_NE(refusal("[workload]\nstreams = \"none\"\ncontrol_per_frame = 1000000\n"
                    "frame_ms = 0.01\n")
                .find("more than 2 links"),
            std::string::npos);
}

// The key says how long a head waits before it may take the token, and JSON how often one did.
TEST(FlitRun, RecoversFromDeadlocks) {
  const std::string torus = R"([network]
topology = "torus:4x4"
router = "vct"
routing = "recovery"
vc_buf_size = 16
control_packet_size = 1
packet_size = 16
[controls]
admission = false
[workload]
streams = "none"
message_flits = 16
[run]
batch_cycles = 1000
batches = 2
lanes = [0x8018, 0, 0x7]
)";
  const auto recoveries = [&](const char* cycles) {
    std::string text = with(torus, "load = 0.9");
    text.insert(text.find("vc_buf_size"), std::string("recovery_cycles = ") + cycles + "\n");
    const auto run = play_point(text);
    const std::uint64_t count = run->network().design_counters().recoveries;
    EXPECT_NE(run->json().find("\"recoveries\":" + std::to_string(count) + ","), std::string::npos)
        << run->json();
    return count;
  };
  EXPECT_GT(recoveries("32"), 0U);
  EXPECT_EQ(recoveries("1048576"), 0U);
}

// Heads that wait in the network go before those that have just come from an HCA: else every place
// that gets free goes to a new message, and the network fills until it stands still but for the
// token, which resolves a message in 20 cycles: less than half of this load was delivered.
TEST(FlitRun, WhatEntersDoesNotFillANetworkThatRecovers) {
  const std::string torus = R"([network]
topology = "torus:8x8"
router = "vct"
routing = "recovery"
num_vcs = 8
vc_buf_size = 64
packet_size = 4
alloc_iters = 4
[qos]
scheduler = "rr"
[controls]
admission = false
power_control = false
congestion = "none"
[workload]
streams = "none"
message_flits = 4
[run]
hca = true
batch_cycles = 2000
batches = 5
lanes = [0x8070, 0, 0xf]
)";
  const auto run = play_point(with(torus, "load = 0.4\npattern = \"shuffle\""));
  double delivered = 0;
  double offered = 0;
  for (std::size_t b = 2; b < 5; ++b) {
    const ClassBatch& batch = run->measure().batches()[b].classes[static_cast<std::size_t>(
        emu::TrafficClass::best_effort)];
    delivered += batch.flits;
    offered += batch.offered_flits;
  }
  EXPECT_GT(delivered, 0.9 * offered);
}

}  // namespace
}  // namespace tools

// Points with HCAs in front: what the controls hold back, and where.
#include <gtest/gtest.h>

#include "tests/unit/tools/sim/runs.h"

namespace tools {
namespace {

// A 2 x 2 mesh of best effort; `controls` and `load` vary.
std::unique_ptr<FlitRun> played(double load, const std::string& controls, bool power = false) {
  const std::string text = fmt::format(R"([network]
topology = "mesh:2x2"
nodes_per_router = 2
[qos]
scheduler = "rr"
[controls]
admission = false
{0}
power_control = {2}
[workload]
streams = "none"
message_flits = 40
load = {1:.2f}
[run]
hca = true
batch_cycles = 20000
batches = 4
lanes = [0x8000, 0, 0x7fff]
)",
                                       controls, load, power);
  return play_point(text);
}

double mean(const FlitRun& run, double ClassBatch::*member) {
  return sum(run, member) / sum(run, &ClassBatch::messages);
}

TEST(HcaGate, LightLoadPassesEverySchemeAlike) {
  for (const char* scheme : {"none", "credit", "alo", "self_tuned"}) {
    const auto run = played(0.1, fmt::format("congestion = \"{}\"", scheme));
    EXPECT_NEAR(sum(*run, &ClassBatch::flits) / sum(*run, &ClassBatch::offered_flits), 1, 0.02);
    EXPECT_LT(mean(*run, &ClassBatch::queue_cycles), 60) << scheme;
    EXPECT_LT(mean(*run, &ClassBatch::host_cycles), 5) << scheme;
  }
}

TEST(HcaGate, CreditHoldsBackAtTheConsumer) {
  const auto free = played(1.0, "congestion = \"none\"");
  const auto held = played(1.0, "congestion = \"credit\"\nbest_effort_credits = 20");
  EXPECT_GT(mean(*free, &ClassBatch::queue_cycles), 2000);
  // 20 messages of 40 flits on a link of one flit a cycle, shared with nobody.
  EXPECT_LT(mean(*held, &ClassBatch::queue_cycles), 20 * 40 * 2);
  EXPECT_GT(mean(*held, &ClassBatch::host_cycles), 1000);
  EXPECT_EQ(mean(*free, &ClassBatch::host_cycles), 0);
  // What is held back is not lost: the network is as busy.
  EXPECT_GT(sum(*held, &ClassBatch::flits), 0.95 * sum(*free, &ClassBatch::flits));
}

TEST(HcaGate, ConsumersOfSeparateQueuesDoNotWaitForOneAnother) {
  const char* credits = "congestion = \"credit\"\nbest_effort_credits = 16\n";
  const auto global = played(1.0, std::string(credits) + "completion_queues = \"global\"");
  const auto separate = played(1.0, std::string(credits) + "completion_queues = \"separate\"");
  EXPECT_NE(global->json(), separate->json());
  EXPECT_GT(sum(*separate, &ClassBatch::flits), 0.8 * sum(*global, &ClassBatch::flits));
}

TEST(HcaGate, TheBufferOfTheHcaThrottlesConsumers) {
  const auto run = played(1.2, "congestion = \"none\"\nhca_buffer_packets = 16");
  EXPECT_LT(mean(*run, &ClassBatch::queue_cycles), 16 * 40 * 2);
  EXPECT_GT(mean(*run, &ClassBatch::host_cycles), 1000);
}

// Best effort that is held back fills the HCA's buffer: then real time waits before it too, unless
// credits keep room for it (ACP 4.2). It gets room before best effort does.
TEST(HcaGate, RealTimeNeedsRoomInTheBufferOfTheHca) {
  const auto host_cycles = [](const std::string& congestion) {
    const std::string text = fmt::format(R"([network]
nodes = 4
[qos]
scheduler = "two_level"
[controls]
admission = false
power_control = false
hca_buffer_packets = 60
best_effort_credits = 20
congestion = "{}"
[workload]
streams = "vbr"
placement = "uniform"
stream_kbps = 40000
load = 1.1
real_time_share = 0.5
message_flits = 40
[run]
hca = true
batch_cycles = 50000
batches = 4
)",
                                         congestion);
    const auto run = play_point(text);
    std::array<double, emu::kClassCount> mean{};
    for (std::size_t c = 0; c < mean.size(); ++c) {
      const auto of = static_cast<emu::TrafficClass>(c);
      mean[c] = sum(*run, &ClassBatch::host_cycles, of) /
                std::max(sum(*run, &ClassBatch::messages, of), 1.0);
    }
    return mean;
  };
  const auto none = host_cycles("none");
  const auto credit = host_cycles("credit");
  EXPECT_GT(none[1], 20);
  EXPECT_LT(none[1], none[2] / 10);
  EXPECT_EQ(credit[1], 0);
}

// Self-Tuned's counts by control messages: they cross the network, arrive and have their effect.
TEST(HcaGate, SelfTunedWorksInBand) {
  const std::string scheme = "congestion = \"self_tuned\"\n";
  const auto side = played(1.0, scheme);
  const auto in_band = played(1.0, scheme + "notice = \"message\"");
  const auto free = played(1.0, "congestion = \"none\"");
  const auto control = [](const FlitRun& run) {
    double messages = 0;
    for (const Batch& batch : run.measure().batches()) messages += batch.classes[0].messages;
    return messages;
  };
  EXPECT_EQ(control(*side), 0);
  // Eight nodes at four routers: a round every 160 cycles of 3 reports and 8 sums.
  EXPECT_GT(control(*in_band), 0.9 * 11 * 80'000 / 160);
  EXPECT_NE(side->json(), in_band->json());
  EXPECT_NE(free->json(), in_band->json());
  EXPECT_LT(mean(*in_band, &ClassBatch::network_cycles),
            1.2 * mean(*free, &ClassBatch::network_cycles));
}

// ACP section 5: the mean power stays below the cap, and best effort waits in the HCA for it.
TEST(HcaGate, PowerControlKeepsToItsCap) {
  const std::string cap = "congestion = \"none\"\npower_cap_load = 0.3\npower_rt_share = 0.0";
  const auto watts = [](const FlitRun& run) {
    double picojoules = 0;
    for (const Batch& batch : run.measure().batches()) picojoules += batch.energy_pj;
    return picojoules * 1e-12 / (80'000 * 320e-9);
  };
  const auto free = played(0.6, cap);
  const auto held = played(0.6, cap, true);
  emu::Config config;
  config.network.topology.kind = emu::Topology::mesh;
  config.network.topology.sizes = {2, 2};
  config.network.nodes_per_router = 2;
  config.controls.power_cap_load = 0.3;
  EXPECT_GT(watts(*free), 1.5 * config.power_cap_w());
  EXPECT_LT(watts(*held), config.power_cap_w());
  EXPECT_GT(watts(*held), 0.7 * config.power_cap_w());
  EXPECT_GT(mean(*held, &ClassBatch::queue_cycles), 1000);
}

}  // namespace
}  // namespace tools

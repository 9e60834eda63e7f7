// Points with HCAs in front: what the controls hold back, and where.
#include <gtest/gtest.h>

#include "fabric/daemon/look.h"
#include "fabric/daemon/spec.h"
#include "tests/unit/tools/sim/runs.h"
#include "tools/sim/in_band.h"

namespace tools {
namespace {

FlitMessage best_effort_to(emu::NodeId dest) {
  FlitMessage message{};
  message.dest = dest;
  message.flits = 40;
  message.traffic_class = emu::TrafficClass::best_effort;
  return message;
}

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

// The share of best effort may be small: then a packet leaves now and then, without any none does.
TEST(HcaGate, LittlePowerLetsLittleBestEffortGo) {
  const auto flits = [](const char* real_time_share) {
    const auto run = played(0.3,
                            fmt::format("congestion = \"none\"\npower_cap_load = 0.3\n"
                                        "power_rt_share = {}",
                                        real_time_share),
                            true);
    return sum(*run, &ClassBatch::flits) - run->measure().batches()[0].classes[2].flits;
  };
  const double tenth = flits("0.9");
  const double little = flits("0.98");
  EXPECT_GT(little, 0);
  EXPECT_NEAR(little / tenth, 0.2, 0.1);
  EXPECT_EQ(flits("1.0"), 0);
}

// Flits of each flow from node 7 in the second half of a run on one switch.
std::vector<double> flow_flits(const std::string& controls) {
  const auto run = play_point(fmt::format(R"([network]
topology = "single:8"
[controls]
admission = false
power_control = false
hca_buffer_packets = 64
{}
[workload]
flows = ["a 7>1 0.9", "b 7>2 0.9", "c 7>3 0.9"]
message_flits = 40
[run]
hca = true
batch_cycles = 50000
batches = 2
)",
                                          controls));
  const std::string json = run->json();
  std::vector<double> flits;
  std::size_t at = json.find("\"flow_flits\":[") + 14;
  for (int flow = 0; flow < 3; ++flow) {
    const std::size_t comma = json.find(',', at);
    flits.push_back(std::stod(json.substr(comma + 1)));
    at = json.find('[', comma);
  }
  return flits;
}

// Groups share the HCA's buffer evenly, whatever their numbers.
TEST(HcaGate, AFullBufferTakesFromEveryGroup) {
  for (const char* controls : {"congestion = \"ibcc\"", "congestion = \"dcqcn\"",
                               "congestion = \"credit\"\ncompletion_queues = \"separate\""}) {
    const std::vector<double> flits = flow_flits(controls);
    for (const double one : flits) EXPECT_NEAR(one / 50'000, 1.0 / 3, 0.01) << controls;
  }
}

// ALO sees every port of a large router.
TEST(HcaGate, AloSeesPortsBeyondTheSixteenth) {
  const auto cycles = [](const char* congestion, int dest) {
    std::string flows;
    for (const int source : {0, 1, 2, 4, 5, 6, 7, 8})
      flows += fmt::format("{}\"f {}>{} 0.5\"", flows.empty() ? "" : ", ", source, dest);
    const auto run = play_point(fmt::format(R"([network]
topology = "single:24"
vc_buf_size = 10
[qos]
vls_best_effort = "0"
[controls]
admission = false
power_control = false
congestion = "{}"
[workload]
flows = [{}]
message_flits = 40
[run]
hca = true
look_cycles = 1
batch_cycles = 10000
batches = 2
)",
                                            congestion, flows));
    return mean(*run, &ClassBatch::network_cycles);
  };
  const double held = cycles("alo", 20);
  EXPECT_LT(held, 0.95 * cycles("none", 20));
  EXPECT_EQ(held, cycles("alo", 3));
}

// Of two ways that an adaptive routing may take one is free, though the fixed one is not.
TEST(HcaGate, AloSeesEveryWayOfTheRouting) {
  emu::Config config = emu::Config::parse(R"([network]
topology = "mesh:2x2"
routing = "adaptive"
[qos]
scheduler = "rr"
vls_control = "13,14,15"
vls_real_time = "2-12"
vls_best_effort = "0,1"
[controls]
congestion = "alo"
power_control = false
)")
                           .value();
  const auto network = fabric::Network::make(fabric::network_spec(config, 0)).value();
  const auto choices = network->choices(0, 3);
  ASSERT_GT(choices.size(), 1U);
  std::array<emu::LaneMask, emu::kClassCount> lanes{};
  const auto best_effort = static_cast<std::size_t>(emu::TrafficClass::best_effort);
  lanes[best_effort] = config.qos.class_vls[best_effort];
  HcaGate gate(config, 0, *network, lanes);
  // To the neighbour on the fixed way, by both lanes.
  const emu::PortId fixed = choices.front().port;
  for (emu::Vl lane = 0; lane < 2; ++lane) {
    hca::SendPacket packet;
    packet.dest = network->peer(0, fixed).router;
    packet.flits = 200;
    packet.vl_in = packet.vl_out = lane;
    packet.traffic_class = emu::TrafficClass::best_effort;
    ASSERT_TRUE(network->submit(0, packet));
  }
  network->step(200);
  ASSERT_EQ(fabric::free_lanes(*network, 0, fixed) & lanes[best_effort], 0);
  gate.look(*network, 0, 1, 0);
  gate.offer(best_effort_to(3));
  int sent = 0;
  gate.release(network->now(), [&](const FlitMessage&) { ++sent; });
  EXPECT_EQ(sent, 1);
}

// A link that is down has all its lanes free: it must not be what ALO looks at.
TEST(HcaGate, AloFollowsTheWaysRoundALinkThatIsDown) {
  const emu::Config config = emu::Config::parse(R"([network]
topology = "tree:2x2"
[qos]
scheduler = "rr"
vls_control = "15"
vls_real_time = "1-14"
vls_best_effort = "0"
[controls]
congestion = "alo"
power_control = false
)")
                                 .value();
  const auto network = fabric::Network::make(fabric::network_spec(config, 0)).value();
  std::array<emu::LaneMask, emu::kClassCount> lanes{};
  lanes[static_cast<std::size_t>(emu::TrafficClass::best_effort)] = 1;
  HcaGate gate(config, 0, *network, lanes);
  const fabric::LinkEnd first = {0, network->route(0, 3)};
  ASSERT_TRUE(network->set_down({&first, 1}));
  gate.links_changed(*network);
  ASSERT_NE(network->route(0, 3), first.port);
  // The neighbour at the same router takes the way that is left.
  hca::SendPacket packet;
  packet.dest = 2;
  packet.flits = 200;
  packet.traffic_class = emu::TrafficClass::best_effort;
  ASSERT_TRUE(network->submit(1, packet));
  network->step(100);
  ASSERT_EQ(fabric::free_lanes(*network, 0, network->route(0, 3)) & 1, 0);
  ASSERT_EQ(fabric::free_lanes(*network, 0, first.port) & 1, 1);
  gate.look(*network, 0, 1, 0);
  gate.offer(best_effort_to(3));
  int sent = 0;
  const auto count = [&](const FlitMessage&) { ++sent; };
  gate.release(network->now(), count);
  EXPECT_EQ(sent, 0) << "the only way has no free lane";
  network->step(400);
  gate.look(*network, 0, 1, 0);
  gate.release(network->now(), count);
  EXPECT_EQ(sent, 1);
}

// Self-Tuned's threshold is a part of the buffers that there are: with four lanes a link a fabric
// without any room is full, and not by a quarter.
TEST(HcaGate, LanesThatAreNotThereAreNoBuffers) {
  const emu::Config config = emu::Config::parse(R"([network]
topology = "single:8"
num_vcs = 4
[controls]
congestion = "self_tuned"
)")
                                 .value();
  const auto network = fabric::Network::make(fabric::network_spec(config, 0)).value();
  EXPECT_EQ(fabric::fullness(*network, 10, config.network.num_vcs).buffers, 8U * 4);
  EXPECT_EQ(InBand::make(config, config.qos.class_vls, *network).value().buffers(), 8U * 4);
}

// Deeper buffers than an occupancy can count are full nevertheless.
TEST(HcaGate, DeepBuffersCanBeFull) {
  const auto run = play_point(R"([network]
topology = "single:4"
vc_buf_size = 300
engine = "general"
[controls]
admission = false
[workload]
flows = ["a 0>3 0.9", "b 1>3 0.9", "c 2>3 0.9"]
message_flits = 40
[run]
batch_cycles = 5000
batches = 1
lanes = [0x8000, 0, 0x1]
)");
  EXPECT_GE(fabric::fullness(run->network(), 300, 16).full, 3U);
  EXPECT_FALSE(fabric::is_full(254, 300));
  EXPECT_FALSE(fabric::is_full(9, 10));
  EXPECT_TRUE(fabric::is_full(10, 10));
}

}  // namespace
}  // namespace tools

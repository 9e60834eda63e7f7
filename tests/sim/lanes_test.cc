// Programs of one node on service levels of different lanes: what each lane gets of the node's link
// is what the VL arbitration tables say, however much each of them asks for.
#include <gtest/gtest.h>

#include <array>
#include <string>
#include <vector>

#include "tests/sim/cluster.h"
#include "tests/unit/sanitized.h"

namespace {

constexpr std::uint32_t kMessageBytes = 65536;
constexpr std::uint64_t kMessagesOut = 64;  // of each QP: more than all slots hold
// In which the slots were filled and emptied, and then 4,687 packets; with a sanitizer a third.
constexpr emu::Cycle kWarmUpCycles = test::kSanitized ? 400'000 : 1'200'000;
constexpr emu::Cycle kMeasuredCycles = kWarmUpCycles;
constexpr std::array<std::uint8_t, 2> kSls = {0, 2};  // on lanes 0 and 1

struct Tables {
  std::string name;
  std::string qos;
  double share = 0;  // of lane 1
  std::array<int, 2> qps = {4, 4};
  hca::WrOpcode opcode = hca::WrOpcode::rdma_write;
  std::string congestion = "none";
};

emu::Config config_of(const Tables& tables) {
  auto config = emu::Config::parse(
      "[network]\nnodes = 2\npacket_size = 256\n[hca]\nmtu = 4096\n[controls]\ncongestion = \"" +
      tables.congestion +
      "\"\npower_control = false\n"
      "[qos]\nscheduler = \"two_level\"\nqos_sl2vl = [0,4,1,0,0,0,0,0,0,0,0,0,0,0,0,15]\n" +
      tables.qos);
  EXPECT_TRUE(config.has_value()) << (config ? "" : config.error().message);
  return config.value();
}

// QPs of node 0 that write to node 1, or read from there, as fast as they may.
class Programs {
 public:
  Programs(sim::Cluster& cluster, const Tables& tables)
      : cluster_(cluster), tables_(tables), here_(cluster.host(0)), there_(cluster.host(1)) {
    const std::uint32_t all = hca::kAccessLocalWrite | hca::kAccessRemoteWrite |
                              hca::kAccessRemoteRead | hca::kAccessRemoteAtomic;
    bytes_.resize(2 * kMessageBytes);
    keys_ = here_.reg(&bytes_[0], kMessageBytes, all);
    peer_keys_ = there_.reg(&bytes_[kMessageBytes], kMessageBytes, all);
    cq_ = here_.make_cq(4096);
    peer_cq_ = there_.make_cq(16);
    for (std::size_t level = 0; level < kSls.size(); ++level) {
      for (int i = 0; i < tables.qps[level]; ++i) join(kSls[level]);
    }
  }
  void act() {
    hca::Cqe cqe;
    while (sim::App::poll(cq_, cqe)) {
      ASSERT_EQ(cqe.status, hca::WcStatus::success);
      --out_[cqe.wr_id];
    }
    const hca::Sge sge{reinterpret_cast<std::uint64_t>(&bytes_[0]), kMessageBytes, keys_.lkey};
    for (std::size_t i = 0; i < queues_.size(); ++i) {
      for (; out_[i] < kMessagesOut; ++out_[i]) {
        ASSERT_EQ(
            here_.post(queues_[i],
                       {.opcode = tables_.opcode,
                        .wr_id = i,
                        .sges = {&sge, 1},
                        .remote_addr = reinterpret_cast<std::uint64_t>(&bytes_[kMessageBytes]),
                        .rkey = peer_keys_.rkey}),
            0);
      }
    }
    here_.ring(cluster_.now());
  }

 private:
  void join(std::uint8_t sl) {
    const hca::QpCapacity capacity{kMessagesOut, 1, 1, 1, 0};
    const sim::Queue mine = here_.make_qp(hca::QpType::rc, cq_, cq_, capacity);
    const sim::Queue peer = there_.make_qp(hca::QpType::rc, peer_cq_, peer_cq_, capacity);
    sim::Path path;
    path.sl = sl;
    path.mtu = 5;
    path.timeout = 0;
    path.reads = path.reads_served = 16;
    path.dest = 1;
    path.dest_qpn = peer.number;
    EXPECT_EQ(here_.connect(mine, path, cluster_.now()), 0);
    path.dest = 0;
    path.dest_qpn = mine.number;
    EXPECT_EQ(there_.connect(peer, path, cluster_.now()), 0);
    queues_.push_back(mine);
    out_.push_back(0);
  }

  sim::Cluster& cluster_;
  const Tables& tables_;
  std::vector<std::uint8_t> bytes_;
  sim::App here_;
  sim::App there_;
  hca::MrKeys keys_;
  hca::MrKeys peer_keys_;
  sim::Completions cq_;
  sim::Completions peer_cq_;
  std::vector<sim::Queue> queues_;
  std::vector<std::uint64_t> out_;
};

class LaneShares : public testing::TestWithParam<Tables> {};

TEST_P(LaneShares, AreWhatTheTablesSay) {
  const Tables& tables = GetParam();
  auto made = sim::Cluster::make({.config = config_of(tables), .seed = 1});
  ASSERT_TRUE(made.has_value()) << made.error().message;
  sim::Cluster& cluster = **made;
  Programs programs(cluster, tables);
  const auto run_until = [&](emu::Cycle cycle) {
    while (cluster.now() < cycle && !HasFatalFailure()) {
      programs.act();
      cluster.turn();
    }
  };
  // Who sends most: what is written, or read from there.
  const emu::NodeId sender = tables.opcode == hca::WrOpcode::rdma_read ? 1 : 0;
  const auto flits = [&](std::size_t lane) {
    return static_cast<double>(cluster.network().wire_counters(sender).sent[lane].flits);
  };
  run_until(kWarmUpCycles);
  const std::array<double, 2> before = {flits(0), flits(1)};
  run_until(kWarmUpCycles + kMeasuredCycles);
  const double other = flits(0) - before[0];
  const double mine = flits(1) - before[1];
  EXPECT_NEAR(mine / (mine + other), tables.share, 0.02);
  EXPECT_GT(mine + other, 0.98 * static_cast<double>(kMeasuredCycles)) << "the link has a gap";
  EXPECT_EQ(cluster.network().audit(), "");
}

INSTANTIATE_TEST_SUITE_P(
    Tables, LaneShares,
    testing::Values(
        Tables{"equal", "qos_vlarb_low = \"0:1,1:1\"\n", 0.5},
        Tables{"three_to_one", "qos_vlarb_low = \"0:1,1:3\"\n", 0.75},
        Tables{"one_to_three", "qos_vlarb_low = \"0:3,1:1\"\n", 0.25},
        Tables{"high_before_low", "qos_vlarb_high = \"1:64\"\nqos_vlarb_low = \"0:64\"\n", 1},
        Tables{"few_against_many", "qos_vlarb_low = \"0:1,1:3\"\n", 0.75, {8, 2}},
        Tables{"reads", "qos_vlarb_low = \"0:1,1:3\"\n", 0.75, {16, 16}, hca::WrOpcode::rdma_read},
        Tables{.name = "credits",
               .qos = "qos_vlarb_low = \"0:1,1:3\"\n",
               .share = 0.75,
               .congestion = "credit"},
        Tables{.name = "credits_of_high",
               .qos = "qos_vlarb_high = \"1:64\"\nqos_vlarb_low = \"0:64\"\n",
               .share = 1,
               .congestion = "credit"},
        Tables{.name = "credits_of_reads",
               .qos = "qos_vlarb_low = \"0:1,1:3\"\n",
               .share = 0.75,
               .qps = {16, 16},
               .opcode = hca::WrOpcode::rdma_read,
               .congestion = "credit"}),
    [](const auto& each) { return each.param.name; });

}  // namespace

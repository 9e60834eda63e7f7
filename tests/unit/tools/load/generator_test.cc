// Generators on the device made of memory: what is sent is counted, lost, doubled and corrupt are
// seen.
#include "tools/load/generator.h"

#include <gtest/gtest.h>

#include <array>
#include <filesystem>
#include <memory>
#include <thread>

#include "tests/unit/tools/replay/fake_verbs.h"
#include "tools/load/kinds.h"

namespace tools {
namespace {

class GeneratorTest : public testing::Test {
 protected:
  void SetUp() override {
    fake::faults().clear();
    std::string pattern = testing::TempDir() + "/loadXXXXXX";
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  LoadOptions options(const std::string& node, std::vector<std::string> others) const {
    LoadOptions options{.node = node,
                        .rendezvous = folder_,
                        .to = others,
                        .from = others,
                        .seconds = 0.5,
                        .tick_ms = 2,
                        .wait_seconds = 5};
    for (const char* word : {"best-effort=5.12M", "control"}) {
      KindOptions kinds;
      kinds.seed = stream_seed(node);
      options.flows.push_back(parse_kind(word, kinds).value());
    }
    return options;
  }
  static std::uint64_t stream_seed(const std::string& node) {
    return static_cast<std::uint64_t>(node.back());
  }

  // Three nodes, each in a thread, each sending to the two others.
  void run_three() {
    const std::vector<std::string> names = {"n0", "n1", "n2"};
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < 3; ++i) {
      std::vector<std::string> others = names;
      others.erase(others.begin() + static_cast<std::ptrdiff_t>(i));
      nodes_.push_back(std::make_unique<Generator>(options(names[i], others)));
    }
    for (auto& node : nodes_) {
      threads.emplace_back([&node] {
        const volatile int never = 0;
        const auto opened = node->open();
        ASSERT_TRUE(opened) << opened.error().message;
        const auto ran = node->run(&never);
        EXPECT_TRUE(ran) << ran.error().message;
      });
    }
    for (auto& thread : threads) thread.join();
  }
  FlowCounts sum(std::size_t flow) const {
    FlowCounts all;
    for (const auto& node : nodes_) {
      const FlowCounts& counts = node->flows()[flow].counts();
      all.sent += counts.sent;
      all.received += counts.received;
      all.lost += counts.lost;
      all.duplicated += counts.duplicated;
      all.corrupt_bytes += counts.corrupt_bytes;
      all.foreign += counts.foreign;
      all.errors += counts.errors;
    }
    return all;
  }

  std::string folder_;
  std::vector<std::unique_ptr<Generator>> nodes_;
};

TEST_F(GeneratorTest, WhatIsSentArrivesOnce) {
  run_three();
  const FlowCounts best_effort = sum(0);
  // 1000 messages a second for half a second from each of three: five deviations of a Poisson
  // count.
  EXPECT_NEAR(static_cast<double>(best_effort.sent), 1500, 5 * 39);
  EXPECT_EQ(best_effort.received, best_effort.sent);
  const FlowCounts control = sum(1);
  EXPECT_NEAR(static_cast<double>(control.sent), 3 * 150, 3);
  EXPECT_EQ(control.received, control.sent);
  for (const FlowCounts& counts : {best_effort, control}) {
    EXPECT_EQ(
        counts.lost + counts.duplicated + counts.corrupt_bytes + counts.foreign + counts.errors,
        0U);
  }
  for (const auto& node : nodes_) {
    EXPECT_TRUE(node->all_well()) << load_text(*node);
    // Nothing waits on this fabric: the latency is its delay, seen by the histogram to 1/16.
    EXPECT_NEAR(node->flows()[0].latency().summary().p99, 20'000, 20'000 / 8.0);
  }
}

TEST_F(GeneratorTest, LostDoubledAndCorruptAreSeen) {
  fake::faults().lose_every = 47;
  fake::faults().double_every = 71;
  fake::faults().corrupt_every = 109;
  run_three();
  for (std::size_t flow = 0; flow < 2; ++flow) {
    const FlowCounts counts = sum(flow);
    EXPECT_GT(counts.lost, 0U);
    EXPECT_EQ(counts.received + counts.lost, counts.sent);
    EXPECT_EQ(counts.foreign, 0U);
  }
  const double sent = static_cast<double>(sum(0).sent + sum(1).sent);
  EXPECT_NEAR(static_cast<double>(sum(0).lost + sum(1).lost), sent / 47, 2);
  EXPECT_NEAR(static_cast<double>(sum(0).duplicated + sum(1).duplicated), sent / 71, 3);
  EXPECT_NEAR(static_cast<double>(sum(0).corrupt_bytes + sum(1).corrupt_bytes), sent / 109, 3);
}

// What a seed draws does not depend on how often the generator looks at its queues.
TEST_F(GeneratorTest, ASeedDrawsTheSameDestinationsWhateverTheTicks) {
  const auto device = Device::open();
  ASSERT_TRUE(device);
  const auto cq = CompletionQueue::create(*device, 4096);
  ASSERT_TRUE(cq);
  const auto sent_by_ticks_of = [&](emu::EmuNs tick_ns) {
    FlowOptions options = parse_kind("best-effort=2.56M", {.seed = 9}).value();
    options.hot_node = "n1";
    options.hot_share = 0.5;
    Flow flow(options, {}, 1);
    EXPECT_TRUE(flow.open(*device, *cq, 0));
    const std::vector<std::string> nodes = {"n1", "n2", "n3"};
    for (const std::string& node : nodes) {
      EXPECT_TRUE(flow.add_destination(*device, node, {.lid = 999, .qpn = 5}, 0, 1));
    }
    flow.start(1, 1'000'000'000);
    for (emu::EmuNs now = 0; now < 1'100'000'000; now += tick_ns) {
      EXPECT_TRUE(flow.tick(*device, now));
    }
    std::vector<std::uint64_t> sent;
    for (const std::string& node : nodes) sent.push_back(flow.sent_to(node));
    return sent;
  };
  const auto seldom = sent_by_ticks_of(20'000'000);
  EXPECT_GT(seldom[0], seldom[1]);
  EXPECT_EQ(seldom, sent_by_ticks_of(1'000'000));
}

// Connections have ON and OFF times of their own, each the rate, and of a step those that fit.
TEST_F(GeneratorTest, ConnectionsOfOneFlow) {
  const auto device = Device::open();
  ASSERT_TRUE(device);
  const auto cq = CompletionQueue::create(*device, 4096);
  ASSERT_TRUE(cq);
  const auto sent_by = [&](const std::vector<std::string>& to, std::vector<double> factors) {
    FlowOptions options = parse_kind("on-off=2.56M", {.seed = 5}).value();  // 500 a second while ON
    options.arrivals.on_ns = options.arrivals.off_ns = 5e6;
    options.arrivals.factors = std::move(factors);
    options.arrivals.step_ns = 500e6;
    options.to = to;
    Flow flow(options, {"n9"}, 1);
    EXPECT_TRUE(flow.open(*device, *cq, 0));
    EXPECT_FALSE(flow.goes_to("n9"));
    std::vector<std::uint64_t> sent;
    for (const char* node : {"n1", "n2"}) {
      EXPECT_TRUE(flow.add_destination(*device, node, {.lid = 999, .qpn = 5}, 0, 1));
    }
    flow.start(1, 4'000'000'000);
    for (emu::EmuNs now = 0; now < 4'100'000'000; now += 1'000'000) {
      EXPECT_TRUE(flow.tick(*device, now));
      flow.complete({.wr_id = flow.counts().sent}, false);
    }
    EXPECT_EQ(flow.counts().late, 0U);
    for (const char* node : {"n1", "n2"}) sent.push_back(flow.sent_to(node));
    return sent;
  };
  // 1000 messages a connection; 400 ON times of it are drawn.
  const auto all = sent_by({"n1", "n2", "n1", "n1"}, {});
  EXPECT_NEAR(static_cast<double>(all[0]), 3000, 400);
  EXPECT_NEAR(static_cast<double>(all[1]), 1000, 250);
  // In every other step the first two of four.
  const auto fewer = sent_by({"n1", "n2", "n1", "n1"}, {1, 0.5});
  EXPECT_NEAR(static_cast<double>(fewer[0]), 2000, 350);
  EXPECT_NEAR(static_cast<double>(fewer[1]), 1000, 250);
  EXPECT_EQ(sent_by({}, {}), (std::vector<std::uint64_t>{0, 0}));
}

// What the naps go by: messages that left, however many of them say so, and buffers that were
// taken.
TEST_F(GeneratorTest, AFlowSaysHowMuchOfItsQueuesATurnUses) {
  const auto device = Device::open();
  ASSERT_TRUE(device);
  const auto cq = CompletionQueue::create(*device, 4096);
  ASSERT_TRUE(cq);
  Flow flow(parse_kind("best-effort=2G", {.seed = 9}).value(), {"n1"}, 1);
  ASSERT_TRUE(flow.open(*device, *cq, 0));
  ASSERT_TRUE(flow.add_destination(*device, "n1", {.lid = 999, .qpn = 5}, 0, 1));
  flow.start(1, 1'000'000'000);
  ASSERT_TRUE(flow.tick(*device, 0));
  EXPECT_EQ(flow.counts().sent, flow.sends());
  EXPECT_EQ(flow.used(), 0);
  flow.complete({.wr_id = flow.sends()}, false);
  ASSERT_TRUE(flow.tick(*device, 1'000));
  EXPECT_EQ(flow.used(), 1);
  flow.complete({.wr_id = flow.sends() + flow.sends() / 4}, false);
  ASSERT_TRUE(flow.tick(*device, 2'000));
  EXPECT_EQ(flow.used(), 0.25);
  for (std::uint32_t buffer = 0; buffer < Flow::kReceives / 4; ++buffer) {
    flow.complete({.wr_id = buffer}, true);
  }
  ASSERT_TRUE(flow.tick(*device, 3'000));
  EXPECT_EQ(flow.used(), 0.5);
  ASSERT_TRUE(flow.tick(*device, 4'000));
  EXPECT_EQ(flow.used(), 0);
}

// Packets of 5 flits at half of a link's rate, on a node that is busy: 4 ms pass until a message
// that was posted is gone and the generator knows. What is due in the meantime has room.
TEST_F(GeneratorTest, ManySmallMessagesAreNotHeldUpByTheirOwnQueue) {
  const auto device = Device::open();
  ASSERT_TRUE(device);
  const auto cq = CompletionQueue::create(*device, 4096);
  ASSERT_TRUE(cq);
  Flow flow(parse_kind("best-effort=200M", {.packet_flits = 5, .seed = 9}).value(), {"n1"}, 1);
  ASSERT_TRUE(flow.open(*device, *cq, 0));
  ASSERT_TRUE(flow.add_destination(*device, "n1", {.lid = 999, .qpn = 5}, 0, 1));
  flow.start(1, 2'000'000'000);
  std::array<std::uint64_t, 4> posted{};  // by the last four turns
  for (std::uint64_t ms = 0; ms < 1000; ++ms) {
    flow.complete({.wr_id = posted[ms % 4]}, false);
    ASSERT_TRUE(flow.tick(*device, ms * 1'000'000));
    posted[ms % 4] = flow.counts().sent;
  }
  EXPECT_GT(static_cast<double>(flow.counts().sent), 0.99 * 312'500);
  EXPECT_EQ(flow.counts().behind, 0U);
}

// A device that has a message of a kind under way at a time takes 500 a second, not 1000: what
// waits for it in the generator is in the latency, so it is told.
TEST_F(GeneratorTest, WhoCannotKeepTheRateSaysSo) {
  fake::faults().outstanding_max = 1;
  run_three();
  for (const auto& node : nodes_) {
    const FlowCounts& counts = node->flows()[0].counts();
    EXPECT_GT(counts.behind, counts.sent / 2);
    EXPECT_GT(counts.behind_ns_max, 100'000'000U);
    EXPECT_LT(counts.behind_ns, counts.behind * counts.behind_ns_max);
    EXPECT_GT(node->flows()[0].latency().summary().p99, 100e6);
    EXPECT_NE(load_text(*node).find("the rate asked for could not be kept"), std::string::npos);
    EXPECT_NE(load_json(*node).find(fmt::format("\"behind\":{},", counts.behind)),
              std::string::npos);
  }
  nodes_.clear();
  fake::faults().clear();
  run_three();
  for (const auto& node : nodes_) {
    EXPECT_NE(load_json(*node).find("\"behind\":0,\"behind_us_mean\":0.000,"), std::string::npos);
    EXPECT_EQ(load_text(*node).find("could not be kept"), std::string::npos);
  }
}

// Kinds that go to different peers: each is asked about and told of what goes to it, and no more.
TEST_F(GeneratorTest, KindsGoWhereTheyAreSent) {
  const std::vector<std::string> names = {"n0", "n1", "n2"};
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < 3; ++i) {
    const std::vector<std::string> next = {names[(i + 1) % 3]};
    const std::vector<std::string> behind = {names[(i + 2) % 3]};
    LoadOptions one = options(names[i], {next[0], behind[0]});
    one.flows[0].to = next;
    one.flows[1].to = behind;
    nodes_.push_back(std::make_unique<Generator>(std::move(one)));
  }
  for (auto& node : nodes_) {
    threads.emplace_back([&node] {
      const volatile int never = 0;
      ASSERT_TRUE(node->open());
      EXPECT_TRUE(node->run(&never));
    });
  }
  for (auto& thread : threads) thread.join();
  for (const auto& node : nodes_) EXPECT_TRUE(node->all_well()) << load_text(*node);
  for (std::size_t flow = 0; flow < 2; ++flow) EXPECT_EQ(sum(flow).received, sum(flow).sent);
  for (std::size_t i = 0; i < 3; ++i) {
    for (std::size_t flow = 0; flow < 2; ++flow) {
      EXPECT_EQ(nodes_[(i + 1 + flow) % 3]->flows()[flow].counts().received,
                nodes_[i]->flows()[flow].counts().sent);
    }
  }
}

TEST_F(GeneratorTest, PeerThatNeverComesIsGivenUp) {
  LoadOptions alone = options("n0", {"n1"});
  alone.wait_seconds = 0;
  Generator node(std::move(alone));
  const volatile int never = 0;
  ASSERT_TRUE(node.open());
  EXPECT_TRUE(node.run(&never));
  EXPECT_FALSE(node.all_well());
  EXPECT_EQ(node.flows()[0].counts().sent, 0U);
}

}  // namespace
}  // namespace tools

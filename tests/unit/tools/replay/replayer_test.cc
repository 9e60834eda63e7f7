// Two replayers on a device made of memory: streams both ways, admission, credits, corruption,
// lateness, deaths. What is checked is what the sink says.
#include "tools/replay/replayer.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <memory>
#include <thread>

#include "tests/unit/tools/replay/fake_verbs.h"
#include "tools/replay/report.h"

namespace tools {
namespace {

class ReplayerTest : public testing::Test {
 protected:
  void SetUp() override {
    fake::faults().clear();
    std::string pattern = testing::TempDir() + "/replayXXXXXX";
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  ReplayOptions options(const std::string& node, std::vector<StreamPlan> streams) const {
    return {.node = node,
            .rendezvous = folder_,
            .streams = std::move(streams),
            .seconds = 0.5,
            .tick_ms = 2,
            .wait_seconds = 5};
  }
  static std::vector<StreamPlan> both_ways() {
    return {{.name = "a", .clip = "cbr", .from = "n0", .to = "n1", .rate = {}},
            {.name = "b", .clip = "vbr:3", .from = "n0", .to = "n1", .frame = 7, .rate = {}},
            {.name = "c", .clip = "vbr:4", .from = "n1", .to = "n0", .phase_us = 9000, .rate = {}}};
  }

  // Runs both to their end; the second starts later.
  static void run(Replayer& first, Replayer& second, const volatile int* stop_second = nullptr) {
    static const volatile int never = 0;
    std::thread one([&first] {
      ASSERT_TRUE(first.open());
      const auto ran = first.run(&never);
      EXPECT_TRUE(ran) << ran.error().message;
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(120));
    const auto opened = second.open();
    EXPECT_TRUE(opened) << opened.error().message;
    const auto ran = second.run(stop_second != nullptr ? stop_second : &never);
    EXPECT_TRUE(ran) << ran.error().message;
    one.join();
  }

  std::string folder_;
};

TEST_F(ReplayerTest, EveryFrameArrivesWholeAndOnTime) {
  Replayer n0(options("n0", both_ways()));
  Replayer n1(options("n1", both_ways()));
  run(n0, n1);
  EXPECT_TRUE(n0.all_well() && n1.all_well()) << report_text(n0) << report_text(n1);
  ASSERT_EQ(n1.sinks().size(), 2U);
  for (const Sink& sink : n1.sinks()) {
    EXPECT_EQ(sink.counts().frames, 15U);
    EXPECT_EQ(sink.frames_sent(), 15U);
    EXPECT_EQ(sink.counts().bytes_corrupt, 0U);
    EXPECT_EQ(sink.counts().lost + sink.counts().duplicated, 0U);
    EXPECT_EQ(sink.meter().missed(), 0U);
    EXPECT_NEAR(sink.meter().interval_mean_ms(), 100.0 / 3, 0.001);
    EXPECT_LT(sink.meter().interval_sd_ms(), 0.001);
  }
  EXPECT_EQ(n0.sinks()[0].counts().frames, 15U);
  const std::string json = report_json(n1);
  EXPECT_NE(json.find(R"("name":"b","from":"n0","to":"n1","role":"receive","state":"done")"),
            std::string::npos)
      << json;
}

TEST_F(ReplayerTest, CorruptBytesAreCounted) {
  fake::faults().corrupt_every = 5;
  Replayer n0(options("n0", {both_ways()[0]}));
  Replayer n1(options("n1", {both_ways()[0]}));
  run(n0, n1);
  EXPECT_EQ(n1.sinks()[0].counts().frames, 15U);
  EXPECT_EQ(n1.sinks()[0].counts().bytes_corrupt, 3U);
}

// Frames that cannot be told are lost, and the sink does not wait for them without end.
TEST_F(ReplayerTest, FramesWithoutAHeadAreLost) {
  fake::faults().behead_every = 5;
  ReplayOptions hasty = options("n1", {both_ways()[0]});
  hasty.grace_ms = 20;
  Replayer n0(options("n0", {both_ways()[0]}));
  Replayer n1(std::move(hasty));
  run(n0, n1);
  EXPECT_EQ(n1.sinks()[0].state(), SinkState::done);
  EXPECT_EQ(n1.sinks()[0].counts().frames, 12U);
  EXPECT_EQ(n1.sinks()[0].counts().lost, 3U);
  EXPECT_EQ(n1.sinks()[0].counts().headers_corrupt, 3U);
}

TEST_F(ReplayerTest, SinkWithoutTheClipGoesByTheChecksum) {
  fake::faults().corrupt_every = 5;
  Replayer n0(options("n0", {both_ways()[0]}));
  ReplayOptions bare = options("n1", {});
  bare.sink = true;
  Replayer n1(std::move(bare));
  run(n0, n1);
  ASSERT_EQ(n1.sinks().size(), 1U);
  EXPECT_EQ(n1.sinks()[0].counts().frames, 15U);
  EXPECT_EQ(n1.sinks()[0].counts().bytes_corrupt, 3 * 16'666U);
}

TEST_F(ReplayerTest, LateFramesMissTheirDeadlines) {
  fake::faults().late_every = 7;
  Replayer n0(options("n0", {both_ways()[0]}));
  Replayer n1(options("n1", {both_ways()[0]}));
  run(n0, n1);
  const DeadlineMeter& meter = n1.sinks()[0].meter();
  EXPECT_EQ(meter.delivered(), 15U);
  // Frames 6 and 13 come 50 ms late, of which 0.5 ms were slack. After the first the deadlines have
  // moved by 49.5 ms, which the second misses by next to nothing or meets.
  EXPECT_GE(meter.missed(), 1U);
  EXPECT_LE(meter.missed(), 3U);
  EXPECT_GT(meter.dmt_ms(), 15.0);
}

TEST_F(ReplayerTest, WithoutCreditFramesAreTriedAgain) {
  fake::faults().outstanding_max = 2;
  Replayer n0(options("n0", {both_ways()[0]}));
  Replayer n1(options("n1", {both_ways()[0]}));
  run(n0, n1);
  EXPECT_EQ(n1.sinks()[0].counts().frames, 15U);
  EXPECT_GT(n0.senders()[0].counts().credit_refusals, 0U);
  EXPECT_EQ(n0.senders()[0].counts().completed, 15U);
}

TEST_F(ReplayerTest, RefusedStreamsNameTheRouter) {
  fake::faults().admit_kbps = 5'000;  // one stream of 4 Mb/s and its headers
  const std::vector<StreamPlan> plan = {both_ways()[0], both_ways()[1]};
  Replayer n0(options("n0", plan));
  Replayer n1(options("n1", plan));
  run(n0, n1);
  EXPECT_TRUE(n0.all_well() && n1.all_well());
  EXPECT_EQ(n0.senders()[0].state(), SendState::done);
  EXPECT_EQ(n0.senders()[1].state(), SendState::rejected);
  EXPECT_EQ(n0.senders()[1].rejected_by(), 5);
  EXPECT_EQ(n1.sinks()[1].rejected_by(), 5);
  EXPECT_EQ(n1.sinks()[1].counts().frames, 0U);
  EXPECT_NE(report_json(n0).find(R"("admitted":false,"rejected_by":"r5")"), std::string::npos);
}

// Streams ask in the order of the plan, though n0 is there long before n1 and could fill the link.
TEST_F(ReplayerTest, StreamsAskInTheOrderOfThePlan) {
  fake::faults().admit_kbps = 5 * 4'500;  // five streams of 4 Mb/s and their headers
  std::vector<StreamPlan> plan;
  for (int i = 0; i < 12; ++i) {
    const bool odd = i % 2 != 0;
    plan.push_back({.name = fmt::format("s{}", i),
                    .clip = "cbr",
                    .from = odd ? "n1" : "n0",
                    .to = odd ? "n0" : "n1",
                    .rate = {}});
  }
  Replayer n0(options("n0", plan));
  Replayer n1(options("n1", plan));
  run(n0, n1);
  EXPECT_TRUE(n0.all_well() && n1.all_well()) << report_text(n0) << report_text(n1);
  for (const Replayer* node : {&n0, &n1}) {
    for (const Sender& sender : node->senders()) {
      const int place = std::stoi(sender.plan().name.substr(1));
      EXPECT_EQ(sender.admitted(), place < 5) << sender.plan().name;
    }
  }
}

// A process that never comes has the first turn, or one in the middle: it holds nobody up.
TEST_F(ReplayerTest, TurnsOfAnAbsentProcessPass) {
  for (const std::size_t absent : {0, 2}) {
    std::vector<StreamPlan> plan = both_ways();
    plan.insert(plan.begin() + static_cast<std::ptrdiff_t>(absent),
                {.name = "x", .clip = "cbr", .from = "n9", .to = "n8", .rate = {}});
    Replayer n0(options("n0", plan));
    Replayer n1(options("n1", plan));
    run(n0, n1);
    EXPECT_TRUE(n0.all_well() && n1.all_well()) << report_text(n0) << report_text(n1);
    EXPECT_EQ(n1.sinks()[1].counts().frames, 15U);
    EXPECT_EQ(n0.sinks()[0].counts().frames, 15U);
  }
}

// Of many streams that are admitted in one turn the first have frames due before the last one runs.
TEST_F(ReplayerTest, AdmissionOfOthersMakesNoFrameLate) {
  fake::faults().admit_ns = 20'000'000;
  std::vector<StreamPlan> plan;
  for (int i = 0; i < 12; ++i) {
    plan.push_back(
        {.name = fmt::format("s{}", i), .clip = "cbr", .from = "n0", .to = "n1", .rate = {}});
  }
  Replayer n0(options("n0", plan));
  Replayer n1(options("n1", plan));
  run(n0, n1);
  EXPECT_TRUE(n0.all_well() && n1.all_well()) << report_text(n0);
  for (const Sender& sender : n0.senders()) {
    EXPECT_EQ(sender.counts().posted_late, 0U) << sender.plan().name;
  }
}

TEST_F(ReplayerTest, StoppedStreamsAreDrained) {
  // Set between two frames by the device, on the thread that runs: the machine's load decides
  // nothing.
  static volatile int stop;
  stop = 0;
  fake::faults().at_message = {20, [] { stop = 1; }};
  ReplayOptions longer = options("n0", {both_ways()[0]});
  longer.seconds = 60;
  Replayer n1(options("n1", {both_ways()[0]}));
  Replayer n0(std::move(longer));
  run(n1, n0, &stop);
  EXPECT_GT(n0.senders()[0].counts().frames, 5U);
  EXPECT_LT(n0.senders()[0].counts().frames, 60U);
  EXPECT_EQ(n1.sinks()[0].counts().frames, n0.senders()[0].counts().frames);
  EXPECT_EQ(n1.sinks()[0].counts().lost, 0U);
}

TEST_F(ReplayerTest, StreamStoppedBeforeItBeganSaysThatItIsOver) {
  Replayer n1(options("n1", {both_ways()[0]}));
  Replayer n0(options("n0", {both_ways()[0]}));
  ASSERT_TRUE(n1.open());  // it listens before n0 calls, however slow the machine is
  std::thread receiver([&n1] {
    const volatile int never = 0;
    EXPECT_TRUE(n1.run(&never));
  });
  const volatile int stop = 1;
  EXPECT_TRUE(n0.open());
  EXPECT_TRUE(n0.run(&stop));
  receiver.join();
  EXPECT_EQ(n0.senders()[0].state(), SendState::done);
  EXPECT_EQ(n1.sinks()[0].counts().frames, 0U);
  EXPECT_TRUE(n1.all_well()) << report_text(n1);
}

// Who looks later would believe that its streams still wait.
TEST_F(ReplayerTest, OnlyAStreamThatWasAnsweredLeavesItsMetrics) {
  const auto ends = [this](const volatile int* stop) {
    ReplayOptions sending = options("n0", {both_ways()[0]});
    ReplayOptions receiving = options("n1", {both_ways()[0]});
    sending.metrics_run = receiving.metrics_run = folder_;
    Replayer n0(std::move(sending));
    Replayer n1(std::move(receiving));
    ASSERT_TRUE(n1.open());  // it listens before n0 calls, however slow the machine is
    std::thread receiver([&n1] {
      const volatile int never = 0;
      EXPECT_TRUE(n1.run(&never));
    });
    EXPECT_TRUE(n0.open());
    EXPECT_TRUE(n0.run(stop));
    receiver.join();
  };
  const auto left = [this](const char* node) {
    return std::filesystem::exists(folder_ + "/metrics/replay-" + node + ".page");
  };
  const volatile int at_once = 1;
  const volatile int never = 0;
  ends(&at_once);
  EXPECT_FALSE(left("n0"));
  EXPECT_FALSE(left("n1"));
  fake::faults().admit_kbps = 1;
  ends(&never);
  EXPECT_TRUE(left("n0"));
  std::filesystem::remove_all(folder_ + "/metrics");
  fake::faults().clear();
  ends(&never);
  EXPECT_TRUE(left("n0"));
  EXPECT_TRUE(left("n1"));
}

// Admitted and ready, they wait until it is said when.
TEST_F(ReplayerTest, BeginsWhenItIsSaid) {
  const std::filesystem::path folder(folder_);
  std::vector<std::unique_ptr<Replayer>> nodes;
  for (const char* name : {"n0", "n1"}) {
    ReplayOptions one = options(name, {both_ways()[0]});
    one.begin = folder_;
    nodes.push_back(std::make_unique<Replayer>(std::move(one)));
  }
  std::chrono::steady_clock::time_point said;
  std::thread starter([&] {
    while (!std::filesystem::exists(folder / "ready-replay-n0") ||
           !std::filesystem::exists(folder / "ready-replay-n1")) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    said = std::chrono::steady_clock::now();
    std::ofstream(folder / "part") << "1\n";
    std::filesystem::rename(folder / "part", folder / "begin");
  });
  run(*nodes[0], *nodes[1]);
  const auto over = std::chrono::steady_clock::now();
  starter.join();
  EXPECT_EQ(nodes[1]->sinks()[0].counts().frames, 15U);
  // 15 frames of 33 ms come after the word, not before.
  EXPECT_GT(over - said, std::chrono::milliseconds(400));
}

TEST_F(ReplayerTest, PeerThatNeverComesIsGivenUp) {
  ReplayOptions alone = options("n0", both_ways());
  alone.wait_seconds = 0;
  Replayer n0(std::move(alone));
  const volatile int never = 0;
  ASSERT_TRUE(n0.open());
  ASSERT_TRUE(n0.run(&never));
  EXPECT_FALSE(n0.all_well());
  EXPECT_EQ(n0.senders()[0].state(), SendState::failed);
  EXPECT_EQ(n0.sinks()[0].state(), SinkState::absent);
}

// A sink that was held up finds all buffers of all its streams in the queue: 85 streams to a bare
// sink overran one of 64 streams, and all of them died.
TEST_F(ReplayerTest, TheQueueHoldsWhatAllStreamsCanHave) {
  constexpr std::uint32_t kBuffers = 64;
  ReplayOptions bare = options("n1", {});
  bare.sink = true;
  Replayer sink(std::move(bare));
  ASSERT_TRUE(sink.open());
  EXPECT_GE(fake::faults().cqe, 500 * kBuffers);
  std::vector<StreamPlan> streams;
  for (int i = 0; i < 100; ++i) {
    streams.push_back({.name = std::to_string(i), .clip = "cbr", .from = "n9", .to = "n2"});
  }
  Replayer planned(options("n2", streams));
  ASSERT_TRUE(planned.open());
  EXPECT_GE(fake::faults().cqe, 100 * kBuffers);
}

TEST_F(ReplayerTest, DeadSenderIsTold) {
  ReplayOptions patient = options("n1", {both_ways()[0]});
  Replayer n1(std::move(patient));
  std::thread sender([this] {
    ReplayOptions longer = options("n0", {both_ways()[0]});
    longer.seconds = 60;
    Replayer n0(std::move(longer));
    volatile int stop = 0;
    ASSERT_TRUE(n0.open());
    std::thread killer([&stop] {
      std::this_thread::sleep_for(std::chrono::milliseconds(400));
      fake::faults().dead = true;
    });
    EXPECT_FALSE(n0.run(&stop));  // its device is gone: it leaves without a word
    killer.join();
    fake::faults().dead = false;
  });
  const volatile int never = 0;
  ASSERT_TRUE(n1.open());
  // n1 polls the same dead device; what matters here is that it ends.
  (void)n1.run(&never);
  sender.join();
  EXPECT_FALSE(n1.all_well());
}

TEST_F(ReplayerTest, BadClipIsBadInput) {
  Replayer n0(
      options("n0", {{.name = "a", .clip = folder_, .from = "n0", .to = "n1", .rate = {}}}));
  EXPECT_FALSE(n0.open());
  EXPECT_TRUE(n0.bad_input());
}

}  // namespace
}  // namespace tools

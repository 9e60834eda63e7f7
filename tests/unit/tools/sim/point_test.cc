// What a point's text may say.
#include "tools/sim/point.h"

#include <gtest/gtest.h>

namespace tools {
namespace {

TEST(Point, TakesTheClustersSectionsAndItsOwn) {
  const auto point = parse_point(R"([network]
link_mbps = 1600
[workload]
load = 0.75
streams = "mpeg2"
phases = [0.2, 0.8]
pattern = "bit_reversal"
[run]
seed = 7
lanes = [0, 0xfff0, 0x000f])",
                                 "a test");
  ASSERT_TRUE(point) << point.error().message;
  EXPECT_EQ(point->cluster.network.link_mbps, 1600U);
  EXPECT_DOUBLE_EQ(point->workload.load, 0.75);
  EXPECT_EQ(point->workload.streams, StreamKind::mpeg2);
  EXPECT_EQ(point->workload.phases, (std::vector{0.2, 0.8}));
  EXPECT_EQ(point->workload.pattern, PatternKind::bit_reversal);
  EXPECT_EQ(point->run.seed, 7U);
  EXPECT_TRUE(point->run.lanes_given);
  EXPECT_EQ(point->run.lanes[1], 0xfff0);
}

TEST(Point, SaysWhatIsWrongInOneLine) {
  const std::pair<const char*, const char*> wrong[] = {
      {"[workload]\nlaod = 0.5", "workload.laod: unknown key"},
      {"[workload]\nload = 3.0", "workload.load: must be a number from 0 to 2"},
      {"[workload]\nframe_sd = 0.51", "workload.frame_sd: must be a number from 0 to 0.5"},
      {"[workload]\nload = \"much\"", "workload.load: must be a number"},
      {"[workload]\nmessage_flits = 2.5", "workload.message_flits: must be a whole number"},
      {"[workload]\nstreams = \"film\"", "workload.streams: must be one of none vbr cbr"},
      {"[workload]\nphases = [2]", "workload.phases: must be a list of numbers from 0 to 1"},
      {"[workload]\nphases = 0.5", "workload.phases: must be a list of numbers from 0 to 1"},
      {"[run]\nlanes = [1, 2]", "run.lanes: must be three"},
      {"[run]\nlanes = 5", "run.lanes: must be a list of whole numbers from 0 to 65535"},
      {"[run]\nlanes = [1.5, 2, 4]", "run.lanes: must be a list of whole numbers"},
      {"[run]\nlanes = [1, 1, 2]", "run.lanes: real_time shares VL0: it must have its own"},
      {"[run]\nlanes = [1, 62, 48]", "run.lanes: real_time shares VL4-5: it must have its own"},
      {"[network]\nnum_vcs = 4\n[run]\nlanes = [32768, 16, 1]",
       "run.lanes: VL4: must be among 0-2,15 with network.num_vcs = 4"},
      {"[run]\nfailures = \"x\"", "run.failures: must be a list of texts"},
      {"[run]\nfailures = [3]", "run.failures: must be a list of texts"},
      {"[run]\nbatches = 0", "run.batches: must be a number from 1"},
      {"[network]\nlinks = 1", "network.links: unknown key"},
      {"[network]\nnodes = 6\n[workload]\npattern = \"shuffle\"", "does not fit 6 nodes"},
      {"[workload]\nflows = \"a 0>5\"", "workload.flows: must be a list of texts"},
      {"[workload]\nflows = [\"all 0>5\"]", "\"all 0>5\": must not be named all, as their sum is"},
      {"[workload]\nflows = [\"a_least 0>5\"]",
       "\"a_least 0>5\": must not be named *_least, as a measure of flows a is"},
      {"[workload]\nflows = [\"a 0>8\"]", "workload.flows: 0>8: there are 8 nodes"},
      {"[workload]\nflows = [\"a 1>1\"]", "workload.flows: \"a 1>1\": must be a flow"},
      {"[workload]\nflows = [\"a 0>1 2\"]", "must be a flow such as"},
      {"[workload]\nflows = [\"0>1\"]", "must be a flow such as"},
      {"[workload]\nflows = [\"a 0>1 1 0\"]", "must be a flow such as"},
      {"[workload]\nflows = [\"a 0>1 1 5000\"]", "must be a flow such as"},
      {"workload = 3", "must be one table"},
      {"[[run]]\nseed = 2", "must be one table"},
      {"[workload]\nflows = [\"a 0>1 1 4 4\"]", "must be a flow such as"},
      {"[workload]\nregulator = \"middle\"", "workload.regulator: must be one of end begin"},
      {"[network", "a test:1:"},
  };
  for (const auto& [text, says] : wrong) {
    const auto point = parse_point(text, "a test");
    ASSERT_FALSE(point) << text;
    EXPECT_NE(point.error().message.find(says), std::string::npos) << point.error().message;
    EXPECT_EQ(point.error().message.find('\n'), std::string::npos);
  }
}

// Small messages beside large ones on one lane are an experiment; preemption is on any lane.
TEST(Point, TakesLanesThatClassesShare) {
  for (const char* text : {"[run]\nlanes = [0x7fff, 0, 0x7fff]",
                           "[network]\nrouter = \"p\"\n[run]\nlanes = [1, 0xfffe, 0xfff0]"}) {
    const auto point = parse_point(text, "a test");
    EXPECT_TRUE(point) << point.error().message;
  }
}

// Where a change is what is measured: pulses, phases and links that fail, but no share in phases of
// which there is one.
TEST(Point, KnowsWhatIsTransient) {
  const auto transient = [](const char* text) {
    const auto point = parse_point(text, "a test");
    EXPECT_TRUE(point) << text;
    return point && point->transient();
  };
  EXPECT_FALSE(transient(""));
  EXPECT_FALSE(transient("[workload]\npulse_cycles = 0\nphases = []\n[run]\nfailures = []"));
  EXPECT_FALSE(transient("[workload]\nphases = [0.5]"));
  EXPECT_TRUE(transient("[workload]\npulse_cycles = 500"));
  EXPECT_TRUE(transient("[workload]\nphases = [0.2, 0.8]"));
  EXPECT_TRUE(transient("[run]\nfailures = [\"0:4 0.1 0.5\"]"));
}

}  // namespace
}  // namespace tools

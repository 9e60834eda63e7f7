// Plans and the lines of the rendezvous: what is meant is understood, the rest is one clear line.
#include "tools/replay/plan.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tools/replay/clip_store.h"
#include "tools/replay/words.h"

namespace tools {
namespace {

TEST(Plan, ReadsStreamsCommentsAndBlanks) {
  const auto plan = parse_plan(
      "# the demo\n"
      "name=s0, clip=traces/a b.mpg, from=n0, to=n1, frame=12, phase_us=700\n"
      "\n"
      "name=s1,clip=vbr:7,from=n1,to=n0,fps=25  # another\r\n"
      "name=s2,clip=cbr,from=n1,to=n0,fps=10000/333\n",
      "plan");
  ASSERT_TRUE(plan) << plan.error().message;
  ASSERT_EQ(plan->size(), 3U);
  EXPECT_EQ((*plan)[0].clip, "traces/a b.mpg");
  EXPECT_EQ((*plan)[0].frame, 12U);
  EXPECT_EQ((*plan)[0].phase_us, 700U);
  EXPECT_EQ((*plan)[1].to, "n0");
  EXPECT_EQ((*plan)[1].rate, (FrameRate{.frames = 25, .seconds = 1}));
  EXPECT_EQ((*plan)[2].rate, (FrameRate{.frames = 10'000, .seconds = 333}));
}

TEST(Plan, SaysWhatIsWrongAndWhere) {
  const auto message = [](std::string_view text) {
    const auto plan = parse_plan(text, "plan");
    return plan ? std::string("accepted") : plan.error().message;
  };
  EXPECT_EQ(message("\nname=s0,clip=a,from=n0"),
            "plan:2: stream s0 needs from= and to=, names of nodes");
  EXPECT_EQ(message("name=s0,clip=a,from=n0,to=n0"), "plan:1: stream s0 goes from n0 to itself");
  EXPECT_EQ(message("name=s0,from=n0,to=n1"), "plan:1: stream s0 needs clip=");
  EXPECT_EQ(message("name=s/0,clip=a,from=n0,to=n1"),
            "plan:1: a stream needs name=, plain letters");
  EXPECT_EQ(message("name=s0,clip=a,from=n0,to=n1,frame=-1"),
            "plan:1: frame is not a number from 0 to 1000000");
  for (const char* fps : {"0", "1001", "", "x", "25/", "/1", "30/0", "30/31", "65535/65",
                          "65536/1001", "25/1/1", "-25", "30.5"}) {
    EXPECT_EQ(message(std::string("name=s0,clip=a,from=n0,to=n1,fps=") + fps),
              "plan:1: fps must be 1 to 1000, or a fraction of numbers to 65535, as 30000/1001")
        << fps;
  }
  EXPECT_EQ(message("name=s0,clip=a,from=n0,to=n1,x=1"),
            "plan:1: unknown key 'x'; know name, clip, from, to, frame, phase_us, fps");
  EXPECT_EQ(message("name=s0,clip=a,from=n0,to=n1\nname=s0,clip=a,from=n1,to=n0\n"),
            "two streams are named s0");
  EXPECT_EQ(message(" # nothing\n"), "plan: no streams in it");
}

TEST(Words, NumbersAreCheckedWhole) {
  const Words words = Words::parse("offer stream=s0 lid=7 qpn=16777216 psn=12x empty= =v", " ");
  EXPECT_EQ(words.verb(), "offer");
  EXPECT_EQ(words.text("stream"), "s0");
  EXPECT_EQ(words.number("lid", 0xffff), 7U);
  EXPECT_FALSE(words.number("qpn", 0xffffff));
  EXPECT_FALSE(words.number("psn"));
  EXPECT_FALSE(words.number("empty"));
  EXPECT_FALSE(words.number("missing"));
}

TEST(SyntheticClip, SizesOfThePapers) {
  const auto cbr = synthetic_clip("cbr");
  ASSERT_TRUE(cbr);
  for (const Frame& frame : cbr->frames) EXPECT_EQ(frame.bytes, 16'666U);
  const auto vbr = synthetic_clip("vbr:3");
  ASSERT_TRUE(vbr);
  double sum = 0;
  double squares = 0;
  for (const Frame& frame : vbr->frames) {
    sum += frame.bytes;
    squares += static_cast<double>(frame.bytes) * frame.bytes;
  }
  const double count = static_cast<double>(vbr->frames.size());
  const double mean = sum / count;
  // Four standard errors of the mean and of the deviation of 300 draws.
  EXPECT_NEAR(mean, 16'666, 4 * 3'333 / std::sqrt(count));
  EXPECT_NEAR(std::sqrt(squares / count - mean * mean), 3'333, 4 * 3'333 / std::sqrt(2 * count));
  const auto thin = synthetic_clip("cbr:500");
  for (const Frame& frame : thin->frames) EXPECT_EQ(frame.bytes, 500U);
  double small = 0;
  const auto other = synthetic_clip("vbr:3:1000");
  for (const Frame& frame : other->frames) small += frame.bytes;
  EXPECT_NEAR(small / count, mean * 1000 / 16'666, 1);  // the same draws, of another mean
  EXPECT_TRUE(is_synthetic("vbr") && is_synthetic("cbr:1") && !is_synthetic("vbrs"));
  for (const char* bad : {"vbr:x", "vbrs", "vbr:", "vbr:1:", "vbr:1:0", "vbr:1:2:3", "cbr:0",
                          "cbr:", "cbr:1:2", "cbr:16000001", "cbr:-1", "film", "cb", ""}) {
    EXPECT_FALSE(synthetic_clip(bad)) << bad;
  }
}

}  // namespace
}  // namespace tools

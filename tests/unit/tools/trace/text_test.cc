// Text traces: every layout, both units, and one line of complaint for everything else.
#include "tools/trace/text.h"

#include <gtest/gtest.h>

#include "tests/unit/tools/trace/fixture.h"
#include "tools/trace/any.h"

namespace tools {
namespace {

std::string message_of(std::string_view text, const TextOptions& options = {}) {
  const auto clip = parse_trace(text, "t", options);
  return clip ? "accepted" : clip.error().message;
}

TEST(Text, AsuVerboseIsBits) {
  const auto clip = parse_trace(
      "# Sequence: "
      "x\n0\t0.000000\tI\t550600\t52.28\t53.60\t53.49\n1\t0.033333\tB\t206401\t52\t52\t52\n",
      "t");
  ASSERT_TRUE(clip) << clip.error().message;
  ASSERT_EQ(clip->frames.size(), 2U);
  EXPECT_EQ(clip->frames[0].bytes, 68825U);
  EXPECT_EQ(clip->frames[1].bytes, 25801U);  // 206401 bits: the last byte is begun
  EXPECT_EQ(clip->frames[1].type, FrameType::bidirectional);
  EXPECT_EQ(clip->frames[1].offset, 68825U);
}

TEST(Text, TknAndNs3AreBytes) {
  const auto clip = parse_trace("0\tI\t0\t68825\r\n1\tP\t100\t37500\r\n", "t");
  ASSERT_TRUE(clip) << clip.error().message;
  EXPECT_EQ(clip->frames[1].bytes, 37500U);
  EXPECT_EQ(clip->frames[1].type, FrameType::predicted);
}

TEST(Text, TerseNeedsAUnit) {
  EXPECT_EQ(message_of("68825\n37500\n"),
            "t:1: one size a line may be bits or bytes; say --unit bits or --unit bytes");
  const auto bits = parse_trace("550600\n300000\n", "t", text_options("", "bits"));
  const auto bytes = parse_trace("68825\n37500\n", "t", text_options("terse", "bytes"));
  ASSERT_TRUE(bits && bytes);
  EXPECT_EQ(bits->frames[0].bytes, bytes->frames[0].bytes);
  EXPECT_EQ(bits->frames[0].type, FrameType::unknown);
}

TEST(Text, GivenUnitIsBelieved) {
  const auto clip = parse_trace("0 I 0 800\n", "t", text_options("tkn", "bits"));
  ASSERT_TRUE(clip);
  EXPECT_EQ(clip->frames[0].bytes, 100U);
}

TEST(Text, OwnFormatRoundTrip) {
  Clip clip{.name = "a\"b\\c\n.mpg", .width = 720, .height = 480};
  clip.frames = {{.index = 0, .type = FrameType::intra, .bytes = 70000},
                 {.index = 1, .type = FrameType::bidirectional, .bytes = 0, .offset = 70000}};
  const auto again = parse_trace(write_trace(clip), "t");
  ASSERT_TRUE(again) << again.error().message;
  ASSERT_EQ(again->frames.size(), 2U);
  EXPECT_EQ(again->frames[0].bytes, 70000U);
  EXPECT_EQ(again->frames[1].type, FrameType::bidirectional);
  EXPECT_NE(write_trace_json(clip).find("\"name\":\"a?b?c?.mpg\""), std::string::npos);
}

TEST(Text, BadLinesAreNamed) {
  EXPECT_EQ(message_of(""), "t: no frames in it");
  EXPECT_EQ(message_of("# only\n\n"), "t: no frames in it");
  EXPECT_EQ(message_of("1 2\n"),
            "t:1: 2 columns fit no trace layout; say --layout own|asu|tkn|terse");
  EXPECT_EQ(message_of("0 I 0 100\n1 X 0 100\n"), "t:2: frame type is not I, P or B");
  EXPECT_EQ(message_of("0 I 0 100\n1 P 0 -5\n"), "t:2: frame size is not a number");
  EXPECT_EQ(message_of("0 I 0 99999999999999999999\n"), "t:1: frame size is not a number");
  EXPECT_EQ(message_of("0 I 0 18446744073709551615\n"),
            "t:1: frame of 18446744073709551615 bytes, the limit is 4194304");
  EXPECT_EQ(message_of("0 0.0 I 18446744073709551615\n"),
            "t:1: frame of 2305843009213693952 bytes, the limit is 4194304");
  EXPECT_EQ(message_of("0 I 0 100\n1 P 0\n"), "t:2: 3 columns, need 4");
  EXPECT_EQ(message_of(std::string(2000, '7')), "t:1: line of 2000 bytes, not a frame-size trace");
}

TEST(Text, StreamOfATraceHasALimit) {
  auto clip = parse_trace("0 I 0 4000000\n1 P 0 4000000\n", "t");
  ASSERT_TRUE(clip);
  EXPECT_FALSE(fill_stream(*clip, 7'999'999));
  ASSERT_TRUE(fill_stream(*clip, 8'000'000));
  EXPECT_EQ(clip->stream.size(), 8'000'000U);
}

TEST(Text, DevelopersSamplesAgree) {
  const auto folder = shared_video() / "traces";
  if (!std::filesystem::exists(folder)) GTEST_SKIP() << "no shared/video beside the clone";
  const auto tkn = read_trace(folder / "r1_sintel.tkn_verbose.dat");
  const auto ns3 = read_trace(folder / "r1_sintel.ns3.dat");
  const auto terse = read_trace(folder / "r1_sintel.terse_bytes.dat", text_options("", "bytes"));
  const auto bits = read_trace(folder / "r1_sintel.bits.dat", text_options("", "bits"));
  const auto asu = read_trace(folder / "r1_sintel.asu_verbose.dat");
  ASSERT_TRUE(tkn && ns3 && terse && bits && asu);
  ASSERT_EQ(tkn->frames.size(), 181U);
  std::uint64_t coded = 0;
  std::uint64_t shown = 0;
  for (std::size_t i = 0; i < 181; ++i) {
    EXPECT_EQ(tkn->frames[i].bytes, ns3->frames[i].bytes);
    EXPECT_EQ(tkn->frames[i].bytes, terse->frames[i].bytes);
    EXPECT_EQ(tkn->frames[i].bytes, bits->frames[i].bytes);
    coded += tkn->frames[i].bytes;
    shown += asu->frames[i].bytes;
  }
  EXPECT_EQ(coded, shown);  // display order: the same frames in another order
}

}  // namespace
}  // namespace tools

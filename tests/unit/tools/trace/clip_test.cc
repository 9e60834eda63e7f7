// Clips to frames: equal to traces that an independent scanner made, equal across containers.
#include "tools/trace/clip.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "tests/unit/tools/trace/fixture.h"
#include "tools/trace/text.h"

namespace tools {
namespace {

std::string frames_text(const Clip& clip) {
  std::string text;
  for (const Frame& frame : clip.frames) {
    text += std::to_string(frame.index) + ',' + static_cast<char>(frame.type) + ',' +
            std::to_string(frame.bytes) + '\n';
  }
  return text;
}

// The first three columns of the scanner's table, without its head line.
std::string expected_text(const std::filesystem::path& csv) {
  std::ifstream file(csv);
  std::string line;
  std::getline(file, line);
  std::string text;
  while (std::getline(file, line)) {
    std::size_t end = 0;
    for (int column = 0; column < 3; ++column) end = line.find(',', end) + 1;
    text += line.substr(0, end - 1) + '\n';
  }
  return text;
}

TEST(Clip, ShippedClipsMatchTheirTraces) {
  int checked = 0;
  for (const auto& entry : std::filesystem::directory_iterator(clips())) {
    const auto suffix = entry.path().extension();
    if (suffix != ".mpg" && suffix != ".ts" && suffix != ".m2v") continue;
    const auto clip = read_clip(entry.path());
    ASSERT_TRUE(clip) << clip.error().message;
    auto trace = entry.path();
    const auto wanted = read_trace(trace.replace_extension(".trace"));
    ASSERT_TRUE(wanted) << wanted.error().message;
    EXPECT_EQ(frames_text(*clip), frames_text(*wanted)) << entry.path();
    EXPECT_EQ(clip->frames.back().offset + clip->frames.back().bytes, clip->stream.size());
    ++checked;
  }
  EXPECT_EQ(checked, 10);
}

TEST(Clip, ThreeContainersOfOneStreamAreOne) {
  const auto mpg = read_clip(clips() / "eq_bikes12.mpg");
  const auto ts = read_clip(clips() / "eq_bikes12.ts");
  const auto m2v = read_clip(clips() / "eq_bikes12.m2v");
  ASSERT_TRUE(mpg && ts && m2v);
  EXPECT_EQ(mpg->origin, "mpeg");
  EXPECT_EQ(ts->origin, "mpegts");
  EXPECT_EQ(m2v->origin, "mpegvideo");
  EXPECT_EQ(frames_text(*mpg), frames_text(*m2v));
  EXPECT_EQ(frames_text(*ts), frames_text(*m2v));
  EXPECT_EQ(mpg->stream, m2v->stream);
  EXPECT_EQ(ts->stream, m2v->stream);
  EXPECT_EQ(m2v->stream, bytes_of(clips() / "eq_bikes12.m2v"));
}

TEST(Clip, DevelopersSetMatchesTheIndependentScanner) {
  if (!std::filesystem::exists(shared_video())) GTEST_SKIP() << "no shared/video beside the clone";
  int checked = 0;
  for (const auto& entry : std::filesystem::directory_iterator(shared_video())) {
    const auto suffix = entry.path().extension();
    if (suffix != ".mpg" && suffix != ".ts" && suffix != ".m2v") continue;
    const auto clip = read_clip(entry.path());
    ASSERT_TRUE(clip) << clip.error().message;
    const auto csv = shared_video() / "traces" / (entry.path().stem().string() + ".csv");
    EXPECT_EQ(frames_text(*clip), expected_text(csv)) << entry.path();
    ++checked;
  }
  EXPECT_GE(checked, 12);
}

TEST(Clip, CutInTheMiddleOfAGopStartsAtTheNextIPicture) {
  const auto whole = read_clip(clips() / "t4_cockatoo.ts");
  ASSERT_TRUE(whole);
  const auto cut = parse_clip(std::span(whole->stream).subspan(whole->frames[5].offset), "cut");
  ASSERT_TRUE(cut) << cut.error().message;
  EXPECT_EQ(cut->frames.size(), 24U);  // three GOPs less the first
  EXPECT_EQ(cut->frames[0].type, FrameType::intra);
  EXPECT_EQ(cut->frames[0].bytes, whole->frames[12].bytes);
}

}  // namespace
}  // namespace tools

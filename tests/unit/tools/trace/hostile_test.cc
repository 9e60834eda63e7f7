// Files that lie: each gives a clip that makes sense or one line, in bounded time and memory. The
// program itself is run, so a crash or a hang is one too.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "emu/base/prng.h"
#include "tests/unit/tools/trace/fixture.h"
#include "tools/trace/clip.h"

namespace tools {
namespace {

struct Outcome {
  int status = -1;  // as of waitpid
  std::string errors;
  int exit_code() const { return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status); }
};

// Runs flitnet-trace on the file with 20 s of processor time and 1 GiB of address space.
Outcome run_trace(const std::string& path) {
  std::array<int, 2> pipe{};
  EXPECT_EQ(::pipe(pipe.data()), 0);
  const char* program = std::getenv("FLITNET_TRACE");
  const pid_t child = ::fork();
  if (child == 0) {
    constexpr rlimit kTime{20, 20};
    ::setrlimit(RLIMIT_CPU, &kTime);
    if (std::getenv("FLITNET_NO_MEMORY_LIMIT") == nullptr) {
      constexpr rlimit kSpace{1U << 30, 1U << 30};
      ::setrlimit(RLIMIT_AS, &kSpace);
    }
    ::alarm(60);  // a hang that burns no time
    ::dup2(pipe[1], STDERR_FILENO);
    ::close(pipe[0]);
    const int null = ::open("/dev/null", O_WRONLY);
    ::dup2(null, STDOUT_FILENO);
    ::execl(program, program, path.c_str(), static_cast<char*>(nullptr));
    ::_exit(127);
  }
  ::close(pipe[1]);
  Outcome outcome;
  std::array<char, 4096> buffer{};
  for (ssize_t got = 0; (got = ::read(pipe[0], buffer.data(), buffer.size())) > 0;) {
    outcome.errors.append(buffer.data(), static_cast<std::size_t>(got));
  }
  ::close(pipe[0]);
  ::waitpid(child, &outcome.status, 0);
  return outcome;
}

void expect_one_line(const Outcome& outcome, const std::string& name) {
  EXPECT_EQ(outcome.exit_code(), 2) << name << ": " << outcome.errors;
  EXPECT_EQ(std::ranges::count(outcome.errors, '\n'), 1) << name << ": " << outcome.errors;
  EXPECT_LT(outcome.errors.size(), 400U) << name;
}

TEST(Hostile, NotRegularFiles) {
  const TempFolder folder;
  const std::string fifo = folder.path() / "fifo.mpg";
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  expect_one_line(run_trace(fifo), "a FIFO nobody writes to");
  expect_one_line(run_trace(folder.path()), "a folder");
  expect_one_line(run_trace("/dev/zero"), "a device without end");
  expect_one_line(run_trace(folder.path() / "nothing.mpg"), "a file that is not there");
  expect_one_line(run_trace("http://127.0.0.1:9/x.m2v"), "an address");
  expect_one_line(run_trace("concat:a.m2v|b.m2v"), "a protocol");
}

TEST(Hostile, TextsThatNameOtherFiles) {
  const TempFolder folder;
  std::filesystem::copy(clips() / "eq_bikes12.m2v", folder.path() / "b.m2v");
  expect_one_line(run_trace(folder.file("a.m2v", "ffconcat version 1.0\nfile b.m2v\n")),
                  "ffconcat");
  expect_one_line(run_trace(folder.file("a.ts",
                                        "#EXTM3U\n#EXT-X-TARGETDURATION:1\n#EXTINF:1,\n"
                                        "b.m2v\n#EXT-X-ENDLIST\n")),
                  "HLS of a file");
  expect_one_line(run_trace(folder.file("a.mpg", "#EXTM3U\n#EXTINF:1,\nhttp://127.0.0.1:9/b.ts\n")),
                  "HLS of the network");
  expect_one_line(
      run_trace(folder.file("b.mpg", "v=0\nc=IN IP4 127.0.0.1\nm=video 9 RTP/AVP 33\n")), "SDP");
}

TEST(Hostile, EmptyShortAndRandom) {
  const TempFolder folder;
  constexpr std::uint64_t kSeed = 11;
  SCOPED_TRACE(kSeed);
  emu::Prng prng(kSeed);
  for (const char* suffix : {".mpg", ".ts", ".m2v"}) {
    for (const std::size_t size : {0UL, 1UL, 4UL, 188UL, 65536UL}) {
      std::string random(size, '\0');
      for (char& c : random) c = static_cast<char>(prng());
      const auto name = "random" + std::to_string(size) + suffix;
      expect_one_line(run_trace(folder.file(name, random)), name);
      expect_one_line(run_trace(folder.file("zeros" + name, std::string(size, '\0'))), name);
    }
  }
}

TEST(Hostile, FloodsAndHugeHeaders) {
  const TempFolder folder;
  using namespace std::string_literals;
  const auto repeated = [](const std::string& unit, std::size_t times) {
    std::string text;
    for (std::size_t i = 0; i < times; ++i) text += unit;
    return text;
  };
  const std::string sequence = "\0\0\1\xb3\xff\xff\xff\x13\xff\xff\xe0\x18"s;
  expect_one_line(run_trace(folder.file("starts.m2v", repeated("\0\0\1"s, 500'000))), "starts");
  expect_one_line(run_trace(folder.file("gops.m2v", repeated("\0\0\1\xb8\0\0\0\0"s, 200'000))),
                  "gops");
  expect_one_line(run_trace(folder.file("heads.m2v", repeated(sequence, 100'000))), "heads");
  expect_one_line(
      run_trace(folder.file("packs.mpg", repeated("\0\0\1\xba\x44\0\4\0\4\1\0\0\3\xf8"s, 100'000))),
      "packs");
  // A good beginning and then one picture of 12 MB.
  std::string huge = text_of(clips() / "eq_bikes12.m2v");
  huge.append(12'000'000, '\x55');
  const Outcome outcome = run_trace(folder.file("huge.m2v", huge));
  expect_one_line(outcome, "huge");
  EXPECT_NE(outcome.errors.find("a picture of more than 4194304 bytes"), std::string::npos);
}

TEST(Hostile, TruncatedClipsAreNoticed) {
  const auto whole = bytes_of(clips() / "eq_bikes12.m2v");
  const auto frames = parse_clip(whole, "whole");
  ASSERT_TRUE(frames);
  for (const Frame& frame : frames->frames) {
    const auto cut = std::span(whole).first(frame.offset + frame.bytes / 2);
    const auto clip = parse_clip(cut, "cut");
    EXPECT_FALSE(clip) << "frame " << frame.index;
    if (!clip) {
      EXPECT_NE(clip.error().message.find("truncated"), std::string::npos);
    }
  }
}

TEST(Hostile, LostAndDoubledTransportPacketsAreNoticed) {
  const auto whole = bytes_of(clips() / "eq_bikes12.ts");
  constexpr std::size_t kPacket = 188;
  auto lost = whole;
  lost.erase(lost.begin() + 100 * kPacket, lost.begin() + 101 * kPacket);
  const auto clip = parse_clip(lost, "lost");
  ASSERT_FALSE(clip);
  EXPECT_NE(clip.error().message.find("damaged"), std::string::npos) << clip.error().message;
}

TEST(Hostile, FlippedBitsNeverMakeImpossibleFrames) {
  for (const char* name : {"eq_bikes12.mpg", "eq_bikes12.ts", "eq_bikes12.m2v"}) {
    const auto good = bytes_of(clips() / name);
    for (std::uint64_t seed = 1; seed <= 40; ++seed) {
      emu::Prng prng(seed);
      auto bad = good;
      for (std::uint64_t flips = 1 + prng.below(50); flips > 0; --flips) {
        bad[prng.below(static_cast<std::uint32_t>(bad.size()))] ^=
            static_cast<std::uint8_t>(1U << prng.below(8));
      }
      const auto clip = parse_clip(bad, name);
      if (!clip) {
        EXPECT_EQ(clip.error().message.find('\n'), std::string::npos);
        continue;
      }
      std::uint64_t offset = 0;
      for (const Frame& frame : clip->frames) {
        EXPECT_EQ(frame.offset, offset) << name << " seed " << seed;
        EXPECT_GT(frame.bytes, 0U);
        offset += frame.bytes;
      }
      EXPECT_EQ(offset, clip->stream.size());
    }
  }
}

// The developers' 104 hostile files: what must be refused is, nothing crashes, hangs or bloats.
TEST(Hostile, DevelopersSet) {
  const auto archive = shared_video() / "hostile.tar.xz";
  if (!std::filesystem::exists(archive)) GTEST_SKIP() << "no shared/video beside the clone";
  const TempFolder folder;
  const pid_t tar = ::fork();
  if (tar == 0) {
    ::execlp("tar", "tar", "xf", archive.c_str(), "-C", folder.path().c_str(),
             static_cast<char*>(nullptr));
    ::_exit(127);
  }
  int status = 0;
  ::waitpid(tar, &status, 0);
  ASSERT_EQ(status, 0);
  std::filesystem::copy(clips() / "eq_bikes12.m2v", folder.path() / "hostile" / "b.m2v");
  int files = 0;
  int refused = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder.path() / "hostile")) {
    const Outcome outcome = run_trace(entry.path());
    const std::string name = entry.path().filename();
    if (outcome.exit_code() != 0) {
      expect_one_line(outcome, name);
      ++refused;
    }
    for (const char* never :
         {"h264",       "ffconcat", "hls",   "random",  "zero",   "one_byte", "text",
          "audio_only", "mpeg4",    "mpeg1", "hugepic", "tei",    "drop5pct", "sdp",
          "no_I",       "all_B",    "ptype", "res_0",   "res_w0", "startcode"}) {
      if (name.starts_with(never)) {
        EXPECT_EQ(outcome.exit_code(), 2) << name;
      }
    }
    ++files;
  }
  EXPECT_EQ(files, 105);
  EXPECT_GE(refused, 75);
}

}  // namespace
}  // namespace tools

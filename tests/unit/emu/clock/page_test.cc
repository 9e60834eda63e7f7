// The clock page across restarts of its writer.
#include "emu/clock/page.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <fstream>

namespace emu {
namespace {

class ClockPageTest : public testing::Test {
 protected:
  void SetUp() override {
    char directory[] = "/tmp/flitnet-clock-XXXXXX";
    ASSERT_NE(::mkdtemp(directory), nullptr);
    directory_ = directory;
    path_ = directory_ + "/clock.page";
  }
  void TearDown() override {
    ::unlink(path_.c_str());
    ::rmdir(directory_.c_str());
  }
  std::string directory_, path_;
};

TEST_F(ClockPageTest, ReadersSeeWhatWasPublished) {
  auto writer = ClockWriter::open(path_, CycleTime{320'000}, ClockMode::elastic);
  ASSERT_TRUE(writer) << writer.error().message;
  auto reader = ClockReader::open(path_);
  ASSERT_TRUE(reader) << reader.error().message;
  EXPECT_EQ(reader->cycle(), 0U);
  writer->publish(1000);
  EXPECT_EQ(reader->now_ns(), 320'000U);
  PaceOptions options;
  Pace pace(options, 0, 0);
  pace.target(0, 30'000'000, true);
  writer->publish_state(pace);
  const auto reading = reader->read();
  EXPECT_TRUE(reading.running);
  EXPECT_EQ(reading.mode, ClockMode::elastic);
  EXPECT_EQ(reading.lag_ns, pace.lag_ns());
  EXPECT_EQ(reading.given_up_ns, pace.given_up_ns());
  EXPECT_DOUBLE_EQ(reading.dilation, 1.0);
}

TEST_F(ClockPageTest, TimeGoesOnAfterARestartWithAnotherCycleLength) {
  {
    auto writer = ClockWriter::open(path_, CycleTime{320'000}, ClockMode::elastic);
    ASSERT_TRUE(writer);
    writer->publish(1001);
  }
  auto reader = ClockReader::open(path_);
  ASSERT_TRUE(reader);
  EXPECT_FALSE(reader->read().running);
  const EmuNs before = reader->now_ns();
  auto writer = ClockWriter::open(path_, CycleTime{80'000}, ClockMode::real);
  ASSERT_TRUE(writer);
  EXPECT_GE(reader->now_ns(), before);
  EXPECT_LT(reader->now_ns(), before + 80);
  EXPECT_EQ(writer->start_cycle(), 4004U);
  EXPECT_TRUE(reader->read().running);
}

// A nanosecond may hold several cycles.
TEST_F(ClockPageTest, ShortCyclesGoOnToo) {
  for (const std::uint32_t cycle_ps : {320U, 100U, 999U, 1001U}) {
    auto writer = ClockWriter::open(path_, CycleTime{cycle_ps}, ClockMode::elastic);
    ASSERT_TRUE(writer);
    const Cycle last = writer->start_cycle() + 3;
    writer->publish(last);
    auto next = ClockWriter::open(path_, CycleTime{cycle_ps}, ClockMode::elastic);
    ASSERT_TRUE(next);
    EXPECT_EQ(next->start_cycle(), last) << cycle_ps;
  }
}

TEST_F(ClockPageTest, AFileThatIsNoClockPageIsRefusedByReadersAndReplacedByTheWriter) {
  std::ofstream(path_) << "not a clock page";
  EXPECT_FALSE(ClockReader::open(path_));
  auto writer = ClockWriter::open(path_, CycleTime{320'000}, ClockMode::elastic);
  ASSERT_TRUE(writer);
  EXPECT_EQ(writer->start_cycle(), 0U);
  EXPECT_TRUE(ClockReader::open(path_));
}

TEST_F(ClockPageTest, MissingPageIsAnErrorOfOneLine) {
  auto reader = ClockReader::open(path_);
  ASSERT_FALSE(reader);
  EXPECT_NE(reader.error().message.find(path_), std::string::npos);
  EXPECT_EQ(reader.error().message.find('\n'), std::string::npos);
}

}  // namespace
}  // namespace emu

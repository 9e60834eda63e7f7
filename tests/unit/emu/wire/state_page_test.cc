// The side band of congestion schemes: what is written is what is read, and never a mixture.
#include "emu/wire/state_page.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdio>
#include <fstream>
#include <thread>

namespace {

std::string path_of(const char* name) { return testing::TempDir() + "flitnet-state-" + name; }

TEST(StatePage, ReadersSeeThePicture) {
  const std::string path = path_of("picture");
  std::remove(path.c_str());
  EXPECT_FALSE(emu::StateReader::open(path)) << "no fabric yet";
  auto writer = emu::StateWriter::open(path);
  ASSERT_TRUE(writer);
  const auto reader = emu::StateReader::open(path);
  ASSERT_TRUE(reader);
  writer->set_way(3, 5, 0b110, 4);
  writer->ways_told();
  writer->begin();
  emu::StateReading reading;
  emu::NodeView view;
  EXPECT_FALSE(reader->read(3, reading, view)) << "it is being written";
  writer->free_lanes(3, 2, 0x000f);
  writer->end({.cycle = 77, .delivered_flits = 1000, .full_buffers = 4, .buffers = 128});
  ASSERT_TRUE(reader->read(3, reading, view));
  EXPECT_EQ(reading.cycle, 77U);
  EXPECT_EQ(reader->cycle(), 77U);
  EXPECT_EQ(reading.delivered_flits, 1000U);
  EXPECT_EQ(reading.full_buffers, 4U);
  EXPECT_EQ(reading.buffers, 128U);
  EXPECT_EQ(view.free_lanes[2], 0x000f);
  EXPECT_EQ(reader->useful_ports(3, 5), 0b110U);
  EXPECT_EQ(reader->hops(3, 5), 4);
  EXPECT_EQ(reader->ways(), 1u);
  std::remove(path.c_str());
}

// Notices are kept by node, in order, as many as there is room for.
TEST(StatePage, NoticesAreHeardUntilNewerOnesTakeTheirPlace) {
  const std::string path = path_of("notices");
  std::remove(path.c_str());
  auto writer = emu::StateWriter::open(path);
  ASSERT_TRUE(writer);
  const auto reader = emu::StateReader::open(path);
  ASSERT_TRUE(reader);
  EXPECT_EQ(reader->told(2), 0U);
  EXPECT_FALSE(reader->notice(2, 1)) << "never told";
  const auto tell = [&](emu::NodeId node, emu::NodeId source, emu::NodeId dest) {
    emu::Notice notice{};
    notice.source = source;
    notice.dest = dest;
    notice.kind = emu::NoticeKind::relief;
    writer->tell(node, notice);
  };
  tell(63, 7, emu::kAnyDest);
  for (std::size_t i = 0; i < emu::kNoticesKept + 1; ++i)
    tell(2, static_cast<emu::NodeId>(i % 64), static_cast<emu::NodeId>(i));
  EXPECT_EQ(reader->told(63), 1U);
  EXPECT_EQ(reader->notice(63, 0)->source, 7);
  EXPECT_EQ(reader->notice(63, 0)->dest, emu::kAnyDest);
  EXPECT_EQ(reader->notice(63, 0)->kind, emu::NoticeKind::relief);
  EXPECT_EQ(reader->told(2), emu::kNoticesKept + 1);
  EXPECT_FALSE(reader->notice(2, 0)) << "gone";
  EXPECT_EQ(reader->notice(2, 1)->dest, 1);
  EXPECT_EQ(reader->notice(2, emu::kNoticesKept)->dest, emu::kNoticesKept);
  std::remove(path.c_str());
}

TEST(StatePage, AWriterThatDiedInTheMiddleBlocksNobody) {
  const std::string path = path_of("died");
  std::remove(path.c_str());
  {
    auto writer = emu::StateWriter::open(path);
    ASSERT_TRUE(writer);
    writer->begin();
  }
  auto writer = emu::StateWriter::open(path);
  ASSERT_TRUE(writer);
  const auto reader = emu::StateReader::open(path);
  ASSERT_TRUE(reader);
  emu::StateReading reading;
  emu::NodeView view;
  EXPECT_TRUE(reader->read(0, reading, view));
  std::ofstream(path, std::ios::trunc) << "short";
  EXPECT_FALSE(emu::StateReader::open(path));
  std::remove(path.c_str());
}

TEST(StatePage, PicturesAreWhole) {
  const std::string path = path_of("whole");
  std::remove(path.c_str());
  auto writer = emu::StateWriter::open(path);
  ASSERT_TRUE(writer);
  const auto reader = emu::StateReader::open(path);
  ASSERT_TRUE(reader);
  std::atomic<bool> stop = false;
  std::jthread writing([&] {
    for (std::uint32_t i = 1; !stop.load(); ++i) {
      writer->begin();
      for (std::size_t p = 0; p < emu::kStatePortsMax; ++p)
        writer->free_lanes(1, p, static_cast<std::uint16_t>(i));
      writer->end({.cycle = i, .delivered_flits = i, .full_buffers = i, .buffers = i});
    }
  });
  int whole = 0;
  int mixed = 0;
  while (whole < 2000) {
    emu::StateReading reading;
    emu::NodeView view;
    if (!reader->read(1, reading, view)) continue;
    ++whole;
    mixed += reading.delivered_flits != reading.cycle || reading.full_buffers != reading.cycle;
    for (const std::uint16_t lanes : view.free_lanes)
      mixed += lanes != static_cast<std::uint16_t>(reading.cycle);
  }
  stop.store(true);
  writing.join();
  EXPECT_EQ(mixed, 0);
  std::remove(path.c_str());
}

}  // namespace

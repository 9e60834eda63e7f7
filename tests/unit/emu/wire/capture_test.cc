// The capture ring: what is wanted comes out as it went in, what has no room is counted, either
// side sees the end of the other, and a reader that writes over the ring disturbs its writer only
// so far.
#include "emu/wire/capture.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <unistd.h>

#include <cstring>
#include <deque>
#include <filesystem>
#include <memory>
#include <optional>
#include <vector>

#include "emu/base/prng.h"
#include "emu/packet/build.h"
#include "tests/unit/emu/wire/seed.h"

namespace emu {
namespace {

class CaptureTest : public testing::Test {
 protected:
  void SetUp() override {
    char pattern[] = "/tmp/flitnet-capture-XXXXXX";
    ASSERT_NE(::mkdtemp(pattern), nullptr);
    directory_ = pattern;
    path_ = directory_ + "/capture.ring";
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  void open(std::uint64_t nodes = ~std::uint64_t{0}) {
    writer_.reset();  // it takes its file with it
    auto writer = CaptureWriter::open(path_, CycleTime{80'000}, nodes);
    ASSERT_TRUE(writer) << writer.error().message;
    writer_.emplace(std::move(*writer));
    auto reader = CaptureReader::open(path_);
    ASSERT_TRUE(reader) << reader.error().message;
    reader_.emplace(std::move(*reader));
  }
  void send(NodeId src, NodeId dest, std::uint16_t length, std::uint8_t fill) {
    const std::vector<std::uint8_t> bytes(length, fill);
    RxDesc desc{};
    desc.arrival_cycle = ++sent_;
    desc.length = length;
    desc.src = src;
    writer_->packet(desc, dest, bytes.data());
  }

  std::string directory_;
  std::string path_;
  std::optional<CaptureWriter> writer_;
  std::optional<CaptureReader> reader_;
  std::unique_ptr<CapturedPacket> packet_ = std::make_unique<CapturedPacket>();
  Cycle sent_ = 0;
};

TEST_F(CaptureTest, InOrderAndWhatHasNoRoomIsCounted) {
  open();
  Prng prng(test_seed());
  std::deque<std::pair<Cycle, std::uint16_t>> expected;
  std::uint64_t left_out = 0;
  for (int event = 0; event < 200; ++event) {
    for (std::uint32_t i = prng.below(400); i > 0; --i) {
      const auto length = static_cast<std::uint16_t>(1 + prng.below(kPacketBytesMax));
      send(1, 2, length, static_cast<std::uint8_t>(length));
      if (expected.size() < kCaptureSlots) {
        expected.emplace_back(sent_, length);
      } else {
        ++left_out;
      }
    }
    for (std::uint32_t i = prng.below(400); i > 0 && reader_->next(*packet_); --i) {
      ASSERT_FALSE(expected.empty());
      const auto [cycle, length] = expected.front();
      expected.pop_front();
      ASSERT_EQ(packet_->arrival_cycle, cycle);
      ASSERT_EQ(packet_->length, length);
      ASSERT_EQ(packet_->bytes[length - 1U], static_cast<std::uint8_t>(length));
    }
    ASSERT_EQ(reader_->left_out(), left_out);
  }
  EXPECT_EQ(reader_->cycle_time().cycle_ps, 80'000u);
}

// Whoever looks at it sees what a link would have carried.
TEST_F(CaptureTest, ATrainComesApart) {
  open();
  std::vector<std::byte> train(kTrainHeadBytes + 2500);
  PacketHeaders headers;
  headers.bth.opcode = Opcode::rc_write_only;
  headers.bth.psn = 0xfffffe;
  write_train_headers(std::span(train).first<kTrainHeadBytes>(), headers, 2500, 1024);
  RxDesc desc{};
  desc.more_packets = 2;
  desc.length = static_cast<std::uint16_t>(train.size() / 4);
  writer_->packet(desc, 2, reinterpret_cast<const std::uint8_t*>(train.data()));
  desc.more_packets = 3;  // makes no sense, and nothing of it
  writer_->packet(desc, 2, reinterpret_cast<const std::uint8_t*>(train.data()));
  constexpr Opcode kParts[] = {Opcode::rc_write_first, Opcode::rc_write_middle,
                               Opcode::rc_write_last};
  // Neither does one of what has no parts.
  desc.more_packets = 2;
  for (const Opcode opcode : {Opcode::ud_send_only, Opcode::rc_atomic_write, Opcode::rc_ack}) {
    std::vector<std::byte> other = train;
    other[kLrhBytes] = static_cast<std::byte>(opcode);
    other[4] = std::byte{0};
    for (int words = 0; words < 256; ++words) {
      other[5] = static_cast<std::byte>(words);
      writer_->packet(desc, 2, reinterpret_cast<const std::uint8_t*>(other.data()));
    }
  }
  for (std::uint32_t i = 0; i < 3; ++i) {
    ASSERT_TRUE(reader_->next(*packet_));
    ParsedPacket parsed;
    const std::span bytes(packet_->bytes.data(), packet_->length);
    ASSERT_EQ(parse_packet(std::as_bytes(bytes), parsed), ParseStatus::ok);
    EXPECT_EQ(parsed.headers.bth.opcode, kParts[i]);
    EXPECT_EQ(parsed.headers.bth.psn, psn_add(0xfffffe, i));
    EXPECT_EQ(parsed.payload_bytes, i == 2 ? 452U : 1024U);
  }
  EXPECT_FALSE(reader_->next(*packet_));
}

TEST_F(CaptureTest, OnlyWhatIsWanted) {
  open(1ULL << 3 | 1ULL << 63);
  send(1, 2, 10, 0);
  send(3, 2, 11, 0);
  send(2, 3, 12, 0);
  send(63, 0, 13, 0);
  for (const int length : {11, 12, 13}) {
    ASSERT_TRUE(reader_->next(*packet_));
    EXPECT_EQ(packet_->length, length);
  }
  EXPECT_FALSE(reader_->next(*packet_));
}

TEST_F(CaptureTest, EitherSideSeesTheOthersEnd) {
  open();
  EXPECT_FALSE(CaptureReader::open(path_)) << "one reads already";
  EXPECT_FALSE(reader_->ended());
  EXPECT_TRUE(writer_->read_by_somebody(1));
  reader_.reset();
  EXPECT_FALSE(writer_->read_by_somebody(2));
  open();
  send(1, 2, 10, 0);
  writer_.reset();
  EXPECT_FALSE(std::filesystem::exists(path_));
  EXPECT_TRUE(reader_->ended());
  EXPECT_TRUE(reader_->next(*packet_)) << "what was captured is still there";
}

TEST_F(CaptureTest, AReaderThatNeverComesHasTwoSeconds) {
  auto writer = CaptureWriter::open(path_, CycleTime{80'000}, 1);
  ASSERT_TRUE(writer);
  EXPECT_TRUE(writer->read_by_somebody(1'000'000'000));
  EXPECT_TRUE(writer->read_by_somebody(2'900'000'000));
  EXPECT_FALSE(writer->read_by_somebody(3'000'000'000));
}

TEST_F(CaptureTest, AReaderThatWritesOverTheRing) {
  open();
  Prng prng(test_seed());
  auto file = Region::map_file(UniqueFd(::open(path_.c_str(), O_RDWR)), 4096, Access::read_write);
  ASSERT_TRUE(file);
  for (int round = 0; round < 2000; ++round) {
    for (int i = 0; i < 4; ++i) {
      file->data()[prng.below(static_cast<std::uint32_t>(file->size()))] =
          static_cast<std::byte>(prng.below(256));
    }
    send(1, 2, static_cast<std::uint16_t>(1 + prng.below(kPacketBytesMax)), 7);
    (void)reader_->next(*packet_);
  }
}

// A full disk is an answer, not the end of the fabric by SIGBUS.
TEST_F(CaptureTest, AFileSystemWithoutRoom) {
  if (::mount("tmpfs", directory_.c_str(), "tmpfs", 0, "size=1m") != 0)
    GTEST_SKIP() << "a file system of its own: " << std::strerror(errno);
  {
    const auto writer = CaptureWriter::open(path_, CycleTime{80'000}, ~std::uint64_t{0});
    EXPECT_FALSE(writer);
    const std::string said = writer ? "" : writer.error().message;
    EXPECT_NE(said.find("No space left"), std::string::npos) << said;
    EXPECT_FALSE(std::filesystem::exists(path_)) << "what has no use keeps no room";
  }
  ASSERT_EQ(::umount(directory_.c_str()), 0);
}

TEST_F(CaptureTest, WhatIsNoRing) {
  EXPECT_FALSE(CaptureReader::open(path_));
  for (const std::size_t size : {std::size_t{0}, std::size_t{100}, std::size_t{16} << 20}) {
    {
      const UniqueFd made(::open(path_.c_str(), O_RDWR | O_CREAT, 0600));
    }
    ASSERT_EQ(::truncate(path_.c_str(), static_cast<off_t>(size)), 0);
    const auto reader = CaptureReader::open(path_);
    ASSERT_FALSE(reader);
    EXPECT_EQ(reader.error().message.find('\n'), std::string::npos);
  }
}

}  // namespace
}  // namespace emu

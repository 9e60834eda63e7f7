// From the ring to the file: what ends a capture, and what stands in front of a packet.
#include "tools/capture/drain.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <atomic>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "emu/packet/build.h"
#include "emu/packet/parse.h"

namespace tools {
namespace {

class DrainTest : public testing::Test {
 protected:
  void SetUp() override {
    char pattern[] = "/tmp/flitnet-drain-XXXXXX";
    ASSERT_NE(::mkdtemp(pattern), nullptr);
    folder_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  // Packets that arrive in these cycles of 80 ns, then the fabric's end; how many are in the file.
  std::uint64_t captured(const std::vector<emu::Cycle>& arrivals, const DrainOptions& limits,
                         const std::vector<std::byte>& bytes = std::vector<std::byte>(64, std::byte{
                                                                                              7})) {
    auto writer = emu::CaptureWriter::open(folder_ + "/ring", {80'000}, ~std::uint64_t{0});
    EXPECT_TRUE(writer);
    std::optional<emu::CaptureWriter> open(*std::move(writer));
    auto reader = emu::CaptureReader::open(folder_ + "/ring");
    EXPECT_TRUE(reader);
    for (const emu::Cycle arrival : arrivals) {
      emu::RxDesc desc{};
      desc.arrival_cycle = arrival;
      desc.length = static_cast<std::uint16_t>(bytes.size());
      open->packet(desc, 1, reinterpret_cast<const std::uint8_t*>(bytes.data()));
    }
    open.reset();
    DrainOptions options = limits;
    options.write = folder_ + "/out.pcap";
    const std::atomic<bool> stop = false;
    const auto count = drain(*reader, options, stop);
    EXPECT_TRUE(count);
    return count.value_or(0);
  }

  std::string folder_;
};

TEST_F(DrainTest, EndsByCountAndByEmulatedTime) {
  EXPECT_EQ(captured({100, 200, 300}, {}), 3U);
  EXPECT_EQ(captured({100, 200, 300}, {.count = 2}), 2U);
  EXPECT_EQ(captured({100, 200, 300}, {.seconds = 10e-6}), 2U);  // 125 cycles
}

// A packet that arrived before the first one is no end.
TEST_F(DrainTest, TimesThatRunBackEndNothing) {
  EXPECT_EQ(captured({100, 90, 110, 300}, {.seconds = 10e-6}), 3U);
}

// Where packets come faster than they are written the ring is never empty: a signal ends it yet.
TEST_F(DrainTest, StopsWhileMoreComesThanItCanWrite) {
  auto writer = emu::CaptureWriter::open(folder_ + "/ring", {80'000}, ~std::uint64_t{0});
  ASSERT_TRUE(writer);
  auto reader = emu::CaptureReader::open(folder_ + "/ring");
  ASSERT_TRUE(reader);
  std::atomic<bool> over = false;
  std::thread fabric([&] {
    const std::vector<std::uint8_t> bytes(4096, 7);
    emu::RxDesc desc{};
    desc.length = 4096;
    while (!over.load(std::memory_order_relaxed)) {
      ++desc.arrival_cycle;
      writer->packet(desc, 1, bytes.data());
    }
  });
  while (reader->left_out() == 0) std::this_thread::yield();
  DrainOptions options{.write = folder_ + "/out.pcap"};
  std::atomic<bool> stop = true;
  const auto count = drain(*reader, options, stop);
  over = true;
  fabric.join();
  ASSERT_TRUE(count);
  EXPECT_LE(*count, emu::kCaptureSlots);
}

TEST_F(DrainTest, RecordsAreErfInNanoseconds) {
  ASSERT_EQ(captured({12'500'000'025}, {}), 1U);  // 1000 s and 2 us
  std::ifstream file(folder_ + "/out.pcap", std::ios::binary);
  const std::vector<char> all{std::istreambuf_iterator<char>(file), {}};
  ASSERT_EQ(all.size(), 24U + 16 + 16 + 64);
  const auto word = [&all](std::size_t at) {
    std::uint32_t value = 0;
    std::memcpy(&value, all.data() + at, sizeof value);
    return value;
  };
  EXPECT_EQ(word(0), 0xa1b23c4dU);  // nanoseconds
  EXPECT_EQ(word(20), 197U);        // ERF
  EXPECT_EQ(word(24), 1000U);
  EXPECT_EQ(word(28), 2000U);
  EXPECT_EQ(word(32), 80U);  // the ERF head and the packet
  EXPECT_EQ(word(44), 1000U);
  EXPECT_EQ(word(40), 2000ULL * 0x1'0000'0000 / 1'000'000'000);
  EXPECT_EQ(static_cast<int>(all[48]), 21);  // InfiniBand
}

// Packets that stay on a host carry no CRCs: the file's have them.
TEST_F(DrainTest, CrcsAreThere) {
  emu::PacketHeaders headers;
  std::vector<std::byte> packet(emu::kPacketBytesMax);
  const std::size_t at = emu::write_headers(packet, headers, 100);
  packet.resize(emu::pad_packet(packet, at + 100));
  ASSERT_EQ(captured({100}, {}, packet), 1U);
  std::ifstream file(folder_ + "/out.pcap", std::ios::binary);
  const std::vector<char> all{std::istreambuf_iterator<char>(file), {}};
  const auto written = std::as_bytes(std::span(all)).subspan(24 + 16 + 16);
  ASSERT_EQ(written.size(), packet.size());
  EXPECT_EQ(emu::check_crcs(written), emu::CrcStatus::ok);
}

}  // namespace
}  // namespace tools

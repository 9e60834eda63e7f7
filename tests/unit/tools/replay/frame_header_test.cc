// The frame header: what was written is read back, and nothing damaged is.
#include "tools/replay/frame_header.h"

#include <gtest/gtest.h>

#include <string_view>
#include <vector>

#include "emu/base/prng.h"
#include "tools/replay/rate.h"

namespace tools {
namespace {

std::vector<std::uint8_t> message_of(const FrameHeader& header) {
  std::vector<std::uint8_t> message(kFrameHeaderBytes + header.bytes);
  write_frame_header(header, std::span(message).first<kFrameHeaderBytes>());
  return message;
}

TEST(Crc32c, KnownValue) {
  constexpr std::string_view kText = "123456789";
  const std::vector<std::uint8_t> bytes(kText.begin(), kText.end());
  EXPECT_EQ(crc32c(bytes), 0xe3069283U);
}

TEST(FrameHeader, RoundTrip) {
  const auto message = message_of({.type = 'B',
                                   .stream = 77,
                                   .number = 1ULL << 40,
                                   .clip_frame = 3,
                                   .frame_bytes = 5000,
                                   .frame_ns = 123456789012345,
                                   .frame_crc = 9,
                                   .offset = 4000,
                                   .bytes = 1000});
  const auto header = read_frame_header(message);
  ASSERT_TRUE(header) << header.error().message;
  EXPECT_EQ(header->type, 'B');
  EXPECT_EQ(header->stream, 77U);
  EXPECT_EQ(header->number, 1ULL << 40);
  EXPECT_EQ(header->clip_frame, 3U);
  EXPECT_EQ(header->bytes, 1000U);
  EXPECT_EQ(header->frame_ns, 123456789012345U);
}

TEST(FrameHeader, EveryFlippedBitIsNoticed) {
  const auto good = message_of({.stream = 5, .number = 6, .frame_bytes = 32, .bytes = 32});
  for (std::size_t bit = 0; bit < kFrameHeaderBytes * 8; ++bit) {
    auto bad = good;
    bad[bit / 8] = static_cast<std::uint8_t>(bad[bit / 8] ^ (1U << (bit % 8)));
    EXPECT_FALSE(read_frame_header(bad)) << "bit " << bit;
  }
}

TEST(FrameHeader, LengthsMustAgree) {
  auto message = message_of({.frame_bytes = 32, .bytes = 32});
  for (std::size_t size = 0; size < message.size(); ++size) {
    EXPECT_FALSE(read_frame_header(std::span(message).first(size))) << size;
  }
  message.push_back(0);
  EXPECT_FALSE(read_frame_header(message));
}

TEST(FrameHeader, PieceMustLieInsideTheFrame) {
  EXPECT_TRUE(read_frame_header(message_of({.frame_bytes = 10, .offset = 4, .bytes = 6})));
  EXPECT_TRUE(read_frame_header(message_of({})));
  EXPECT_FALSE(read_frame_header(message_of({.frame_bytes = 10, .offset = 4, .bytes = 7})));
  EXPECT_FALSE(read_frame_header(message_of({.frame_bytes = 10, .offset = 11})));
  EXPECT_FALSE(read_frame_header(message_of({.frame_bytes = 10, .offset = ~0U, .bytes = 2})));
}

TEST(FrameHeader, RateOfZeroIsRefused) {
  EXPECT_FALSE(read_frame_header(message_of({.rate_frames = 0})));
  EXPECT_FALSE(read_frame_header(message_of({.rate_seconds = 0})));
}

TEST(FrameHeader, RandomBytesAreRefused) {
  constexpr std::uint64_t kSeed = 20;
  SCOPED_TRACE(kSeed);
  emu::Prng prng(kSeed);
  for (int i = 0; i < 2000; ++i) {
    std::vector<std::uint8_t> bytes(prng.below(200));
    for (auto& byte : bytes) byte = static_cast<std::uint8_t>(prng());
    EXPECT_FALSE(read_frame_header(bytes));
  }
}

TEST(PacketShape, FullPacketIsFortyFlits) {
  const PacketShape shape;
  EXPECT_EQ(shape.packets_of(612), 1U);
  EXPECT_EQ(shape.packets_of(613), 2U);
  EXPECT_EQ(shape.link_bytes_of(612), 640U);
  EXPECT_EQ(shape.link_bytes_of(613), 640U + 32U);  // 1 byte, padded to 4, 26 of overhead: 2 flits
  EXPECT_EQ(shape.link_bytes_of(0), 32U);
}

TEST(FrameCut, PiecesFillTheirPackets) {
  const FrameCut cut;
  EXPECT_EQ(cut.piece_bytes_max(), 32U * 612 - 64);
  EXPECT_EQ(cut.packets_of(0), 1U);
  EXPECT_EQ(cut.packets_of(cut.piece_bytes_max()), 32U);
  EXPECT_EQ(cut.packets_of(cut.piece_bytes_max() + 1), 33U);
  EXPECT_EQ(cut.link_bytes_of(2 * cut.piece_bytes_max()), 64U * 640);
}

TEST(ClipRate, MeanAndPeak) {
  Clip clip;
  clip.frames = {{.index = 0, .bytes = 612 * 2 - 64}, {.index = 1, .bytes = 612 * 4 - 64}};
  const ClipRate need = rate_of(clip, {}, {});
  EXPECT_EQ(need.packets_max, 4U);
  EXPECT_EQ(need.frame_bytes_max, 2560U);
  EXPECT_NEAR(static_cast<double>(need.mean_bps), 640 * 6 * 8 * 15.0, 1);
  EXPECT_EQ(need.peak_bps, 2560U * 8 * 30);
}

}  // namespace
}  // namespace tools

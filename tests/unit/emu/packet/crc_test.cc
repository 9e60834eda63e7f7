// Both CRCs against a bit-by-bit model, and the ICRC of the sample packet in the IBA's own text.
#include "emu/packet/crc.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "emu/base/prng.h"

namespace {

// One bit at a time, straight from the definition: the lowest bit of a byte goes first.
std::uint32_t model(int width, std::uint32_t poly, std::uint32_t crc,
                    std::span<const std::byte> bytes) {
  std::uint32_t reflected = 0;
  for (int i = 0; i < width; ++i) reflected |= (poly >> i & 1) << (width - 1 - i);
  for (const std::byte b : bytes) {
    for (int bit = 0; bit < 8; ++bit) {
      const std::uint32_t in = std::to_integer<std::uint32_t>(b) >> bit & 1;
      const bool out = ((crc ^ in) & 1) != 0;
      crc = (crc >> 1) ^ (out ? reflected : 0);
    }
  }
  return crc;
}

std::vector<std::byte> random_bytes(emu::Prng& random, std::size_t count) {
  std::vector<std::byte> bytes(count);
  for (auto& b : bytes) b = static_cast<std::byte>(random());
  return bytes;
}

// Every way that this processor has.
TEST(Crc, EqualsTheModelAtEveryLength) {
  using enum emu::CrcWay;
  ASSERT_TRUE(emu::crc_can(table));
  const std::uint64_t seed = std::random_device{}();
  std::printf("seed %llu\n", static_cast<unsigned long long>(seed));
  emu::Prng random(seed);
  const auto bytes = random_bytes(random, 1200);
  for (std::size_t n = 0; n <= bytes.size(); n += n < 300 ? 1 : 37) {
    for (const std::size_t from : {std::size_t{0}, std::size_t{1}, std::size_t{7}}) {
      if (from > n) continue;
      const auto part = std::span(bytes).subspan(from, n - from);
      const auto start = static_cast<std::uint32_t>(random());
      const auto start16 = static_cast<std::uint16_t>(start);
      const std::uint32_t want = model(32, 0x04C11DB7, start, part);
      const std::uint32_t want16 = model(16, 0x100B, start16, part);
      for (const emu::CrcWay way : {table, multiply, multiply_wide}) {
        if (!emu::crc_can(way)) continue;
        ASSERT_EQ(emu::crc32_update(way, start, part), want) << n << " " << static_cast<int>(way);
        ASSERT_EQ(emu::crc16_update(way, start16, part), want16) << n;
      }
      ASSERT_EQ(emu::crc32_update(start, part), want) << n;
      ASSERT_EQ(emu::crc16_update(start16, part), want16) << n;
    }
  }
}

TEST(Crc, MayBeComputedInPieces) {
  emu::Prng random(7);
  const auto bytes = random_bytes(random, 700);
  const std::uint32_t whole = emu::crc32_update(~0u, bytes);
  const std::uint16_t whole16 = emu::crc16_update(0xffff, bytes);
  for (std::size_t cut = 0; cut <= bytes.size(); cut += 13) {
    const auto front = std::span(bytes).first(cut);
    const auto back = std::span(bytes).subspan(cut);
    ASSERT_EQ(emu::crc32_update(emu::crc32_update(~0u, front), back), whole);
    ASSERT_EQ(emu::crc16_update(emu::crc16_update(0xffff, front), back), whole16);
  }
}

// IBA volume 1, 7.8.3: an RDMA WRITE packet whose ICRC is printed as 0x9625B75A, which stands on
// the wire as 96 25 B7 5A, that is the register lowest byte first.
constexpr std::uint8_t kSample[52] = {
    0x70, 0x12, 0x37, 0x5c, 0x00, 0x0e, 0x17, 0xd2, 0x0a, 0x20, 0x24, 0x87, 0x00,
    0x87, 0xb1, 0xb3, 0x00, 0x0d, 0xec, 0x2a, 0x01, 0x71, 0x0a, 0x1c, 0x01, 0x5d,
    0x40, 0x02, 0x38, 0xf2, 0x7a, 0x05, 0x00, 0x00, 0x00, 0x0e, 0xbb, 0x88, 0x4d,
    0x85, 0xfd, 0x5c, 0xfb, 0xa4, 0x72, 0x8b, 0xc0, 0x69, 0x0e, 0xd4, 0x00, 0x00};

TEST(Crc, IcrcOfTheSpecificationsSample) {
  EXPECT_EQ(emu::icrc_of(std::as_bytes(std::span(kSample))), 0x5AB72596u);
}

// What switches change does not change the ICRC; everything else does. Short and long packets.
TEST(Crc, IcrcCoversWhatDoesNotChange) {
  emu::Prng random(7);
  for (const std::size_t more : {0, 11, 12, 60, 592}) {
    std::vector<std::byte> packet(std::as_bytes(std::span(kSample)).begin(),
                                  std::as_bytes(std::span(kSample)).end());
    for (const std::byte b : random_bytes(random, more)) packet.push_back(b);
    const std::uint32_t icrc = emu::icrc_of(packet);
    const std::uint16_t vcrc = emu::vcrc_of(packet);
    for (std::size_t byte = 0; byte < packet.size(); ++byte) {
      for (int bit = 0; bit < 8; ++bit) {
        packet[byte] ^= static_cast<std::byte>(1 << bit);
        const bool variant = (byte == 0 && bit >= 4) || byte == 12;
        // The next-header bits decide where the masked fields lie: not a question here.
        if (byte != 1 || bit > 1) {
          EXPECT_EQ(emu::icrc_of(packet) == icrc, variant) << byte;
        }
        EXPECT_NE(emu::vcrc_of(packet), vcrc);
        packet[byte] ^= static_cast<std::byte>(1 << bit);
      }
    }
  }
}

}  // namespace

#include "tools/replay/frame_header.h"

#include <array>
#include <cstring>

namespace tools {
namespace {

constexpr std::array<std::uint32_t, 256> crc_table() {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t i = 0; i < 256; ++i) {
    std::uint32_t value = i;
    for (int bit = 0; bit < 8; ++bit) value = (value >> 1) ^ ((value & 1) != 0 ? 0x82f63b78U : 0U);
    table[i] = value;
  }
  return table;
}
constexpr auto kCrcTable = crc_table();

}  // namespace

std::uint32_t crc32c(std::span<const std::uint8_t> bytes, std::uint32_t before) {
  std::uint32_t crc = ~before;
  for (const std::uint8_t byte : bytes) crc = (crc >> 8) ^ kCrcTable[(crc ^ byte) & 0xff];
  return ~crc;
}

std::uint64_t stream_hash(std::string_view name) {
  std::uint64_t hash = 0xcbf29ce484222325ULL;
  for (const char c : name) hash = (hash ^ static_cast<std::uint8_t>(c)) * 0x100000001b3ULL;
  return hash;
}

void write_frame_header(FrameHeader header, std::span<std::uint8_t, kFrameHeaderBytes> to) {
  std::memcpy(to.data(), &header, kFrameHeaderBytes);
  header.header_crc = crc32c(to.first(offsetof(FrameHeader, header_crc)));
  std::memcpy(to.data(), &header, kFrameHeaderBytes);
}

emu::Result<FrameHeader> read_frame_header(std::span<const std::uint8_t> message) {
  if (message.size() < kFrameHeaderBytes) {
    return emu::fail("message of {} bytes, a frame header has {}", message.size(),
                     kFrameHeaderBytes);
  }
  FrameHeader header;
  std::memcpy(&header, message.data(), kFrameHeaderBytes);
  if (header.magic != kFrameMagic) return emu::fail("no frame header (magic {:#x})", header.magic);
  if (header.version != kFrameVersion) {
    return emu::fail("frame header of version {}, this is {}", header.version, kFrameVersion);
  }
  if (header.header_crc != crc32c(message.first(offsetof(FrameHeader, header_crc)))) {
    return emu::fail("frame header with a wrong checksum");
  }
  if (header.bytes != message.size() - kFrameHeaderBytes) {
    return emu::fail("frame {} says {} bytes, {} came", header.number, header.bytes,
                     message.size() - kFrameHeaderBytes);
  }
  if (header.offset > header.frame_bytes || header.bytes > header.frame_bytes - header.offset) {
    return emu::fail("frame {}: piece of {} bytes at {} of {}", header.number, header.bytes,
                     header.offset, header.frame_bytes);
  }
  if (header.rate_frames == 0 || header.rate_seconds == 0) {
    return emu::fail("frame {} has the rate {}/{}", header.number, header.rate_frames,
                     header.rate_seconds);
  }
  return header;
}

}  // namespace tools

// The 64 bytes in front of every piece of a video frame on the wire: what the sink needs to tell
// lost, duplicated and corrupt from good. Written by the sender, read from memory that a peer
// filled: nothing in it is believed before read_frame_header has looked at all of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "emu/base/result.h"
#include "emu/base/units.h"

namespace tools {

inline constexpr std::uint32_t kFrameMagic = 0x52464c46;  // "FLFR", little endian
inline constexpr std::uint16_t kFrameVersion = 1;

// As it lies in memory; the project's machines are little endian.
struct FrameHeader {
  std::uint32_t magic = kFrameMagic;
  std::uint16_t version = kFrameVersion;
  char type = '-';                 // I, P, B or '-'
  std::uint8_t flags = 0;          // kFrameClockEmulated
  std::uint64_t stream = 0;        // stream_hash of its name
  std::uint64_t number = 0;        // frames of the stream count from 0 without end
  std::uint32_t clip_frame = 0;    // index in the clip
  std::uint32_t frame_bytes = 0;   // of the whole frame
  emu::EmuNs frame_ns = 0;         // the frame's time: its regulator starts here
  std::uint32_t frame_crc = 0;     // CRC-32C of the whole frame
  std::uint32_t offset = 0;        // of this piece in the frame
  std::uint32_t bytes = 0;         // of this piece, after this header
  std::uint16_t rate_frames = 30;  // frames per …
  std::uint16_t rate_seconds = 1;  // … seconds
  std::uint32_t reserved = 0;
  std::uint32_t header_crc = 0;  // CRC-32C of all before it
};
inline constexpr std::size_t kFrameHeaderBytes = 64;
static_assert(sizeof(FrameHeader) == kFrameHeaderBytes && offsetof(FrameHeader, frame_ns) == 32 &&
              offsetof(FrameHeader, header_crc) == 60);

// frame_ns is on the clock of the receiver's completion times, so the first deadline is known.
inline constexpr std::uint8_t kFrameClockEmulated = 1;

// `before` is the checksum of what came before `bytes`, 0 for nothing.
std::uint32_t crc32c(std::span<const std::uint8_t> bytes, std::uint32_t before = 0);
std::uint64_t stream_hash(std::string_view name);  // FNV-1a

// Writes `header` with its checksum to the first 64 bytes of `to`.
void write_frame_header(FrameHeader header, std::span<std::uint8_t, kFrameHeaderBytes> to);

// `message` is what was received: header and piece. Checks magic, version, the checksum of the
// header, the length and the ranges; not the frame's bytes.
emu::Result<FrameHeader> read_frame_header(std::span<const std::uint8_t> message);

}  // namespace tools

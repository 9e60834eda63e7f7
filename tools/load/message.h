// A generator's message: a stamp of 40 bytes, then bytes that follow from its number, so that the
// receiver can check each of them. Read from memory that a peer filled. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "emu/base/units.h"

namespace tools {

inline constexpr std::uint32_t kLoadMagic = 0x444c4c46;  // "FLLD", little endian

struct LoadStamp {
  std::uint32_t magic = kLoadMagic;
  std::uint16_t source = 0;  // place of the sender in the receiver's list of sources
  std::uint16_t kind = 0;
  std::uint64_t number = 0;  // of this source to this destination
  emu::EmuNs launch_ns = 0;
  std::uint64_t token = 0;  // of the receiver's run: a late packet of another run is none of ours
  std::uint32_t bytes = 0;  // of the whole message
  std::uint32_t crc = 0;    // CRC-32C of all before it
};
inline constexpr std::size_t kLoadStampBytes = 40;
static_assert(sizeof(LoadStamp) == kLoadStampBytes && offsetof(LoadStamp, crc) == 36);

void write_load_message(LoadStamp stamp, std::span<std::uint8_t> to);

// Nothing if the stamp is not whole.
std::optional<LoadStamp> read_load_stamp(std::span<const std::uint8_t> message);
// Bytes after the stamp that are not what write_load_message made of it.
std::uint64_t corrupt_load_bytes(const LoadStamp& stamp, std::span<const std::uint8_t> message);

}  // namespace tools

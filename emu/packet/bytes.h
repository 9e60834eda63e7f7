// Big-endian fields at unaligned places. Private to this room.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "emu/packet/headers.h"

namespace emu {

template <int Bytes>
constexpr std::uint64_t get_be(const std::byte* p) {
  std::uint64_t value = 0;
  for (int i = 0; i < Bytes; ++i) value = value << 8 | std::to_integer<std::uint64_t>(p[i]);
  return value;
}
template <int Bytes>
constexpr void put_be(std::byte* p, std::uint64_t value) {
  for (int i = 0; i < Bytes; ++i) p[i] = static_cast<std::byte>(value >> (8 * (Bytes - 1 - i)));
}
constexpr std::uint8_t get8(const std::byte* p) { return std::to_integer<std::uint8_t>(*p); }
constexpr std::uint16_t get16(const std::byte* p) {
  return static_cast<std::uint16_t>(get_be<2>(p));
}
constexpr std::uint32_t get24(const std::byte* p) {
  return static_cast<std::uint32_t>(get_be<3>(p));
}
constexpr std::uint32_t get32(const std::byte* p) {
  return static_cast<std::uint32_t>(get_be<4>(p));
}
constexpr std::uint64_t get64(const std::byte* p) { return get_be<8>(p); }

// Both CRCs travel lowest byte first: the register's first bit is its lowest (IBA 7.8).
template <int Bytes>
constexpr void put_le(std::byte* p, std::uint64_t value) {
  for (int i = 0; i < Bytes; ++i) p[i] = static_cast<std::byte>(value >> (8 * i));
}
template <int Bytes>
constexpr std::uint64_t get_le(const std::byte* p) {
  std::uint64_t value = 0;
  for (int i = 0; i < Bytes; ++i) value |= std::to_integer<std::uint64_t>(p[i]) << (8 * i);
  return value;
}

inline constexpr std::uint8_t kLnhLocal = 2;   // BTH follows the LRH
inline constexpr std::uint8_t kLnhGlobal = 3;  // a GRH stands between
inline constexpr std::uint8_t kGrhNextHeaderBth = 0x1b;
inline constexpr std::size_t kCrcs = kIcrcBytes + kVcrcBytes;

// The headers that icrc_of() reads are there, and the CRCs' place behind them.
inline bool can_have_crcs(std::span<const std::byte> packet) {
  if (packet.size() < kLrhBytes + kBthBytes + kCrcs) return false;
  const bool has_grh = (get8(&packet[1]) & 3) == kLnhGlobal;
  return !has_grh || packet.size() >= kLrhBytes + kGrhBytes + kBthBytes + kCrcs;
}

}  // namespace emu

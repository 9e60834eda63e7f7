// Takes a packet apart. Nothing in it is believed: every length is checked against the bytes that
// are there. Called by hca/host/deliver and tools; fuzzed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>

#include "emu/packet/headers.h"

namespace emu {

enum class ParseStatus : std::uint8_t {
  ok,
  too_short,   // ends inside a header
  bad_length,  // LRH or GRH length is not that of the bytes given
  bad_link_version,
  bad_next_header,  // not an IBA transport packet
  bad_transport_version,
  unknown_opcode,
  bad_pad,  // more pad than payload, or payload where the opcode has none
};
std::string_view name_of(ParseStatus status);

struct ParsedPacket {
  PacketHeaders headers;
  const OpcodeInfo* info = nullptr;
  std::size_t payload_offset = 0;
  std::size_t payload_bytes = 0;  // without pad
};

// `packet` runs from the LRH to the VCRC. On anything but ok, `parsed` holds no promise.
ParseStatus parse_packet(std::span<const std::byte> packet, ParsedPacket& parsed);

enum class CrcStatus : std::uint8_t { ok, bad_vcrc, bad_icrc, too_short };
// Checks both CRCs of a packet from the LRH to the VCRC.
CrcStatus check_crcs(std::span<const std::byte> packet);
// False: both were left out (emu::pad_packet), or the packet has no room for them.
inline bool has_crcs(std::span<const std::byte> packet) {
  std::uint32_t icrc = 0;
  std::uint16_t vcrc = 0;
  if (packet.size() < sizeof icrc + sizeof vcrc) return false;
  std::memcpy(&icrc, packet.data() + packet.size() - sizeof icrc - sizeof vcrc, sizeof icrc);
  std::memcpy(&vcrc, packet.data() + packet.size() - sizeof vcrc, sizeof vcrc);
  return icrc != 0 || vcrc != 0;
}

}  // namespace emu

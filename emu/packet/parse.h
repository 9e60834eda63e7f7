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
  std::size_t pad_bytes = 0;
  // How many packets it stands for, and the payload of each but the last; of a packet its own.
  std::uint32_t packets = 1;
  std::size_t full_payload_bytes = 0;
};

// `packet` runs from the LRH to the VCRC. On anything but ok, `parsed` holds no promise.
ParseStatus parse_packet(std::span<const std::byte> packet, ParsedPacket& parsed);
// A train: packets of one message that follow one another, in one buffer and with one set of
// headers, those of a packet that would be all of them: with the PSN of the first, the opcode,
// immediate data and bits of the whole; LRH and GRH have the length of a packet whose payload is
// full. The payload of all begins at kTrainHeadBytes, on a cache line: a copy to any other place
// takes up to half as long again. It is padded to a word, as a packet's is; no CRCs. `packets` is
// more than one.
inline constexpr std::size_t kTrainHeadBytes = 128;
ParseStatus parse_train(std::span<const std::byte> train, std::uint32_t packets,
                        ParsedPacket& parsed);

// Of a train that was parsed: as if it began behind its first `count` packets, fewer than it has.
void skip_packets(ParsedPacket& train, std::uint32_t count);

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

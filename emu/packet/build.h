// Puts a packet together in its slot: headers, then the caller copies the payload behind them, then
// seal_packet() pads and adds both CRCs, or pad_packet() leaves them for whoever wants them. Called
// by hca/host, fabric/subnet and tools/capture.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "emu/packet/headers.h"
#include "emu/packet/parse.h"

namespace emu {

// Bytes in front of the payload.
inline std::size_t headers_bytes(Opcode opcode, bool has_grh) {
  return kLrhBytes + (has_grh ? kGrhBytes : 0) + kBthBytes + opcode_info(opcode).headers_bytes;
}
// Behind the payload, so that it ends with a whole word.
constexpr std::size_t pad_of(std::size_t payload_bytes) { return -payload_bytes % 4; }
// Bytes of the whole packet on the link: headers, payload, pad, ICRC, VCRC.
inline std::size_t packet_bytes(Opcode opcode, bool has_grh, std::size_t payload_bytes) {
  return headers_bytes(opcode, has_grh) + payload_bytes + pad_of(payload_bytes) + kIcrcBytes +
         kVcrcBytes;
}
// Flits of a packet (at least one).
constexpr std::uint16_t flits_of(std::size_t bytes, std::uint32_t flit_bits) {
  const std::size_t flit_bytes = flit_bits / 8;
  const std::size_t flits = (bytes + flit_bytes - 1) / flit_bytes;
  return static_cast<std::uint16_t>(flits == 0 ? 1 : flits);
}
inline constexpr std::uint32_t kAtomicWordBytes = 8;

// Payload of a full RC or UC packet: what fits in a worm of `packet_flits` flits and in the path
// MTU, cut to whole words. The 28 are LRH, BTH and CRCs (26) rounded up to a word: 40 flits of 16
// bytes carry 612. `more_bytes` are in front of every packet's payload beside these (XRC, GRH).
// Where a worm has no room for an atomic operation's word, packets are longer.
constexpr std::uint32_t rc_payload_bytes_max(std::uint32_t packet_flits, std::uint32_t flit_bits,
                                             std::uint32_t mtu_bytes,
                                             std::uint32_t more_bytes = 0) {
  const std::uint32_t worm = packet_flits * flit_bits / 8;
  const std::uint32_t headers = 28 + more_bytes;
  const std::uint32_t room = worm > headers ? (worm - headers) & ~3u : 0;
  return std::clamp(room, kAtomicWordBytes, mtu_bytes);
}

// Writes the headers for a payload of `payload_bytes` and returns their size: the payload goes
// there. `slot` must hold packet_bytes() in all.
std::size_t write_headers(std::span<std::byte> slot, const PacketHeaders& headers,
                          std::size_t payload_bytes);
// The headers of a train (emu/packet/parse.h) whose packets have `full_payload_bytes` each, whole
// words, but for the last. The payload goes to kTrainHeadBytes.
void write_train_headers(std::span<std::byte, kTrainHeadBytes> head, const PacketHeaders& headers,
                         std::size_t payload_bytes, std::size_t full_payload_bytes);
// Packet number `nth` of a train as a link would carry it, without CRCs, into `slot`: its bytes.
// The bit that asks for an acknowledgement stands in the last one only.
std::size_t cut_packet(std::span<const std::byte> train, const ParsedPacket& parsed,
                       std::uint32_t nth, std::span<std::byte> slot);
// After the payload is in place: pad, ICRC, VCRC. Returns the bytes of the whole packet.
std::size_t seal_packet(std::span<std::byte> slot, std::size_t headers_and_payload_bytes);
// The same with zeros for CRCs, which say that they were left out: as network cards make checksums
// of packets that leave a host, and nobody those of packets that stay in its memory.
std::size_t pad_packet(std::span<std::byte> slot, std::size_t headers_and_payload_bytes);
// Makes up for CRCs that were left out. `packet` runs from the LRH to the VCRC; one that is too
// short for its headers, or has CRCs, stays as it is.
void add_left_crcs(std::span<std::byte> packet);

// Changes the lane of a sealed packet; the VCRC is made anew, the ICRC does not cover it.
void set_vl(std::span<std::byte> packet, Vl vl);

}  // namespace emu

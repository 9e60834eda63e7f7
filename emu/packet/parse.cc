#include "emu/packet/parse.h"

#include <algorithm>
#include <cstring>

#include "emu/packet/bytes.h"
#include "emu/packet/crc.h"

namespace emu {
namespace {

// `packet_bytes`: what it says that the packet has.
ParseStatus parse_lrh(const std::byte* p, PacketHeaders& h, std::size_t& packet_bytes) {
  if ((get8(p) & 0x0f) != 0) return ParseStatus::bad_link_version;
  const std::uint8_t next = get8(p + 1) & 3;
  if (next != kLnhLocal && next != kLnhGlobal) return ParseStatus::bad_next_header;
  h.lrh.vl = get8(p) >> 4;
  h.lrh.sl = get8(p + 1) >> 4;
  h.has_grh = next == kLnhGlobal;
  h.lrh.dlid = get16(p + 2);
  h.lrh.slid = get16(p + 6);
  packet_bytes = std::size_t{get16(p + 4) & 0x7ffU} * 4 + kVcrcBytes;
  return ParseStatus::ok;
}

ParseStatus parse_grh(const std::byte* p, std::size_t packet_size, Grh& grh) {
  const std::uint32_t first = get32(p);
  if (first >> 28 != 6 || get8(p + 6) != kGrhNextHeaderBth) return ParseStatus::bad_next_header;
  if (get16(p + 4) != packet_size - kVcrcBytes - kLrhBytes - kGrhBytes) {
    return ParseStatus::bad_length;
  }
  grh.traffic_class = static_cast<std::uint8_t>(first >> 20);
  grh.flow_label = first & 0xfffff;
  grh.hop_limit = get8(p + 7);
  std::memcpy(grh.sgid.data(), p + 8, grh.sgid.size());
  std::memcpy(grh.dgid.data(), p + 24, grh.dgid.size());
  return ParseStatus::ok;
}

void parse_bth(const std::byte* p, Bth& bth) {
  bth.opcode = static_cast<Opcode>(get8(p));
  bth.solicited = (get8(p + 1) & 0x80) != 0;
  bth.migrated = (get8(p + 1) & 0x40) != 0;
  bth.pkey = get16(p + 2);
  bth.fecn = (get8(p + 4) & 0x80) != 0;
  bth.becn = (get8(p + 4) & 0x40) != 0;
  bth.dest_qp = get24(p + 5);
  bth.ack_request = (get8(p + 8) & 0x80) != 0;
  bth.psn = get24(p + 9);
}

void parse_extended(const std::byte* p, std::uint8_t which, PacketHeaders& h) {
  if ((which & kXrcEth) != 0) {
    h.xrc_srq = get24(p + 1);
    p += kXrcEthBytes;
  }
  if ((which & kDeth) != 0) {
    h.deth = {get32(p), get24(p + 5)};
    p += kDethBytes;
  }
  if ((which & kReth) != 0) {
    h.reth = {get64(p), get32(p + 8), get32(p + 12)};
    p += kRethBytes;
  }
  if ((which & kAtomicEth) != 0) {
    h.atomic = {get64(p), get32(p + 8), get64(p + 12), get64(p + 20)};
    p += kAtomicEthBytes;
  }
  if ((which & kAeth) != 0) {
    h.aeth = {get8(p), get24(p + 1)};
    p += kAethBytes;
  }
  if ((which & kAtomicAckEth) != 0) {
    h.atomic_original = get64(p);
    p += kAtomicAckEthBytes;
  }
  if ((which & kImmDt) != 0) {
    h.immediate = get32(p);
    p += kImmDtBytes;
  }
  if ((which & kIeth) != 0) h.invalidate_rkey = get32(p);
}

}  // namespace

std::string_view name_of(ParseStatus status) {
  switch (status) {
    case ParseStatus::ok:
      return "ok";
    case ParseStatus::too_short:
      return "too_short";
    case ParseStatus::bad_length:
      return "bad_length";
    case ParseStatus::bad_link_version:
      return "bad_link_version";
    case ParseStatus::bad_next_header:
      return "bad_next_header";
    case ParseStatus::bad_transport_version:
      return "bad_transport_version";
    case ParseStatus::unknown_opcode:
      return "unknown_opcode";
    case ParseStatus::bad_pad:
      return "bad_pad";
  }
  return "?";
}

namespace {

// What stands before the payload, which begins at `at`. `packet_bytes`: what the packet has, by its
// headers; `whole_bytes`: what they must say, 0 if anything.
ParseStatus parse_headers(std::span<const std::byte> packet, std::size_t whole_bytes,
                          ParsedPacket& parsed, std::size_t& packet_bytes, std::size_t& at) {
  if (packet.size() < kLrhBytes + kBthBytes + kCrcs) return ParseStatus::too_short;
  PacketHeaders& h = parsed.headers;
  if (const auto lrh = parse_lrh(packet.data(), h, packet_bytes); lrh != ParseStatus::ok) {
    return lrh;
  }
  if (whole_bytes != 0 && packet_bytes != whole_bytes) return ParseStatus::bad_length;
  at = kLrhBytes;
  if (h.has_grh) {
    if (packet.size() < at + kGrhBytes + kBthBytes + kCrcs) return ParseStatus::too_short;
    const auto grh = parse_grh(&packet[at], packet_bytes, h.grh);
    if (grh != ParseStatus::ok) return grh;
    at += kGrhBytes;
  }
  const std::byte* const bth = &packet[at];
  if ((get8(bth + 1) & 0x0f) != 0) return ParseStatus::bad_transport_version;
  parse_bth(bth, h.bth);
  at += kBthBytes;
  parsed.info = &opcode_info(h.bth.opcode);
  if (!parsed.info->known) return ParseStatus::unknown_opcode;
  const std::size_t extended = parsed.info->headers_bytes;
  if (packet.size() < at + extended + kCrcs) return ParseStatus::too_short;
  parse_extended(packet.data() + at, parsed.info->headers, h);
  at += extended;
  parsed.pad_bytes = get8(bth + 1) >> 4 & 3;
  return ParseStatus::ok;
}

}  // namespace

ParseStatus parse_packet(std::span<const std::byte> packet, ParsedPacket& parsed) {
  std::size_t packet_bytes = 0;
  std::size_t at = 0;
  const auto headers = parse_headers(packet, packet.size(), parsed, packet_bytes, at);
  if (headers != ParseStatus::ok) return headers;
  const std::size_t room = packet.size() - kCrcs - at;
  const std::size_t pad = parsed.pad_bytes;
  if (pad > room || (room != 0 && !parsed.info->payload)) return ParseStatus::bad_pad;
  parsed.packets = 1;
  parsed.payload_offset = at;
  parsed.payload_bytes = parsed.full_payload_bytes = room - pad;
  return ParseStatus::ok;
}

ParseStatus parse_train(std::span<const std::byte> train, std::uint32_t packets,
                        ParsedPacket& parsed) {
  if (train.size() <= kTrainHeadBytes) return ParseStatus::too_short;
  std::size_t packet_bytes = 0;
  std::size_t at = 0;
  const auto headers = parse_headers(train.first(kTrainHeadBytes), 0, parsed, packet_bytes, at);
  if (headers != ParseStatus::ok) return headers;
  if (!has_parts(parsed.headers.bth.opcode)) return ParseStatus::bad_pad;
  const std::size_t full = packet_bytes - std::min(packet_bytes, at + kCrcs);
  parsed.packets = packets;
  parsed.payload_offset = kTrainHeadBytes;
  parsed.payload_bytes =
      train.size() - kTrainHeadBytes - std::min(parsed.pad_bytes, train.size() - kTrainHeadBytes);
  parsed.full_payload_bytes = full;
  const bool consistent = packets > 1 && full % 4 == 0 &&
                          parsed.payload_bytes > full * (packets - 1) &&
                          parsed.payload_bytes <= full * packets;
  return consistent ? ParseStatus::ok : ParseStatus::bad_length;
}

void skip_packets(ParsedPacket& train, std::uint32_t count) {
  Bth& bth = train.headers.bth;
  bth.psn = psn_add(bth.psn, count);
  bth.opcode = part_of(bth.opcode, false, true);
  train.info = &opcode_info(bth.opcode);
  train.payload_offset += count * train.full_payload_bytes;
  train.payload_bytes -= count * train.full_payload_bytes;
  train.packets -= count;
}

CrcStatus check_crcs(std::span<const std::byte> packet) {
  if (!can_have_crcs(packet)) return CrcStatus::too_short;
  const std::size_t vcrc_at = packet.size() - kVcrcBytes;
  if (vcrc_of(packet.first(vcrc_at)) != get_le<2>(&packet[vcrc_at])) return CrcStatus::bad_vcrc;
  const std::size_t icrc_at = vcrc_at - kIcrcBytes;
  if (icrc_of(packet.first(icrc_at)) != get_le<4>(&packet[icrc_at])) return CrcStatus::bad_icrc;
  return CrcStatus::ok;
}

}  // namespace emu

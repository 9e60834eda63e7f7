#include "emu/packet/build.h"

#include <algorithm>
#include <cstring>

#include "emu/base/check.h"
#include "emu/packet/bytes.h"
#include "emu/packet/crc.h"

namespace emu {
namespace {

void write_lrh(std::byte* p, const PacketHeaders& h, std::size_t packet_size) {
  p[0] = static_cast<std::byte>(h.lrh.vl << 4);  // link version 0
  p[1] = static_cast<std::byte>(h.lrh.sl << 4 | (h.has_grh ? kLnhGlobal : kLnhLocal));
  put_be<2>(p + 2, h.lrh.dlid);
  // Words from the LRH to the end of the ICRC.
  put_be<2>(p + 4, (packet_size - kVcrcBytes) / 4 & 0x7ff);
  put_be<2>(p + 6, h.lrh.slid);
}

void write_grh(std::byte* p, const Grh& grh, std::size_t packet_size) {
  put_be<4>(p, std::uint32_t{6} << 28 | std::uint32_t{grh.traffic_class} << 20 |
                   (grh.flow_label & 0xfffff));
  put_be<2>(p + 4, packet_size - kVcrcBytes - kLrhBytes - kGrhBytes);
  p[6] = std::byte{kGrhNextHeaderBth};
  p[7] = static_cast<std::byte>(grh.hop_limit);
  std::memcpy(p + 8, grh.sgid.data(), grh.sgid.size());
  std::memcpy(p + 24, grh.dgid.data(), grh.dgid.size());
}

void write_bth(std::byte* p, const Bth& bth, std::size_t pad) {
  p[0] = static_cast<std::byte>(bth.opcode);
  p[1] = static_cast<std::byte>((bth.solicited ? 0x80 : 0) | (bth.migrated ? 0x40 : 0) |
                                static_cast<int>(pad << 4));  // transport version 0
  put_be<2>(p + 2, bth.pkey);
  p[4] = static_cast<std::byte>((bth.fecn ? 0x80 : 0) | (bth.becn ? 0x40 : 0));
  put_be<3>(p + 5, bth.dest_qp);
  p[8] = static_cast<std::byte>(bth.ack_request ? 0x80 : 0);
  put_be<3>(p + 9, bth.psn);
}

// The extended headers that the opcode asks for; returns behind the last.
std::byte* write_extended(std::byte* p, const PacketHeaders& h, std::uint8_t which) {
  if ((which & kXrcEth) != 0) {
    put_be<4>(p, h.xrc_srq & kMask24);
    p += kXrcEthBytes;
  }
  if ((which & kDeth) != 0) {
    put_be<4>(p, h.deth.qkey);
    put_be<4>(p + 4, h.deth.src_qp & kMask24);
    p += kDethBytes;
  }
  if ((which & kReth) != 0) {
    put_be<8>(p, h.reth.address);
    put_be<4>(p + 8, h.reth.rkey);
    put_be<4>(p + 12, h.reth.length);
    p += kRethBytes;
  }
  if ((which & kAtomicEth) != 0) {
    put_be<8>(p, h.atomic.address);
    put_be<4>(p + 8, h.atomic.rkey);
    put_be<8>(p + 12, h.atomic.swap_or_add);
    put_be<8>(p + 20, h.atomic.compare);
    p += kAtomicEthBytes;
  }
  if ((which & kAeth) != 0) {
    put_be<4>(p, std::uint32_t{h.aeth.syndrome} << 24 | (h.aeth.msn & kMask24));
    p += kAethBytes;
  }
  if ((which & kAtomicAckEth) != 0) {
    put_be<8>(p, h.atomic_original);
    p += kAtomicAckEthBytes;
  }
  if ((which & kImmDt) != 0) {
    put_be<4>(p, h.immediate);
    p += kImmDtBytes;
  }
  if ((which & kIeth) != 0) {
    put_be<4>(p, h.invalidate_rkey);
    p += kIethBytes;
  }
  return p;
}

// Returns their size; `size` is what they say that the packet has.
std::size_t put_headers(std::byte* const slot, const PacketHeaders& headers, std::size_t size,
                        std::size_t pad) {
  std::byte* p = slot;
  write_lrh(p, headers, size);
  p += kLrhBytes;
  if (headers.has_grh) {
    write_grh(p, headers.grh, size);
    p += kGrhBytes;
  }
  write_bth(p, headers.bth, pad);
  p = write_extended(p + kBthBytes, headers, opcode_info(headers.bth.opcode).headers);
  return static_cast<std::size_t>(p - slot);
}

void add_crcs(std::span<std::byte> packet) {
  const std::size_t icrc_at = packet.size() - kCrcs;
  put_le<4>(&packet[icrc_at], icrc_of(packet.first(icrc_at)));
  const std::size_t vcrc_at = packet.size() - kVcrcBytes;
  put_le<2>(&packet[vcrc_at], vcrc_of(packet.first(vcrc_at)));
}

}  // namespace

std::size_t write_headers(std::span<std::byte> slot, const PacketHeaders& headers,
                          std::size_t payload_bytes) {
  const OpcodeInfo& info = opcode_info(headers.bth.opcode);
  const std::size_t size = packet_bytes(headers.bth.opcode, headers.has_grh, payload_bytes);
  CHECK(info.known && (payload_bytes == 0 || info.payload) && size <= slot.size());
  return put_headers(slot.data(), headers, size, pad_of(payload_bytes));
}

void write_train_headers(std::span<std::byte, kTrainHeadBytes> head, const PacketHeaders& headers,
                         std::size_t payload_bytes, std::size_t full_payload_bytes) {
  CHECK(has_parts(headers.bth.opcode) && full_payload_bytes % 4 == 0);
  static_assert(kTrainHeadBytes >= kLrhBytes + kGrhBytes + kBthBytes + kXrcEthBytes + kRethBytes +
                                       kImmDtBytes + kIethBytes);
  put_headers(head.data(), headers,
              packet_bytes(headers.bth.opcode, headers.has_grh, full_payload_bytes),
              pad_of(payload_bytes));
}

std::size_t cut_packet(std::span<const std::byte> train, const ParsedPacket& parsed,
                       std::uint32_t nth, std::span<std::byte> slot) {
  const std::size_t from = nth * parsed.full_payload_bytes;
  const std::size_t bytes = std::min(parsed.full_payload_bytes, parsed.payload_bytes - from);
  PacketHeaders headers = parsed.headers;
  const bool last = nth + 1 == parsed.packets;
  headers.bth.opcode = part_of(headers.bth.opcode, nth == 0, last);
  headers.bth.psn = psn_add(headers.bth.psn, nth);
  headers.bth.ack_request &= last;
  headers.bth.solicited &= last;
  const std::size_t at = write_headers(slot, headers, bytes);
  std::memcpy(&slot[at], &train[parsed.payload_offset + from], bytes);
  return pad_packet(slot, at + bytes);
}

std::size_t pad_packet(std::span<std::byte> slot, std::size_t headers_and_payload_bytes) {
  // Headers are whole words, so the pad of the payload is that of the packet.
  const std::size_t size = headers_and_payload_bytes + pad_of(headers_and_payload_bytes) + kCrcs;
  CHECK(size <= slot.size());
  for (std::size_t i = headers_and_payload_bytes; i < size; ++i) slot[i] = std::byte{0};
  return size;
}

std::size_t seal_packet(std::span<std::byte> slot, std::size_t headers_and_payload_bytes) {
  const std::size_t size = pad_packet(slot, headers_and_payload_bytes);
  add_crcs(slot.first(size));
  return size;
}

void add_left_crcs(std::span<std::byte> packet) {
  if (can_have_crcs(packet) && !has_crcs(packet)) add_crcs(packet);
}

void set_vl(std::span<std::byte> packet, Vl vl) {
  CHECK(packet.size() >= kLrhBytes + kVcrcBytes);
  packet[0] = (packet[0] & std::byte{0x0f}) | static_cast<std::byte>(vl << 4);
  const std::size_t at = packet.size() - kVcrcBytes;
  put_le<2>(&packet[at], vcrc_of(packet.first(at)));
}

}  // namespace emu

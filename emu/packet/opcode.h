// Opcodes of the base transport header: which service, which place in the message, which extended
// headers follow (IBA volume 1, table "OpCode field").
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace emu {

enum class Opcode : std::uint8_t {
  rc_send_first = 0x00,
  rc_send_middle = 0x01,
  rc_send_last = 0x02,
  rc_send_last_imm = 0x03,
  rc_send_only = 0x04,
  rc_send_only_imm = 0x05,
  rc_write_first = 0x06,
  rc_write_middle = 0x07,
  rc_write_last = 0x08,
  rc_write_last_imm = 0x09,
  rc_write_only = 0x0a,
  rc_write_only_imm = 0x0b,
  rc_read_request = 0x0c,
  rc_read_response_first = 0x0d,
  rc_read_response_middle = 0x0e,
  rc_read_response_last = 0x0f,
  rc_read_response_only = 0x10,
  rc_ack = 0x11,
  rc_atomic_ack = 0x12,
  rc_compare_swap = 0x13,
  rc_fetch_add = 0x14,
  rc_send_last_inv = 0x16,
  rc_send_only_inv = 0x17,
  rc_atomic_write = 0x1d,
  uc_send_first = 0x20,
  uc_send_middle = 0x21,
  uc_send_last = 0x22,
  uc_send_last_imm = 0x23,
  uc_send_only = 0x24,
  uc_send_only_imm = 0x25,
  uc_write_first = 0x26,
  uc_write_middle = 0x27,
  uc_write_last = 0x28,
  uc_write_last_imm = 0x29,
  uc_write_only = 0x2a,
  uc_write_only_imm = 0x2b,
  ud_send_only = 0x64,
  ud_send_only_imm = 0x65,
};

// SEND and RDMA WRITE of UC have RC's opcodes and this.
inline constexpr unsigned kUcOpcodes = 0x20;
constexpr Opcode uc_of(Opcode rc) {
  return static_cast<Opcode>(static_cast<unsigned>(rc) + kUcOpcodes);
}
// All of RC's, requests and answers, are XRC's with this (IBA annex A14).
inline constexpr unsigned kXrcOpcodes = 0xa0;
constexpr Opcode xrc_of(Opcode rc) {
  return static_cast<Opcode>(static_cast<unsigned>(rc) + kXrcOpcodes);
}
// What RC calls an opcode of UC or XRC; RC's own stay.
constexpr Opcode rc_of(Opcode opcode) {
  return static_cast<Opcode>(static_cast<unsigned>(opcode) & 0x1f);
}

// Whether a message of such packets may have several: SEND, RDMA WRITE and READ responses of a
// connection.
bool has_parts(Opcode opcode);
// Of such a message, or a piece of one, whose only packet would have the opcode `whole`: the opcode
// of its first, last, only or (neither) middle packet.
Opcode part_of(Opcode whole, bool first, bool last);

enum class Service : std::uint8_t { rc, uc, ud, xrc };

// What follows the BTH, in the order of the wire.
enum ExtHeader : std::uint8_t {
  kDeth = 1 << 0,
  kReth = 1 << 1,
  kAtomicEth = 1 << 2,
  kAeth = 1 << 3,
  kAtomicAckEth = 1 << 4,
  kImmDt = 1 << 5,
  kIeth = 1 << 6,
  kXrcEth = 1 << 7,  // the first, where there is one
};

struct OpcodeInfo {
  bool known = false;
  Service service = Service::rc;
  std::uint8_t headers = 0;  // ExtHeader bits
  std::uint8_t headers_bytes = 0;
  bool payload = false;        // may carry payload
  bool first = false;          // first or only packet of its message
  bool last = false;           // last or only
  bool request = false;        // goes to the responder half of the peer's QP
  bool consumes_recv = false;  // takes a receive work request at its end
};

extern const std::array<OpcodeInfo, 256> kOpcodes;
inline const OpcodeInfo& opcode_info(Opcode opcode) {
  return kOpcodes[static_cast<std::size_t>(opcode)];
}

}  // namespace emu

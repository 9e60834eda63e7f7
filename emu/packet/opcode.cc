#include "emu/packet/opcode.h"

#include "emu/packet/headers.h"

namespace emu {
namespace {

using Table = std::array<OpcodeInfo, 256>;

// Where in its message a packet stands.
enum Place : unsigned { kMiddle = 0, kFirst = 1, kLast = 2, kOnly = 3 };

constexpr std::uint8_t bytes_of(std::uint8_t headers) {
  std::size_t bytes = 0;
  if ((headers & kDeth) != 0) bytes += kDethBytes;
  if ((headers & kReth) != 0) bytes += kRethBytes;
  if ((headers & kAtomicEth) != 0) bytes += kAtomicEthBytes;
  if ((headers & kAeth) != 0) bytes += kAethBytes;
  if ((headers & kAtomicAckEth) != 0) bytes += kAtomicAckEthBytes;
  if ((headers & kImmDt) != 0) bytes += kImmDtBytes;
  if ((headers & kIeth) != 0) bytes += kIethBytes;
  if ((headers & kXrcEth) != 0) bytes += kXrcEthBytes;
  return static_cast<std::uint8_t>(bytes);
}

constexpr void set(Table& table, Opcode opcode, Service service, unsigned place,
                   std::uint8_t headers, bool payload, bool request, bool consumes_recv) {
  table[static_cast<std::size_t>(opcode)] = {.known = true,
                                             .service = service,
                                             .headers = headers,
                                             .payload = payload,
                                             .first = (place & kFirst) != 0,
                                             .last = (place & kLast) != 0,
                                             .request = request,
                                             .consumes_recv = consumes_recv};
}

// SEND and RDMA WRITE, which RC and UC share.
constexpr void set_sends(Table& table, Service service, unsigned base) {
  const auto op = [base](Opcode rc) {
    return static_cast<Opcode>(base + static_cast<unsigned>(rc));
  };
  const auto send = [&](Opcode rc, unsigned place, std::uint8_t headers) {
    set(table, op(rc), service, place, headers, true, true, (place & kLast) != 0);
  };
  const auto write = [&](Opcode rc, unsigned place, std::uint8_t headers) {
    set(table, op(rc), service, place, headers, true, true, (headers & kImmDt) != 0);
  };
  send(Opcode::rc_send_first, kFirst, 0);
  send(Opcode::rc_send_middle, kMiddle, 0);
  send(Opcode::rc_send_last, kLast, 0);
  send(Opcode::rc_send_last_imm, kLast, kImmDt);
  send(Opcode::rc_send_only, kOnly, 0);
  send(Opcode::rc_send_only_imm, kOnly, kImmDt);
  write(Opcode::rc_write_first, kFirst, kReth);
  write(Opcode::rc_write_middle, kMiddle, 0);
  write(Opcode::rc_write_last, kLast, 0);
  write(Opcode::rc_write_last_imm, kLast, kImmDt);
  write(Opcode::rc_write_only, kOnly, kReth);
  write(Opcode::rc_write_only_imm, kOnly, kReth | kImmDt);
}

constexpr Table make_table() {
  Table table{};
  set_sends(table, Service::rc, 0x00);
  set_sends(table, Service::uc, kUcOpcodes);
  const auto rc = [&](Opcode opcode, unsigned place, std::uint8_t headers, bool payload,
                      bool request, bool consumes_recv = false) {
    set(table, opcode, Service::rc, place, headers, payload, request, consumes_recv);
  };
  rc(Opcode::rc_read_request, kOnly, kReth, false, true);
  rc(Opcode::rc_read_response_first, kFirst, kAeth, true, false);
  rc(Opcode::rc_read_response_middle, kMiddle, 0, true, false);
  rc(Opcode::rc_read_response_last, kLast, kAeth, true, false);
  rc(Opcode::rc_read_response_only, kOnly, kAeth, true, false);
  rc(Opcode::rc_ack, kOnly, kAeth, false, false);
  rc(Opcode::rc_atomic_ack, kOnly, kAeth | kAtomicAckEth, false, false);
  rc(Opcode::rc_compare_swap, kOnly, kAtomicEth, false, true);
  rc(Opcode::rc_fetch_add, kOnly, kAtomicEth, false, true);
  rc(Opcode::rc_send_last_inv, kLast, kIeth, true, true, true);
  rc(Opcode::rc_send_only_inv, kOnly, kIeth, true, true, true);
  rc(Opcode::rc_atomic_write, kOnly, kReth, true, true);
  for (unsigned opcode = 0; opcode < kUcOpcodes; ++opcode) {
    OpcodeInfo info = table[opcode];
    if (!info.known) continue;
    info.service = Service::xrc;
    if (info.request) info.headers |= kXrcEth;
    table[opcode + kXrcOpcodes] = info;
  }
  set(table, Opcode::ud_send_only, Service::ud, kOnly, kDeth, true, true, true);
  set(table, Opcode::ud_send_only_imm, Service::ud, kOnly, kDeth | kImmDt, true, true, true);
  for (OpcodeInfo& info : table) info.headers_bytes = bytes_of(info.headers);
  return table;
}

// IBA table 45, in units of 10 microseconds by timer value.
constexpr std::array<std::uint32_t, 32> kRnrTimer10us = {
    65536, 1,    2,    3,    4,    6,     8,     12,    16,    24,   32,
    48,    64,   96,   128,  192,  256,   384,   512,   768,   1024, 1536,
    2048,  3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152};

}  // namespace

constexpr Table kOpcodes = make_table();

bool has_parts(Opcode opcode) {
  const OpcodeInfo& info = opcode_info(opcode);
  return info.known && info.payload && info.service != Service::ud &&
         rc_of(opcode) != Opcode::rc_atomic_write;
}

Opcode part_of(Opcode whole, bool first, bool last) {
  const OpcodeInfo& info = opcode_info(whole);
  first = first && info.first;
  last = last && info.last;
  if (first == info.first && last == info.last) return whole;
  const Opcode rc = rc_of(whole);
  const auto service = static_cast<unsigned>(whole) - static_cast<unsigned>(rc);
  const auto of_service = [service](Opcode opcode) {
    return static_cast<Opcode>(service + static_cast<unsigned>(opcode));
  };
  using enum Opcode;
  const bool response = !info.request;
  const bool write = rc >= rc_write_first && rc <= rc_write_only_imm;
  if (!last) {
    if (response) return of_service(first ? rc_read_response_first : rc_read_response_middle);
    if (write) return of_service(first ? rc_write_first : rc_write_middle);
    return of_service(first ? rc_send_first : rc_send_middle);
  }
  if (response) return of_service(rc_read_response_last);
  if (rc == rc_send_only_inv) return of_service(rc_send_last_inv);
  const bool imm = (info.headers & kImmDt) != 0;
  if (write) return of_service(imm ? rc_write_last_imm : rc_write_last);
  return of_service(imm ? rc_send_last_imm : rc_send_last);
}

EmuNs rnr_timer_ns(std::uint8_t timer) { return EmuNs{kRnrTimer10us[timer & 31]} * 10'000; }

}  // namespace emu

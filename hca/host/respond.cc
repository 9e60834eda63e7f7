// The responder of RC: requests arrive in the order of their PSNs or are turned away (IBA 9.7.4).
#include "hca/host/state.h"

namespace hca {

namespace {

using emu::NakCode;
using emu::Opcode;

// The work request that takes the message is at fault: it completes with `status`.
void refuse_recv(HostState& s, Qp& qp, std::uint32_t psn, NakCode code, WcStatus status) {
  push_nak(s, qp, psn, static_cast<std::uint8_t>(emu::kSyndromeNak | static_cast<int>(code)), true);
  Cqe cqe{};
  complete_recv(s, qp, status, cqe, true);
}

bool rnr(HostState& s, Qp& qp, std::uint32_t psn) {
  qp.nak_sent = true;  // silence until the expected packet comes again
  push_nak(s, qp, psn,
           static_cast<std::uint8_t>(emu::kSyndromeRnrNak | (qp.attributes.min_rnr_timer & 31)),
           false);
  return false;
}

// A receive work request for this message; false: the packet was answered otherwise.
bool need_recv(HostState& s, Qp& qp, std::uint32_t psn) {
  if (qp.have_recv) return true;
  switch (take_recv(s, qp)) {
    case TakeRecv::none:
      return rnr(s, qp, psn);
    case TakeRecv::broken:
      qp_fault(s, qp);
      return false;
    case TakeRecv::ok:
      break;
  }
  return true;
}

std::uint32_t access_of(const Request& request) {
  if (request.is_read) return kAccessRemoteRead;
  if (request.is_atomic) return kAccessRemoteAtomic;
  return request.is_atomic_write || request.kind == Receiving::write ? kAccessRemoteWrite : 0;
}

bool begin_write(HostState& s, Qp& qp, const emu::PacketHeaders& headers) {
  if (!may_write(s, qp, headers.reth)) {
    refuse(s, qp, headers.bth.psn, NakCode::remote_access_error, AsyncEvent::qp_access_err);
    return false;
  }
  start_write(qp, headers.reth);
  return true;
}

bool store_write(HostState& s, Qp& qp, const std::uint8_t* bytes, std::uint32_t length,
                 const emu::ParsedPacket& packet) {
  const std::uint32_t psn = packet.headers.bth.psn;
  if (length > qp.write_left || (packet.info->last && length != qp.write_left)) {
    refuse_request(s, qp, psn, RequestFault::length, length, qp.write_left);
    return false;
  }
  if (write_on(s, qp, bytes, length, psn)) return true;
  refuse(s, qp, psn, NakCode::remote_access_error, AsyncEvent::qp_access_err);
  return false;
}

bool store_send(HostState& s, Qp& qp, const std::uint8_t* bytes, std::uint32_t length,
                std::uint32_t psn) {
  const WcStatus status = scatter_receive(s, qp, bytes, length, psn);
  if (status == WcStatus::success) return true;
  if (status == WcStatus::loc_len_err) {
    blame_length(s, qp, std::uint64_t{qp.received_bytes} + length);
  }
  refuse_recv(s, qp, psn,
              status == WcStatus::loc_len_err ? NakCode::invalid_request
                                              : NakCode::remote_operational_error,
              status);
  return false;
}

void serve_read(HostState& s, Qp& qp, const emu::PacketHeaders& headers, bool repeated) {
  const emu::Reth& reth = headers.reth;
  const std::uint32_t psn = headers.bth.psn;
  const std::uint32_t pd = request_pd(s, qp, headers);
  Range range;
  if (reth.length > kMaxMessageBytes) {
    refuse_request(s, qp, psn, RequestFault::length, reth.length, kMaxMessageBytes);
    return;
  }
  if (reth.length != 0 && !resolve(s.mrs_, reth.rkey, pd, reth.address, reth.length,
                                   kAccessRemoteRead, range, qp.number)) {
    blame_key(s, qp, TroubleKind::remote_key,
              {reth.rkey, pd, reth.address, reth.length, kAccessRemoteRead});
    refuse(s, qp, psn, NakCode::remote_access_error, AsyncEvent::qp_access_err);
    return;
  }
  std::uint32_t reads = 0;
  for (std::uint32_t i = qp.responses_first; i != qp.responses_last; ++i) {
    const Response& waiting = qp.response(i);
    if (waiting.kind != ResponseKind::read) continue;
    reads += waiting.repeated ? 0 : 1;
    const auto into = static_cast<std::uint32_t>(emu::psn_diff(psn, waiting.psn));
    if (repeated && into >= waiting.sent && into < waiting.packets) return;  // will come anyway
  }
  // What a peer may have outstanding was agreed at connection; this is the limit of the table. What
  // it has asked for again is none of it: the first answer may be there before this one has gone.
  if (!repeated && reads >= kMaxRdAtomic) {
    refuse_request(s, qp, psn, RequestFault::depth);
    return;
  }
  if (qp.responses_last - qp.responses_first + 1 >= kResponsesMax) return;  // it will ask again
  // As many as a WRITE of it would have.
  const std::uint32_t packets = packets_of(WrOpcode::rdma_write, reth.length, qp.payload);
  if (!repeated) {
    qp.epsn = add24(qp.epsn, packets);
    qp.msn = add24(qp.msn, 1);
  }
  Response& response = qp.response(qp.responses_last++);
  response = {};
  response.kind = ResponseKind::read;
  response.repeated = repeated;
  response.address = reth.address;
  response.rkey = reth.rkey;
  response.pd = pd;
  response.length = reth.length;
  response.psn = psn;
  response.msn = qp.msn;
  response.packets = packets;
  want_response(s, qp);
}

// Behind what was expected: it was served before, and the answer perhaps lost.
void respond_again(HostState& s, Qp& qp, const emu::ParsedPacket& packet) {
  s.counters_.duplicates_received += packet.packets;
  if (emu::rc_of(packet.headers.bth.opcode) == Opcode::rc_read_request) {
    serve_read(s, qp, packet.headers, true);
    return;
  }
  const Request request = request_of(packet.headers.bth.opcode);
  if (request.is_atomic) {
    serve_atomic(s, qp, packet.headers, true);
    return;
  }
  if (request.is_atomic_write) {
    confirm_atomic_write(s, qp, packet.headers.bth.psn, true);
    return;
  }
  push_ack(s, qp, add24(qp.epsn, emu::kMask24));  // epsn - 1
}

// Beyond what was expected: something before it was lost. Said once.
void respond_to_gap(HostState& s, Qp& qp, const emu::ParsedPacket& packet) {
  s.counters_.out_of_sequence_received += packet.packets;
  if (qp.nak_sent) return;
  qp.nak_sent = true;
  push_nak(s, qp, qp.epsn,
           emu::kSyndromeNak | static_cast<std::uint8_t>(NakCode::psn_sequence_error), false);
}

// First follows nothing, middle and last follow their own kind.
bool fits_sequence(const Qp& qp, const emu::ParsedPacket& packet, const Request& request) {
  if (packet.info->first || request.is_answered()) return qp.receiving == Receiving::nothing;
  return qp.receiving == request.kind;
}

// False: the receive queue does not support it, whatever its key is (IBA 11.6.2: remote invalid
// request).
bool take_request(HostState& s, Qp& qp, const emu::ParsedPacket& packet, const Request& request) {
  const std::uint32_t psn = packet.headers.bth.psn;
  const bool unknown = request.kind == Receiving::nothing && !request.is_answered();
  if (unknown || !fits_sequence(qp, packet, request)) {
    refuse_request(s, qp, psn, RequestFault::order);
  } else if (request.is_answered() && qp.attributes.max_dest_rd_atomic == 0) {
    // Who has no resources for READs and atomics has none for the first of them either.
    refuse_request(s, qp, psn, RequestFault::no_depth);
  } else if (!fits_path(qp, packet)) {
    refuse_request(s, qp, psn, RequestFault::packet, packet.full_payload_bytes, qp.payload);
  } else if (!is_enabled(s, qp, access_of(request))) {
    refuse(s, qp, psn, NakCode::invalid_request, AsyncEvent::qp_req_err);
  } else if (!enter_srq(s, qp, packet.headers, packet.info->first)) {
    refuse_request(s, qp, psn, RequestFault::srq);
  } else {
    return true;
  }
  return false;
}

}  // namespace

// A request that cannot be served: the requester is told why, this QP goes to ERR.
void refuse(HostState& s, Qp& qp, std::uint32_t psn, NakCode code, AsyncEvent event) {
  push_nak(s, qp, psn, static_cast<std::uint8_t>(emu::kSyndromeNak | static_cast<int>(code)), true);
  tell(s, qp, event);
}

Request request_of(Opcode opcode) {
  using enum Opcode;
  switch (emu::rc_of(opcode)) {
    case rc_send_first:
    case rc_send_middle:
    case rc_send_last:
    case rc_send_only:
      return {Receiving::send, false, false};
    case rc_send_last_imm:
    case rc_send_only_imm:
      return {Receiving::send, false, true};
    case rc_send_last_inv:
    case rc_send_only_inv:
      return {.kind = Receiving::send, .invalidates = true};
    case rc_write_first:
    case rc_write_middle:
    case rc_write_last:
    case rc_write_only:
      return {Receiving::write, false, false};
    case rc_write_last_imm:
    case rc_write_only_imm:
      return {Receiving::write, false, true};
    case rc_read_request:
      return {.is_read = true};
    case rc_compare_swap:
    case rc_fetch_add:
      return {.is_atomic = true};
    case rc_atomic_write:
      return {.is_atomic_write = true};
    default:
      return {};
  }
}

// No packet is longer than the path's MTU.
bool fits_path(const Qp& qp, const emu::ParsedPacket& packet) {
  return packet.full_payload_bytes <= qp.payload;
}

bool is_enabled(HostState& s, const Qp& qp, std::uint32_t access) {
  if ((qp.attributes.access_flags & access) == access) return true;
  blame_flag(s, qp, access);
  return false;
}

bool may_write(HostState& s, const Qp& qp, const emu::Reth& reth) {
  Range range;
  if (reth.length == 0 || resolve(s.mrs_, reth.rkey, qp.pd, reth.address, reth.length,
                                  kAccessRemoteWrite, range, qp.number)) {
    return true;
  }
  blame_key(s, qp, TroubleKind::remote_key,
            {reth.rkey, qp.pd, reth.address, reth.length, kAccessRemoteWrite});
  return false;
}

void start_write(Qp& qp, const emu::Reth& reth) {
  qp.write_address = reth.address;
  qp.write_rkey = reth.rkey;
  qp.write_left = reth.length;
}

bool write_on(HostState& s, Qp& qp, const std::uint8_t* bytes, std::uint32_t length,
              std::uint32_t psn) {
  if (length > 0) {
    Range range;
    if (!resolve(s.mrs_, qp.write_rkey, qp.pd, qp.write_address, length, kAccessRemoteWrite, range,
                 qp.number)) {
      blame_key(s, qp, TroubleKind::remote_key,
                {qp.write_rkey, qp.pd, qp.write_address, length, kAccessRemoteWrite});
      return false;
    }
    write_piece(s, qp, range, bytes, length, psn);
  }
  qp.write_address += length;
  qp.write_left -= length;
  return true;
}

void finish_message(HostState& s, Qp& qp, const Arrival& arrival, const emu::ParsedPacket& packet,
                    const Request& request) {
  qp.msn = add24(qp.msn, 1);
  qp.receiving = Receiving::nothing;
  if (request.kind == Receiving::send || request.imm) {
    Cqe cqe{};
    cqe.byte_len = qp.received_bytes;
    cqe.opcode = request.kind == Receiving::send ? WcOpcode::recv : WcOpcode::recv_rdma_with_imm;
    cqe.imm = request.imm ? __builtin_bswap32(packet.headers.immediate) : 0;
    cqe.wc_flags = request.imm ? kWcWithImm : 0;  // only a datagram's receiver is told of a GRH
    if (request.invalidates) {
      invalidate(s, qp, packet.headers.invalidate_rkey);
      cqe.imm = packet.headers.invalidate_rkey;
      cqe.wc_flags |= kWcWithInv;
    }
    cqe.src_qp = qp.attributes.dest_qp_num;
    cqe.slid = s.options_.roce ? emu::Lid{0} : packet.headers.lrh.slid;
    cqe.sl = packet.headers.lrh.sl;
    cqe.timestamp_ns = s.options_.cycle_time.ns(arrival.desc.arrival_cycle);
    cqe.head_ns = s.options_.cycle_time.ns(qp.head_cycle);
    complete_recv(s, qp, WcStatus::success, cqe, packet.headers.bth.solicited);
  }
}

void respond(HostState& s, Qp& qp, const Arrival& arrival, const emu::ParsedPacket& packet) {
  if (qp.dead) return;
  const emu::PacketHeaders& headers = packet.headers;
  const std::uint32_t psn = headers.bth.psn;
  const std::int32_t ahead = emu::psn_diff(psn, qp.epsn);
  if (ahead < 0 && static_cast<std::uint32_t>(-ahead) < packet.packets) {
    // A repeated train, the first packets of which had arrived.
    emu::ParsedPacket rest = packet;
    emu::skip_packets(rest, static_cast<std::uint32_t>(-ahead));
    return respond(s, qp, arrival, rest);
  }
  if (ahead < 0) return respond_again(s, qp, packet);
  if (ahead > 0) return respond_to_gap(s, qp, packet);
  const Request request = request_of(headers.bth.opcode);
  const auto length = static_cast<std::uint32_t>(packet.payload_bytes);
  if (!take_request(s, qp, packet, request)) return;
  qp.nak_sent = false;
  if (request.is_read) {
    serve_read(s, qp, headers, false);
    return;
  }
  if (request.is_atomic) {
    serve_atomic(s, qp, headers, false);
    return;
  }
  if (request.is_atomic_write) {
    serve_atomic_write(s, qp, headers, arrival.bytes + packet.payload_offset, length);
    return;
  }
  // Whatever can be refused is refused before anything is changed.
  const bool takes_recv = request.kind == Receiving::send ? packet.info->first : request.imm;
  if (takes_recv && !need_recv(s, qp, psn)) return;
  if (packet.info->first) {
    if (request.kind == Receiving::write && !begin_write(s, qp, headers)) return;
    qp.received_bytes = 0;
    qp.head_cycle = arrival.desc.head_cycle;
    qp.receiving = request.kind;
  }
  if (request.invalidates && !may_invalidate(s, qp, headers.invalidate_rkey)) {
    blame_remote(s, qp, TroubleKind::invalidate, headers.invalidate_rkey);
    refuse_recv(s, qp, psn, NakCode::remote_access_error, WcStatus::loc_access_err);
    return;
  }
  const std::uint8_t* payload = payload_of(arrival, packet);
  const bool stored = request.kind == Receiving::write ? store_write(s, qp, payload, length, packet)
                                                       : store_send(s, qp, payload, length, psn);
  if (!stored) return;
  qp.received_bytes += length;
  qp.epsn = add24(qp.epsn, packet.packets);
  if (packet.info->last) finish_message(s, qp, arrival, packet, request);
  if (headers.bth.ack_request) push_ack(s, qp, add24(psn, packet.packets - 1));
}

}  // namespace hca

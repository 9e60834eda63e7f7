// Answers come back to the requester of RC: acknowledgements, NAKs, READ responses (IBA 9.7.5).
#include <algorithm>
#include <cstring>

#include "hca/host/state.h"

namespace hca {

namespace {

using emu::NakCode;

void progress(HostState& s, Qp& qp) {
  qp.retries_left = qp.attributes.retry_cnt;
  qp.rnr_retries_left = qp.attributes.rnr_retry;
  qp.read_repeated = false;
  time_question(s, qp);
}

// After `sq_done` and `psn_una` moved: a repetition under way need not repeat what has arrived.
void skip_acknowledged(Qp& qp) {
  if (qp.sq_current - qp.sq_done > qp.sq_fetched - qp.sq_done) {
    qp.sq_current = qp.sq_done;
    qp.current_packet = 0;
    qp.gather = {};
  }
  if (qp.sq_current == qp.sq_fetched) return;
  const SendEntry& entry = qp.entry(qp.sq_current);
  const std::int32_t behind = emu::psn_diff(qp.psn_una, add24(entry.first_psn, qp.current_packet));
  if (behind > 0 && entry.packets > 0) {
    qp.current_packet += static_cast<std::uint32_t>(behind);
    qp.gather = {};
  }
}

// Everything up to `psn` has arrived. false: a READ's response before it is missing. `psn` is
// compared with psn_una, which moves along: the first PSN of the longest message lies half the
// circle or more before those of the requests behind it.
bool acknowledge_through(HostState& s, Qp& qp, std::uint32_t psn) {
  bool moved = false;
  bool complete_all = true;
  while (qp.sq_done != qp.sq_fetched) {
    const SendEntry& entry = qp.entry(qp.sq_done);
    if (entry.status != WcStatus::success || emu::psn_diff(psn, qp.psn_una) < 0) break;
    if (entry.is_answered()) {
      complete_all = false;
      break;
    }
    const std::uint32_t last = add24(entry.first_psn, entry.packets - 1);
    moved = true;
    if (emu::psn_diff(psn, last) < 0) {
      qp.psn_una = add24(psn, 1);
      break;
    }
    qp.psn_una = add24(last, 1);
    complete_send(s, qp, WcStatus::success);
  }
  if (moved) {
    skip_acknowledged(qp);
    progress(s, qp);
    retire(s, qp);
  }
  return complete_all;
}

void repeat_from(HostState& s, Qp& qp, std::uint32_t psn) {
  if (qp.retries_left == 0) {
    fail_send(s, qp, WcStatus::retry_exc_err);
    return;
  }
  --qp.retries_left;
  rewind(s, qp, psn);
}

WcStatus status_of(NakCode code) {
  switch (code) {
    case NakCode::invalid_request:
      return WcStatus::rem_inv_req_err;
    case NakCode::remote_access_error:
      return WcStatus::rem_access_err;
    case NakCode::remote_operational_error:
      return WcStatus::rem_op_err;
    default:  // reserved: an error that no other status describes
      return WcStatus::general_err;
  }
}

// A READ's response is missing: asked for again, once for each gap (the timer sees to the rest).
void repeat_read(HostState& s, Qp& qp) {
  if (qp.read_repeated && qp.read_repeated_psn == qp.psn_una) return;
  qp.read_repeated = true;
  qp.read_repeated_psn = qp.psn_una;
  repeat_from(s, qp, qp.psn_una);
}

// Everything before `psn` has arrived, the request at `psn` has not.
bool acknowledge_before(HostState& s, Qp& qp, std::uint32_t psn) {
  if (psn == qp.psn_una) return true;
  return acknowledge_through(s, qp, add24(psn, emu::kMask24));
}

void receiver_not_ready(HostState& s, Qp& qp, std::uint32_t psn, std::uint8_t timer) {
  ++s.counters_.rnr_naks_received;
  acknowledge_before(s, qp, psn);
  if (qp.state != QpState::rts && qp.state != QpState::sqd) return;
  if (qp.rnr_retries_left == 0) {
    fail_send(s, qp, WcStatus::rnr_retry_exc_err);
    return;
  }
  if (qp.attributes.rnr_retry != 7) --qp.rnr_retries_left;  // 7: for ever
  qp.rnr_waiting = true;
  qp.rnr_until = s.now_ + s.options_.cycle_time.cycle_at(emu::rnr_timer_ns(timer));
  rewind(s, qp, qp.psn_una);
  wake_again(s, qp);
}

void negative(HostState& s, Qp& qp, std::uint32_t psn, NakCode code) {
  ++s.counters_.naks_received;
  acknowledge_before(s, qp, psn);
  if (qp.state != QpState::rts && qp.state != QpState::sqd) return;
  if (code == NakCode::psn_sequence_error) {
    repeat_from(s, qp, qp.psn_una);
    return;
  }
  if (qp.sq_done != qp.sq_fetched) fail_send(s, qp, status_of(code));
}

void on_aeth(HostState& s, Qp& qp, const emu::PacketHeaders& headers) {
  const std::uint32_t psn = headers.bth.psn;
  const std::uint8_t syndrome = headers.aeth.syndrome;
  switch (syndrome & emu::kSyndromeKindMask) {
    case emu::kSyndromeAck:
      if (!acknowledge_through(s, qp, psn)) repeat_read(s, qp);
      break;
    case emu::kSyndromeRnrNak:
      receiver_not_ready(s, qp, psn, syndrome & 31);
      break;
    case emu::kSyndromeNak:
      negative(s, qp, psn, static_cast<NakCode>(syndrome & 31));
      break;
    default:
      ++s.counters_.dropped_bad_packet;
  }
}

// Packet number `at` of the data that the request at sq_done asked for, and those behind it.
void take_data(HostState& s, Qp& qp, std::uint32_t psn, std::uint32_t at, std::uint32_t packets,
               const std::uint8_t* bytes, std::uint32_t length) {
  const SendEntry& entry = qp.entry(qp.sq_done);
  const SendWqe& wqe = qp.wqe(qp.sq_done);
  const auto* sges = reinterpret_cast<const Sge*>(list_of(wqe));
  if (at == 0) qp.read_scatter = {};
  const WcStatus status = scatter_payload(s, qp, qp.pd, sges, entry.num_sge, qp.read_scatter, bytes,
                                          length, psn | kReadPiece);
  if (status != WcStatus::success) {
    fail_send(s, qp, status);
    return;
  }
  qp.psn_una = add24(psn, packets);
  if (at + packets == entry.packets) {
    if (qp.reads_out > 0) --qp.reads_out;
    complete_send(s, qp, WcStatus::success);
  }
  skip_acknowledged(qp);
  progress(s, qp);
  retire(s, qp);
}

void on_read_response(HostState& s, Qp& qp, const Arrival& arrival,
                      const emu::ParsedPacket& packet) {
  const std::uint32_t psn = packet.headers.bth.psn;
  acknowledge_before(s, qp, psn);
  if (qp.sq_done == qp.sq_fetched) return;
  const SendEntry& entry = qp.entry(qp.sq_done);
  const bool is_read = entry.opcode == WrOpcode::rdma_read;
  const bool asked = is_read || entry.opcode == WrOpcode::atomic_write;
  if (!asked || psn != qp.psn_una) {
    // A response is missing (or this one is old): ask again from the first that is.
    if (emu::psn_diff(psn, qp.psn_una) > 0) repeat_read(s, qp);
    return;
  }
  const auto at = static_cast<std::uint32_t>(emu::psn_diff(psn, entry.first_psn));
  const std::uint32_t offset = at * qp.payload;
  const std::uint32_t packets = packet.packets;
  const std::uint32_t expected =
      is_read ? std::min(qp.payload * packets, entry.length - offset) : 0;
  if (packet.payload_bytes != expected ||
      (packets > 1 && packet.full_payload_bytes != qp.payload)) {
    fail_send(s, qp, WcStatus::bad_resp_err);
    return;
  }
  take_data(s, qp, psn, at, packets, payload_of(arrival, packet), expected);
}

// What stood there before arrives in this machine's byte order.
void on_atomic_ack(HostState& s, Qp& qp, const emu::PacketHeaders& headers) {
  const std::uint32_t psn = headers.bth.psn;
  acknowledge_before(s, qp, psn);
  if (qp.sq_done == qp.sq_fetched) return;
  if (!is_atomic(qp.entry(qp.sq_done).opcode) || psn != qp.psn_una) {
    if (emu::psn_diff(psn, qp.psn_una) > 0) repeat_read(s, qp);
    return;
  }
  std::uint8_t bytes[kAtomicBytes];
  std::memcpy(bytes, &headers.atomic_original, sizeof bytes);
  take_data(s, qp, psn, 0, 1, bytes, kAtomicBytes);
  write_pieces(s);  // `bytes` ends here
}

}  // namespace

void acknowledge(HostState& s, Qp& qp, const Arrival& arrival, const emu::ParsedPacket& packet) {
  if (qp.state != QpState::rts && qp.state != QpState::sqd) return;
  const emu::PacketHeaders& headers = packet.headers;
  const std::uint32_t psn = headers.bth.psn;
  const std::int32_t behind = emu::psn_diff(qp.psn_una, psn);
  if (behind > 0 && static_cast<std::uint32_t>(behind) < packet.packets) {
    emu::ParsedPacket rest = packet;  // of a train of data of which the beginning had arrived
    emu::skip_packets(rest, static_cast<std::uint32_t>(behind));
    return acknowledge(s, qp, arrival, rest);
  }
  // Only what is outstanding can be answered; the rest are late repetitions.
  if (!qp.unacknowledged() || emu::psn_diff(psn, qp.psn_sent) >= 0 ||
      emu::psn_diff(psn, qp.psn_una) < 0) {
    s.counters_.duplicates_received += packet.packets;
    return;
  }
  switch (emu::rc_of(headers.bth.opcode)) {
    case emu::Opcode::rc_ack:
      on_aeth(s, qp, headers);
      break;
    case emu::Opcode::rc_read_response_first:
    case emu::Opcode::rc_read_response_middle:
    case emu::Opcode::rc_read_response_last:
    case emu::Opcode::rc_read_response_only:
      on_read_response(s, qp, arrival, packet);
      break;
    case emu::Opcode::rc_atomic_ack:
      on_atomic_ack(s, qp, headers);
      break;
    default:
      ++s.counters_.dropped_bad_packet;
      return;
  }
  want_request(s, qp);
}

}  // namespace hca

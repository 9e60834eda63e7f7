// The responder of UC (IBA 9.8.2.2, 9.8.3): nothing is answered. A message whose packets do not
// follow one another is dropped whole and in silence, its receive, if it is the QP's own, stays for
// the next one; a first packet always begins anew.
#include "hca/host/state.h"

namespace hca {

namespace {

// What arrived of the message so far is forgotten, with the packets that still come. The receive
// of an SRQ cannot go back there: it completes in error, which the QP survives (IBA 9.9.3).
void drop_message(HostState& s, Qp& qp) {
  if (qp.receiving != Receiving::nothing) ++s.counters_.dropped_messages;
  qp.receiving = Receiving::nothing;
  if (qp.srq != kNone) complete_recv(s, qp, WcStatus::rem_inv_req_err, Cqe{}, true);
}

// The receive that the message takes; false: the message has to be dropped.
bool take_for_message(HostState& s, Qp& qp) {
  if (!qp.have_recv) {
    switch (take_recv(s, qp)) {
      case TakeRecv::none:
        ++s.counters_.dropped_no_receive;
        return false;
      case TakeRecv::broken:
        qp_fault(s, qp);
        return false;
      case TakeRecv::ok:
        break;
    }
  }
  qp.scatter = {};
  return true;
}

bool begin(HostState& s, Qp& qp, const Arrival& arrival, const emu::PacketHeaders& headers,
           Receiving kind) {
  if (kind == Receiving::send && !take_for_message(s, qp)) return false;
  const bool may = kind != Receiving::write ||
                   (is_enabled(s, qp, kAccessRemoteWrite) && may_write(s, qp, headers.reth));
  if (!may) {
    ++s.counters_.dropped_bad_key;  // IBA table 63: UC says nothing of a wrong R_Key
    return false;
  }
  if (kind == Receiving::write) start_write(qp, headers.reth);
  qp.receiving = kind;
  qp.received_bytes = 0;
  qp.head_cycle = arrival.desc.head_cycle;
  return true;
}

// false: the message ended here, dropped or in error.
bool store(HostState& s, Qp& qp, const emu::ParsedPacket& packet, const std::uint8_t* bytes) {
  const auto length = static_cast<std::uint32_t>(packet.payload_bytes);
  if (qp.receiving == Receiving::write) {
    const bool too_long = length > qp.write_left;
    const bool too_short = packet.info->last && length != qp.write_left;
    if (too_long || too_short || !write_on(s, qp, bytes, length, packet.headers.bth.psn)) {
      drop_message(s, qp);
      return false;
    }
    return true;
  }
  const WcStatus status = scatter_receive(s, qp, bytes, length, packet.headers.bth.psn);
  if (status == WcStatus::success) return true;
  complete_recv(s, qp, status, Cqe{}, true);
  enter_error(s, qp);
  return false;
}

}  // namespace

void receive_unreliable(HostState& s, Qp& qp, const Arrival& arrival,
                        const emu::ParsedPacket& packet) {
  const emu::PacketHeaders& headers = packet.headers;
  const Request request = request_of(headers.bth.opcode);
  const bool follows = headers.bth.psn == qp.epsn && qp.receiving == request.kind;
  if (packet.info->first || !follows) drop_message(s, qp);
  qp.epsn = add24(headers.bth.psn, packet.packets);
  if (!packet.info->first && !follows) return;
  if (!fits_path(qp, packet)) {
    drop_message(s, qp);
    return;
  }
  if (packet.info->first && !begin(s, qp, arrival, headers, request.kind)) return;
  if (!store(s, qp, packet, payload_of(arrival, packet))) return;
  qp.received_bytes += static_cast<std::uint32_t>(packet.payload_bytes);
  if (!packet.info->last) return;
  const bool takes_recv_now = request.kind == Receiving::write && request.imm;
  if (takes_recv_now && !take_for_message(s, qp)) {
    drop_message(s, qp);
    return;
  }
  finish_message(s, qp, arrival, packet, request);
}

}  // namespace hca

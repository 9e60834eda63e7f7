// Messages of other nodes' communication managers. An id is believed only if the message comes from
// the node that the id speaks with, and names both ends as they are.
#include <algorithm>
#include <cerrno>
#include <cstring>

#include "hca/abi/attributes.h"
#include "hca/cm/state.h"

namespace hca {

namespace {

// What an MRA bids wait: whoever asks for the first time, as long as for any answer, which may be
// lost; who has asked again, a minute, for which a program may think. The kernel's rdma_cm says
// nothing the first time; here a node may learn by it that its peer has started anew.
constexpr std::uint8_t kFirstServiceTimeout = kAnswerTimeout;
constexpr std::uint8_t kServiceTimeout = 24;

std::uint32_t big_endian(const std::uint8_t* at) {
  return std::uint32_t{at[0]} << 24 | std::uint32_t{at[1]} << 16 | std::uint32_t{at[2]} << 8 |
         at[3];
}

Id* addressed(CmState& s, emu::NodeId source, const CmMessage& m) {
  const auto it = s.ids.find(number_of(s, m.remote_id));
  if (it == s.ids.end() || !it->second.has_peer || it->second.peer != source) return nullptr;
  if (is_datagram(it->second)) return nullptr;  // it speaks SIDR only
  // What answers a REQ tells the other's id; everything later must know it.
  const bool tells = m.kind == CmKind::rep || m.kind == CmKind::rej || m.kind == CmKind::mra;
  const bool first = tells && it->second.state == IdState::req_sent;
  return first || it->second.remote_id == m.local_id ? &it->second : nullptr;
}

// What a REJ or MRA is about (IBA table 100).
std::uint8_t about_number(CmKind kind) {
  if (kind == CmKind::req) return 0;
  return kind == CmKind::rep ? 1 : 2;
}

void tell(CmState& s, emu::NodeId to, CmKind kind, const CmMessage& about, std::uint16_t reason,
          std::uint8_t service_timeout = 0) {
  CmMessage m;
  m.kind = kind;
  m.remote_id = about.local_id;
  m.local_id = about.remote_id;
  m.reason = reason;
  m.rejected = about_number(about.kind);
  m.service_timeout = service_timeout;
  send_once(s, to, m);
}

void on_req(CmState& s, emu::NodeId source, const CmMessage& m) {
  if (const auto known = s.requests.find({source, m.local_id}); known != s.requests.end()) {
    const Id& id = s.ids.at(known->second);
    if (id.state == IdState::rep_sent || id.refused) {
      s.out.send(source, id.unanswered);
    } else if (id.state == IdState::req_received) {
      tell(s, source, CmKind::mra, m, 0, kServiceTimeout);
    } else if (is_over(id)) {
      tell(s, source, CmKind::rej, m, kRejectStale);
    }
    return;
  }
  const std::uint8_t* header = m.private_data.data();
  const bool ours = m.service_id >> 32 == 0 && header[1] >> 4 == 4;
  const auto port_space = static_cast<std::uint16_t>(m.service_id >> 16);
  const auto port = static_cast<std::uint16_t>(m.service_id);
  Id* listener = ours ? listener_for(s, port_space, port, big_endian(header + 32)) : nullptr;
  if (listener == nullptr || is_datagram(*listener)) {
    park(s, source, m);
    return;
  }
  if (m.transport != transport_of(*listener)) {
    tell(s, source, CmKind::rej, m, kRejectTransport);
    return;
  }
  if (new_request(s, source, m, *listener) != nullptr)
    tell(s, source, CmKind::mra, m, 0, kFirstServiceTimeout);
}

void on_rep(CmState& s, emu::NodeId source, const CmMessage& m) {
  Id* id = addressed(s, source, m);
  if (id != nullptr && id->refused) {
    s.out.send(source, id->unanswered);
    return;
  }
  if (id == nullptr || is_over(*id)) {
    tell(s, source, CmKind::rej, m, kRejectInvalidCommId);
    return;
  }
  if (id->state == IdState::established) {  // our RTU was lost
    tell(s, source, CmKind::rtu, m, 0);
    return;
  }
  if (id->state != IdState::req_sent) return;
  answered(s, *id);
  id->state = IdState::rep_received;
  id->remote_id = m.local_id;
  id->remote_qpn = m.qpn;
  id->remote_psn = m.psn;
  // What the other side asks of us and offers: each limits the other.
  id->responder_resources = m.initiator_depth;
  id->initiator_depth = m.responder_resources;
  id->rnr_retry_count = m.rnr_retry_count;
  rdma_ucm_event_resp body{};
  body.ece = to_abi(m.ece);
  rdma_ucm_conn_param& conn = body.param.conn;
  conn.qp_num = m.qpn;
  conn.responder_resources = m.initiator_depth;
  conn.initiator_depth = m.responder_resources;
  conn.flow_control = m.flow_control ? 1 : 0;
  conn.rnr_retry_count = m.rnr_retry_count;
  conn.srq = m.srq ? 1 : 0;
  conn.private_data_len = kRepPrivateBytes;
  std::memcpy(conn.private_data, m.private_data.data(), kRepPrivateBytes);
  push_event(s, *id, CmEvent::connect_response, body);
}

void on_rtu(CmState& s, emu::NodeId source, const CmMessage& m) {
  Id* id = addressed(s, source, m);
  if (id == nullptr || is_over(*id)) {  // the peer believes in a connection that is none
    tell(s, source, CmKind::rej, m, kRejectInvalidCommId);
    return;
  }
  if (id->state != IdState::rep_sent) return;
  answered(s, *id);
  id->state = IdState::established;
  push_simple(s, *id, CmEvent::established);
}

void end_rejected(CmState& s, Id& id, const CmMessage& rej) {
  answered(s, id);
  id.state = IdState::ended;
  rdma_ucm_event_resp body{};
  body.status = rej.reason;
  body.param.conn.private_data_len = kRejPrivateBytes;
  std::memcpy(body.param.conn.private_data, rej.private_data.data(), kRejPrivateBytes);
  push_event(s, id, CmEvent::rejected, body);
}

void on_rej(CmState& s, emu::NodeId source, const CmMessage& m) {
  Id* id = addressed(s, source, m);
  // A REJ for a REQ that we took: the one who asked has given up, and knows no id of ours.
  if (id == nullptr) {
    std::erase_if(s.parked, [&](const ParkedRequest& p) {
      return p.source == source && p.message.local_id == m.local_id;
    });
    const auto known = s.requests.find({source, m.local_id});
    if (known == s.requests.end()) return;
    id = &s.ids.at(known->second);
  }
  if (id->state == IdState::established && m.reason == kRejectInvalidCommId) {  // of our RTU
    push_simple(s, *id, CmEvent::disconnected);
    rest(s, *id);
    return;
  }
  const bool waiting = id->state == IdState::req_sent || id->state == IdState::req_received ||
                       id->state == IdState::rep_sent || id->state == IdState::rep_received;
  if (!waiting) return;
  end_rejected(s, *id, m);
}

void on_mra(CmState& s, emu::NodeId source, const CmMessage& m) {
  Id* id = addressed(s, source, m);
  if (id == nullptr || id->state != IdState::req_sent) return;
  wait_until(s, *id, s.now_ns + timeout_ns(m.service_timeout));
}

// The answer to a request was lost, and its sender has ended the connection since: the request need
// not wait for as long as it was bidden. By its QP, for a number is given again.
void end_unanswered(CmState& s, emu::NodeId source, const CmMessage& dreq) {
  const auto it = s.ids.find(number_of(s, dreq.remote_id));
  if (it == s.ids.end()) return;
  Id& id = it->second;
  if (id.state != IdState::req_sent || id.peer != source || id.qpn != dreq.qpn) return;
  CmMessage stale;
  stale.reason = kRejectStale;
  end_rejected(s, id, stale);
}

void on_dreq(CmState& s, emu::NodeId source, const CmMessage& m) {
  Id* id = addressed(s, source, m);
  if (id == nullptr || is_over(*id)) {
    tell(s, source, CmKind::drep, m, 0);  // over long ago
    if (id == nullptr) end_unanswered(s, source, m);
    return;
  }
  if (id->state == IdState::dreq_sent) {  // both at once
    tell(s, source, CmKind::drep, m, 0);
    return;
  }
  // Its program may not have read the answer yet that the peer now takes back.
  if (id->state != IdState::established && id->state != IdState::rep_sent &&
      id->state != IdState::rep_received)
    return;
  answered(s, *id);
  id->state = IdState::dreq_received;
  push_simple(s, *id, CmEvent::disconnected);
}

void on_drep(CmState& s, emu::NodeId source, const CmMessage& m) {
  Id* id = addressed(s, source, m);
  if (id == nullptr) return on_farewell_drep(s, source, m);
  if (id->state != IdState::dreq_sent) return;
  push_simple(s, *id, CmEvent::disconnected);
  rest(s, *id);
}

// What the request's event tells the program.
rdma_ucm_event_resp request_body(const Id& id, const CmMessage& m) {
  rdma_ucm_event_resp body{};
  const std::uint8_t* data = m.private_data.data() + kIpHeaderBytes;
  if (is_datagram(id)) {
    body.param.ud.private_data_len = kSidrReqPrivateBytes - kIpHeaderBytes;
    std::memcpy(body.param.ud.private_data, data, kSidrReqPrivateBytes - kIpHeaderBytes);
    return body;
  }
  body.ece = to_abi(m.ece);
  rdma_ucm_conn_param& conn = body.param.conn;
  conn.qp_num = m.qpn;
  conn.responder_resources = id.responder_resources;
  conn.initiator_depth = id.initiator_depth;
  conn.flow_control = m.flow_control ? 1 : 0;
  conn.retry_count = m.retry_count;
  conn.rnr_retry_count = m.rnr_retry_count;
  conn.srq = m.srq ? 1 : 0;
  conn.private_data_len = kReqPrivateBytes - kIpHeaderBytes;
  std::memcpy(conn.private_data, data, kReqPrivateBytes - kIpHeaderBytes);
  return body;
}

void take_request(const CmState& s, emu::NodeId source, const CmMessage& m, Id& id) {
  const std::uint8_t* header = m.private_data.data();
  id.passive = true;
  id.peer = source;
  id.has_peer = true;
  id.remote_id = m.local_id;
  id.remote.given = true;
  id.remote.port = static_cast<std::uint16_t>(header[2] << 8 | header[3]);
  id.remote.v4 = big_endian(header + 16);
  id.local.v4 = big_endian(header + 32);
  id.state = IdState::req_received;
  if (m.kind != CmKind::req) return;
  id.remote_qpn = m.qpn;
  id.remote_psn = m.psn;
  id.responder_resources = m.initiator_depth;
  id.initiator_depth = m.responder_resources;
  id.retry_count = m.retry_count;
  id.rnr_retry_count = m.rnr_retry_count;
  id.path_mtu = std::min(m.path_mtu, s.options.path_mtu);
  id.sl = m.sl;
}

}  // namespace

void refuse_service(CmState& s, emu::NodeId source, const CmMessage& m) {
  if (m.kind == CmKind::req) {
    tell(s, source, CmKind::rej, m, kRejectInvalidService);
    return;
  }
  CmMessage no;
  no.kind = CmKind::sidr_rep;
  no.local_id = m.local_id;
  no.reason = kSidrUnsupported;
  no.service_id = m.service_id;
  send_once(s, source, no);
}

void park(CmState& s, emu::NodeId source, const CmMessage& m) {
  const bool waits = std::any_of(s.parked.begin(), s.parked.end(), [&](const ParkedRequest& p) {
    return p.source == source && p.message.local_id == m.local_id;
  });
  if (waits) return;
  if (s.parked.size() >= kParkedMax) {
    refuse_service(s, source, m);
    return;
  }
  s.parked.push_back({source, m, s.now_ns + kParkedNs});
}

void serve_parked(CmState& s) {
  std::vector<ParkedRequest> waiting;
  std::swap(waiting, s.parked);
  for (const ParkedRequest& p : waiting) {
    if (p.until_ns <= s.now_ns) {
      refuse_service(s, p.source, p.message);
      continue;
    }
    receive_message(s, p.source, p.message);
    // Still nobody: it waits on, no longer than at first.
    if (!s.parked.empty() && s.parked.back().message.local_id == p.message.local_id &&
        s.parked.back().source == p.source) {
      s.parked.back().until_ns = p.until_ns;
    }
  }
}

Id* new_request(CmState& s, emu::NodeId source, const CmMessage& m, Id& listener) {
  if (listener.requests_waiting >= listener.backlog) return nullptr;
  const std::uint32_t listens = listener.number;
  Id* made = new_id(s, listener.file);
  if (made == nullptr) return nullptr;
  Id& id = *made;
  id.port_space = listener.port_space;
  id.qp_type = listener.qp_type;
  id.local = listener.local;
  id.listener = listens;
  id.qkey = listener.qkey;
  take_request(s, source, m, id);
  id.remote.six = listener.local.six;
  s.requests[{source, m.local_id}] = id.number;
  ++listener.requests_waiting;
  WaitingEvent waiting;
  waiting.id = listens;
  waiting.request = id.number;
  waiting.body = request_body(id, m);
  waiting.body.uid = listener.uid;
  waiting.body.id = id.number;
  waiting.body.event = static_cast<std::uint32_t>(CmEvent::connect_request);
  s.files[listener.file].events.push_back(waiting);
  tell_file(s, listener.file);
  return &id;
}

void receive_message(CmState& s, emu::NodeId source, const CmMessage& m) {
  if (!is_heard(s, source, m.life)) return;
  switch (m.kind) {
    case CmKind::req:
      return on_req(s, source, m);
    case CmKind::mra:
      return on_mra(s, source, m);
    case CmKind::rej:
      return on_rej(s, source, m);
    case CmKind::rep:
      return on_rep(s, source, m);
    case CmKind::rtu:
      return on_rtu(s, source, m);
    case CmKind::dreq:
      return on_dreq(s, source, m);
    case CmKind::drep:
      return on_drep(s, source, m);
    case CmKind::sidr_req:
      return on_sidr_req(s, source, m);
    case CmKind::sidr_rep:
      return on_sidr_rep(s, source, m);
  }
}

}  // namespace hca

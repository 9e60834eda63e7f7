// Connections of RC, UC and XRC as a program asks for them: REQ, REP, RTU; REJ; DREQ, DREP (IBA
// 12.9). A message that wants an answer is said again until it comes.
#include <algorithm>
#include <cerrno>
#include <cstring>

#include "hca/abi/attributes.h"
#include "hca/cm/state.h"

namespace hca {

namespace {

CmMessage message_of(const CmState& s, const Id& id, CmKind kind) {
  CmMessage m;
  m.kind = kind;
  m.local_id = wire_id(s, id.number);
  m.remote_id = id.remote_id;
  return m;
}

void fill_gid(const CmState& s, emu::NodeId node, std::array<std::uint8_t, 16>& gid) {
  gid = path_gid(s, node);
}

void take_param(Id& id, const rdma_ucm_conn_param& param) {
  id.qpn = param.qp_num & 0xffffff;
  id.responder_resources = param.responder_resources;
  id.initiator_depth = param.initiator_depth;
  id.retry_count = std::min<std::uint8_t>(param.retry_count, 7);
  id.rnr_retry_count = std::min<std::uint8_t>(param.rnr_retry_count, 7);
}

void send_reject(CmState& s, Id& id, std::uint16_t reason,
                 std::span<const std::uint8_t> data = {}) {
  CmMessage m = message_of(s, id, CmKind::rej);
  m.reason = reason;
  m.rejected = id.passive ? 0 : 1;
  std::copy(data.begin(), data.end(), m.private_data.begin());
  id.unanswered = stamped(s, m);
  id.refused = true;
  s.out.send(id.peer, id.unanswered);
}

void refuse_request(CmState& s, Id& id) {
  if (is_datagram(id)) {
    (void)answer_service(s, id, kSidrRejected, rdma_ucm_conn_param{});
  } else {
    send_reject(s, id, kRejectConsumer);
  }
  id.state = IdState::ended;
}

int send_rep(CmState& s, Id& id, const rdma_ucm_accept& command) {
  const rdma_ucm_conn_param& param = command.conn_param;
  if (param.valid == 0) return EINVAL;
  CmMessage m = message_of(s, id, CmKind::rep);
  if (!fill_private(id, m, param.private_data, param.private_data_len)) return EINVAL;
  // How often to try again is the peer's to say: it was in the request.
  const std::uint8_t retry = id.retry_count;
  const std::uint8_t rnr = id.rnr_retry_count;
  take_param(id, param);
  id.retry_count = retry;
  m.qpn = id.qpn;
  m.psn = id.psn;
  m.responder_resources = id.responder_resources;
  m.initiator_depth = id.initiator_depth;
  m.flow_control = param.flow_control != 0;
  m.rnr_retry_count = id.rnr_retry_count;
  m.srq = param.srq != 0;
  m.ece = from_abi(command.ece);
  m.ca_guid = s.options.guid_base + s.addresses.self() + 1;
  id.rnr_retry_count = rnr;
  id.state = IdState::rep_sent;
  send_asked(s, id, m, kAttempts);
  return 0;
}

}  // namespace

std::uint8_t transport_of(const Id& id) {
  if (id.qp_type == static_cast<std::uint8_t>(QpType::uc)) return 1;
  const bool xrc = id.qp_type == static_cast<std::uint8_t>(QpType::xrc_send) ||
                   id.qp_type == static_cast<std::uint8_t>(QpType::xrc_recv);
  return xrc ? kTransportXrc : 0;
}

void rest(CmState& s, Id& id) {
  id.state = IdState::timewait;
  wait_until(s, id, s.now_ns + kTimewaitNs);
}

bool fill_private(const Id& id, CmMessage& m, const std::uint8_t* data, std::size_t bytes) {
  std::size_t offset = 0;
  if (m.kind == CmKind::req || m.kind == CmKind::sidr_req) {
    offset = kIpHeaderBytes;
    constexpr std::uint8_t kIpVersion4 = 4;
    std::uint8_t* header = m.private_data.data();
    header[1] = kIpVersion4 << 4;
    header[2] = static_cast<std::uint8_t>(id.local.port >> 8);
    header[3] = static_cast<std::uint8_t>(id.local.port);
    for (std::size_t i = 0; i < 4; ++i) {
      header[16 + i] = static_cast<std::uint8_t>(id.local.v4 >> (24 - 8 * i));
      header[32 + i] = static_cast<std::uint8_t>(id.remote.v4 >> (24 - 8 * i));
    }
  }
  if (offset + bytes > private_bytes(m.kind)) return false;
  std::memcpy(m.private_data.data() + offset, data, bytes);
  return true;
}

Mad stamped(const CmState& s, CmMessage m) {
  m.life = s.options.life;
  return to_mad(m);
}

void send_once(CmState& s, emu::NodeId peer, const CmMessage& m) {
  s.out.send(peer, stamped(s, m));
}

void send_asked(CmState& s, Id& id, const CmMessage& m, std::uint8_t attempts) {
  id.unanswered = stamped(s, m);
  id.attempts_left = attempts;
  wait_until(s, id, s.now_ns + kAnswerNs);
  s.out.send(id.peer, id.unanswered);
}

void answered(CmState& s, Id& id) { wait_until(s, id, emu::kNever); }

int connect(CmState& s, Id& id, const rdma_ucm_connect& command) {
  const rdma_ucm_conn_param& param = command.conn_param;
  if (id.state != IdState::route_resolved) return EINVAL;
  if (is_datagram(id)) return resolve_service(s, id, param);
  take_param(id, param);
  CmMessage m = message_of(s, id, CmKind::req);
  if (!fill_private(id, m, param.private_data, param.private_data_len)) return EINVAL;
  m.service_id = std::uint64_t{id.port_space} << 16 | id.remote.port;
  m.ca_guid = s.options.guid_base + s.addresses.self() + 1;
  m.qpn = id.qpn;
  m.psn = id.psn;
  m.transport = transport_of(id);
  m.responder_resources = id.responder_resources;
  m.initiator_depth = id.initiator_depth;
  m.flow_control = param.flow_control != 0;
  m.retry_count = id.retry_count;
  m.rnr_retry_count = id.rnr_retry_count;
  m.srq = param.srq != 0;
  m.ece = from_abi(command.ece);
  m.path_mtu = id.path_mtu;
  m.sl = sl_of(id);
  m.ack_timeout = 16;
  m.local_lid = emu::lid_of(s.addresses.self());
  m.remote_lid = emu::lid_of(id.peer);
  fill_gid(s, s.addresses.self(), m.local_gid);
  fill_gid(s, id.peer, m.remote_gid);
  id.state = IdState::req_sent;
  send_asked(s, id, m, kAttempts);
  return 0;
}

int accept(CmState& s, Id& id, const rdma_ucm_accept& command) {
  if (id.state == IdState::rep_received) {  // ready to use: the QP is in RTS
    CmMessage m = message_of(s, id, CmKind::rtu);
    id.state = IdState::established;
    send_once(s, id.peer, m);
    return 0;
  }
  if (id.state != IdState::req_received) return EINVAL;
  const rdma_ucm_conn_param& param = command.conn_param;
  const int error = is_datagram(id)
                        ? answer_service(s, id, kSidrValid, param, from_abi(command.ece))
                        : send_rep(s, id, command);
  // As with the kernel the request ends with an answer that fails: whoever asked would wait for it
  // for minutes.
  if (error != 0) {
    refuse_request(s, id);
    return error;
  }
  if (param.valid != 0) id.uid = command.uid;
  return 0;
}

int reject(CmState& s, Id& id, const rdma_ucm_reject& command) {
  const bool may = id.state == IdState::req_received || id.state == IdState::rep_received;
  const std::size_t room = is_datagram(id) ? kSidrRepPrivateBytes : kRejPrivateBytes;
  if (!may || command.private_data_len > room) return EINVAL;
  if (is_datagram(id)) {
    rdma_ucm_conn_param param{};
    param.private_data_len = command.private_data_len;
    std::memcpy(param.private_data, command.private_data, param.private_data_len);
    return answer_service(s, id, kSidrRejected, param);
  }
  const std::uint16_t reason = command.reason != 0 ? command.reason : kRejectConsumer;
  send_reject(s, id, reason, {command.private_data, command.private_data_len});
  id.state = IdState::ended;
  answered(s, id);
  return 0;
}

int disconnect(CmState& s, Id& id) {
  // Who has its peer's answer and has not said that it is ready says instead that it is over. The
  // kernel's rdma_cm says nothing before it is established, and leaves the peer waiting.
  const bool connected = id.state == IdState::established || id.state == IdState::rep_sent ||
                         id.state == IdState::rep_received;
  if (connected && !is_datagram(id)) {  // a service that was found is no connection
    CmMessage m = message_of(s, id, CmKind::dreq);
    m.qpn = id.remote_qpn;
    id.state = IdState::dreq_sent;
    send_asked(s, id, m, kDreqAttempts);
    return 0;
  }
  if (id.state == IdState::dreq_received) {
    send_once(s, id.peer, message_of(s, id, CmKind::drep));
    rest(s, id);
    return 0;
  }
  // As the kernel has it: nothing to say, but no error once the id has asked or been asked for.
  return id.state < IdState::listening ? EINVAL : 0;
}

// The QP heard its peer before our RTU came: that is as good (IBA 12.9.6).
int notify(CmState& s, Id& id, std::uint32_t event) {
  if (event != static_cast<std::uint32_t>(AsyncEvent::comm_est)) return EINVAL;
  if (id.state != IdState::rep_sent) return id.state == IdState::established ? 0 : EINVAL;
  id.state = IdState::established;
  answered(s, id);
  push_simple(s, id, CmEvent::established);
  return 0;
}

void end_connection(CmState& s, Id& id) {
  switch (id.state) {
    case IdState::established:
    case IdState::rep_sent: {
      if (is_datagram(id)) break;
      CmMessage m = message_of(s, id, CmKind::dreq);
      m.qpn = id.remote_qpn;
      send_once(s, id.peer, m);
      add_farewell(s, id, kDreqAttempts, s.now_ns + kAnswerNs);
      break;
    }
    case IdState::dreq_sent:
      add_farewell(s, id, id.attempts_left, id.again_at);
      break;
    case IdState::dreq_received:
      send_once(s, id.peer, message_of(s, id, CmKind::drep));
      break;
    case IdState::req_received:
      refuse_request(s, id);
      break;
    case IdState::req_sent:
    case IdState::rep_received:
      send_reject(s, id, id.state == IdState::req_sent ? kRejectTimeout : kRejectConsumer);
      break;
    default:
      break;
  }
  id.state = IdState::ended;
}

void timer_fired(CmState& s, Id& id) {
  if (id.state == IdState::timewait) {
    answered(s, id);
    id.state = IdState::ended;
    push_simple(s, id, CmEvent::timewait_exit);
    return;
  }
  if (id.attempts_left > 0) {
    --id.attempts_left;
    wait_until(s, id, s.now_ns + kAnswerNs);
    s.out.send(id.peer, id.unanswered);
    return;
  }
  answered(s, id);
  if (id.state == IdState::dreq_sent) {  // it has gone: the connection is over all the same
    push_simple(s, id, CmEvent::disconnected, -ETIMEDOUT);
    rest(s, id);
    return;
  }
  id.state = IdState::ended;
  push_simple(s, id, CmEvent::unreachable, -ETIMEDOUT);
}

}  // namespace hca

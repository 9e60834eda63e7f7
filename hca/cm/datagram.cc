// Service resolution for UD: who asks a service for its QP gets number and Q_Key (IBA 12.11).
#include <cerrno>
#include <cstring>

#include "hca/cm/state.h"

namespace hca {

int resolve_service(CmState& s, Id& id, const rdma_ucm_conn_param& param) {
  CmMessage m;
  m.kind = CmKind::sidr_req;
  m.local_id = wire_id(s, id.number);
  m.service_id = std::uint64_t{id.port_space} << 16 | id.remote.port;
  if (!fill_private(id, m, param.private_data, param.private_data_len)) return EINVAL;
  id.qpn = param.qp_num & 0xffffff;
  id.state = IdState::sidr_sent;
  send_asked(s, id, m, kAttempts);
  return 0;
}

int answer_service(CmState& s, Id& id, std::uint8_t status, const rdma_ucm_conn_param& param,
                   const Ece& ece) {
  CmMessage m;
  m.kind = CmKind::sidr_rep;
  m.local_id = id.remote_id;
  m.reason = status;
  m.service_id = std::uint64_t{id.port_space} << 16 | id.local.port;
  if (!fill_private(id, m, param.private_data, param.private_data_len)) return EINVAL;
  id.qpn = param.qp_num & 0xffffff;
  id.qkey = param.qkey != 0 ? param.qkey : kUdpQkey;
  if (status == kSidrValid) {
    m.qpn = id.qpn;
    m.qkey = id.qkey;
    m.ece = ece;
  }
  id.unanswered = stamped(s, m);  // said again if the question comes again
  id.state = IdState::ended;
  s.out.send(id.peer, id.unanswered);
  return 0;
}

void on_sidr_req(CmState& s, emu::NodeId source, const CmMessage& m) {
  if (const auto known = s.requests.find({source, m.local_id}); known != s.requests.end()) {
    const Id& id = s.ids.at(known->second);
    if (id.state == IdState::ended) s.out.send(source, id.unanswered);
    return;
  }
  const auto port_space = static_cast<std::uint16_t>(m.service_id >> 16);
  Id* listener =
      m.service_id >> 32 == 0
          ? listener_for(s, port_space, static_cast<std::uint16_t>(m.service_id), s.addresses.own())
          : nullptr;
  if (listener == nullptr || !is_datagram(*listener)) {
    park(s, source, m);
    return;
  }
  new_request(s, source, m, *listener);
}

void on_sidr_rep(CmState& s, emu::NodeId source, const CmMessage& m) {
  const auto it = s.ids.find(number_of(s, m.local_id));
  if (it == s.ids.end()) return;
  Id& id = it->second;
  if (id.state != IdState::sidr_sent || id.peer != source) return;
  answered(s, id);
  rdma_ucm_event_resp body{};
  body.param.ud.private_data_len = kSidrRepPrivateBytes;
  std::memcpy(body.param.ud.private_data, m.private_data.data(), kSidrRepPrivateBytes);
  if (m.reason != kSidrValid) {
    id.state = IdState::ended;
    body.status = m.reason;
    push_event(s, id, CmEvent::unreachable, body);
    return;
  }
  id.state = IdState::established;
  id.remote_qpn = m.qpn;
  body.param.ud.qp_num = m.qpn;
  body.param.ud.qkey = m.qkey;
  body.ece = to_abi(m.ece);
  fill_ah(s, id, body.param.ud.ah_attr);
  push_event(s, id, CmEvent::established, body);
}

}  // namespace hca

// What went wrong is put into words elsewhere; here is what is known where it goes wrong.
#include "hca/host/trouble.h"

#include "hca/host/state.h"

namespace hca {

namespace {

Trouble trouble_of(const Qp& qp, TroubleKind kind) {
  Trouble trouble;
  trouble.kind = kind;
  trouble.client = qp.client;
  trouble.qpn = qp.number;
  if (qp.type != QpType::ud) {
    trouble.peer_lid = qp.attributes.av.dlid;
    trouble.peer_qpn = qp.attributes.dest_qp_num;
  }
  return trouble;
}

}  // namespace

void blame_key(HostState& s, const Qp& qp, TroubleKind kind, const KeyUse& use) {
  Trouble trouble = trouble_of(qp, kind);
  trouble.key = use.key;
  trouble.access = use.access;
  trouble.address = use.address;
  trouble.length = use.length;
  trouble.wr_id = use.wr_id;
  const std::uint32_t qpn = kind == TroubleKind::remote_key ? qp.number : kAnyQp;
  trouble.fault = key_fault(s.mrs_, use.key, use.pd, use.address, use.length, use.access, qpn);
  if (trouble.fault == KeyFault::none) return;  // then it was not the key
  if (trouble.fault == KeyFault::bounds) {
    trouble.start = s.mrs_[mr_slot(use.key)].iova;
    trouble.size = s.mrs_[mr_slot(use.key)].length;
  }
  s.events_.trouble(trouble);
}

void blame_flag(HostState& s, const Qp& qp, std::uint32_t access) {
  Trouble trouble = trouble_of(qp, TroubleKind::remote_flag);
  trouble.access = access;
  s.events_.trouble(trouble);
}

void blame_remote(HostState& s, const Qp& qp, TroubleKind kind, std::uint32_t key) {
  Trouble trouble = trouble_of(qp, kind);
  trouble.key = key;
  s.events_.trouble(trouble);
}

void refuse_request(HostState& s, Qp& qp, std::uint32_t psn, RequestFault fault,
                    std::uint64_t length, std::uint64_t size, std::uint64_t address) {
  Trouble trouble = trouble_of(qp, TroubleKind::request);
  trouble.request = fault;
  trouble.length = length;
  trouble.size = size;
  trouble.address = address;
  s.events_.trouble(trouble);
  refuse(s, qp, psn, emu::NakCode::invalid_request, AsyncEvent::qp_req_err);
}

void blame_length(HostState& s, const Qp& qp, std::uint64_t length, emu::Lid sender) {
  Trouble trouble = trouble_of(qp, TroubleKind::too_long);
  trouble.wr_id = qp.recv_wr_id;
  trouble.length = length;
  if (sender != 0) trouble.peer_lid = sender;
  for (std::uint32_t i = 0; i < qp.recv_num_sge; ++i) trouble.size += qp.recv_sges[i].length;
  s.events_.trouble(trouble);
}

void blame_request(HostState& s, Qp& qp, WcStatus status) {
  Trouble trouble = trouble_of(qp, TroubleKind::ended);
  trouble.status = status;
  trouble.wr_id = qp.wqe(qp.sq_done).wr_id;
  trouble.length = qp.entry(qp.sq_done).length;
  s.events_.trouble(trouble);
}

void blame_depth(HostState& s, const Qp& qp, std::uint64_t wr_id) {
  Trouble trouble = trouble_of(qp, TroubleKind::no_reads);
  trouble.wr_id = wr_id;
  s.events_.trouble(trouble);
}

void blame_sender(HostState& s, const Qp* qp, std::uint32_t qpn, emu::Lid sender) {
  Trouble trouble;
  trouble.kind = qp != nullptr && may_receive(*qp) ? TroubleKind::stranger : TroubleKind::no_qp;
  trouble.qpn = qpn;
  trouble.peer_lid = sender;
  trouble.there = qp != nullptr;
  if (qp != nullptr) {
    trouble.client = qp->client;
    trouble.from = qp->state;
  }
  s.events_.trouble(trouble);
}

void blame_attributes(HostState& s, const Qp& qp, const Trouble& found) {
  Trouble trouble = found;
  trouble.client = qp.client;
  trouble.qpn = qp.number;
  s.events_.trouble(trouble);
}

}  // namespace hca

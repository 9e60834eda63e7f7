// The object rules of verbs as a program sees them, for verbs_soak.cc: what exists, what uses what,
// in which state each queue pair is, and which work requests wait for their completion. Kept apart
// from the library that is tested: it asks nothing of it.
#pragma once

#include <infiniband/verbs.h>

#include <cerrno>
#include <cstdint>
#include <deque>
#include <string>

namespace soak {

struct Pd {
  ibv_pd* pd = nullptr;
  int users = 0;
};

struct Cq {
  ibv_cq* cq = nullptr;
  int depth = 0;
  int users = 0;
  int expected = 0;  // completions that may still come: never more than the depth
};

struct Srq {
  ibv_srq* srq = nullptr;
  Pd* pd = nullptr;
  int users = 0;
};

struct Mr {
  ibv_mr* mr = nullptr;
  Pd* pd = nullptr;
};

struct Request {
  std::uint64_t wr_id;
  bool signaled;
};

struct Qp {
  ibv_qp* qp = nullptr;
  Pd* pd = nullptr;
  Cq* send_cq = nullptr;
  Cq* recv_cq = nullptr;
  Srq* srq = nullptr;
  ibv_qp_type type = IBV_QPT_RC;
  ibv_qp_state state = IBV_QPS_RESET;
  int send_slots = 0;  // as granted
  int recv_slots = 0;
  std::deque<Request> sends;  // posted and not seen to complete, oldest first
  std::deque<Request> recvs;
};

// IBA 10.3.1 and table 91: which states follow which.
inline bool may_follow(ibv_qp_state from, ibv_qp_state to) {
  if (to == IBV_QPS_RESET) return true;
  switch (to) {
    case IBV_QPS_INIT:
      return from == IBV_QPS_RESET || from == IBV_QPS_INIT;
    case IBV_QPS_RTR:
      return from == IBV_QPS_INIT;
    case IBV_QPS_RTS:
      return from == IBV_QPS_RTR || from == IBV_QPS_RTS || from == IBV_QPS_SQD;
    case IBV_QPS_SQD:
      return from == IBV_QPS_RTS || from == IBV_QPS_SQD;
    case IBV_QPS_ERR:
      return from != IBV_QPS_RESET;
    default:
      return false;
  }
}

inline int busy_if(bool used) { return used ? EBUSY : 0; }
inline int post_send_error(const Qp& qp) {
  return qp.state == IBV_QPS_RTS || qp.state == IBV_QPS_SQD || qp.state == IBV_QPS_ERR ? 0 : EINVAL;
}
inline int post_recv_error(const Qp& qp) {
  return qp.state == IBV_QPS_RESET || qp.srq != nullptr ? EINVAL : 0;
}

// What must be given for a transition (IBA table 91), by service.
inline int required_mask(ibv_qp_type type, ibv_qp_state to) {
  int mask = IBV_QP_STATE;
  const bool rc = type == IBV_QPT_RC;
  if (to == IBV_QPS_INIT) {
    mask |= IBV_QP_PKEY_INDEX | IBV_QP_PORT;
    mask |= type == IBV_QPT_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS;
  }
  if (to == IBV_QPS_RTR && type != IBV_QPT_UD) {
    mask |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
    if (rc) mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
  }
  if (to == IBV_QPS_RTS) {
    mask |= IBV_QP_SQ_PSN;
    if (rc) {
      mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
    }
  }
  return mask;
}

}  // namespace soak

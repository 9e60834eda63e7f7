// The promise of this library, held at compile time: public structures lie as in rdma-core 44, and
// the numbers of hca/abi are those of <infiniband/verbs.h>, so that nothing is translated.
#include "hca/abi/attributes.h"
#include "hca/abi/cqe.h"
#include "hca/abi/wqe.h"
#include "hca/verbs/objects.h"

namespace hca {

// What programs reach into.
static_assert(sizeof(ibv_device) == 664 && offsetof(ibv_device, name) == 24 &&
              offsetof(ibv_device, ibdev_path) == 408);
static_assert(sizeof(ibv_context) == 328 && offsetof(ibv_context, ops) == 8 &&
              offsetof(ibv_context, cmd_fd) == 264 && offsetof(ibv_context, async_fd) == 268 &&
              offsetof(ibv_context, abi_compat) == 320);
static_assert(offsetof(ibv_context_ops, poll_cq) == 88 &&
              offsetof(ibv_context_ops, post_send) == 200 &&
              offsetof(ibv_context_ops, post_recv) == 208 && sizeof(ibv_context_ops) == 256);
static_assert(offsetof(verbs_context, sz) + sizeof(std::size_t) ==
              offsetof(verbs_context, context));
static_assert(sizeof(verbs_context) == 648);
static_assert(sizeof(ibv_qp) == 160 && offsetof(ibv_qp, qp_num) == 52 &&
              offsetof(ibv_qp, state) == 56);
static_assert(sizeof(ibv_srq) == 128 && offsetof(ibv_srq, handle) == 24);
static_assert(sizeof(ibv_cq) == 128 && offsetof(ibv_cq, cqe) == 28);
static_assert(offsetof(ibv_cq_ex, status) == 132 && offsetof(ibv_cq_ex, start_poll) == 144 &&
              offsetof(ibv_cq_ex, mutex) == offsetof(ibv_cq, mutex) &&
              offsetof(ibv_cq_ex, async_events_completed) ==
                  offsetof(ibv_cq, async_events_completed));
static_assert(offsetof(ibv_qp_ex, qp_base) == 0 && offsetof(ibv_qp_ex, wr_id) == 168 &&
              offsetof(ibv_qp_ex, wr_atomic_cmp_swp) == 184);
static_assert(sizeof(ibv_wc) == 48 && sizeof(ibv_send_wr) == 128 && sizeof(ibv_recv_wr) == 32);
static_assert(sizeof(ibv_mr) == 48 && sizeof(ibv_pd) == 16 && sizeof(ibv_ah) == 24);
static_assert(sizeof(ibv_qp_attr) == 144 && sizeof(ibv_qp_init_attr) == 64);

// Copied as they are.
static_assert(sizeof(ibv_sge) == sizeof(Sge) &&
              offsetof(ibv_sge, length) == offsetof(Sge, length) &&
              offsetof(ibv_sge, lkey) == offsetof(Sge, lkey));

template <class Ours, class Theirs>
constexpr bool same(Ours ours, Theirs theirs) {
  return static_cast<long>(ours) == static_cast<long>(theirs);
}

static_assert(same(WrOpcode::rdma_write, IBV_WR_RDMA_WRITE) &&
              same(WrOpcode::rdma_write_imm, IBV_WR_RDMA_WRITE_WITH_IMM) &&
              same(WrOpcode::send, IBV_WR_SEND) && same(WrOpcode::send_imm, IBV_WR_SEND_WITH_IMM) &&
              same(WrOpcode::rdma_read, IBV_WR_RDMA_READ) &&
              same(WrOpcode::atomic_cas, IBV_WR_ATOMIC_CMP_AND_SWP) &&
              same(WrOpcode::atomic_fadd, IBV_WR_ATOMIC_FETCH_AND_ADD) &&
              same(WrOpcode::send_inv, IBV_WR_SEND_WITH_INV) &&
              same(WrOpcode::atomic_write, IBV_WR_ATOMIC_WRITE));
static_assert(same(kWqeFence, IBV_SEND_FENCE) && same(kWqeSignaled, IBV_SEND_SIGNALED) &&
              same(kWqeSolicited, IBV_SEND_SOLICITED) && same(kWqeInline, IBV_SEND_INLINE));
static_assert(same(WcStatus::success, IBV_WC_SUCCESS) &&
              same(WcStatus::wr_flush_err, IBV_WC_WR_FLUSH_ERR) &&
              same(WcStatus::rem_access_err, IBV_WC_REM_ACCESS_ERR) &&
              same(WcStatus::retry_exc_err, IBV_WC_RETRY_EXC_ERR) &&
              same(WcStatus::rnr_retry_exc_err, IBV_WC_RNR_RETRY_EXC_ERR) &&
              same(WcStatus::general_err, IBV_WC_GENERAL_ERR));
static_assert(same(WcOpcode::send, IBV_WC_SEND) && same(WcOpcode::rdma_write, IBV_WC_RDMA_WRITE) &&
              same(WcOpcode::rdma_read, IBV_WC_RDMA_READ) &&
              same(WcOpcode::comp_swap, IBV_WC_COMP_SWAP) &&
              same(WcOpcode::fetch_add, IBV_WC_FETCH_ADD) &&
              same(WcOpcode::atomic_write, IBV_WC_ATOMIC_WRITE) &&
              same(WcOpcode::recv, IBV_WC_RECV) &&
              same(WcOpcode::recv_rdma_with_imm, IBV_WC_RECV_RDMA_WITH_IMM));
static_assert(same(kWcGrh, IBV_WC_GRH) && same(kWcWithImm, IBV_WC_WITH_IMM));
static_assert(same(QpType::rc, IBV_QPT_RC) && same(QpType::uc, IBV_QPT_UC) &&
              same(QpType::ud, IBV_QPT_UD));
static_assert(same(QpState::reset, IBV_QPS_RESET) && same(QpState::rts, IBV_QPS_RTS) &&
              same(QpState::sqe, IBV_QPS_SQE) && same(QpState::err, IBV_QPS_ERR));
static_assert(same(kQpState, IBV_QP_STATE) && same(kQpAv, IBV_QP_AV) &&
              same(kQpTimeout, IBV_QP_TIMEOUT) && same(kQpSqPsn, IBV_QP_SQ_PSN) &&
              same(kQpDestQpn, IBV_QP_DEST_QPN) && same(kQpMinRnrTimer, IBV_QP_MIN_RNR_TIMER));
static_assert(same(kAccessLocalWrite, IBV_ACCESS_LOCAL_WRITE) &&
              same(kAccessRemoteWrite, IBV_ACCESS_REMOTE_WRITE) &&
              same(kAccessRemoteRead, IBV_ACCESS_REMOTE_READ) &&
              same(kAccessRemoteAtomic, IBV_ACCESS_REMOTE_ATOMIC) &&
              same(kAccessZeroBased, IBV_ACCESS_ZERO_BASED));
static_assert(same(AsyncEvent::cq_err, IBV_EVENT_CQ_ERR) &&
              same(AsyncEvent::qp_fatal, IBV_EVENT_QP_FATAL) &&
              same(AsyncEvent::device_fatal, IBV_EVENT_DEVICE_FATAL) &&
              same(AsyncEvent::path_mig_err, IBV_EVENT_PATH_MIG_ERR) &&
              same(AsyncEvent::port_active, IBV_EVENT_PORT_ACTIVE) &&
              same(AsyncEvent::port_err, IBV_EVENT_PORT_ERR) &&
              same(AsyncEvent::srq_limit_reached, IBV_EVENT_SRQ_LIMIT_REACHED) &&
              same(AsyncEvent::qp_last_wqe_reached, IBV_EVENT_QP_LAST_WQE_REACHED) &&
              same(AsyncEvent::client_reregister, IBV_EVENT_CLIENT_REREGISTER));

}  // namespace hca

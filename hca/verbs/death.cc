// After hcad's death (IBA 10.3.1, 11.6.3.1: a local catastrophic error): the rings stay, for they
// are memory, and tell what was posted and never completed. All of it completes with
// WR_FLUSH_ERR, and so does what is posted from now on. Only this process writes the rings now.
#include <cstring>

#include "hca/verbs/objects.h"

namespace hca {

namespace {

// The next work request between `head` and `tail` of a queue, or null.
const std::byte* next_owed(Shared32& head, const Shared32& tail, std::uint32_t depth,
                           const std::byte* slots, std::uint32_t stride) {
  const std::uint32_t done = head.load(std::memory_order_acquire);
  const std::uint32_t owed = tail.load(std::memory_order_acquire) - done;
  if (owed == 0 || owed > depth) return nullptr;
  return slots + std::size_t{done & (depth - 1)} * stride;
}

const std::byte* next_send(const Qp& qp) {
  return next_owed(qp.page().sq_head, qp.page().sq_tail, qp.layout.sq_depth, qp.send_slot(0),
                   qp.layout.sq_stride);
}

const std::byte* next_receive(const Qp& qp) {
  return next_owed(qp.page().rq_head, qp.page().rq_tail, qp.layout.rq_depth, qp.recv_slot(0),
                   qp.layout.rq_stride);
}

bool ends_in(const ibv_cq* completes, const Cq& cq) {
  return completes == reinterpret_cast<const ibv_cq*>(static_cast<const ibv_cq_ex*>(&cq));
}

Cqe flushed(const Qp& qp, const std::byte* slot, WcOpcode opcode) {
  Cqe cqe{};
  std::memcpy(&cqe.wr_id, slot, sizeof cqe.wr_id);  // both kinds of slot begin with it
  cqe.status = WcStatus::wr_flush_err;
  cqe.opcode = opcode;
  cqe.qp_num = qp.qp_base.qp_num;
  return cqe;
}

}  // namespace

void note_death(Context& context) {
  if (!context.dead() || context.link().abandoned()) return;
  const std::lock_guard lock(context.table_lock);
  if (context.queues_failed) return;
  context.queues_failed = true;
  for (auto& [number, qp] : context.qps) {
    qp->qp_base.state = IBV_QPS_ERR;
    qp->page().state.store(static_cast<std::uint32_t>(QpState::err), std::memory_order_release);
  }
}

bool flushes_waiting(const Context& context, const Cq& cq) {
  for (const auto& [number, qp] : context.qps) {
    if (ends_in(qp->qp_base.send_cq, cq) && next_send(*qp) != nullptr) return true;
    if (ends_in(qp->qp_base.recv_cq, cq) && next_receive(*qp) != nullptr) return true;
  }
  return false;
}

bool next_flushed(Cq& cq, Cqe& cqe) {
  Context& context = *to_context(cq.context);
  if (!context.dead() || context.link().abandoned()) return false;
  note_death(context);
  const std::lock_guard lock(context.table_lock);
  for (auto& [number, qp] : context.qps) {
    if (ends_in(qp->qp_base.send_cq, cq)) {
      if (const std::byte* slot = next_send(*qp)) {
        cqe = flushed(*qp, slot, WcOpcode::send);
        qp->page().sq_head.fetch_add(1, std::memory_order_release);
        return true;
      }
    }
    if (ends_in(qp->qp_base.recv_cq, cq)) {
      if (const std::byte* slot = next_receive(*qp)) {
        cqe = flushed(*qp, slot, WcOpcode::recv);
        qp->page().rq_head.fetch_add(1, std::memory_order_release);
        return true;
      }
    }
  }
  return false;
}

}  // namespace hca

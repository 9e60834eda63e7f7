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

// Never of the last index before the indexes wrap: 0 is what a fresh ring says.
bool is_whole(Cqe& cqe, std::uint32_t index) {
  const auto sequence = std::atomic_ref(cqe.sequence).load(std::memory_order_acquire);
  return sequence == index + 1 && sequence != 0;
}

// A completion says how far its queue had come, also where hcad did not live to say it itself.
void believe(const Context& context, const Cqe& cqe, std::uint32_t index) {
  const auto it = context.qps.find(cqe.qp_num);
  if (it == context.qps.end()) return;
  Qp& qp = *it->second;
  const bool received = is_receive(cqe);
  const auto& begin = received ? qp.recv_cq_begin : qp.send_cq_begin;
  if (static_cast<std::int32_t>(index - begin) < 0) return;  // of its life before a RESET
  Shared32& head = received ? qp.page().rq_head : qp.page().sq_head;
  const std::uint32_t known = head.load(std::memory_order_relaxed);
  if (static_cast<std::int32_t>(cqe.done - known) > 0) {
    head.store(cqe.done, std::memory_order_release);
  }
}

// Whole completions beyond the tail are told, and what a completion tells of is not flushed too.
void recover(const Context& context, const Cq& cq) {
  CqPage& page = cq.page();
  std::uint32_t tail = page.tail.load(std::memory_order_acquire);
  const std::uint32_t told = tail;
  while (tail - told < cq.depth && is_whole(cq.slot(tail), tail)) ++tail;
  for (std::uint32_t index = tail - cq.depth; index != tail; ++index) {
    if (is_whole(cq.slot(index), index)) believe(context, cq.slot(index), index);
  }
  page.tail.store(tail, std::memory_order_release);
}

}  // namespace

void note_death(Context& context) {
  if (!context.dead() || context.link().abandoned()) return;
  const std::lock_guard lock(context.table_lock);
  if (context.queues_failed) return;
  context.queues_failed = true;
  for (const auto& [number, cq] : context.cqs) recover(context, *cq);
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
        qp->sq_polled = qp->page().sq_head.fetch_add(1, std::memory_order_release) + 1;
        return true;
      }
    }
    if (ends_in(qp->qp_base.recv_cq, cq)) {
      if (const std::byte* slot = next_receive(*qp)) {
        cqe = flushed(*qp, slot, WcOpcode::recv);
        qp->rq_polled = qp->page().rq_head.fetch_add(1, std::memory_order_release) + 1;
        return true;
      }
    }
  }
  return false;
}

}  // namespace hca

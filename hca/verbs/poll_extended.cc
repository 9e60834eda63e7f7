// The extended CQ: start, next, end, and a function for each field of a completion.
#include "hca/verbs/inline_recv.h"
#include "hca/verbs/objects.h"
#include "hca/verbs/polling.h"

namespace hca {

namespace {

// The next completion becomes the current one; under the lock.
bool advance(Cq& cq) {
  CqPage& page = cq.page();
  const bool dead = to_context(cq.context)->dead();
  if (dead) note_death(*to_context(cq.context));  // then the tail is the last one
  if (page.tail.load(std::memory_order_acquire) != cq.consumed) {
    cq.current = cq.slot(cq.consumed++);
    if (is_inline(cq.current)) bring_home(*to_context(cq.context), cq.current);
    page.head.store(cq.consumed, std::memory_order_release);
    free_slots(*to_context(cq.context), cq.current);
  } else if (!dead || !next_flushed(cq, cq.current)) {
    return false;
  }
  cq.status = static_cast<ibv_wc_status>(cq.current.status);
  cq.wr_id = cq.current.wr_id;
  return true;
}

void lock(Cq& cq) {
  cq.lock.lock();
  cq.poller.store(::pthread_self(), std::memory_order_relaxed);
}

void unlock(Cq& cq) {
  cq.poller.store(pthread_t{}, std::memory_order_relaxed);
  cq.lock.unlock();
}

void end_poll(ibv_cq_ex* base_cq) {
  Cq& cq = *to_cq(base_cq);
  cq.page().head.store(cq.consumed, std::memory_order_release);
  unlock(cq);
}

int start_poll(ibv_cq_ex* base_cq, ibv_poll_cq_attr* attributes) {
  if (attributes != nullptr && attributes->comp_mask != 0) return EINVAL;
  Cq& cq = *to_cq(base_cq);
  if (to_context(cq.context)->link().abandoned()) return EIO;
  lock(cq);
  if (!advance(cq)) {
    unlock(cq);
    const bool again = after_empty_poll(cq);
    if (!again) return ENOENT;
    lock(cq);
    if (!advance(cq)) {
      unlock(cq);
      return to_context(cq.context)->dead() ? EIO : ENOENT;
    }
  }
  after_full_poll(is_receive(cq.current));
  return 0;
}

int next_poll(ibv_cq_ex* base_cq) {
  Cq& cq = *to_cq(base_cq);
  // Forked since start_poll: what the ring holds is the parent's.
  if (to_context(cq.context)->link().abandoned()) return EIO;
  return advance(cq) ? 0 : ENOENT;
}

const Cqe& current(ibv_cq_ex* cq) { return to_cq(cq)->current; }

}  // namespace

void fill_cq_ops(Cq& cq) {
  cq.start_poll = start_poll;
  cq.next_poll = next_poll;
  cq.end_poll = end_poll;
  cq.read_opcode = [](ibv_cq_ex* c) { return static_cast<ibv_wc_opcode>(current(c).opcode); };
  cq.read_vendor_err = [](ibv_cq_ex* c) { return current(c).vendor_err; };
  cq.read_byte_len = [](ibv_cq_ex* c) { return current(c).byte_len; };
  cq.read_imm_data = [](ibv_cq_ex* c) -> __be32 { return current(c).imm; };
  cq.read_qp_num = [](ibv_cq_ex* c) { return current(c).qp_num; };
  cq.read_src_qp = [](ibv_cq_ex* c) { return current(c).src_qp; };
  cq.read_wc_flags = [](ibv_cq_ex* c) -> unsigned { return current(c).wc_flags; };
  cq.read_slid = [](ibv_cq_ex* c) -> std::uint32_t { return current(c).slid; };
  cq.read_sl = [](ibv_cq_ex* c) { return current(c).sl; };
  cq.read_dlid_path_bits = [](ibv_cq_ex* c) { return current(c).dlid_path_bits; };
  // There is one clock, the emulated one; its ticks are nanoseconds.
  cq.read_completion_ts = [](ibv_cq_ex* c) { return current(c).timestamp_ns; };
  cq.read_cvlan = [](ibv_cq_ex*) -> std::uint16_t { return 0; };
  cq.read_flow_tag = [](ibv_cq_ex*) -> std::uint32_t { return 0; };
  cq.read_tm_info = [](ibv_cq_ex*, ibv_wc_tm_info* info) { *info = {}; };
}

}  // namespace hca

// ibv_post_send and ibv_post_recv: work requests into the shared rings of a QP, and the doorbell.
#include "hca/verbs/post.h"

#include <cstring>

#include "emu/ring/doorbell.h"
#include "hca/verbs/aside.h"

namespace hca {

namespace {

// Under the lock. hcad's word is looked at only when what it was last is not enough.
bool has_room(Context& context) {
  if (context.doorbell_tail - context.doorbell_head < kDoorbellEntries) return true;
  context.doorbell_head = context.doorbells().head.load(std::memory_order_acquire);
  return context.doorbell_tail - context.doorbell_head < kDoorbellEntries;
}

void ring_doorbell(Context& context, Qp& qp) {
  // hcad clears the flag before it looks at the tail, so a QP stands in the ring at most once.
  if (qp.page().rung.exchange(1, std::memory_order_seq_cst) != 0) return;
  DoorbellPage& page = context.doorbells();
  {
    const std::lock_guard lock(context.doorbell_lock);
    if (has_room(context)) {
      page.qp_num[context.doorbell_tail++ % kDoorbellEntries] = qp.qp_base.qp_num;
      page.tail.store(context.doorbell_tail, std::memory_order_seq_cst);
    } else {
      page.overflow.store(1, std::memory_order_seq_cst);
    }
  }
  // seq_cst both: either hcad sees the entry after it said that it sleeps, or we see that it
  // sleeps. The exchange leaves one of several ringers to wake it.
  if (page.sleeping.load(std::memory_order_seq_cst) != 0 &&
      page.sleeping.exchange(0, std::memory_order_seq_cst) != 0) {
    emu::signal_eventfd(context.session->doorbell_fd.get());
  }
}

// The scatter/gather list or the inline bytes, to `to`. Returns an errno.
int put_payload(const Qp& qp, const ibv_send_wr& wr, SendWqe& wqe, std::byte* to,
                std::uint64_t& length) {
  const auto count = static_cast<std::uint32_t>(wr.num_sge);
  if (wr.num_sge < 0 || count > qp.capacity.max_send_sge || (count != 0 && wr.sg_list == nullptr)) {
    return EINVAL;
  }
  length = 0;
  for (std::uint32_t i = 0; i < count; ++i) length += wr.sg_list[i].length;
  if ((wr.send_flags & IBV_SEND_INLINE) == 0) {
    if (count != 0) std::memcpy(to, wr.sg_list, count * sizeof(Sge));
    wqe.num_sge = static_cast<std::uint8_t>(count);
    return 0;
  }
  if (length > qp.capacity.max_inline_data || is_answered(wqe.opcode)) return EINVAL;
  for (std::uint32_t i = 0; i < count; ++i) {
    std::memcpy(to, reinterpret_cast<const void*>(wr.sg_list[i].addr), wr.sg_list[i].length);
    to += wr.sg_list[i].length;
  }
  wqe.inline_length = static_cast<std::uint32_t>(length);
  return 0;
}

int post_one(Qp& qp, const ibv_send_wr& wr) {
  // The struct has no place for what an atomic write writes: ibv_wr_atomic_write() alone has it.
  if (!opcode_served(qp.qp_base.qp_type, wr.opcode) || wr.opcode == IBV_WR_ATOMIC_WRITE)
    return EINVAL;
  if (const int full = check_room(qp)) return full;
  SendWqe wqe{};
  wqe.wr_id = wr.wr_id;
  wqe.opcode = static_cast<WrOpcode>(wr.opcode);
  wqe.flags = static_cast<std::uint8_t>(
      wr.send_flags & (IBV_SEND_FENCE | IBV_SEND_SIGNALED | IBV_SEND_SOLICITED | IBV_SEND_INLINE));
  wqe.imm = wr.imm_data;
  std::byte* slot = qp.send_slot(qp.sq_tail);
  std::byte* payload = slot + sizeof(SendWqe);
  if (qp.qp_base.qp_type == IBV_QPT_UD) {
    if (wr.wr.ud.ah == nullptr) return EINVAL;
    const ibv_ah_attr& ah = static_cast<const Ah*>(wr.wr.ud.ah)->attributes;
    wqe.remote_qpn = wr.wr.ud.remote_qpn;
    wqe.remote_qkey = wr.wr.ud.remote_qkey;
    wqe.dlid = ah.dlid;
    wqe.sl = ah.sl;
    wqe.src_path_bits = ah.src_path_bits;
    if (ah.is_global != 0) {
      wqe.flags |= kWqeExtended;
      const WqeExtension extension = global_route(ah);
      std::memcpy(payload, &extension, sizeof extension);
      payload += sizeof extension;
    }
  } else if (wqe.opcode == WrOpcode::bind_mw) {
    if (wr.bind_mw.mw == nullptr || wr.num_sge != 0) return EINVAL;
    wqe.rkey = name_of(*wr.bind_mw.mw);
    wqe.remote_addr = wr.bind_mw.bind_info.addr;
    wqe.flags |= kWqeExtended;
    const WqeExtension extension = binding(wr.bind_mw.rkey, wr.bind_mw.bind_info);
    std::memcpy(payload, &extension, sizeof extension);
    payload += sizeof extension;
  } else if (is_atomic(wqe.opcode)) {
    wqe.remote_addr = wr.wr.atomic.remote_addr;
    wqe.rkey = wr.wr.atomic.rkey;
    wqe.flags |= kWqeExtended;
    WqeExtension operands{};
    operands.compare_add = wr.wr.atomic.compare_add;
    operands.swap = wr.wr.atomic.swap;
    std::memcpy(payload, &operands, sizeof operands);
    payload += sizeof operands;
  } else {
    wqe.remote_addr = wr.wr.rdma.remote_addr;
    wqe.rkey = wr.wr.rdma.rkey;
  }
  if (qp.qp_base.qp_type == IBV_QPT_XRC_SEND) wqe.xrc_srqn = wr.qp_type.xrc.remote_srqn;
  std::uint64_t length = 0;
  if (const int wrong = put_payload(qp, wr, wqe, payload, length)) return wrong;
  return finish_request(qp, wqe, length);
}

// All of a list, in a forked child.
template <class Wr>
int refuse(Wr* wr, Wr** bad_wr) {
  if (bad_wr != nullptr) *bad_wr = wr;
  return EIO;
}

int put_receive(Qp& qp, const ibv_recv_wr& wr) {
  const auto count = static_cast<std::uint32_t>(wr.num_sge);
  if (wr.num_sge < 0 || count > qp.capacity.max_recv_sge || (count != 0 && wr.sg_list == nullptr)) {
    return EINVAL;
  }
  // Acquire: hcad had read the slot before its completion could be polled.
  const std::uint32_t polled = qp.rq_polled.load(std::memory_order_acquire);
  if (qp.rq_tail - polled >= qp.layout.rq_depth) return ENOMEM;
  const RecvWqe wqe{wr.wr_id, count, 0};
  std::byte* slot = qp.recv_slot(qp.rq_tail);
  std::memcpy(slot, &wqe, sizeof wqe);
  if (count != 0) std::memcpy(slot + sizeof wqe, wr.sg_list, count * sizeof(Sge));
  ++qp.rq_tail;
  return 0;
}

}  // namespace

bool opcode_served(ibv_qp_type type, ibv_wr_opcode opcode) {
  if (type == IBV_QPT_XRC_RECV) return false;
  switch (opcode) {
    case IBV_WR_SEND:
    case IBV_WR_SEND_WITH_IMM:
      return true;
    case IBV_WR_RDMA_WRITE:
    case IBV_WR_RDMA_WRITE_WITH_IMM:
      return type != IBV_QPT_UD;
    case IBV_WR_BIND_MW:
    case IBV_WR_LOCAL_INV:
      return type != IBV_QPT_UD;
    case IBV_WR_RDMA_READ:
    case IBV_WR_ATOMIC_CMP_AND_SWP:
    case IBV_WR_ATOMIC_FETCH_AND_ADD:
    case IBV_WR_ATOMIC_WRITE:
    case IBV_WR_SEND_WITH_INV:
      return type == IBV_QPT_RC || type == IBV_QPT_XRC_SEND;
    default:
      return false;
  }
}

WqeExtension global_route(const ibv_ah_attr& ah) {
  WqeExtension extension{};
  std::memcpy(extension.dgid, ah.grh.dgid.raw, sizeof extension.dgid);
  extension.flow_label = ah.grh.flow_label;
  extension.is_global = 1;
  extension.sgid_index = ah.grh.sgid_index;
  extension.hop_limit = ah.grh.hop_limit;
  extension.traffic_class = ah.grh.traffic_class;
  return extension;
}

int may_send(const Qp& qp) {
  const auto state = qp.page().state.load(std::memory_order_relaxed);
  return state < static_cast<std::uint32_t>(QpState::rts) ? EINVAL : 0;
}

int check_room(const Qp& qp) {
  // Acquire: hcad had read the slot before its completion could be polled. What is done and not
  // polled counts, or completions could outgrow the CQ that was made for so many requests.
  const std::uint32_t polled = qp.sq_polled.load(std::memory_order_acquire);
  return qp.sq_tail - polled < qp.layout.sq_depth ? 0 : ENOMEM;
}

int finish_request(Qp& qp, SendWqe& wqe, std::uint64_t length) {
  if (length > to_context(qp.qp_base.context)->node().max_message_bytes) return EINVAL;
  const QpPage& page = qp.page();
  const std::uint32_t packets =
      packets_of(wqe.opcode, length, page.packet_payload.load(std::memory_order_relaxed));
  if (page.credit_limited.load(std::memory_order_acquire) != 0) {
    const std::uint32_t granted = page.credit_granted.load(std::memory_order_acquire);
    // Free-running counts: what was taken back by a smaller rate shows as a negative rest.
    if (static_cast<std::int32_t>(granted - qp.credit_used) < static_cast<std::int32_t>(packets)) {
      return ENOMEM;
    }
  }
  // Always, because hcad returns a credit for every packet since RESET, asked for or not: what is
  // under way when a rate is granted is then counted against it.
  qp.credit_used += packets;
  wqe.launch_ns = qp.launch_ns;
  wqe.launch_span_ns = qp.launch_span_ns;
  qp.launch_ns = 0;
  qp.launch_span_ns = 0;
  std::memcpy(qp.send_slot(qp.sq_tail), &wqe, sizeof wqe);
  ++qp.sq_tail;
  return 0;
}

void publish_sends(Qp& qp) {
  // Release: the slots are written before the index that offers them. Pairs with hca/host.
  qp.page().sq_tail.store(qp.sq_tail, std::memory_order_release);
  ring_doorbell(*to_context(qp.qp_base.context), qp);
  exchange().posted();
}

int post_send(ibv_qp* base_qp, ibv_send_wr* wr, ibv_send_wr** bad_wr) {
  if (base_qp == nullptr) return EINVAL;
  Qp& qp = *to_qp(base_qp);
  if (to_context(base_qp->context)->link().abandoned()) return refuse(wr, bad_wr);
  const std::lock_guard lock(qp.send_lock);
  const std::uint32_t first = qp.sq_tail;
  int error = may_send(qp);
  while (error == 0 && wr != nullptr) {
    error = post_one(qp, *wr);
    if (error == 0) wr = wr->next;
  }
  if (error != 0 && bad_wr != nullptr) *bad_wr = wr;
  if (qp.sq_tail != first) publish_sends(qp);
  return error;
}

int post_recv(ibv_qp* base_qp, ibv_recv_wr* wr, ibv_recv_wr** bad_wr) {
  if (base_qp == nullptr) return EINVAL;
  Qp& qp = *to_qp(base_qp);
  if (to_context(base_qp->context)->link().abandoned()) return refuse(wr, bad_wr);
  const std::lock_guard lock(qp.recv_lock);
  const std::uint32_t first = qp.rq_tail;
  int error = base_qp->state == IBV_QPS_RESET || qp.layout.rq_depth == 0 ? EINVAL : 0;
  while (error == 0 && wr != nullptr) {
    error = put_receive(qp, *wr);
    if (error == 0) wr = wr->next;
  }
  if (error != 0 && bad_wr != nullptr) *bad_wr = wr;
  if (qp.rq_tail != first) {
    // No doorbell: hcad looks when a message arrives.
    qp.page().rq_tail.store(qp.rq_tail, std::memory_order_seq_cst);
    if (qp.page().state.load(std::memory_order_seq_cst) ==
        static_cast<std::uint32_t>(QpState::err)) {
      ring_doorbell(*to_context(base_qp->context), qp);  // or when there is something to flush
    }
  }
  return error;
}

}  // namespace hca

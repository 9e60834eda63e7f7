// The ibv_wr_* calls: a work request is built piece by piece between wr_start and wr_complete. The
// scatter list or inline bytes go straight into the slot, behind the largest header, so the pieces
// may come in any order. An error on the way is kept and returned by wr_complete, which then posts
// nothing.
#include <cstring>

#include "hca/verbs/post.h"

namespace hca {

namespace {

std::size_t payload_offset(const Qp& qp) {
  return sizeof(SendWqe) + ((qp.wr.flags & kWqeExtended) != 0 ? sizeof(WqeExtension) : 0);
}

std::byte* payload(Qp& qp) { return qp.send_slot(qp.sq_tail) + payload_offset(qp); }

void fail(Qp& qp, int error) {
  if (qp.wr_error == 0) qp.wr_error = error;
}

void close_request(Qp& qp) {
  if (!qp.wr_open) return;
  qp.wr_open = false;
  if (qp.wr_error == 0) qp.wr_error = finish_request(qp, qp.wr, qp.wr_length);
}

// The next request begins; what was being filled is complete.
Qp* open_request(ibv_qp_ex* base_qp, WrOpcode opcode) {
  Qp& qp = *to_qp(base_qp);
  close_request(qp);
  if (qp.wr_error == 0) qp.wr_error = check_room(qp);
  if (qp.wr_error != 0) return nullptr;
  if (!opcode_served(qp.qp_base.qp_type, static_cast<ibv_wr_opcode>(opcode))) {
    fail(qp, EINVAL);
    return nullptr;
  }
  qp.wr = {};
  qp.wr.wr_id = base_qp->wr_id;
  qp.wr.opcode = opcode;
  qp.wr.flags = static_cast<std::uint8_t>(
      base_qp->wr_flags & (IBV_SEND_FENCE | IBV_SEND_SIGNALED | IBV_SEND_SOLICITED));
  qp.wr_length = 0;
  qp.wr_open = true;
  if (qp.qp_base.qp_type == IBV_QPT_UD) {
    qp.wr.flags |= kWqeExtended;  // is_global 0 until an address says otherwise
    const WqeExtension none{};
    std::memcpy(qp.send_slot(qp.sq_tail) + sizeof(SendWqe), &none, sizeof none);
  }
  return &qp;
}

Qp* open_rdma(ibv_qp_ex* base_qp, WrOpcode opcode, std::uint32_t rkey, std::uint64_t address) {
  Qp* qp = open_request(base_qp, opcode);
  if (qp == nullptr) return nullptr;
  qp->wr.rkey = rkey;
  qp->wr.remote_addr = address;
  return qp;
}

void open_atomic(ibv_qp_ex* base_qp, WrOpcode opcode, std::uint32_t rkey, std::uint64_t address,
                 std::uint64_t compare_add, std::uint64_t swap) {
  Qp* qp = open_rdma(base_qp, opcode, rkey, address);
  if (qp == nullptr) return;
  qp->wr.flags |= kWqeExtended;
  WqeExtension operands{};
  operands.compare_add = compare_add;
  operands.swap = swap;
  std::memcpy(qp->send_slot(qp->sq_tail) + sizeof(SendWqe), &operands, sizeof operands);
}

void wr_start(ibv_qp_ex* base_qp) {
  Qp& qp = *to_qp(base_qp);
  const bool forked = to_context(qp.qp_base.context)->link().abandoned();
  if (!forked) qp.send_lock.lock();  // the parent's: a forked child gets its error by wr_complete
  qp.wr_first = qp.sq_tail;
  qp.wr_credit_used = qp.credit_used;
  qp.wr_open = false;
  qp.wr_error = forked ? EIO : may_send(qp);
}

void take_back(Qp& qp) {
  qp.sq_tail = qp.wr_first;
  qp.credit_used = qp.wr_credit_used;
  qp.wr_open = false;
}

int wr_complete(ibv_qp_ex* base_qp) {
  Qp& qp = *to_qp(base_qp);
  if (to_context(qp.qp_base.context)->link().abandoned()) {
    take_back(qp);
    return EIO;
  }
  close_request(qp);
  const int error = qp.wr_error;
  if (error != 0) {
    take_back(qp);
  } else if (qp.sq_tail != qp.wr_first) {
    publish_sends(qp);
  }
  qp.send_lock.unlock();
  return error;
}

void wr_abort(ibv_qp_ex* base_qp) {
  Qp& qp = *to_qp(base_qp);
  take_back(qp);
  if (!to_context(qp.qp_base.context)->link().abandoned()) qp.send_lock.unlock();
}

void wr_set_ud_addr(ibv_qp_ex* base_qp, ibv_ah* ah, std::uint32_t remote_qpn,
                    std::uint32_t remote_qkey) {
  Qp& qp = *to_qp(base_qp);
  if (!qp.wr_open) return;
  if (ah == nullptr || qp.qp_base.qp_type != IBV_QPT_UD) return fail(qp, EINVAL);
  const ibv_ah_attr& to = static_cast<Ah*>(ah)->attributes;
  qp.wr.remote_qpn = remote_qpn;
  qp.wr.remote_qkey = remote_qkey;
  qp.wr.dlid = to.dlid;
  qp.wr.sl = to.sl;
  qp.wr.src_path_bits = to.src_path_bits;
  if (to.is_global == 0) return;
  const WqeExtension extension = global_route(to);
  std::memcpy(qp.send_slot(qp.sq_tail) + sizeof(SendWqe), &extension, sizeof extension);
}

void wr_set_sge_list(ibv_qp_ex* base_qp, std::size_t count, const ibv_sge* list) {
  Qp& qp = *to_qp(base_qp);
  if (!qp.wr_open) return;
  if (count > qp.capacity.max_send_sge) return fail(qp, EINVAL);
  if (count != 0) std::memcpy(payload(qp), list, count * sizeof(Sge));
  qp.wr.num_sge = static_cast<std::uint8_t>(count);
  for (std::size_t i = 0; i < count; ++i) qp.wr_length += list[i].length;
}

void wr_set_sge(ibv_qp_ex* base_qp, std::uint32_t lkey, std::uint64_t address,
                std::uint32_t length) {
  const ibv_sge sge{address, length, lkey};
  wr_set_sge_list(base_qp, 1, &sge);
}

void wr_set_inline_data_list(ibv_qp_ex* base_qp, std::size_t count, const ibv_data_buf* list) {
  Qp& qp = *to_qp(base_qp);
  if (!qp.wr_open) return;
  if (is_answered(qp.wr.opcode)) return fail(qp, EINVAL);
  std::byte* to = payload(qp);
  for (std::size_t i = 0; i < count; ++i) {
    if (qp.wr_length + list[i].length > qp.capacity.max_inline_data) return fail(qp, EINVAL);
    std::memcpy(to + qp.wr_length, list[i].addr, list[i].length);
    qp.wr_length += list[i].length;
  }
  qp.wr.flags |= kWqeInline;
  qp.wr.inline_length = static_cast<std::uint32_t>(qp.wr_length);
}

void wr_set_inline_data(ibv_qp_ex* base_qp, void* address, std::size_t length) {
  const ibv_data_buf buffer{address, length};
  wr_set_inline_data_list(base_qp, 1, &buffer);
}

void wr_set_xrc_srqn(ibv_qp_ex* base_qp, std::uint32_t remote_srqn) {
  Qp& qp = *to_qp(base_qp);
  if (!qp.wr_open) return;
  if (qp.qp_base.qp_type != IBV_QPT_XRC_SEND) return fail(qp, EINVAL);
  qp.wr.xrc_srqn = remote_srqn;
}

void refuse(ibv_qp_ex* base_qp) { fail(*to_qp(base_qp), EOPNOTSUPP); }

void open_binding(ibv_qp_ex* base_qp, ibv_mw* mw, std::uint32_t rkey,
                  const ibv_mw_bind_info* info) {
  if (mw == nullptr || info == nullptr) return fail(*to_qp(base_qp), EINVAL);
  Qp* qp = open_rdma(base_qp, WrOpcode::bind_mw, name_of(*mw), info->addr);
  if (qp == nullptr) return;
  qp->wr.flags |= kWqeExtended;
  const WqeExtension extension = binding(rkey, *info);
  std::memcpy(qp->send_slot(qp->sq_tail) + sizeof(SendWqe), &extension, sizeof extension);
}

void fill_requests(Qp& qp) {
  qp.wr_bind_mw = open_binding;
  qp.wr_local_inv = [](ibv_qp_ex* q, std::uint32_t rkey) {
    if (Qp* filled = open_request(q, WrOpcode::local_inv)) filled->wr.imm = rkey;
  };
  qp.wr_send_inv = [](ibv_qp_ex* q, std::uint32_t rkey) {
    if (Qp* filled = open_request(q, WrOpcode::send_inv)) filled->wr.imm = rkey;
  };
  qp.wr_send = [](ibv_qp_ex* q) { open_request(q, WrOpcode::send); };
  qp.wr_send_imm = [](ibv_qp_ex* q, __be32 imm) {
    if (Qp* filled = open_request(q, WrOpcode::send_imm)) filled->wr.imm = imm;
  };
  qp.wr_rdma_write = [](ibv_qp_ex* q, std::uint32_t rkey, std::uint64_t address) {
    open_rdma(q, WrOpcode::rdma_write, rkey, address);
  };
  qp.wr_rdma_write_imm = [](ibv_qp_ex* q, std::uint32_t rkey, std::uint64_t address, __be32 imm) {
    if (Qp* filled = open_rdma(q, WrOpcode::rdma_write_imm, rkey, address)) filled->wr.imm = imm;
  };
  qp.wr_rdma_read = [](ibv_qp_ex* q, std::uint32_t rkey, std::uint64_t address) {
    open_rdma(q, WrOpcode::rdma_read, rkey, address);
  };
  qp.wr_atomic_cmp_swp = [](ibv_qp_ex* q, std::uint32_t rkey, std::uint64_t address,
                            std::uint64_t compare, std::uint64_t swap) {
    open_atomic(q, WrOpcode::atomic_cas, rkey, address, compare, swap);
  };
  qp.wr_atomic_fetch_add = [](ibv_qp_ex* q, std::uint32_t rkey, std::uint64_t address,
                              std::uint64_t add) {
    open_atomic(q, WrOpcode::atomic_fadd, rkey, address, add, 0);
  };
  qp.wr_atomic_write = [](ibv_qp_ex* q, std::uint32_t rkey, std::uint64_t address,
                          const void* bytes) {
    std::uint64_t written = 0;
    std::memcpy(&written, bytes, sizeof written);
    open_atomic(q, WrOpcode::atomic_write, rkey, address, 0, written);
  };
}

// None may be null: programs call them without looking.
void fill_refusals(Qp& qp) {
  qp.wr_send_tso = [](ibv_qp_ex* q, void*, std::uint16_t, std::uint16_t) { refuse(q); };
}

}  // namespace

void fill_wr_ops(Qp& qp) {
  qp.wr_start = wr_start;
  qp.wr_complete = wr_complete;
  qp.wr_abort = wr_abort;
  qp.wr_set_ud_addr = wr_set_ud_addr;
  qp.wr_set_xrc_srqn = wr_set_xrc_srqn;
  qp.wr_set_sge = wr_set_sge;
  qp.wr_set_sge_list = wr_set_sge_list;
  qp.wr_set_inline_data = wr_set_inline_data;
  qp.wr_set_inline_data_list = wr_set_inline_data_list;
  fill_requests(qp);
  fill_refusals(qp);
}

}  // namespace hca

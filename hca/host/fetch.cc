// A work request enters: copied once from the application's ring, then checked from the copy. What
// is wrong with it is noted and reported in its turn, after the requests before it.
#include <cstring>

#include "emu/base/check.h"
#include "hca/host/state.h"

namespace hca {

namespace {

bool opcode_served(QpType type, WrOpcode opcode) {
  switch (opcode) {
    case WrOpcode::send:
    case WrOpcode::send_imm:
      return true;
    case WrOpcode::rdma_write:
    case WrOpcode::rdma_write_imm:
      return type != QpType::ud;
    case WrOpcode::bind_mw:
    case WrOpcode::local_inv:
      return type != QpType::ud;
    case WrOpcode::rdma_read:
    case WrOpcode::atomic_cas:
    case WrOpcode::atomic_fadd:
    case WrOpcode::atomic_write:
    case WrOpcode::send_inv:
      return type == QpType::rc || type == QpType::xrc_send;
    default:
      return false;
  }
}

// Copies the slot as far as it is used and returns what is wrong with its form.
WcStatus copy_request(HostState& s, Qp& qp, SendWqe& wqe) {
  const std::uint8_t* slot = qp.send_slot(qp.sq_fetched);
  std::memcpy(&wqe, slot, sizeof wqe);
  const std::size_t offset = list_offset(wqe);
  const bool is_inline = (wqe.flags & kWqeInline) != 0;
  if (!opcode_served(qp.type, wqe.opcode)) return WcStatus::loc_qp_op_err;
  if (is_inline && (is_answered(wqe.opcode) || wqe.inline_length > qp.capacity.inline_bytes)) {
    return WcStatus::loc_qp_op_err;
  }
  const bool has_operands = is_atomic(wqe.opcode) || wqe.opcode == WrOpcode::bind_mw ||
                            wqe.opcode == WrOpcode::atomic_write;
  if (has_operands && (wqe.flags & kWqeExtended) == 0) return WcStatus::loc_qp_op_err;
  if (!is_inline && wqe.num_sge > qp.capacity.send_sge) return WcStatus::loc_qp_op_err;
  const std::size_t payload = is_inline ? wqe.inline_length : wqe.num_sge * sizeof(Sge);
  CHECK(offset + payload <= qp.layout.sq_stride);
  std::memcpy(reinterpret_cast<std::uint8_t*>(&wqe) + sizeof wqe, slot + sizeof wqe,
              offset - sizeof wqe + payload);
  (void)s;
  return WcStatus::success;
}

// Keys, bounds and access of the local list; the length of the message.
WcStatus check_list(HostState& s, const Qp& qp, const SendWqe& wqe, std::uint32_t& length) {
  if ((wqe.flags & kWqeInline) != 0) {
    length = wqe.inline_length;
    return WcStatus::success;
  }
  if (wqe.opcode == WrOpcode::atomic_write) {
    length = kAtomicBytes;
    return wqe.num_sge == 0 ? WcStatus::success : WcStatus::loc_qp_op_err;
  }
  const std::uint32_t access = is_answered(wqe.opcode) ? kAccessLocalWrite : kAccessLocalRead;
  const std::uint8_t* list = list_of(wqe);
  std::uint64_t total = 0;
  for (std::uint32_t i = 0; i < wqe.num_sge; ++i) {
    Sge sge;
    std::memcpy(&sge, list + i * sizeof sge, sizeof sge);
    total += sge.length;
    Range range;
    if (sge.length != 0 && !resolve(s.mrs_, sge.lkey, qp.pd, sge.addr, sge.length, access, range)) {
      blame_key(s, qp, TroubleKind::send_key,
                {sge.lkey, qp.pd, sge.addr, sge.length, access, wqe.wr_id});
      return WcStatus::loc_prot_err;
    }
  }
  if (is_atomic(wqe.opcode) && total != kAtomicBytes) return WcStatus::loc_len_err;
  if (total > kMaxMessageBytes) return WcStatus::loc_len_err;
  length = static_cast<std::uint32_t>(total);
  return WcStatus::success;
}

}  // namespace

SendEntry* current_request(HostState& s, Qp& qp) {
  if (qp.sq_current != qp.sq_fetched) return &qp.entry(qp.sq_current);
  if (qp.sq_fetched == qp.sq_posted) return nullptr;

  SendWqe& wqe = qp.wqe(qp.sq_fetched);
  SendEntry& entry = qp.entry(qp.sq_fetched);
  entry.launch = 0;
  entry.span_cycles = entry.packets = entry.length = 0;
  entry.status = copy_request(s, qp, wqe);
  entry.opcode = wqe.opcode;
  entry.flags = wqe.flags;
  entry.num_sge = (wqe.flags & kWqeInline) != 0 ? std::uint8_t{0} : wqe.num_sge;
  entry.first_psn = qp.psn_fetch;
  if (entry.status == WcStatus::success) entry.status = check_list(s, qp, wqe, entry.length);
  // PSN space: a READ takes one for each response packet.
  const std::uint32_t packets =
      entry.length == 0 ? 1 : (entry.length + qp.payload - 1) / qp.payload;
  const std::uint32_t most = qp.type == QpType::ud ? 1 : kMaxOutstandingPackets;
  if (entry.status == WcStatus::success && packets > most) entry.status = WcStatus::loc_len_err;
  if (entry.status != WcStatus::success) {
    ++s.counters_.bad_wqes;
  } else {
    entry.packets = packets;
    if (entry.is_answered() && qp.attributes.max_rd_atomic == 0) blame_depth(s, qp, wqe.wr_id);
    if (is_local(entry.opcode)) entry.packets = 0;
    if (qp.type == QpType::ud && is_group(wqe.dlid)) entry.packets = s.options_.nodes;
    qp.psn_fetch = add24(qp.psn_fetch, entry.packets);
    entry.launch = wqe.launch_ns == 0 ? 0 : s.options_.cycle_time.cycle_at(wqe.launch_ns);
    entry.span_cycles = static_cast<std::uint32_t>(std::uint64_t{wqe.launch_span_ns} * 1000 /
                                                   s.options_.cycle_time.cycle_ps);
  }
  ++qp.sq_fetched;
  return &entry;
}

}  // namespace hca

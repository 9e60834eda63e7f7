#include "hca/host/inline_recv.h"

#include <algorithm>
#include <cstring>

namespace hca {

namespace {

// The completion of a message of one piece, where no other piece waits; else null. It is the first
// that came behind the piece.
PendingCqe* alone(Settlement& settlement) {
  if (settlement.pieces_count != 1 || !settlement.faults.empty() ||
      settlement.piece_cqes[0] >= settlement.cqes_count ||
      (settlement.piece_psn[0] & kReadPiece) != 0) {
    return nullptr;
  }
  PendingCqe& pending = settlement.cqes[settlement.piece_cqes[0]];
  const bool whole = pending.is_recv && pending.cqe.opcode == WcOpcode::recv &&
                     pending.cqe.status == WcStatus::success &&
                     pending.qp_slot == settlement.piece_qp[0] &&
                     pending.cqe.byte_len == settlement.pieces[0].length;
  return whole ? &pending : nullptr;
}

}  // namespace

bool receives_inline(HostState& s) {
  Settlement& settlement = s.settlement_;
  PendingCqe* const pending = alone(settlement);
  if (pending == nullptr || settlement.piece_key[0] == 0) return false;
  const MemoryPiece& piece = settlement.pieces[0];
  const Cq& cq = s.cqs_[pending->cq];
  Caller& caller = s.clients_[piece.client];
  if (piece.length > kInlineRecvBytes || !cq.used || cq.broken || cq.client != piece.client ||
      caller.doorbells->takes_inline.load(std::memory_order_relaxed) == 0) {
    return false;
  }
  InlineRecv& message = caller.doorbells->inline_recv;
  if (message.state.load(std::memory_order_acquire) != InlineRecvState::free) return false;
  // Where its CQ may be full nobody might ever poll it.
  if (cq.tail + settlement.cqes_count - cq.head > cq.depth) return false;
  message.length = piece.length;
  message.lkey = settlement.piece_key[0];
  message.cq = cq.number;
  message.address = piece.remote;
  std::memcpy(message.bytes, piece.local, piece.length);
  message.state.store(InlineRecvState::full, std::memory_order_release);
  caller.inline_piece = {reinterpret_cast<std::uint8_t*>(message.bytes), piece.remote, piece.length,
                         piece.client};
  pending->cqe.wc_flags |= kWcInline;
  return true;
}

void lay_over(HostState& s, const MemoryPiece& later) {
  Caller& caller = s.clients_[later.client];
  const MemoryPiece& piece = caller.inline_piece;
  const std::uint64_t from = std::max(piece.remote, later.remote);
  const std::uint64_t to = std::min(piece.remote + piece.length, later.remote + later.length);
  if (from >= to) return;
  InlineRecv& message = caller.doorbells->inline_recv;
  if (message.state.load(std::memory_order_acquire) == InlineRecvState::free) return;
  std::memcpy(piece.local + (from - piece.remote), later.local + (from - later.remote), to - from);
  message.version.fetch_add(1, std::memory_order_seq_cst);
}

}  // namespace hca

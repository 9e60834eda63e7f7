// Batches end here: bytes into the clients' memory, then the CQEs that speak of them, then one
// wake-up per CQ, then the events that speak of CQEs. Faults met on the way change QPs only after
// all is written.
#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstring>
#include <utility>

#include "emu/base/check.h"
#include "emu/base/prefetch.h"
#include "hca/host/inline_recv.h"
#include "hca/host/state.h"

namespace hca {

namespace {

WcOpcode completion_opcode(WrOpcode opcode) {
  switch (opcode) {
    case WrOpcode::rdma_write:
    case WrOpcode::rdma_write_imm:
      return WcOpcode::rdma_write;
    case WrOpcode::rdma_read:
      return WcOpcode::rdma_read;
    case WrOpcode::atomic_cas:
      return WcOpcode::comp_swap;
    case WrOpcode::atomic_fadd:
      return WcOpcode::fetch_add;
    case WrOpcode::atomic_write:
      return WcOpcode::atomic_write;
    case WrOpcode::bind_mw:
      return WcOpcode::bind_mw;
    case WrOpcode::local_inv:
      return WcOpcode::local_inv;
    default:
      return WcOpcode::send;
  }
}

bool is_read_piece(std::uint32_t psn) { return (psn & kReadPiece) != 0; }

// The first fault of this half of the QP; null: there is none.
WriteFault* fault_of(Settlement& settlement, std::uint32_t qp_slot, bool of_read) {
  const auto found = std::ranges::find_if(settlement.faults, [&](const WriteFault& fault) {
    return fault.qp_slot == qp_slot && is_read_piece(fault.psn) == of_read;
  });
  return found == settlement.faults.end() ? nullptr : &*found;
}

void note_fault(Settlement& settlement, std::uint32_t piece) {
  const std::uint32_t qp_slot = settlement.piece_qp[piece];
  const std::uint32_t psn = settlement.piece_psn[piece];
  if (fault_of(settlement, qp_slot, is_read_piece(psn)) != nullptr) return;
  settlement.faults.push_back(
      {.qp_slot = qp_slot, .psn = psn, .cqes_before = settlement.piece_cqes[piece]});
}

// CQE number `index` of those that wait: a success whose bytes, or bytes before them, are missing
// is none.
WcStatus status_after_faults(Settlement& settlement, std::uint32_t index) {
  const PendingCqe& pending = settlement.cqes[index];
  if (pending.cqe.status != WcStatus::success || settlement.faults.empty()) {
    return pending.cqe.status;
  }
  WriteFault* fault = fault_of(settlement, pending.qp_slot, !pending.is_recv);
  if (fault == nullptr || index < fault->cqes_before) return WcStatus::success;
  fault->told = true;
  return WcStatus::loc_prot_err;
}

}  // namespace

void write_pieces(HostState& s) {
  Settlement& settlement = s.settlement_;
  for (std::uint32_t i = 0; i < settlement.pieces_count; ++i) lay_over(s, settlement.pieces[i]);
  for (std::uint32_t i = 0; i < settlement.pieces_count;) {
    i += static_cast<std::uint32_t>(
        s.memory_.write({&settlement.pieces[i], &settlement.pieces[settlement.pieces_count]}));
    if (i == settlement.pieces_count) break;
    ++s.counters_.memory_faults;
    note_fault(settlement, i);
    ++i;
  }
  settlement.pieces_count = 0;
}

namespace {

void overrun(HostState& s, std::uint32_t index) {
  Cq& cq = s.cqs_[index];
  if (cq.broken || s.settlement_.overruns_count == kOverrunsMax) return;
  cq.broken = true;
  cq.page->overrun.store(1, std::memory_order_release);
  ++s.counters_.cq_overruns;
  s.settlement_.overruns[s.settlement_.overruns_count++] = index;
}

// Who loses a completion goes to ERR when all is written, whatever else it may use (XRC: the CQs of
// other SRQs), and whether it was there when the CQ broke or came later.
void lose_completion(HostState& s, std::uint32_t qp_number) {
  Qp* qp = s.find_qp(qp_number);
  if (qp == nullptr || qp->state == QpState::err || qp->state == QpState::reset) return;
  qp->lost_completion = s.settlement_.completions_lost = true;
}

// We may be killed between any two stores. `sequence` says that the CQE is whole: it is nothing
// while the rest is written, so a half-written one passes for none.
void write_cqe(Cqe& slot, const Cqe& cqe, std::uint32_t index) {
  std::atomic_ref<std::uint32_t> sequence(slot.sequence);
  sequence.store(0, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_release);
  std::memcpy(&slot, &cqe, offsetof(Cqe, sequence));
  sequence.store(index + 1, std::memory_order_release);
}

Cqe& slot_of(const Cq& cq, std::uint32_t index) {
  return reinterpret_cast<Cqe*>(cq.region + sizeof(CqPage))[index & (cq.depth - 1)];
}

// The application owns `head`, and with it the line: looked at only when what it was last is not
// enough. An impossible value is as bad as a full ring. Acquire: the CQE there has been read.
bool is_full(Cq& cq) {
  if (cq.tail - cq.head < cq.depth) return false;
  cq.head = cq.page->head.load(std::memory_order_acquire);
  return cq.tail - cq.head >= cq.depth;
}

void enter_cqe(HostState& s, const PendingCqe& pending, WcStatus status) {
  Cq& cq = s.cqs_[pending.cq];
  const bool visible = pending.visible || status != WcStatus::success;
  if (!visible || !cq.used) return;
  if (cq.broken || is_full(cq)) {
    overrun(s, pending.cq);
    lose_completion(s, pending.cqe.qp_num);
    return;
  }
  Cqe cqe = pending.cqe;
  cqe.done = pending.head;
  cqe.status = status;
  write_cqe(slot_of(cq, cq.tail), cqe, cq.tail);
  ++cq.tail;
  if (pending.solicited || cqe.status != WcStatus::success) {
    cq.solicited = true;
    cq.solicited_tail = cq.tail;
  }
  if (cq.touched) return;
  cq.touched = true;
  s.settlement_.touched[s.settlement_.touched_count++] = pending.cq;
}

// The CQE first: what the head says is done can be found in the completion queue.
void publish(HostState& s, std::uint32_t index) {
  const PendingCqe& pending = s.settlement_.cqes[index];
  enter_cqe(s, pending, status_after_faults(s.settlement_, index));
  Qp* qp = s.qp_or_null(pending.qp_slot);
  if (qp == nullptr || qp->number != pending.cqe.qp_num) return;
  (pending.is_recv ? qp->page->rq_head : qp->page->sq_head)
      .store(pending.head, std::memory_order_release);
}

void announce(HostState& s, std::uint32_t index) {
  Cq& cq = s.cqs_[index];
  cq.touched = false;
  if (!cq.used) return;
  // seq_cst pairs with the application: it arms (or counts itself a sleeper), then looks at tail;
  // we move tail, then look whether it armed. One of the two sees the other.
  cq.page->solicited.store(cq.solicited_tail, std::memory_order_relaxed);
  cq.page->tail.store(cq.tail, std::memory_order_seq_cst);
  if (cq.page->sleepers.load(std::memory_order_seq_cst) != 0) {
    s.events_.wake_cq(cq.client, cq.number);
  }
  const std::uint32_t armed = cq.page->armed.load(std::memory_order_seq_cst);
  if (armed == kCqArmedNext || (armed == kCqArmedSolicited && cq.solicited)) {
    cq.page->told.store(cq.tail, std::memory_order_relaxed);
    cq.page->armed.store(kCqDisarmed, std::memory_order_seq_cst);
    s.events_.completion(cq.client, cq.number);
  }
  cq.solicited = false;
}

// Everything but the consequences for QPs: safe in the middle of anything.
void write_out(HostState& s) {
  Settlement& settlement = s.settlement_;
  if (receives_inline(s)) {
    settlement.pieces_count = 0;
  } else {
    write_pieces(s);
  }
  for (std::uint32_t i = 0; i < settlement.cqes_count; ++i) publish(s, i);
  settlement.cqes_count = 0;
  // CQEs that come before settle() deals with the faults come after these.
  for (WriteFault& fault : settlement.faults) fault.cqes_before = 0;
  for (std::uint32_t i = 0; i < settlement.touched_count; ++i) announce(s, settlement.touched[i]);
  settlement.touched_count = 0;
  for (std::uint32_t i = 0; i < settlement.events_count; ++i) {
    const PendingEvent& pending = settlement.events[i];
    if (const Qp* qp = s.find_qp(pending.qp_number)) tell(s, *qp, pending.event);
  }
  settlement.events_count = 0;
}

// Whatever is said of this PSN or a later one would say that the bytes are there. An ACK speaks for
// all before it; of those before `psn` the NAK there says the same.
void withhold_responses(Qp& qp, std::uint32_t psn) {
  std::uint32_t kept = qp.responses_first;
  for (std::uint32_t i = qp.responses_first; i != qp.responses_last; ++i) {
    if (emu::psn_diff(qp.response(i).psn, psn) < 0) qp.response(kept++) = qp.response(i);
  }
  qp.responses_last = kept;
}

void write_fault(HostState& s, Qp& qp, const WriteFault& fault) {
  const std::uint32_t psn = fault.psn;
  if (qp.state == QpState::err || qp.state == QpState::reset) return;
  if (s.memory_.gone(qp.client)) {
    withhold_responses(qp, psn);
    lose_program(s, qp, psn);
    return;
  }
  if (is_read_piece(psn)) {  // the requester's own memory, on the way of a READ
    const bool unfinished = qp.sq_done != qp.sq_fetched && qp.entry(qp.sq_done).is_answered() &&
                            qp.psn_una != qp.entry(qp.sq_done).first_psn;
    if (unfinished) {
      fail_send(s, qp, WcStatus::loc_prot_err);
    } else {
      enter_error(s, qp);  // its completion already says so
    }
    return;
  }
  // Of a datagram there is no peer to name, and its completion says the same.
  if (qp.type != QpType::ud) blame_remote(s, qp, TroubleKind::remote_memory);
  const bool fails_recv = qp.have_recv && qp.receiving != Receiving::write;
  if (fails_recv) complete_recv(s, qp, WcStatus::loc_prot_err, Cqe{}, true);
  if (qp.is_unreliable()) {
    if (!fails_recv && !fault.told) tell(s, qp, AsyncEvent::qp_access_err);  // nothing else does
    enter_error(s, qp);
    return;
  }
  withhold_responses(qp, psn);
  push_nak(s, qp, psn,
           emu::kSyndromeNak | static_cast<std::uint8_t>(emu::NakCode::remote_operational_error),
           true);
  tell(s, qp, AsyncEvent::qp_access_err);
}

void fail_users(HostState& s, std::uint32_t cq_index) {
  const Cq& cq = s.cqs_[cq_index];
  s.events_.async(cq.client, AsyncEvent::cq_err, cq.number);
  for (auto& qp : s.qps_) {
    // No CQ is an XRC_RECV QP's own: other messages of it end elsewhere.
    if (qp != nullptr && (qp->send_cq == cq_index || qp->recv_cq == cq_index) &&
        qp->type != QpType::xrc_recv) {
      enter_error(s, *qp);
    }
  }
}

// IBA 11.6.3: what its queue does cannot be reported. Users of a CQ that has just overrun are in
// ERR already; its own event speaks of them.
void fail_losers(HostState& s) {
  s.settlement_.completions_lost = false;
  for (auto& qp : s.qps_) {
    if (qp == nullptr || !std::exchange(qp->lost_completion, false)) continue;
    if (qp->state == QpState::err || qp->state == QpState::reset) continue;
    tell(s, *qp, AsyncEvent::qp_fatal);
    enter_error(s, *qp);
  }
}

}  // namespace

bool unsettled(const HostState& s) {
  const Settlement& settlement = s.settlement_;
  return settlement.cqes_count + settlement.pieces_count + settlement.overruns_count +
                 settlement.events_count !=
             0 ||
         !settlement.faults.empty();
}

void settle(HostState& s) {
  Settlement& settlement = s.settlement_;
  while (unsettled(s)) {
    write_out(s);
    const std::uint32_t overruns = std::exchange(settlement.overruns_count, 0);
    if (settlement.faults.empty() && overruns == 0 && !settlement.completions_lost) continue;
    const auto met = std::exchange(settlement.faults, {});
    const auto overrun_cqs = settlement.overruns;
    for (const WriteFault& fault : met) {
      if (Qp* qp = s.qp_or_null(fault.qp_slot)) write_fault(s, *qp, fault);
    }
    for (std::uint32_t i = 0; i < overruns; ++i) fail_users(s, overrun_cqs[i]);
    if (settlement.completions_lost) fail_losers(s);
  }
}

void tell_after_completions(HostState& s, const Qp& qp, AsyncEvent event) {
  if (s.settlement_.events_count == kPendingEvents) write_out(s);
  s.settlement_.events[s.settlement_.events_count++] = {event, qp.number};
}

void complete(HostState& s, Qp& qp, PendingCqe& pending) {
  if (s.settlement_.cqes_count == kPendingCqes) write_out(s);
  pending.cqe.qp_num = qp.number;
  pending.qp_slot = qp.slot;
  pending.cq = pending.is_recv ? qp.recv_cq : qp.send_cq;
  if (pending.cqe.timestamp_ns == 0) {
    pending.cqe.timestamp_ns = s.options_.cycle_time.ns(s.now_);
  }
  const Cq& cq = s.cqs_[pending.cq];
  if (pending.visible && cq.used) emu::prefetch_to_write(&slot_of(cq, cq.tail));
  s.settlement_.cqes[s.settlement_.cqes_count++] = pending;
}

void complete_send(HostState& s, Qp& qp, WcStatus status) {
  CHECK(qp.sq_done != qp.sq_fetched);
  const SendEntry& entry = qp.entry(qp.sq_done);
  PendingCqe pending{};
  pending.cqe.wr_id = qp.wqe(qp.sq_done).wr_id;
  pending.cqe.byte_len = entry.length;
  pending.cqe.opcode = completion_opcode(entry.opcode);
  pending.cqe.status = status;
  pending.visible =
      status != WcStatus::success || qp.signal_all || (entry.flags & kWqeSignaled) != 0;
  pending.head = ++qp.sq_done;
  if (status == WcStatus::success) {
    ++s.counters_.by_class[static_cast<std::size_t>(qp.traffic_class)].messages_completed;
  }
  complete(s, qp, pending);
}

void complete_recv(HostState& s, Qp& qp, WcStatus status, const Cqe& cqe, bool solicited) {
  if (!qp.have_recv) return;
  qp.have_recv = false;
  PendingCqe pending{};
  pending.cqe = cqe;
  pending.cqe.wr_id = qp.recv_wr_id;
  pending.cqe.status = status;
  if (status != WcStatus::success) pending.cqe.opcode = WcOpcode::recv;
  pending.is_recv = true;
  pending.solicited = solicited;
  pending.visible = true;
  pending.head = ++qp.rq_done;
  complete(s, qp, pending);
}

namespace {

template <class Word>
void store_last(std::uint8_t* to, const std::uint8_t* from) {
  Word word;
  std::memcpy(&word, from, sizeof word);
  std::atomic_ref<Word>(*reinterpret_cast<Word*>(to)).store(word, std::memory_order_release);
}

// memcpy() may begin with the last bytes. Release: who finds them finds all before them, those of
// earlier packets, too.
void copy_into_mapped(std::uint8_t* to, const std::uint8_t* from, std::uint32_t length) {
  const std::uint32_t last = last_bytes(reinterpret_cast<std::uintptr_t>(to) + length, length);
  const std::uint32_t before = length - last;
  std::memcpy(to, from, before);
  switch (last) {
    case 8:
      return store_last<std::uint64_t>(to + before, from + before);
    case 4:
      return store_last<std::uint32_t>(to + before, from + before);
    case 2:
      return store_last<std::uint16_t>(to + before, from + before);
    case 1:
      return store_last<std::uint8_t>(to + before, from + before);
    default:
      return;  // there are none
  }
}

}  // namespace

void write_piece(HostState& s, Qp& qp, const Range& range, const std::uint8_t* bytes,
                 std::uint32_t length, std::uint32_t psn) {
  if (range.mapped != nullptr) {
    write_pieces(s);  // what came before: who finds these bytes looks at those
    copy_into_mapped(range.mapped, bytes, length);
    return;
  }
  Settlement& settlement = s.settlement_;
  if (settlement.pieces_count == kPendingPieces) write_pieces(s);
  const std::uint32_t i = settlement.pieces_count++;
  // Memory::write only reads through `local`.
  settlement.pieces[i] = {const_cast<std::uint8_t*>(bytes), range.address, length, range.client};
  settlement.piece_qp[i] = qp.slot;
  settlement.piece_psn[i] = psn;
  settlement.piece_cqes[i] = settlement.cqes_count;
  settlement.piece_key[i] = range.private_key;
}

}  // namespace hca

// Error states: what failed completes with its reason, everything behind it is flushed in order,
// both queues (IBA 10.3.1). A QP's failure is its own.
#include <cstring>

#include "hca/host/state.h"

namespace hca {

namespace {

void set_state(Qp& qp, QpState state) {
  qp.state = state;
  qp.attributes.state = state;
  // seq_cst pairs with a post to a QP that may just have failed: the application moves the tail,
  // then looks at the state; we set the state, then look at the tail.
  qp.page->state.store(static_cast<std::uint32_t>(state), std::memory_order_seq_cst);
}

}  // namespace

void enter_error(HostState& s, Qp& qp) {
  if (qp.state == QpState::err || qp.state == QpState::reset) return;
  take_back_lent(s, qp);
  set_state(qp, QpState::err);
  qp.dead = true;
  qp.responses_first = qp.responses_last;
  unqueue(s, qp);
  qp.page->credit_limited.store(0, std::memory_order_release);
  release_rate(s, qp, true);
  flush_sends(s, qp);
  flush_recvs(s, qp);
  // IBA 11.6.3.2 (affiliated events): the SRQ's owner may now destroy the QP without losing one.
  // XRC: no SRQ is this QP's, so none can wait for it.
  if (qp.srq != kNone && !qp.is_xrc()) {
    tell_after_completions(s, qp, AsyncEvent::qp_last_wqe_reached);
  }
}

void lose_program(HostState& s, Qp& qp, std::uint32_t psn) {
  if (qp.type != QpType::xrc_recv) {
    enter_error(s, qp);
  } else if (!qp.dead) {
    refuse(s, qp, psn, emu::NakCode::invalid_request, AsyncEvent::qp_req_err);
  }
}

void fail_send(HostState& s, Qp& qp, WcStatus status) {
  blame_request(s, qp, status);
  complete_send(s, qp, status);
  if (!qp.is_unreliable()) {
    enter_error(s, qp);
    return;
  }
  // IBA 10.3.1.6: a failed send stops the send queue of UC and UD, receiving goes on.
  set_state(qp, QpState::sqe);
  unqueue(s, qp);
  flush_sends(s, qp);
  // What is still in the wire speaks of flushed requests: its injected events mean nothing now.
  ++qp.epoch;
  qp.in_wire = qp.first_in_wire = qp.questions_in_wire = qp.packets_left_hca = 0;
}

void flush_sends(HostState& s, Qp& qp) {
  const std::uint32_t tail = qp.page->sq_tail.load(std::memory_order_seq_cst);
  if (tail - qp.sq_done <= qp.layout.sq_depth) qp.sq_posted = tail;
  while (qp.sq_done != qp.sq_posted) {
    SendWqe wqe;
    const bool fetched = qp.sq_done != qp.sq_fetched;
    if (fetched) {
      wqe = qp.wqe(qp.sq_done);
    } else {
      std::memcpy(&wqe, qp.send_slot(qp.sq_done), sizeof wqe);
      ++qp.sq_fetched;
    }
    PendingCqe pending{};
    pending.cqe.wr_id = wqe.wr_id;
    pending.cqe.status = WcStatus::wr_flush_err;
    pending.visible = true;
    pending.head = ++qp.sq_done;
    complete(s, qp, pending);
  }
  qp.sq_current = qp.sq_fetched = qp.sq_done;
  qp.current_packet = 0;
  qp.gather = {};
  qp.reads_out = 0;
  qp.psn_una = qp.psn_sent = qp.psn_fetch;
}

void flush_recvs(HostState& s, Qp& qp) {
  complete_recv(s, qp, WcStatus::wr_flush_err, Cqe{}, true);
  if (qp.layout.rq_depth == 0) return;
  const std::uint32_t tail = qp.page->rq_tail.load(std::memory_order_seq_cst);
  if (tail - qp.rq_done > qp.layout.rq_depth) return;
  while (qp.rq_next != tail) {
    RecvWqe wqe;
    std::memcpy(&wqe, qp.recv_slot(qp.rq_next), sizeof wqe);
    qp.recv_wr_id = wqe.wr_id;
    qp.have_recv = true;
    ++qp.rq_next;
    complete_recv(s, qp, WcStatus::wr_flush_err, Cqe{}, true);
  }
}

void qp_fault(HostState& s, Qp& qp) {
  ++s.counters_.ring_faults;
  if (qp.state == QpState::err || qp.state == QpState::reset) return;
  tell(s, qp, AsyncEvent::qp_fatal);
  enter_error(s, qp);
}

void retire(HostState& s, Qp& qp) {
  if (qp.sq_done != qp.sq_fetched && qp.sq_done == qp.sq_current) {
    const SendEntry& entry = qp.entry(qp.sq_done);
    const WcStatus status = entry.status;
    // IBA 10.3.1.5: what has not begun waits in SQD, for its failure, too.
    const bool begins_later = qp.state == QpState::sqd && entry.first_psn == qp.psn_sent;
    if (status != WcStatus::success && qp.current_packet == 0 && !begins_later) {
      fail_send(s, qp, status);
      return;
    }
  }
  // What is to be sent again stands at sq_current, too, but is outstanding.
  const bool outstanding = !qp.is_unreliable() && qp.unacknowledged();
  if (qp.state == QpState::sqd && !qp.drained && qp.sq_done == qp.sq_current &&
      qp.current_packet == 0 && !outstanding) {
    qp.drained = true;
    if (qp.attributes.en_sqd_async_notify != 0) {
      tell_after_completions(s, qp, AsyncEvent::sq_drained);
    }
  }
}

void reset_transport(Qp& qp) {
  qp.sq_posted = qp.sq_fetched = qp.sq_current = qp.sq_done = 0;
  qp.current_packet = 0;
  qp.gather = qp.read_scatter = qp.scatter = {};
  qp.psn_fetch = qp.psn_sent = qp.psn_una = 0;
  qp.reads_out = qp.read_repeated_psn = 0;
  qp.rnr_waiting = qp.drained = qp.read_repeated = false;
  qp.retry_at = qp.pace_at = qp.power_at = emu::kNever;
  qp.last_launch = qp.timed_until = qp.repeat_launch = qp.last_response_launch = 0;
  qp.in_wire = qp.first_in_wire = qp.questions_in_wire = qp.packets_left_hca = 0;
  qp.questions_ahead = kNone;
  qp.epsn = qp.msn = 0;
  qp.rq_next = qp.rq_done = 0;
  qp.receiving = Receiving::nothing;
  qp.have_recv = qp.nak_sent = qp.dead = qp.heard = false;
  qp.responses_first = qp.responses_last = 0;
  qp.atomics = {};
  qp.atomics_done = 0;
  qp.credit_capacity = qp.credit_returned = qp.credit_used = 0;
  ++qp.epoch;
  QpPage& page = *qp.page;
  page.sq_tail.store(0);
  page.rung.store(0);
  page.rq_tail.store(0);
  page.sq_head.store(0);
  page.rq_head.store(0);
  page.credit_limited.store(0);
  page.credit_granted.store(0);
  page.packet_payload.store(0);
}

}  // namespace hca

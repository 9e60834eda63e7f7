// The requester of RC: what if no answer comes. When the retry timer runs, and what is sent again.
#include "hca/host/state.h"

namespace hca {

namespace {

void start_retry_timer(HostState& s, Qp& qp) {
  if (qp.attributes.timeout == 0 || !qp.unacknowledged()) return;
  const emu::EmuNs wait_ns = emu::EmuNs{4096} << qp.attributes.timeout;
  qp.retry_at = s.now_ + s.options_.cycle_time.cycle_at(wait_ns);
  wake_again(s, qp);
}

}  // namespace

// IBA 9.7.6.1.3. The timer runs from when a question has left until an answer comes, whatever else
// the QP sends meanwhile: to whom nobody answers, each further packet would else give more time,
// and a QP that serves its peer's READs would never repeat its own request. Of the questions that
// are still in the wire when an answer comes it waits for the newest, which costs no more than
// their way out: before that the silence is ours. Nobody owes an answer to what asks for none.
void time_question(HostState& s, Qp& qp) {
  const bool asked = qp.unacknowledged() && emu::psn_diff(qp.psn_una, qp.psn_asked) < 0;
  qp.questions_ahead = asked ? qp.questions_in_wire : kNone;
  qp.retry_at = emu::kNever;
  if (qp.questions_ahead == 0) start_retry_timer(s, qp);
}

void question_asked(Qp& qp, std::uint32_t psn_after) {
  qp.psn_asked = psn_after;
  if (qp.questions_ahead == kNone) qp.questions_ahead = qp.questions_in_wire;
}

void question_left(HostState& s, Qp& qp) {
  if (qp.questions_in_wire > 0) --qp.questions_in_wire;
  if (qp.questions_ahead == kNone || qp.questions_ahead == 0) return;
  if (--qp.questions_ahead == 0) start_retry_timer(s, qp);
}

void rewind(HostState& s, Qp& qp, std::uint32_t psn) {
  qp.repeat_launch = 0;
  qp.retry_at = emu::kNever;
  qp.questions_ahead = kNone;  // until it asks again
  std::uint32_t reads = 0;
  for (std::uint32_t i = qp.sq_done; i != qp.sq_fetched; ++i) {
    const SendEntry& entry = qp.entry(i);
    if (entry.status != WcStatus::success) break;
    const auto into = static_cast<std::uint32_t>(emu::psn_diff(psn, entry.first_psn));
    if (into < entry.packets) {
      qp.sq_current = i;
      qp.current_packet = into;
      qp.psn_asked = psn;
      qp.gather = {};
      qp.reads_out = reads;
      want_request(s, qp);
      return;
    }
    if (entry.is_answered()) ++reads;
  }
  time_question(s, qp);  // a request that failed stands before it
}

void retry_timer_fired(HostState& s, Qp& qp) {
  qp.retry_at = emu::kNever;
  if (!qp.unacknowledged() || (qp.state != QpState::rts && qp.state != QpState::sqd)) return;
  ++s.counters_.timeouts;
  if (qp.retries_left == 0) {
    fail_send(s, qp, WcStatus::retry_exc_err);
    return;
  }
  --qp.retries_left;
  qp.read_repeated = false;
  rewind(s, qp, qp.psn_una);
}

}  // namespace hca

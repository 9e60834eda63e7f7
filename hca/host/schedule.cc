// Who sends next: per class a queue of QPs with acknowledgements, one of those that are read from
// and one of those with requests; classes by priority, first come first served within (ACP section
// 3.2), a few packets a turn so that a long message does not hold up a short one. Who wants to a
// lane that is full (lanes.cc) is passed over until it has room. Called by Host::doorbells and
// Host::advance.
#include <algorithm>
#include <bit>
#include <cstdint>

#include "hca/host/state.h"

namespace hca {

namespace {

// Packets a QP may send before the next QP of its class has its turn. Where room, energy or credit
// run out before, it keeps its place for the rest of them, and for no more: what comes back packet
// by packet would else be always the same one's.
constexpr std::uint32_t kTurnPackets = 16;
// So much of each class goes out at once, and no QP's turn begins behind it: the rest comes with
// the next advance(), behind what has arrived meanwhile. More would have left the caches before the
// receiver reads it; of what is lent a fourth counts (kLentShare).
constexpr std::size_t kAdvanceBytes = 128 << 10;
// When the port is full, look again after so many cycles if nothing else happens.
constexpr emu::Cycle kSlotRetryCycles = 64;
constexpr emu::Cycle kCongestionRetryCycles = 128;

enum class Side : bool { request, response };

QueueLink& link_of(Qp& qp, Side side) {
  return side == Side::request ? qp.request_link : qp.response_link;
}

std::uint32_t lane_of(const Qp& qp, Side side) {
  return side == Side::request ? qp.request_lane : qp.response_lane;
}

void append(HostState& s, LaneQueues& queues, Qp& qp, Side side) {
  QueueLink& link = link_of(qp, side);
  if (link.queued) return;
  QpQueue& queue = queues.lanes[lane_of(qp, side)];
  queues.queued |= 1U << lane_of(qp, side);
  link = {.next = kNone, .prev = queue.last, .order = ++s.queue_order_, .queued = true};
  if (queue.last == kNone) {
    queue.first = qp.slot;
  } else {
    link_of(s.qp_at(queue.last), side).next = qp.slot;
  }
  queue.last = qp.slot;
  ++queue.count;
  (side == Side::request ? qp.turn_packets : qp.response_turn_packets) = 0;
}

void take_out(HostState& s, LaneQueues& queues, Qp& qp, Side side) {
  QueueLink& link = link_of(qp, side);
  if (!link.queued) return;
  QpQueue& queue = queues.lanes[lane_of(qp, side)];
  (link.prev == kNone ? queue.first : link_of(s.qp_at(link.prev), side).next) = link.next;
  (link.next == kNone ? queue.last : link_of(s.qp_at(link.next), side).prev) = link.prev;
  link = {};
  if (--queue.count == 0) queues.queued &= ~(1U << lane_of(qp, side));
}

LaneQueues& request_queues(HostState& s, const Qp& qp) {
  return s.requests_[static_cast<std::size_t>(qp.request_class)];
}
LaneQueues& response_queues(HostState& s, const Qp& qp) {
  return (qp.response_reads ? s.reads_ : s.acks_)[static_cast<std::size_t>(qp.response_class)];
}
bool reads_next(Qp& qp) { return qp.response(qp.responses_first).brings_data(); }

std::uint32_t lane_of_response(const HostState& s, Qp& qp) {
  return s.slots_ != 0 && reads_next(qp) && !stays_here(s, qp.dest) ? qp.vl_in : kNoLane;
}

std::uint32_t full_lanes(const HostState& s, std::size_t traffic_class) {
  return s.lanes_[traffic_class].full;
}
std::uint32_t lanes_ready(const LaneQueues& queues, std::uint32_t full) {
  return queues.queued & ~full;
}
// Of best effort the lane that has least at the wire goes before others. A scheme that holds best
// effort back allows a node so many packets there, whatever their lanes are: first come, first
// served, the lane that the arbiter serves last would have nearly all of them, and the arbiter
// nothing to choose from.
std::uint32_t behind(const HostState& s, std::size_t c, std::uint32_t lane) {
  const bool best_effort = c == static_cast<std::size_t>(emu::TrafficClass::best_effort);
  return best_effort && lane != kNoLane ? s.lanes_[c].packets[lane] : 0;
}
// Of the QPs whose lanes have room, as far as is known, the one of the lane that goes first, of
// several that has been queued for longest. What waits for no lane goes by that alone. Who was
// queued behind `asked` has had its turn in vain, and so has all of its lane: null if that is true
// of all.
Qp* first_ready(HostState& s, const LaneQueues& queues, std::size_t c, Side side,
                std::uint64_t asked) {
  const std::uint32_t ready = lanes_ready(queues, full_lanes(s, c));
  if (std::has_single_bit(ready)) {  // most often
    Qp& qp = s.qp_at(queues.lanes[static_cast<std::size_t>(std::countr_zero(ready))].first);
    return link_of(qp, side).order > asked ? nullptr : &qp;
  }
  Qp* first = nullptr;
  std::uint32_t least = 0;
  for (std::uint32_t bits = ready; bits != 0; bits &= bits - 1) {
    const auto lane = static_cast<std::uint32_t>(std::countr_zero(bits));
    Qp& qp = s.qp_at(queues.lanes[lane].first);
    if (link_of(qp, side).order > asked) continue;
    const std::uint32_t packets = behind(s, c, lane);
    const bool longer = first == nullptr || link_of(qp, side).order < link_of(*first, side).order;
    const bool by_lane = first != nullptr && lane != kNoLane && packets != least;
    if (by_lane ? packets > least : !longer) continue;
    first = &qp;
    least = packets;
  }
  return first;
}

// One turn of a QP's responses of one kind. Reads of best effort wait for credit, acknowledgements
// never do.
std::size_t response_turn(HostState& s, Qp& qp) {
  const bool is_read = qp.response_reads;
  std::size_t sent = 0;
  while (qp.response_turn_packets < kTurnPackets && !qp.responses_empty() &&
         reads_next(qp) == is_read) {
    if (!has_room(s, qp.response_class, lane_of_response(s, qp))) break;
    // Energy that was not there is looked for again when requests look, too: whoever tried in
    // between would have it all, and put off the others again and again.
    if (is_read && qp.traffic_class == emu::TrafficClass::best_effort &&
        (s.power_blocked_until_ > s.now_ ||
         !may_send_best_effort(s, emu::node_of(qp.attributes.av.dlid)))) {
      break;
    }
    if (!s.burst_.room()) {
      dispatch(s);  // a fault found there may have changed or ended this QP's responses
      continue;
    }
    const std::uint32_t packets = build_response(s, qp);
    if (packets == 0) break;
    sent += packets;
    qp.response_turn_packets += packets;
  }
  return sent;
}

std::size_t request_turn(HostState& s, Qp& qp) {
  const emu::TrafficClass mine = qp.request_class;
  std::size_t sent = 0;
  while (qp.turn_packets < kTurnPackets) {
    if (!s.burst_.room()) dispatch(s);
    // A fault found at dispatch may have ended this QP's sending.
    if (!request_ready(s, qp)) break;
    if (class_of_request(s, qp) != mine) break;  // UD: the next message may be of another class
    const std::uint32_t lane = lane_of_request(s, qp);
    if (!has_room(s, mine, lane)) break;
    if (mine == emu::TrafficClass::best_effort && !may_send_best_effort(s, request_dest(qp))) {
      break;
    }
    std::uint32_t packets = 1;
    if (qp.type == QpType::ud) {
      build_datagram(s, qp);
    } else {
      packets = build_request(s, qp, lane != kNoLane);
    }
    if (s.slots_blocked_ || s.power_blocked_until_ > s.now_ || qp.power_at != emu::kNever) break;
    sent += packets;
    qp.turn_packets += packets;
  }
  return sent;
}

// Whether a QP that had its turn waits, where it stands, for room in the lane of its queue: it was
// stopped in the middle, and is the first to go on.
bool waits_for_lane(HostState& s, Qp& qp, Side side) {
  const bool requests = side == Side::request;
  const emu::TrafficClass mine = requests ? qp.request_class : qp.response_class;
  const std::uint32_t lane = lane_of(qp, side);
  if (!link_of(qp, side).queued) return false;
  if ((full_lanes(s, static_cast<std::size_t>(mine)) >> lane & 1U) == 0) return false;
  if (requests) {
    return request_ready(s, qp) && class_of_request(s, qp) == mine &&
           lane_of_request(s, qp) == lane;
  }
  return !qp.responses_empty() && reads_next(qp) == qp.response_reads &&
         lane_of_response(s, qp) == lane;
}

// `most`: no further turn begins behind so many packets.
std::size_t serve_responses(HostState& s, LaneQueues& queues, std::size_t c, std::size_t most) {
  std::size_t sent = 0;
  // Whoever cannot send now is not asked twice.
  std::uint64_t asked = s.queue_order_;
  while (lanes_ready(queues, full_lanes(s, c)) != 0 && !s.slots_blocked_ && sent < most) {
    Qp* const first = first_ready(s, queues, c, Side::response, asked);
    if (first == nullptr) break;
    const std::size_t now_sent = response_turn(s, *first);
    sent += now_sent;
    if (first->response_turn_packets >= kTurnPackets ||
        !waits_for_lane(s, *first, Side::response)) {
      take_out(s, response_queues(s, *first), *first, Side::response);
      if (first->state != QpState::err) want_response(s, *first);
    }
    if (now_sent > 0) asked = s.queue_order_;
  }
  return sent;
}

std::size_t serve_requests(HostState& s, emu::TrafficClass traffic_class, std::size_t most) {
  const auto c = static_cast<std::size_t>(traffic_class);
  LaneQueues& queues = s.requests_[c];
  std::size_t sent = 0;
  bool held = false;  // nobody may send to where it wants; who may not is not asked twice
  std::uint64_t asked = s.queue_order_;
  while (lanes_ready(queues, full_lanes(s, c)) != 0 && !s.slots_blocked_ && sent < most) {
    if (traffic_class == emu::TrafficClass::best_effort) {
      if (best_effort_blocked(s)) {
        ++s.counters_.credit_waits;
        break;
      }
      if (s.power_blocked_until_ > s.now_) break;
    }
    Qp* const first = first_ready(s, queues, c, Side::request, asked);
    held = first == nullptr;
    if (held) break;
    Qp& qp = *first;
    const std::size_t now_sent = request_turn(s, qp);
    sent += now_sent;
    if (qp.turn_packets < kTurnPackets) {  // it keeps its place
      if (s.slots_blocked_) break;
      if (traffic_class == emu::TrafficClass::best_effort &&
          (s.power_blocked_until_ > s.now_ || best_effort_blocked(s))) {
        continue;
      }
    }
    if (qp.turn_packets >= kTurnPackets || !waits_for_lane(s, qp, Side::request)) {
      take_out(s, queues, qp, Side::request);
      want_request(s, qp);
    }
    if (now_sent > 0) asked = s.queue_order_;
  }
  if (traffic_class == emu::TrafficClass::best_effort) {
    s.best_effort_held_ = held;
    if (s.best_effort_held_) ++s.counters_.credit_waits;
  }
  return sent;
}

bool is_ready(const HostState& s, std::size_t traffic_class) {
  const std::uint32_t full = full_lanes(s, traffic_class);
  return (lanes_ready(s.requests_[traffic_class], full) | s.acks_[traffic_class].queued |
          lanes_ready(s.reads_[traffic_class], full)) != 0;
}

// The same, whether it has room or not.
bool is_wanted(const HostState& s, std::size_t traffic_class) {
  return (s.requests_[traffic_class].queued | s.acks_[traffic_class].queued |
          s.reads_[traffic_class].queued) != 0;
}

bool is_any_wanted(const HostState& s) {
  static_assert(emu::kClassCount == 3);
  return is_wanted(s, 0) || is_wanted(s, 1) || is_wanted(s, 2);
}

bool advance_over(const HostState& s) {
  return s.slots_blocked_ || s.advance_bytes_ >= kAdvanceBytes;
}

// Acknowledgements go first: they free the peers' queues and are short. What is read and what is
// asked for take turns: somebody who reads without end must not hold up the node's own requests.
std::size_t serve_class(HostState& s, emu::TrafficClass traffic_class) {
  const auto c = static_cast<std::size_t>(traffic_class);
  Turn& turn = s.turns_[c];
  if (!is_ready(s, c)) {  // nearly always: what follows would come to nothing
    if ((s.requests_[c].queued | s.reads_[c].queued) == 0) turn.packets = 0;
    if (traffic_class == emu::TrafficClass::best_effort) s.best_effort_held_ = false;
    return 0;
  }
  s.advance_bytes_ = 0;
  std::size_t sent = 0;
  bool reads = turn.reads;
  for (int idle = 0; idle < 2 && !advance_over(s); reads = !reads) {
    sent += serve_responses(s, s.acks_[c], c, SIZE_MAX);
    if (s.slots_blocked_) break;
    const bool has_turn = reads == turn.reads;
    const std::size_t left = has_turn ? kTurnPackets - turn.packets : kTurnPackets;
    const std::size_t now_sent =
        reads ? serve_responses(s, s.reads_[c], c, left) : serve_requests(s, traffic_class, left);
    sent += now_sent;
    idle = now_sent > 0 ? 0 : idle + 1;
    if (!has_turn) continue;
    turn.packets += static_cast<std::uint32_t>(std::min(now_sent, left));
    // Where buffers or the room of a lane have run out it goes on with its turn.
    const LaneQueues& queues = reads ? s.reads_[c] : s.requests_[c];
    const bool stopped = s.slots_blocked_ || (queues.queued & full_lanes(s, c)) != 0;
    if (!stopped || turn.packets == kTurnPackets) turn = {.reads = !turn.reads};
    if (advance_over(s) || is_wanted(s, c)) continue;
    // Nobody is left. Both kinds would be asked in vain until `idle` is 2, and each time the turn
    // would pass to the other.
    if (idle == 1) turn.reads = !turn.reads;
    if (traffic_class == emu::TrafficClass::best_effort) s.best_effort_held_ = false;
    break;
  }
  return sent;
}

}  // namespace

void want_request(HostState& s, Qp& qp) {
  if (qp.request_link.queued) return;
  if (!request_ready(s, qp)) {
    wake_again(s, qp);
    return;
  }
  qp.request_class = class_of_request(s, qp);
  qp.request_lane = static_cast<std::uint8_t>(lane_of_request(s, qp));
  append(s, request_queues(s, qp), qp, Side::request);
}

void want_response(HostState& s, Qp& qp) {
  if (qp.responses_empty()) return;
  if (qp.response_link.queued) {
    if (!qp.response_reads || reads_next(qp)) return;
    take_out(s, response_queues(s, qp), qp, Side::response);  // a NAK in place of what was read
  }
  qp.response_class = qp.traffic_class;
  qp.response_reads = reads_next(qp);
  qp.response_lane = static_cast<std::uint8_t>(lane_of_response(s, qp));
  append(s, response_queues(s, qp), qp, Side::response);
}

void unqueue(HostState& s, Qp& qp) {
  take_out(s, request_queues(s, qp), qp, Side::request);
  take_out(s, response_queues(s, qp), qp, Side::response);
  qp.pace_at = qp.retry_at = qp.power_at = emu::kNever;
  qp.rnr_waiting = false;
  s.wakes_.remove(qp.slot);
}

void wake_again(HostState& s, Qp& qp) {
  emu::Cycle at = std::min({qp.pace_at, qp.retry_at, qp.power_at});
  if (qp.rnr_waiting) at = std::min(at, qp.rnr_until);
  s.wakes_.set_if_earlier(qp.slot, at);
}

void ring_doorbell(HostState& s, Qp& qp) {
  // Pairs with the application's exchange: cleared before the tail is read, so that a post that
  // comes after this reading rings again.
  qp.page->rung.store(0, std::memory_order_seq_cst);
  const std::uint32_t tail = qp.page->sq_tail.load(std::memory_order_seq_cst);
  if (qp.state == QpState::reset) return;
  if (tail - qp.sq_done > qp.layout.sq_depth || tail - qp.sq_done < qp.sq_posted - qp.sq_done) {
    qp_fault(s, qp);
    return;
  }
  qp.sq_posted = tail;
  if (qp.state == QpState::err || qp.state == QpState::sqe) {
    flush_sends(s, qp);
    if (qp.state == QpState::err) flush_recvs(s, qp);
    return;
  }
  if (qp.state == QpState::rts) want_request(s, qp);
}

void run_timers(HostState& s) {
  while (!s.wakes_.empty() && s.wakes_.first_time() <= s.now_) {
    Qp& qp = s.qp_at(s.wakes_.first());
    s.wakes_.remove(qp.slot);
    if (qp.pace_at <= s.now_) qp.pace_at = emu::kNever;
    if (qp.power_at <= s.now_) qp.power_at = emu::kNever;
    if (qp.rnr_waiting && qp.rnr_until <= s.now_) qp.rnr_waiting = false;
    if (qp.retry_at <= s.now_) retry_timer_fired(s, qp);
    want_request(s, qp);
    wake_again(s, qp);
  }
  if (s.power_blocked_until_ <= s.now_) s.power_blocked_until_ = 0;
}

std::size_t transmit(HostState& s) {
  s.slots_blocked_ = false;
  s.slots_ = s.port_.slots();
  std::size_t sent = 0;
  if (s.admission_.has_outbox()) sent += send_probes(s);
  if (!s.mads_.empty()) sent += send_mads(s);
  if (!s.left_responses_.empty()) sent += send_left_responses(s);
  for (int c = 0; c < emu::kClassCount && !s.slots_blocked_; ++c)
    sent += serve_class(s, static_cast<emu::TrafficClass>(c));
  dispatch(s);
  if (s.slots_blocked_) ++s.counters_.slot_waits;
  return sent;
}

// When to ask the scheme again that holds best effort back; a scheme that names a cycle which has
// passed waits for something that does not announce itself.
static emu::Cycle congestion_wake(const HostState& s) {
  const emu::Cycle at = s.congestion_->ready_at();
  return at > s.now_ ? at : s.now_ + kCongestionRetryCycles;
}

bool is_queued(const HostState& s) {
  if (s.slots_blocked_) return true;
  if (!is_any_wanted(s)) return false;  // nearly always
  for (std::size_t c = 0; c < emu::kClassCount; ++c) {
    if (is_ready(s, c)) return true;
  }
  return false;
}

emu::Cycle next_wake(const HostState& s) {
  emu::Cycle at = std::min(s.wakes_.first_time(), probe_deadline(s));
  if (s.loop_sent_ != s.loop_delivered_) return s.now_;
  const bool waiting = !s.mads_.empty() || !s.left_responses_.empty();
  if (waiting && !s.slots_blocked_) return s.now_;
  if (s.slots_blocked_) at = std::min(at, s.now_ + kSlotRetryCycles);
  if (s.power_blocked_until_ > s.now_) at = std::min(at, s.power_blocked_until_);
  if (!is_any_wanted(s)) return at;
  for (int c = 0; c < emu::kClassCount; ++c) {
    const auto index = static_cast<std::size_t>(c);
    const bool best_effort = c == static_cast<int>(emu::TrafficClass::best_effort);
    // Best effort without credit or energy is woken by injected events or by the line above, who
    // waits for room in a lane by such events alone.
    const bool blocked =
        s.slots_blocked_ || (best_effort && (best_effort_blocked(s) || s.best_effort_held_ ||
                                             s.power_blocked_until_ > s.now_));
    // READ responses wait for a scheme's time as requests do.
    const std::uint32_t full = full_lanes(s, index);
    const bool waits =
        (lanes_ready(s.requests_[index], full) | lanes_ready(s.reads_[index], full)) != 0;
    if (best_effort && blocked && waits) at = std::min(at, congestion_wake(s));
    if (!blocked && is_ready(s, index)) return s.now_;
  }
  return at;
}

}  // namespace hca

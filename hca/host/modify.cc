// The QP state machine: which attributes a transition needs and allows (IBA table 93, as in the man
// page of ibv_modify_qp), what their values may be, what the transition does.
#include <algorithm>
#include <bit>
#include <cerrno>

#include "hca/host/gid.h"
#include "hca/host/state.h"

namespace hca {

namespace {

struct Transition {
  QpState from;
  QpState to;
  QpType type;
  std::uint32_t required;
  std::uint32_t optional;
};

using enum QpState;
constexpr std::uint32_t kRcLater =
    kQpCurState | kQpAltPath | kQpAccessFlags | kQpMinRnrTimer | kQpPathMigState;

constexpr std::uint32_t kUcLater = kQpCurState | kQpAltPath | kQpAccessFlags | kQpPathMigState;

constexpr Transition kTransitions[] = {
    {reset, init, QpType::rc, kQpPkeyIndex | kQpPort | kQpAccessFlags, 0},
    {reset, init, QpType::ud, kQpPkeyIndex | kQpPort | kQpQkey, 0},
    {reset, init, QpType::uc, kQpPkeyIndex | kQpPort | kQpAccessFlags, 0},
    {init, init, QpType::uc, 0, kQpPkeyIndex | kQpPort | kQpAccessFlags},
    {init, rtr, QpType::uc, kQpAv | kQpPathMtu | kQpDestQpn | kQpRqPsn,
     kQpAltPath | kQpAccessFlags | kQpPkeyIndex},
    {rtr, rts, QpType::uc, kQpSqPsn, kUcLater},
    {rts, rts, QpType::uc, 0, kUcLater},
    {rts, sqd, QpType::uc, 0, kQpEnSqdAsyncNotify},
    {sqd, rts, QpType::uc, 0, kUcLater},
    {sqd, sqd, QpType::uc, 0, kQpAv | kQpAltPath | kQpAccessFlags | kQpPkeyIndex | kQpPathMigState},
    {sqe, rts, QpType::uc, 0, kQpCurState | kQpAccessFlags},
    {init, init, QpType::rc, 0, kQpPkeyIndex | kQpPort | kQpAccessFlags},
    {init, init, QpType::ud, 0, kQpPkeyIndex | kQpPort | kQpQkey},
    {init, rtr, QpType::rc,
     kQpAv | kQpPathMtu | kQpDestQpn | kQpRqPsn | kQpMaxDestRdAtomic | kQpMinRnrTimer,
     kQpAltPath | kQpAccessFlags | kQpPkeyIndex},
    {init, rtr, QpType::ud, 0, kQpPkeyIndex | kQpQkey},
    {rtr, rts, QpType::rc, kQpTimeout | kQpRetryCnt | kQpRnrRetry | kQpSqPsn | kQpMaxQpRdAtomic,
     kRcLater},
    {rtr, rts, QpType::ud, kQpSqPsn, kQpCurState | kQpQkey},
    {rts, rts, QpType::rc, 0, kRcLater},
    {rts, rts, QpType::ud, 0, kQpCurState | kQpQkey},
    {rts, sqd, QpType::rc, 0, kQpEnSqdAsyncNotify},
    {rts, sqd, QpType::ud, 0, kQpEnSqdAsyncNotify},
    {sqd, rts, QpType::rc, 0, kRcLater},
    {sqd, rts, QpType::ud, 0, kQpCurState | kQpQkey},
    {sqd, sqd, QpType::rc, 0,
     kQpPort | kQpAv | kQpTimeout | kQpRetryCnt | kQpRnrRetry | kQpMaxQpRdAtomic |
         kQpMaxDestRdAtomic | kQpAltPath | kQpAccessFlags | kQpPkeyIndex | kQpMinRnrTimer |
         kQpPathMigState},
    {sqd, sqd, QpType::ud, 0, kQpPkeyIndex | kQpQkey},
    {sqe, rts, QpType::ud, 0, kQpCurState | kQpQkey},
    // XRC: each needs the half of RC's attributes that its direction has. The other half means
    // nothing there, but perftest gives all of them to both.
    {reset, init, QpType::xrc_send, kQpPkeyIndex | kQpPort | kQpAccessFlags, 0},
    {reset, init, QpType::xrc_recv, kQpPkeyIndex | kQpPort | kQpAccessFlags, 0},
    {init, init, QpType::xrc_send, 0, kQpPkeyIndex | kQpPort | kQpAccessFlags},
    {init, init, QpType::xrc_recv, 0, kQpPkeyIndex | kQpPort | kQpAccessFlags},
    {init, rtr, QpType::xrc_send, kQpAv | kQpPathMtu | kQpDestQpn | kQpRqPsn,
     kQpAltPath | kQpAccessFlags | kQpPkeyIndex | kQpMaxDestRdAtomic | kQpMinRnrTimer},
    {init, rtr, QpType::xrc_recv,
     kQpAv | kQpPathMtu | kQpDestQpn | kQpRqPsn | kQpMaxDestRdAtomic | kQpMinRnrTimer,
     kQpAltPath | kQpAccessFlags | kQpPkeyIndex},
    {rtr, rts, QpType::xrc_send,
     kQpTimeout | kQpRetryCnt | kQpRnrRetry | kQpSqPsn | kQpMaxQpRdAtomic, kUcLater},
    {rtr, rts, QpType::xrc_recv, kQpTimeout | kQpSqPsn,
     kRcLater | kQpRetryCnt | kQpRnrRetry | kQpMaxQpRdAtomic},
    {rts, rts, QpType::xrc_send, 0, kUcLater},
    {rts, rts, QpType::xrc_recv, 0, kRcLater},
    {rts, sqd, QpType::xrc_send, 0, kQpEnSqdAsyncNotify},
    {rts, sqd, QpType::xrc_recv, 0, kQpEnSqdAsyncNotify},
    {sqd, rts, QpType::xrc_send, 0, kUcLater},
    {sqd, rts, QpType::xrc_recv, 0, kRcLater},
    {sqd, sqd, QpType::xrc_send, 0,
     kQpPort | kQpAv | kQpTimeout | kQpRetryCnt | kQpRnrRetry | kQpMaxQpRdAtomic | kQpAltPath |
         kQpAccessFlags | kQpPkeyIndex | kQpPathMigState},
    {sqd, sqd, QpType::xrc_recv, 0,
     kQpPort | kQpAv | kQpTimeout | kQpMaxDestRdAtomic | kQpAltPath | kQpAccessFlags |
         kQpPkeyIndex | kQpMinRnrTimer | kQpPathMigState},
};

// `found`: what is missing or too much, if that is all.
bool allowed(QpState from, QpState to, QpType type, std::uint32_t mask, Trouble& found) {
  found.kind = TroubleKind::transition;
  found.from = from;
  found.to = to;
  mask &= ~kQpState;
  // From RESET there is only INIT: nothing is there that could fail.
  if (from == reset && to == err) return false;
  if (to == reset || to == err) {
    found.surplus = mask & ~kQpCurState;
    return found.surplus == 0;
  }
  for (const Transition& transition : kTransitions) {
    if (transition.from != from || transition.to != to || transition.type != type) continue;
    found.missing = transition.required & ~mask;
    found.surplus = mask & ~(transition.required | transition.optional);
    return found.missing == 0 && found.surplus == 0;
  }
  return false;
}

emu::Gid dgid_of(const AddressVector& av) {
  emu::Gid gid;
  std::copy(std::begin(av.dgid), std::end(av.dgid), gid.begin());
  return gid;
}

bool path_fits(const HostState& s, const AddressVector& av) {
  const bool roce = s.options_.roce;
  if (av.sl > 15 || av.port_num != 1) return false;
  if (av.is_global != 0 && av.sgid_index >= gids_of_port(roce)) return false;
  if (!roce) return av.dlid != 0;
  return av.is_global != 0 && node_of_gid(s.options_, dgid_of(av)).has_value();
}

// The attribute whose value cannot be; 0: none.
std::uint32_t unfit(const HostState& s, const QpAttributes& wanted, std::uint32_t mask) {
  const bool mtu_fits = wanted.path_mtu >= 1 && wanted.path_mtu <= 5 &&
                        (128u << wanted.path_mtu) <= s.options_.mtu_bytes;
  const struct {
    std::uint32_t bit;
    bool fits;
  } checks[] = {
      {kQpPort, wanted.port_num == 1},
      {kQpPkeyIndex, wanted.pkey_index == 0},
      {kQpAltPath, false},  // one port, one path
      {kQpPathMtu, mtu_fits},
      {kQpAv, (mask & kQpAv) == 0 || path_fits(s, wanted.av)},
      {kQpDestQpn, wanted.dest_qp_num <= emu::kMask24},
      {kQpTimeout, wanted.timeout <= 31},
      {kQpRetryCnt, wanted.retry_cnt <= 7},
      {kQpRnrRetry, wanted.rnr_retry <= 7},
      // min_rnr_timer may be anything: the five bits count that the AETH has, as on hardware.
      {kQpMaxQpRdAtomic, wanted.max_rd_atomic <= kMaxRdAtomic},
      {kQpMaxDestRdAtomic, wanted.max_dest_rd_atomic <= kMaxRdAtomic},
  };
  for (const auto& [bit, fits] : checks) {
    if ((mask & bit) != 0 && !fits) return bit;
  }
  return 0;
}

struct ByteField {
  std::uint32_t bit;
  std::uint8_t QpAttributes::*value;
};
struct WordField {
  std::uint32_t bit;
  std::uint32_t QpAttributes::*value;
};
constexpr ByteField kBytes[] = {
    {kQpPort, &QpAttributes::port_num},
    {kQpPathMtu, &QpAttributes::path_mtu},
    {kQpTimeout, &QpAttributes::timeout},
    {kQpRetryCnt, &QpAttributes::retry_cnt},
    {kQpRnrRetry, &QpAttributes::rnr_retry},
    {kQpMaxQpRdAtomic, &QpAttributes::max_rd_atomic},
    {kQpMaxDestRdAtomic, &QpAttributes::max_dest_rd_atomic},
    {kQpMinRnrTimer, &QpAttributes::min_rnr_timer},
    {kQpEnSqdAsyncNotify, &QpAttributes::en_sqd_async_notify},
    {kQpPathMigState, &QpAttributes::path_mig_state},
};
constexpr WordField kWords[] = {
    {kQpAccessFlags, &QpAttributes::access_flags},
    {kQpQkey, &QpAttributes::qkey},
    {kQpRqPsn, &QpAttributes::rq_psn},
    {kQpSqPsn, &QpAttributes::sq_psn},
    {kQpDestQpn, &QpAttributes::dest_qp_num},
};

void take_values(const HostState& s, Qp& qp, const QpAttributes& wanted, std::uint32_t mask) {
  QpAttributes& mine = qp.attributes;
  for (const auto& [bit, value] : kBytes) {
    if ((mask & bit) != 0) mine.*value = wanted.*value;
  }
  for (const auto& [bit, value] : kWords) {
    if ((mask & bit) != 0) mine.*value = wanted.*value;
  }
  if ((mask & kQpPkeyIndex) != 0) mine.pkey_index = wanted.pkey_index;
  if ((mask & kQpAv) != 0) {
    mine.av = wanted.av;
    // The fabric below knows LIDs only.
    if (s.options_.roce) mine.av.dlid = emu::lid_of(*node_of_gid(s.options_, dgid_of(mine.av)));
  }
  mine.rq_psn &= emu::kMask24;
  mine.sq_psn &= emu::kMask24;
}

// The lanes of a connection are fixed, so that its packets never overtake one another; connections
// take turns over the lanes of their service level.
emu::Vl next_lane(std::uint16_t lanes, std::uint32_t draw) {
  return nth_lane(lanes, draw % static_cast<std::uint32_t>(std::popcount(lanes)));
}

void set_path(HostState& s, Qp& qp) {
  const AddressVector& av = qp.attributes.av;
  qp.dest = emu::node_of(av.dlid);
  qp.traffic_class = s.options_.class_of_sl[av.sl & 15];
  const std::uint16_t lanes = s.options_.lanes_of_sl[av.sl & 15];
  // An XRC connection has a QP for each way: an acknowledgement by the one and the answer by the
  // other stay in order, as on the one lane that hardware has of a service level.
  std::uint32_t& draws = s.lane_draws_[static_cast<std::size_t>(qp.traffic_class)];
  const std::uint32_t draw = qp.is_xrc() ? qp.dest : draws++;
  qp.vl_in = next_lane(lanes, draw);
  // Different from node to node, so that the flows of two nodes to a third meet on few lanes.
  qp.vl_out = next_lane(lanes, draw + s.options_.node);
  qp.payload = connection_payload(s.options_, 128u << qp.attributes.path_mtu, qp.is_xrc());
}

void enter_rtr(HostState& s, Qp& qp) {
  if (qp.type != QpType::ud) {
    set_path(s, qp);
  } else {
    qp.payload = s.options_.datagram_bytes;
  }
  qp.epsn = qp.attributes.rq_psn;
  qp.page->packet_payload.store(qp.payload, std::memory_order_release);
}

void enter_rts(HostState& s, Qp& qp, QpState from) {
  if (from == rtr) {
    qp.psn_fetch = qp.psn_sent = qp.psn_una = qp.psn_asked = qp.attributes.sq_psn;
  }
  qp.drained = false;
  ring_doorbell(s, qp);  // what was posted meanwhile
}

void enter_reset(HostState& s, Qp& qp) {
  take_back_lent(s, qp);
  leave_responses(s, qp);
  release_rate(s, qp, true);
  unqueue(s, qp);
  reset_transport(qp);
  qp.attributes = {};
}

}  // namespace

int modify(HostState& s, Qp& qp, const QpAttributes& wanted, std::uint32_t mask) {
  if ((mask & kQpCurState) != 0 && wanted.cur_state != qp.state) return EINVAL;
  const QpState from = qp.state;
  const QpState to = (mask & kQpState) != 0 ? wanted.state : from;
  Trouble found;
  if (!allowed(from, to, qp.type, mask, found)) {
    blame_attributes(s, qp, found);
    return EINVAL;
  }
  if (const std::uint32_t bit = unfit(s, wanted, mask); bit != 0) {
    found.kind = TroubleKind::value;
    found.surplus = bit;
    blame_attributes(s, qp, found);
    return EINVAL;
  }
  if (to == err) {
    leave_responses(s, qp);
    enter_error(s, qp);
    settle(s);
    return 0;
  }
  take_values(s, qp, wanted, mask);
  if ((mask & kQpRetryCnt) != 0) qp.retries_left = qp.attributes.retry_cnt;
  if ((mask & kQpRnrRetry) != 0) qp.rnr_retries_left = qp.attributes.rnr_retry;
  if (to == reset) enter_reset(s, qp);
  qp.state = qp.attributes.state = to;
  qp.page->state.store(static_cast<std::uint32_t>(to), std::memory_order_seq_cst);
  if (to == rtr) enter_rtr(s, qp);
  if (to == rts && from != rts) enter_rts(s, qp, from);
  if (to == sqd && from == rts) {
    qp.drained = false;
    if ((mask & kQpEnSqdAsyncNotify) == 0) qp.attributes.en_sqd_async_notify = 0;  // of this time
    retire(s, qp);
  }
  if (to == sqd && from == sqd && (mask & kQpAv) != 0) set_path(s, qp);
  settle(s);
  return 0;
}

}  // namespace hca

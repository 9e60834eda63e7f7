// A reservation: own link, then a probe through every router of the path on VL15; ACK books, NACK
// releases. Probes are repeated until answered; routers know a connection by (node, id), so a
// repeated probe books nothing twice.
#include "hca/host/admit.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "emu/lane/policy.h"
#include "hca/host/state.h"

namespace hca {

namespace {

std::uint32_t outbox_capacity(const Admission& admission) {
  return static_cast<std::uint32_t>(admission.outbox.size());
}

// With room for a probe and a release of every QP it can only be full when the port is shut for
// long; what is dropped then: probes are repeated, releases are made up for by the fabric, which
// forgets a node that leaves.
void post_control(HostState& s, const Connection& connection, emu::PacketKind kind,
                  emu::Cycle launch = 0) {
  Admission& admission = s.admission_;
  if (admission.outbox_last - admission.outbox_first == outbox_capacity(admission)) return;
  ControlPacket& packet = admission.outbox[admission.outbox_last++ % outbox_capacity(admission)];
  packet.kind = kind;
  packet.launch = launch;
  packet.body = {};
  packet.body.connection = connection.id;
  packet.body.rate_bps = connection.rate_bps;
  packet.body.peak_bps = connection.peak_bps;
  packet.body.source = s.options_.node;
  packet.body.dest = connection.dest;
  packet.body.vl = connection.vl;
  packet.body.vl_in = connection.vl_in;
}

void send_probe(HostState& s, std::uint32_t index) {
  Connection& connection = s.admission_.connections[index];
  ++connection.attempts;
  connection.answer_by = s.now_ + s.options_.cycle_time.cycle_at(kProbeTimeoutNs);
  post_control(s, connection, emu::PacketKind::probe);
}

void stop_probing(HostState& s, std::uint32_t index) {
  auto& probing = s.admission_.probing;
  probing.erase(std::remove(probing.begin(), probing.end(), index), probing.end());
  s.admission_.connections[index].answer_by = emu::kNever;
}

void tell(HostState& s, const Connection& connection, AdmissionVerdict verdict,
          emu::RouterId router) {
  Qp* qp = s.find_qp(connection.qpn);
  if (qp == nullptr) return;
  if (connection.renewing) {  // nobody asked: its program must hear that the reservation is gone
    if (verdict != AdmissionVerdict::granted && verdict != AdmissionVerdict::cancelled)
      s.events_.async(qp->client, AsyncEvent::path_mig_err, qp->number);
    return;
  }
  const std::uint64_t capacity = s.options_.reservable_bps;
  const std::uint64_t booked = s.counters_.reserved_bps;
  s.events_.admission(
      qp->client, qp->number,
      {verdict, router, verdict == AdmissionVerdict::granted ? connection.rate_bps : 0,
       capacity > booked ? capacity - booked : 0});
}

void forget(HostState& s, std::uint32_t index) {
  Connection& connection = s.admission_.connections[index];
  if (connection.state == ConnectionState::probing) stop_probing(s, index);
  if (connection.state == ConnectionState::probing ||
      connection.state == ConnectionState::granted) {
    s.counters_.reserved_bps -= connection.rate_bps;
  }
  if (Qp* qp = s.find_qp(connection.qpn)) {
    qp->connection = kNone;
    qp->attributes.rate_kbps = 0;
    qp->vtick = 0;
    set_credit(s, *qp, 0, 0);
  }
  connection = {};
  s.admission_.free_connections.push_back(index);
}

void grant(HostState& s, std::uint32_t index, ConnectionState state) {
  Connection& connection = s.admission_.connections[index];
  if (connection.state == ConnectionState::probing) stop_probing(s, index);
  connection.state = state;
  connection.attempts = 0;
  ++s.counters_.admissions_granted;
  if (Qp* qp = s.find_qp(connection.qpn)) {
    qp->attributes.rate_kbps = static_cast<std::uint32_t>(connection.rate_bps / 1000);
    qp->vtick = emu::vtick_of(s.options_.link_bps, connection.rate_bps);
    const bool bursts = connection.peak_bps > connection.rate_bps;
    set_credit(s, *qp, connection.rate_bps, bursts ? connection.peak_bps : 0);
  }
  tell(s, connection, AdmissionVerdict::granted, emu::kNoRouter);
  connection.renewing = false;
}

// Nothing is booked any more: what was granted is asked for again, silently unless refused.
void ask_again(HostState& s, std::uint32_t index) {
  Connection& connection = s.admission_.connections[index];
  if (connection.state == ConnectionState::granted) {
    connection.state = ConnectionState::probing;
    connection.renewing = true;
    s.admission_.probing.push_back(index);
  } else if (connection.state != ConnectionState::probing) {
    return;
  }
  connection.attempts = 0;
  send_probe(s, index);
}

// Of one connection, whose way has changed (emu::Verdict::again).
void renew(HostState& s, std::uint64_t id) {
  const auto& connections = s.admission_.connections;
  const auto found = std::ranges::find_if(connections, [id](const Connection& connection) {
    return connection.state != ConnectionState::free && connection.id == id;
  });
  if (found == connections.end()) return;  // given back meanwhile
  ask_again(s, static_cast<std::uint32_t>(found - connections.begin()));
}

}  // namespace

// Behind its packets up to `last_packet`.
static void give_back(HostState& s, Qp& qp, bool tell_cancelled, emu::Cycle last_packet);

int ask_rate(HostState& s, Qp& qp, std::uint64_t rate_bps, std::uint64_t peak_bps) {
  Admission& admission = s.admission_;
  if (qp.type != QpType::rc && qp.type != QpType::xrc_send) return EOPNOTSUPP;
  if (qp.state != QpState::rtr && qp.state != QpState::rts) return EINVAL;
  if (qp.connection != kNone &&
      admission.connections[qp.connection].state == ConnectionState::probing) {
    return EBUSY;
  }
  // A new rate is asked for as a whole, and the old one makes room for it at once.
  give_back(s, qp, false, rate_bps == 0 ? qp.last_launch : 0);
  if (rate_bps == 0) {
    s.events_.admission(qp.client, qp.number, {});
    return 0;
  }
  if (admission.free_connections.empty()) return ENOMEM;
  ++s.counters_.admissions_asked;
  const std::uint32_t index = admission.free_connections.back();
  admission.free_connections.pop_back();
  Connection& connection = admission.connections[index];
  connection = {};
  connection.qpn = qp.number;
  connection.id = admission.next_id++;
  connection.dest = qp.dest;
  connection.vl = qp.vl_out;
  connection.vl_in = qp.vl_in;
  connection.rate_bps = rate_bps;
  connection.peak_bps = std::max(peak_bps, rate_bps);
  qp.connection = index;
  if (!s.options_.controls.admission || stays_here(s, qp.dest)) {
    grant(s, index, ConnectionState::local);
    return 0;
  }
  const std::uint64_t capacity = s.options_.reservable_bps;
  if (rate_bps > capacity || s.counters_.reserved_bps > capacity - rate_bps) {
    ++s.counters_.admissions_refused_hca;
    tell(s, connection, AdmissionVerdict::refused_by_hca, emu::kNoRouter);
    forget(s, index);
    return 0;
  }
  connection.state = ConnectionState::probing;
  connection.asked_at = s.now_;
  s.counters_.reserved_bps += rate_bps;
  admission.probing.push_back(index);
  send_probe(s, index);
  return 0;
}

void release_rate(HostState& s, Qp& qp, bool tell_cancelled) {
  give_back(s, qp, tell_cancelled, qp.last_launch);
}

void give_back(HostState& s, Qp& qp, bool tell_cancelled, emu::Cycle last_packet) {
  if (qp.connection == kNone) return;
  const std::uint32_t index = qp.connection;
  Connection& connection = s.admission_.connections[index];
  const bool asked = connection.state == ConnectionState::probing;
  if (asked || connection.state == ConnectionState::granted) {
    // Follows its probe on the same lanes of the same path: it cannot arrive before it.
    const bool behind = last_packet > s.now_;
    post_control(s, connection, emu::PacketKind::release, behind ? last_packet + 1 : 0);
  }
  if (asked && tell_cancelled) {
    tell(s, connection, AdmissionVerdict::cancelled, emu::kNoRouter);
  }
  forget(s, index);
}

void probe_answered(HostState& s, const emu::Answer& answer) {
  if (answer.verdict == emu::Verdict::again) return renew(s, answer.connection);
  for (const std::uint32_t index : s.admission_.probing) {
    Connection& connection = s.admission_.connections[index];
    if (connection.id != answer.connection) continue;
    if (!connection.renewing) {
      ++s.counters_.admissions_answered;
      s.counters_.admission_cycles_total += s.now_ - connection.asked_at;
    }
    if (answer.verdict == emu::Verdict::ack) {
      grant(s, index, ConnectionState::granted);
      return;
    }
    ++s.counters_.admissions_refused_router;
    // Restores hop by hop what was booked before the router that refused (ACP section 4.1).
    post_control(s, connection, emu::PacketKind::release);
    const Connection refused = connection;
    forget(s, index);
    tell(s, refused, AdmissionVerdict::refused_by_router, answer.rejected_by);
    return;
  }
}

void probe_timers(HostState& s) {
  for (std::size_t i = 0; i < s.admission_.probing.size();) {
    const std::uint32_t index = s.admission_.probing[i];
    Connection& connection = s.admission_.connections[index];
    if (connection.answer_by > s.now_) {
      ++i;
      continue;
    }
    if (connection.attempts < kProbeAttempts) {
      send_probe(s, index);
      ++i;
      continue;
    }
    post_control(s, connection, emu::PacketKind::release);
    const Connection unanswered = connection;
    forget(s, index);
    tell(s, unanswered, AdmissionVerdict::no_answer, emu::kNoRouter);
  }
}

emu::Cycle probe_deadline(const HostState& s) {
  emu::Cycle at = emu::kNever;
  for (const std::uint32_t index : s.admission_.probing) {
    at = std::min(at, s.admission_.connections[index].answer_by);
  }
  if (s.admission_.has_outbox() && !s.slots_blocked_) return s.now_;
  return at;
}

std::size_t send_probes(HostState& s) {
  Admission& admission = s.admission_;
  std::size_t sent = 0;
  while (admission.has_outbox()) {
    PacketSlot slot;
    if (!s.port_.reserve(slot)) {
      s.slots_blocked_ = true;
      break;
    }
    const ControlPacket& packet =
        admission.outbox[admission.outbox_first++ % outbox_capacity(admission)];
    std::memcpy(slot.bytes, &packet.body, sizeof packet.body);
    emu::TxDesc desc{};
    desc.buffer = slot.buffer;
    desc.length = sizeof packet.body;
    desc.flits = kProbeFlits;
    desc.dest = packet.body.dest;
    desc.vl_in = desc.vl_out = emu::kControlVl;
    desc.traffic_class = emu::TrafficClass::control;
    desc.kind = packet.kind;
    desc.launch_cycle = packet.launch;
    s.port_.send({&desc, 1});
    ++s.counters_.port_packets_sent;
    s.counters_.port_flits_sent += desc.flits;
    ++sent;
  }
  return sent;
}

// The fabric has forgotten everything.
void renew_bookings(HostState& s) {
  Admission& admission = s.admission_;
  admission.outbox_first = admission.outbox_last;  // what waited spoke of bookings that are gone
  for (std::uint32_t index = 0; index < admission.connections.size(); ++index) ask_again(s, index);
}

}  // namespace hca

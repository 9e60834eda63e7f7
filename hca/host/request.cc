// The requester of RC and UC: which packet of which request goes next.
#include <algorithm>
#include <cstring>

#include "emu/packet/build.h"
#include "hca/host/gid.h"
#include "hca/host/state.h"

namespace hca {

namespace {

// Beside the last packet of each message, so that a long one learns early what was lost.
constexpr std::uint32_t kAckEveryPackets = 128;
// How far a real-time packet may be moved for the sake of power: less than the replayer's slack
// before the deadline, and a few windows of 500 cycles.
constexpr emu::EmuNs kRealTimeShiftNs = 300'000;
// What comes late leaves with so much of the power. Where many nodes catch up at once their packets
// meet in the routers, which hold some back and let them go in bunches.
constexpr double kLateShare = 0.75;
// Numbers in flight stay well below half the circle of PSNs.
constexpr std::uint32_t kWindowPackets = 1u << 22;

// Of the message, were it one packet.
emu::Opcode rc_opcode_of(WrOpcode opcode) {
  using enum emu::Opcode;
  switch (opcode) {
    case WrOpcode::rdma_read:
      return rc_read_request;
    case WrOpcode::atomic_cas:
      return rc_compare_swap;
    case WrOpcode::atomic_fadd:
      return rc_fetch_add;
    case WrOpcode::atomic_write:
      return rc_atomic_write;
    case WrOpcode::send_imm:
      return rc_send_only_imm;
    case WrOpcode::send_inv:
      return rc_send_only_inv;
    case WrOpcode::rdma_write:
      return rc_write_only;
    case WrOpcode::rdma_write_imm:
      return rc_write_only_imm;
    default:
      return rc_send_only;
  }
}

// Of its packet number `packet` and those behind it, `packets` in all.
emu::Opcode opcode_of(const Qp& qp, const SendEntry& entry, std::uint32_t packet,
                      std::uint32_t packets) {
  emu::Opcode rc = rc_opcode_of(entry.opcode);
  if (!entry.is_answered()) {
    rc = emu::part_of(rc, packet == 0, packet + packets == entry.packets);
  }
  if (qp.type == QpType::rc) return rc;
  return qp.is_xrc() ? emu::xrc_of(rc) : emu::uc_of(rc);
}

// How many packets of the message may leave in one train, if the port takes any: none that waits
// for something of its own, and repetitions apart from what was not sent before.
std::uint32_t packets_together(const HostState& s, const Qp& qp, const SendEntry& entry,
                               std::uint32_t psn) {
  const std::uint32_t left = entry.packets - qp.current_packet;
  if (left <= 1 || entry.is_answered()) return 1;
  if (entry.launch != 0 || qp.credit_capacity != 0) return 1;
  const std::int32_t again = emu::psn_diff(qp.psn_sent, psn);
  const std::uint32_t most = train_packets(s, qp, left);
  return again > 0 ? std::min(most, static_cast<std::uint32_t>(again)) : most;
}

emu::Cycle launch_of(const Qp& qp, const SendEntry& entry) {
  if (entry.launch == 0) return 0;
  const std::uint32_t packets = std::max(entry.packets, 1u);
  return entry.launch + std::uint64_t{entry.span_cycles} * qp.current_packet / packets;
}

// A real-time QP with an admitted rate sends what it has credit for; the library refuses more
// already at the post, so only a program that writes its rings itself waits here.
bool has_credit(const HostState& s, const Qp& qp) {
  if (!s.options_.controls.congestion_control || qp.credit_capacity == 0) return true;
  return qp.credit_used - qp.credit_returned < qp.credit_capacity;
}

void step_current(Qp& qp, const SendEntry& entry, std::uint32_t packets) {
  if (entry.launch != 0) qp.timed_until = std::max(qp.timed_until, launch_of(qp, entry));
  qp.current_packet = entry.is_answered() ? entry.packets : qp.current_packet + packets;
  if (qp.current_packet < entry.packets) return;
  ++qp.sq_current;
  qp.current_packet = 0;
  qp.gather = {};
}

// The next request that has packets. Those that have none take their turn when all before them are
// complete; null: none, or not yet.
const SendEntry* next_to_leave(HostState& s, Qp& qp) {
  SendEntry* entry = current_request(s, qp);
  while (entry != nullptr && entry->status == WcStatus::success && is_local(entry->opcode)) {
    if (qp.sq_done != qp.sq_current) return nullptr;
    entry->status = run_local(s, qp, qp.wqe(qp.sq_current));
    if (entry->status != WcStatus::success) break;
    ++qp.sq_current;
    complete_send(s, qp, WcStatus::success);
    retire(s, qp);
    entry = current_request(s, qp);
  }
  return entry;
}

// Best effort has to find room in both accounts: the HCA's and that of its class.
emu::Cycle best_effort_place(HostState& s, emu::Cycle from, emu::Cycle most,
                             const PowerNeed& need) {
  emu::Cycle at = s.best_effort_searched_.start(from, need.energy_pj);
  for (emu::Cycle own = emu::kNever; at != emu::kNever && own != at;) {
    own = s.calendar_.earliest(at, need.energy_pj, need.cycles, most);
    at = own == emu::kNever
             ? own
             : s.best_effort_calendar_.earliest(own, need.energy_pj, need.class_cycles, most);
  }
  if (at > most) at = emu::kNever;
  if (at != emu::kNever || s.best_effort_calendar_.covers(most + need.class_cycles)) {
    s.best_effort_searched_.nothing_before(s.now_, from, std::min(at, most + 1), need.energy_pj);
  }
  return at;
}

// Real time that comes when its time is over (a program that the host held up, a repetition), or
// behind such. It would leave at once and all together, fill the link, and let best effort pile up
// behind it whose energy counts as paid. So it waits for power: what is in time has found its own
// by then, best effort comes after it.
bool is_late(const HostState& s, emu::Cycle asked, emu::Cycle wish) {
  const emu::Cycle shift = s.options_.cycle_time.cycle_at(kRealTimeShiftNs);
  return std::max(wish, s.now_) > (asked != 0 ? asked : s.now_) + shift;
}

emu::Cycle late_place(HostState& s, Qp& qp, emu::Cycle wish, const PowerNeed& need) {
  const emu::Cycle from = std::max(wish, s.now_);
  const emu::Cycle most = s.now_ + s.horizon_cycles_ / 2;
  const emu::Cycle at = s.calendar_.earliest(from, need.energy_pj, need.cycles, most);
  if (at > most) {
    qp.power_at = s.now_ + s.horizon_cycles_ / 16 + 1;
    wake_again(s, qp);
    return emu::kNever;
  }
  return at;
}

}  // namespace

emu::NodeId request_dest(Qp& qp) {
  if (qp.type == QpType::ud && qp.sq_current != qp.sq_fetched) {
    const emu::Lid dlid = qp.wqe(qp.sq_current).dlid;
    return is_group(dlid) ? static_cast<emu::NodeId>(qp.current_packet) : emu::node_of(dlid);
  }
  return emu::node_of(qp.attributes.av.dlid);
}

std::uint32_t lane_of_request(HostState& s, Qp& qp) {
  if (s.slots_ == 0) return kNoLane;
  if (qp.type == QpType::ud) {
    const emu::NodeId dest = request_dest(qp);
    const SendWqe& wqe = qp.wqe(qp.sq_current);
    const bool waits = wqe.launch_ns == 0 && !stays_here(s, dest);
    return waits ? lane_of_datagram(s, qp, wqe, dest) : kNoLane;
  }
  // What has no launch time, but is behind what has, leaves when that does.
  const bool timed = qp.entry(qp.sq_current).launch != 0 || qp.timed_until > s.now_;
  return timed || stays_here(s, qp.dest) ? kNoLane : qp.vl_in;
}

bool request_ready(HostState& s, Qp& qp) {
  if (qp.state != QpState::rts && qp.state != QpState::sqd) return false;
  if (qp.rnr_waiting || qp.power_at != emu::kNever) return false;
  if (qp.state == QpState::sqd && qp.current_packet == 0 &&
      (qp.sq_current == qp.sq_fetched ||
       emu::psn_diff(qp.entry(qp.sq_current).first_psn, qp.psn_sent) >= 0)) {
    return false;  // draining: no new request begins
  }
  const SendEntry* entry = next_to_leave(s, qp);
  if (entry == nullptr) return false;
  if (entry->status != WcStatus::success) {
    retire(s, qp);
    return false;
  }
  if (!qp.is_unreliable()) {
    if (qp.current_packet == 0 && (entry->flags & kWqeFence) != 0 && qp.reads_out > 0) {
      return false;
    }
    if (entry->is_answered() && qp.reads_out >= qp.attributes.max_rd_atomic) {
      return false;
    }
    const std::uint32_t psn = add24(entry->first_psn, qp.current_packet);
    const std::uint32_t ahead = (psn - qp.psn_una) & emu::kMask24;
    if (ahead > kWindowPackets) return false;
    // A READ has all of its PSNs outstanding at once.
    if (entry->is_answered() &&
        ahead + entry->packets - qp.current_packet > kMaxOutstandingPackets) {
      return false;
    }
    if (emu::psn_diff(psn, qp.psn_sent) >= 0 && !has_credit(s, qp)) return false;
  }
  if (qp.type == QpType::ud && qp.first_in_wire > 0 && nobody_at(s, qp.wqe(qp.sq_current).dlid)) {
    return false;  // completes without leaving, but in its turn
  }
  // Real time comes back with half a horizon in hand, so that many packets go in one burst. Best
  // effort is handed on within that half: all real time that it must leave room for is known then.
  const emu::Cycle launch = launch_of(qp, *entry);
  const bool best_effort = class_of_request(s, qp) == emu::TrafficClass::best_effort;
  if (launch > s.now_ + (best_effort ? s.horizon_cycles_ / 2 : s.horizon_cycles_)) {
    qp.pace_at = launch - s.horizon_cycles_ / (best_effort ? 4 : 2);
    return false;
  }
  return true;
}

bool metered(const HostState& s, emu::TrafficClass traffic_class, emu::NodeId dest) {
  return s.options_.controls.power_control && s.power_pj_per_cycle_ > 0 &&
         traffic_class != emu::TrafficClass::control && !stays_here(s, dest);
}

emu::Cycle launch_with_power(HostState& s, emu::TrafficClass traffic_class, emu::Cycle asked,
                             emu::Cycle wish, const PowerNeed& need) {
  const emu::Cycle from = std::max(wish, s.now_);
  if (traffic_class == emu::TrafficClass::real_time) {
    // Its power was booked along the path, so it may always leave; it is moved by little, so that
    // packets of many streams do not come in one window.
    const emu::Cycle most =
        std::max(asked, s.now_) + s.options_.cycle_time.cycle_at(kRealTimeShiftNs);
    const emu::Cycle at = s.calendar_.earliest(from, need.energy_pj, need.cycles, most);
    return at > most ? wish : at;
  }
  const emu::Cycle most = s.now_ + s.horizon_cycles_ / 2;
  const emu::Cycle at = best_effort_place(s, from, most, need);
  if (at == emu::kNever) {
    s.power_blocked_until_ = s.now_ + s.horizon_cycles_ / 16 + 1;
    return emu::kNever;
  }
  if (at > from) {
    ++s.counters_.power_waits;
    s.counters_.power_wait_cycles += at - from;
  }
  return at;
}

void hold_power(HostState& s, emu::TrafficClass traffic_class, emu::Cycle launch,
                const PowerNeed& need) {
  const emu::Cycle at = std::max(launch, s.now_);
  s.calendar_.hold(at, need.energy_pj, need.cycles);
  if (traffic_class == emu::TrafficClass::best_effort) {
    s.best_effort_calendar_.hold(at, need.energy_pj, need.class_cycles);
  }
}

namespace {

// When the next packet of the request leaves; kNever: not now. `need`: of metered ones; of those
// that come late it grows.
emu::Cycle find_launch(HostState& s, Qp& qp, const SendEntry& entry, bool first_time,
                       PowerNeed* need) {
  // Packets of a QP never overtake one another; a repetition goes as soon as it can, behind what
  // was repeated before it.
  const emu::Cycle asked = launch_of(qp, entry);
  emu::Cycle launch = qp.repeat_launch;
  if (first_time) launch = std::max({launch, asked, qp.last_launch});
  if (need == nullptr) return launch;
  if (qp.traffic_class == emu::TrafficClass::real_time && is_late(s, asked, launch)) {
    need->cycles = static_cast<emu::Cycle>(static_cast<double>(need->cycles) / kLateShare);
    return late_place(s, qp, launch, *need);
  }
  return launch_with_power(s, qp.traffic_class, asked, launch, *need);
}

Leaving request_leaving(const Qp& qp, emu::Cycle launch, bool first_time, bool in_lane,
                        bool question) {
  return {.launch = launch,
          .vl_in = qp.vl_in,
          .vl_out = qp.vl_out,
          .vtick = qp.vtick,
          .traffic_class = qp.traffic_class,
          .first_time = first_time,
          .in_lane = in_lane,
          .question = question};
}

void fill_atomic(const SendWqe& wqe, emu::AtomicEth& atomic) {
  const WqeExtension& operands = extension_of(wqe);
  const bool swaps = wqe.opcode == WrOpcode::atomic_cas;
  atomic.address = wqe.remote_addr;
  atomic.rkey = wqe.rkey;
  atomic.swap_or_add = swaps ? operands.swap : operands.compare_add;
  atomic.compare = swaps ? operands.compare_add : 0;
}

// What the opcode asks for beside the path and the place in the message.
void fill_extended(const SendWqe& wqe, const SendEntry& entry, std::uint32_t offset,
                   emu::PacketHeaders& headers) {
  headers.immediate = __builtin_bswap32(wqe.imm);
  headers.invalidate_rkey = wqe.imm;
  headers.xrc_srq = wqe.xrc_srqn;
  if (is_atomic(entry.opcode)) {
    fill_atomic(wqe, headers.atomic);
  } else if (entry.opcode == WrOpcode::rdma_read) {
    headers.reth = {wqe.remote_addr + offset, wqe.rkey, entry.length - offset};
  } else {
    headers.reth = {wqe.remote_addr, wqe.rkey, entry.length};
  }
}

}  // namespace

std::uint32_t build_request(HostState& s, Qp& qp, bool in_lane) {
  SendEntry& entry = qp.entry(qp.sq_current);
  const std::uint32_t index = qp.sq_current;
  const std::uint32_t packet_index = qp.current_packet;
  const bool is_answered = entry.is_answered();  // its request is one packet
  const bool is_atomic_write = entry.opcode == WrOpcode::atomic_write;
  const std::uint32_t psn = add24(entry.first_psn, packet_index);
  const bool first_time = emu::psn_diff(psn, qp.psn_sent) >= 0;
  const std::uint32_t offset = packet_index * qp.payload;
  const auto length_of = [&](std::uint32_t packets) {
    return is_answered && !is_atomic_write ? 0
                                           : std::min(qp.payload * packets, entry.length - offset);
  };

  const bool is_metered = metered(s, qp.traffic_class, qp.dest);
  PowerNeed need{};
  if (is_metered) {
    const emu::Opcode opcode = opcode_of(qp, entry, packet_index, 1);
    const bool grh = qp.attributes.av.is_global != 0;
    const std::size_t bytes = emu::packet_bytes(opcode, grh, length_of(1));
    need = power_need(s, qp.dest, emu::flits_of(bytes, s.options_.flit_bits));
  }
  const emu::Cycle launch = find_launch(s, qp, entry, first_time, is_metered ? &need : nullptr);
  if (launch == emu::kNever) return 0;
  const std::uint32_t together = is_metered ? 1 : packets_together(s, qp, entry, psn);
  BurstPacket* packet = open_train(s, qp.slot, qp.dest, together);
  if (packet == nullptr) return 0;
  if (is_metered) hold_power(s, qp.traffic_class, launch, need);
  const std::uint32_t packets = packet->packets;
  const std::uint32_t length = length_of(packets);

  emu::PacketHeaders headers;
  fill_path(s, qp, headers);
  headers.bth.opcode = opcode_of(qp, entry, packet_index, packets);
  headers.bth.psn = psn;
  const bool last = is_answered || packet_index + packets == entry.packets;
  const bool its_turn = -psn % kAckEveryPackets < packets;  // in time one of them has it
  headers.bth.ack_request = !qp.is_unreliable() && (last || its_turn);
  headers.bth.solicited = last && (entry.flags & kWqeSolicited) != 0;
  fill_extended(qp.wqe(index), entry, offset, headers);
  packet->psn = psn;
  packet->sq_index = index;
  packet->request = true;
  const bool asks = headers.bth.ack_request;
  const Leaving leaving = request_leaving(qp, launch, first_time, in_lane, asks);
  std::uint8_t* payload = close_packet(s, *packet, &qp, headers, length, leaving);
  if (is_atomic_write) {
    std::memcpy(payload, &extension_of(qp.wqe(index)).swap, kAtomicBytes);
  } else if (!lend_payload(s, qp, index, offset, payload, length)) {
    gather_payload(s, qp, index, offset, payload, length);
  }

  if (is_answered) ++qp.reads_out;
  const std::uint32_t after = add24(psn, is_answered ? entry.packets - packet_index : packets);
  if (asks) question_asked(qp, after);
  if (first_time) {
    qp.credit_used += packets;
    qp.psn_sent = after;
    if (qp.is_unreliable()) qp.psn_una = qp.psn_sent;
    qp.last_launch = std::max(qp.last_launch, launch);
  } else {
    qp.repeat_launch = launch;
    s.counters_.packets_retransmitted += packets;
  }
  step_current(qp, entry, packets);
  return packets;
}

void fill_path(const HostState& s, const Qp& qp, emu::PacketHeaders& headers) {
  const AddressVector& av = qp.attributes.av;
  headers.lrh = {qp.vl_in, av.sl, av.dlid, emu::lid_of(s.options_.node)};
  headers.bth.dest_qp = qp.attributes.dest_qp_num & emu::kMask24;
  headers.has_grh = av.is_global != 0;
  if (!headers.has_grh) return;
  fill_grh(s, av, headers.grh);
}

void fill_grh(const HostState& s, const AddressVector& av, emu::Grh& grh) {
  grh.traffic_class = av.traffic_class;
  grh.flow_label = av.flow_label & 0xfffff;
  grh.hop_limit = av.hop_limit;
  std::copy(std::begin(av.dgid), std::end(av.dgid), grh.dgid.begin());
  grh.sgid = gid_of(s.options_, s.options_.node, av.sgid_index);
}

}  // namespace hca

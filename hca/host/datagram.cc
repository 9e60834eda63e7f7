// UD: one packet a message, no connection, no promise; and the receive lists that UD shares with
// RC.
#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "emu/packet/build.h"
#include "hca/host/gid.h"
#include "hca/host/state.h"

namespace hca {

namespace {

constexpr std::uint32_t kPrivilegedQkey = 1u << 31;  // IBA 10.2.5: then the QP's own is used

emu::TrafficClass class_of_sl(const HostState& s, std::uint8_t sl) {
  return s.options_.class_of_sl[sl & 15];
}

struct LanePair {
  emu::Vl in;
  emu::Vl out;
};

// Of the lanes of a service level. What a QP sends to a node keeps to two of them, so that none of
// it overtakes another: nothing in IBA forbids that, but no fabric of hardware does it, and
// programs rely on it for speed (UCX takes a gap for a loss). Load that is timed is the papers':
// its lanes are drawn evenly, message by message (ACP, RN and MW: "Workload").
LanePair lanes_of_datagram(HostState& s, const Qp& qp, const SendWqe& wqe, emu::NodeId dest) {
  const std::uint16_t lanes = s.options_.lanes_of_sl[wqe.sl & 15];
  const auto count = static_cast<std::uint32_t>(std::popcount(lanes));
  if (wqe.launch_ns != 0)
    return {nth_lane(lanes, s.prng_.below(count)), nth_lane(lanes, s.prng_.below(count))};
  const std::uint32_t flow = qp.number + dest;
  return {nth_lane(lanes, flow % count), nth_lane(lanes, (flow + s.options_.node) % count)};
}

void fill_datagram(const HostState& s, const Qp& qp, const SendWqe& wqe, const SendEntry& entry,
                   emu::PacketHeaders& headers) {
  headers.lrh.sl = wqe.sl & 15;
  headers.lrh.dlid = wqe.dlid;
  headers.lrh.slid = emu::lid_of(s.options_.node);
  headers.bth.opcode = entry.opcode == WrOpcode::send_imm ? emu::Opcode::ud_send_only_imm
                                                          : emu::Opcode::ud_send_only;
  headers.bth.psn = entry.first_psn;
  headers.bth.dest_qp = wqe.remote_qpn & emu::kMask24;
  headers.bth.solicited = (entry.flags & kWqeSolicited) != 0;
  headers.deth.src_qp = qp.number;
  headers.deth.qkey =
      (wqe.remote_qkey & kPrivilegedQkey) != 0 ? qp.attributes.qkey : wqe.remote_qkey;
  headers.immediate = __builtin_bswap32(wqe.imm);
  if ((wqe.flags & kWqeExtended) == 0) return;
  const WqeExtension& extension = extension_of(wqe);
  if (extension.is_global == 0) return;
  AddressVector av{};
  std::copy(std::begin(extension.dgid), std::end(extension.dgid), av.dgid);
  av.flow_label = extension.flow_label;
  av.hop_limit = extension.hop_limit;
  av.traffic_class = extension.traffic_class;
  av.sgid_index = extension.sgid_index;
  headers.has_grh = true;
  fill_grh(s, av, headers.grh);
}

// Between IPv4 addresses RoCE v2 has an IPv4 header, which stands in the last 20 of the 40 bytes
// (IBA annex A17.4.5.2).
using GrhRoom = std::array<std::uint8_t, kGrhBytes>;
void write_ipv4(const emu::Grh& grh, std::size_t packet_bytes, GrhRoom& room) {
  constexpr std::size_t kIpv4Bytes = 20;
  constexpr std::uint8_t kUdp = 17;
  std::uint8_t* ip = room.data() + kGrhBytes - kIpv4Bytes;
  const std::size_t total =
      packet_bytes - emu::kLrhBytes - emu::kGrhBytes - emu::kVcrcBytes + kIpv4Bytes + 8;
  ip[0] = 0x45;
  ip[1] = grh.traffic_class;
  ip[2] = static_cast<std::uint8_t>(total >> 8);
  ip[3] = static_cast<std::uint8_t>(total);
  ip[6] = 0x40;  // not to be cut
  ip[8] = grh.hop_limit;
  ip[9] = kUdp;
  std::copy_n(&grh.sgid[12], 4, ip + 12);
  std::copy_n(&grh.dgid[12], 4, ip + 16);
  std::uint32_t sum = 0;
  for (std::size_t i = 0; i < kIpv4Bytes; i += 2) sum += std::uint32_t{ip[i]} << 8 | ip[i + 1];
  sum = (sum & 0xffff) + (sum >> 16);
  sum = ~((sum & 0xffff) + (sum >> 16));
  ip[10] = static_cast<std::uint8_t>(sum >> 8);
  ip[11] = static_cast<std::uint8_t>(sum);
}

bool came_by_ipv4(const HostState& s, const emu::ParsedPacket& packet) {
  return packet.headers.has_grh && s.options_.roce && is_ip_gid(packet.headers.grh.sgid);
}

// The receive buffer begins with room for a GRH, whether one came or not (IBA 11.4.1.2).
WcStatus store_datagram(HostState& s, Qp& qp, const Arrival& arrival,
                        const emu::ParsedPacket& packet) {
  static const std::uint8_t no_grh[kGrhBytes] = {};
  const std::uint8_t* grh = packet.headers.has_grh ? arrival.bytes + emu::kLrhBytes : no_grh;
  GrhRoom room{};
  const bool is_ipv4 = came_by_ipv4(s, packet);
  if (is_ipv4) {
    write_ipv4(packet.headers.grh, arrival.desc.length, room);
    grh = room.data();
  }
  const WcStatus status = scatter_receive(s, qp, grh, kGrhBytes, 0);
  if (is_ipv4) write_pieces(s);  // `room` ends here
  if (status != WcStatus::success) return status;
  return scatter_receive(s, qp, arrival.bytes + packet.payload_offset,
                         static_cast<std::uint32_t>(packet.payload_bytes), 0);
}

// Of a datagram of RoCE v2 the receiver is told by which header it came (IBA annex A17.4.5.1). HCAs
// do so in place of the SL, which no such packet carries, and UCX looks there for the address.
void tell_service_level(const HostState& s, const emu::ParsedPacket& packet, Cqe& cqe) {
  constexpr std::uint8_t kByIpv6 = 1;
  constexpr std::uint8_t kByIpv4 = 2;
  constexpr std::uint8_t kByUdp = 8;
  cqe.sl = packet.headers.lrh.sl;
  if (!s.options_.roce) return;
  cqe.vendor_err = cqe.sl;  // for ibv_init_ah_from_wc: an answer goes by the SL of what it answers
  cqe.sl = kByUdp | (came_by_ipv4(s, packet) ? kByIpv4 : kByIpv6);
}

std::uint64_t list_bytes(const Qp& qp) {
  std::uint64_t total = 0;
  for (std::uint32_t i = 0; i < qp.recv_num_sge; ++i) total += qp.recv_sges[i].length;
  return total;
}

// The datagram is dropped in silence. The QP's own receive stays for the next one; an SRQ's cannot
// go back, as others may have been taken since, and completes in error, which the QP survives (IBA
// 9.9.3, class E): were it kept here, the SRQ's other QPs would never see it again.
void drop_too_long(HostState& s, Qp& qp, std::uint64_t needed, emu::Lid sender) {
  if (!qp.have_recv || qp.srq == kNone) return;
  blame_length(s, qp, needed, sender);
  complete_recv(s, qp, WcStatus::loc_len_err, Cqe{}, true);
}

}  // namespace

bool nobody_at(const HostState& s, emu::Lid lid) {
  return !is_group(lid) && (lid == 0 || emu::node_of(lid) >= s.options_.nodes);
}

emu::TrafficClass class_of_request(HostState& s, Qp& qp) {
  if (qp.type != QpType::ud || qp.sq_current == qp.sq_fetched) return qp.traffic_class;
  return class_of_sl(s, qp.wqe(qp.sq_current).sl);
}

emu::Vl lane_of_datagram(const HostState& s, const Qp& qp, const SendWqe& wqe, emu::NodeId dest) {
  const std::uint16_t lanes = s.options_.lanes_of_sl[wqe.sl & 15];
  return nth_lane(lanes, (qp.number + dest) % static_cast<std::uint32_t>(std::popcount(lanes)));
}

void build_datagram(HostState& s, Qp& qp) {
  SendEntry& entry = qp.entry(qp.sq_current);
  const SendWqe& wqe = qp.wqe(qp.sq_current);
  // To a group: one copy for each node in turn.
  const emu::NodeId dest =
      is_group(wqe.dlid) ? static_cast<emu::NodeId>(qp.current_packet) : emu::node_of(wqe.dlid);
  if (nobody_at(s, wqe.dlid)) {
    // For UD that is as good as sent; request_ready() waited until the ones before it had left.
    ++qp.sq_current;
    complete_send(s, qp, WcStatus::success);
    return;
  }
  emu::PacketHeaders headers;
  fill_datagram(s, qp, wqe, entry, headers);
  const std::uint16_t flits = emu::flits_of(
      emu::packet_bytes(headers.bth.opcode, headers.has_grh, entry.length), s.options_.flit_bits);
  const emu::TrafficClass traffic_class = class_of_sl(s, wqe.sl);
  const bool is_metered = metered(s, traffic_class, dest);
  const PowerNeed need = is_metered ? power_need(s, dest, flits) : PowerNeed{};
  emu::Cycle launch = entry.launch;
  if (is_metered) {
    launch = launch_with_power(s, traffic_class, launch, launch, need);
    if (launch == emu::kNever) return;
  }
  BurstPacket* packet = open_packet(s, qp.slot, dest);
  if (packet == nullptr) return;
  if (is_metered) hold_power(s, traffic_class, launch, need);

  const LanePair lanes = lanes_of_datagram(s, qp, wqe, dest);
  headers.lrh.vl = lanes.in;
  packet->psn = entry.first_psn;
  packet->sq_index = qp.sq_current;
  packet->request = true;
  std::uint8_t* payload = close_packet(s, *packet, &qp, headers, entry.length,
                                       {.launch = launch,
                                        .vl_in = lanes.in,
                                        .vl_out = lanes.out,
                                        .traffic_class = traffic_class,
                                        .first_time = true,
                                        .in_lane = wqe.launch_ns == 0});
  qp.gather = {};
  gather_payload(s, qp, qp.sq_current, 0, payload, entry.length);
  qp.psn_sent = add24(entry.first_psn, 1);
  ++qp.credit_used;
  if (++qp.current_packet < entry.packets) return;
  qp.current_packet = 0;
  ++qp.sq_current;
}

void receive_datagram(HostState& s, Qp& qp, const Arrival& arrival,
                      const emu::ParsedPacket& packet) {
  if (packet.headers.deth.qkey != qp.attributes.qkey) {
    ++s.counters_.dropped_bad_key;
    return;
  }
  if (!qp.have_recv && take_recv(s, qp) == TakeRecv::broken) {
    qp_fault(s, qp);
    return;
  }
  const std::uint64_t needed = packet.payload_bytes + kGrhBytes;
  if (!qp.have_recv || list_bytes(qp) < needed) {
    ++s.counters_.dropped_no_receive;
    drop_too_long(s, qp, needed, packet.headers.lrh.slid);
    return;
  }
  Cqe cqe{};
  const WcStatus status = store_datagram(s, qp, arrival, packet);
  if (status != WcStatus::success) {
    complete_recv(s, qp, status, cqe, true);
    enter_error(s, qp);
    return;
  }
  const bool imm = packet.headers.bth.opcode == emu::Opcode::ud_send_only_imm;
  cqe.opcode = WcOpcode::recv;
  cqe.byte_len = static_cast<std::uint32_t>(needed);
  cqe.imm = imm ? __builtin_bswap32(packet.headers.immediate) : 0;
  cqe.wc_flags = (imm ? kWcWithImm : 0) | (packet.headers.has_grh ? kWcGrh : 0);
  cqe.src_qp = packet.headers.deth.src_qp;
  cqe.slid = s.options_.roce ? emu::Lid{0} : packet.headers.lrh.slid;
  tell_service_level(s, packet, cqe);
  cqe.timestamp_ns = s.options_.cycle_time.ns(arrival.desc.arrival_cycle);
  cqe.head_ns = s.options_.cycle_time.ns(arrival.desc.head_cycle);
  complete_recv(s, qp, WcStatus::success, cqe, packet.headers.bth.solicited);
}

TakeRecv take_recv(HostState& s, Qp& qp) {
  if (qp.srq != kNone) return take_shared(s, qp);
  if (qp.layout.rq_depth == 0) return TakeRecv::none;
  const std::uint32_t tail = qp.page->rq_tail.load(std::memory_order_acquire);
  if (tail - qp.rq_done > qp.layout.rq_depth || tail - qp.rq_done < qp.rq_next - qp.rq_done) {
    return TakeRecv::broken;
  }
  if (tail == qp.rq_next) return TakeRecv::none;
  if (!copy_receive(qp, qp.recv_slot(qp.rq_next), qp.capacity.recv_sge)) return TakeRecv::broken;
  ++qp.rq_next;
  return TakeRecv::ok;
}

bool copy_receive(Qp& qp, const std::uint8_t* slot, std::uint32_t sges_max) {
  RecvWqe wqe;
  std::memcpy(&wqe, slot, sizeof wqe);
  if (wqe.num_sge > sges_max) return false;
  std::memcpy(qp.recv_sges.data(), slot + sizeof wqe, wqe.num_sge * sizeof(Sge));
  qp.recv_wr_id = wqe.wr_id;
  qp.recv_num_sge = wqe.num_sge;
  qp.scatter = {};
  qp.have_recv = true;
  return true;
}

WcStatus scatter_receive(HostState& s, Qp& qp, const std::uint8_t* bytes, std::uint32_t length,
                         std::uint32_t psn) {
  const WcStatus status = scatter_payload(s, qp, recv_pd(s, qp), qp.recv_sges.data(),
                                          qp.recv_num_sge, qp.scatter, bytes, length, psn);
  if (status == WcStatus::loc_prot_err) {
    const Sge& sge = qp.recv_sges[qp.scatter.sge];
    blame_key(s, qp, TroubleKind::recv_key,
              {sge.lkey, recv_pd(s, qp), sge.addr, sge.length, kAccessLocalWrite, qp.recv_wr_id});
  }
  return status;
}

WcStatus scatter_payload(HostState& s, Qp& qp, std::uint32_t pd, const Sge* sges,
                         std::uint32_t num_sge, SgeCursor& cursor, const std::uint8_t* bytes,
                         std::uint32_t length, std::uint32_t psn) {
  while (length > 0) {
    if (cursor.sge == num_sge) return WcStatus::loc_len_err;
    const Sge& sge = sges[cursor.sge];
    const std::uint32_t take = std::min(length, sge.length - cursor.offset);
    if (take > 0) {
      Range range;
      if (!resolve(s.mrs_, sge.lkey, pd, sge.addr + cursor.offset, take, kAccessLocalWrite,
                   range)) {
        return WcStatus::loc_prot_err;
      }
      write_piece(s, qp, range, bytes, take, psn);
      bytes += take;
      length -= take;
      cursor.offset += take;
      cursor.bytes += take;
    }
    if (cursor.offset == sge.length) {
      ++cursor.sge;
      cursor.offset = 0;
    }
  }
  return WcStatus::success;
}

}  // namespace hca

// A packet comes in: taken apart, checked, given to the half of the QP that it is for. Nothing in
// it is believed; what cannot be placed is counted and dropped.
#include <algorithm>
#include <cstddef>
#include <cstring>

#include "emu/base/prefetch.h"
#include "emu/packet/crc.h"
#include "hca/host/state.h"

namespace hca {

namespace {

bool service_matches(const Qp& qp, emu::Service service) {
  return (qp.type == QpType::rc && service == emu::Service::rc) ||
         (qp.type == QpType::uc && service == emu::Service::uc) ||
         (qp.type == QpType::ud && service == emu::Service::ud) ||
         (qp.is_xrc() && service == emu::Service::xrc);
}

// A connected QP listens to its peer's node only; `src` is the attachment and cannot be forged.
bool from_peer(const Qp& qp, const Arrival& arrival, const emu::PacketHeaders& headers) {
  return arrival.desc.src == qp.dest && headers.lrh.slid == emu::lid_of(arrival.desc.src);
}

void count(HostState& s, const Arrival& arrival, std::size_t payload_bytes) {
  const auto index = static_cast<std::size_t>(arrival.desc.traffic_class);
  if (index >= emu::kClassCount) return;
  ClassCounters& counters = s.counters_.by_class[index];
  const std::uint64_t packets = 1U + arrival.desc.more_packets;
  counters.packets_received += packets;
  counters.bytes_received += payload_bytes;
  if (arrival.desc.arrival_cycle > arrival.desc.head_cycle) {
    counters.latency_cycles_total +=
        packets * (arrival.desc.arrival_cycle - arrival.desc.head_cycle);
  }
}

// End to end, from the HCA that made the packet, unless it left the CRCs out. The VCRC guards a
// link, and ours do not err: shared memory carries packets as they are, datagrams are
// authenticated.
bool intact(std::span<const std::byte> packet) {
  if (!emu::has_crcs(packet)) return true;
  const std::size_t end = packet.size() - emu::kIcrcBytes - emu::kVcrcBytes;
  std::uint32_t icrc = 0;
  std::memcpy(&icrc, &packet[end], sizeof icrc);  // its bytes stand in little endian order
  return emu::icrc_of(packet.first(end)) == icrc;
}

bool parse(const Arrival& arrival, std::span<const std::byte> bytes, emu::ParsedPacket& packet) {
  if (bytes.size() > emu::slots_of(arrival.desc) * emu::kPacketBytesMax) return false;
  const std::uint32_t packets = arrival.desc.more_packets + 1U;
  const auto parsed =
      packets == 1 ? emu::parse_packet(bytes, packet) : emu::parse_train(bytes, packets, packet);
  return parsed == emu::ParseStatus::ok &&
         (arrival.lent.empty() || packet.payload_bytes == arrival.lent.size());
}

// The receive that a request may take, as the program wrote it on its core.
void prefetch_receive(const Qp& qp) {
  if (qp.srq != kNone || qp.layout.rq_depth == 0) return;
  emu::prefetch(&qp.page->rq_tail);
  emu::prefetch(qp.recv_slot(qp.rq_next));
}

void receive_one(HostState& s, const Arrival& arrival, bool loop) {
  const std::size_t length = emu::buffer_bytes(arrival.desc);
  const std::span<const std::byte> bytes(reinterpret_cast<const std::byte*>(arrival.bytes), length);
  emu::ParsedPacket packet;
  if (arrival.desc.src != s.options_.node) {
    s.counters_.port_packets_received += 1U + arrival.desc.more_packets;
    s.counters_.port_flits_received += arrival.desc.flits;
  }
  if (!parse(arrival, bytes, packet) || packet.payload_offset + packet.payload_bytes > length ||
      (packet.packets == 1 && !intact(bytes))) {
    ++s.counters_.dropped_bad_packet;
    return;
  }
  count(s, arrival, packet.payload_bytes);  // whoever it is for: as a port counts
  const emu::PacketHeaders& headers = packet.headers;
  if (arrival.desc.src != s.options_.node && is_group(headers.lrh.dlid))
    ++s.counters_.port_multicast_received;
  if (!loop && arrival.desc.src == s.options_.node) {
    receive_subnet(s, arrival, packet);
    return;
  }
  if (headers.bth.dest_qp == kGeneralServicesQp && packet.info->service == emu::Service::ud) {
    receive_mad(s, arrival, packet);
    return;
  }
  if (headers.bth.dest_qp == kMulticastQp && packet.info->service == emu::Service::ud) {
    receive_multicast(s, arrival, packet);
    return;
  }
  Qp* qp = s.find_qp(headers.bth.dest_qp);
  if (qp == nullptr || !may_receive(*qp) || !service_matches(*qp, packet.info->service) ||
      headers.lrh.dlid != emu::lid_of(s.options_.node)) {
    ++s.counters_.dropped_no_qp;
    // Answers to a QP that has gone are the end of every other connection.
    if (packet.info->request) blame_sender(s, qp, headers.bth.dest_qp, headers.lrh.slid);
    return;
  }
  if (packet.info->request) prefetch_receive(*qp);
  if (headers.bth.pkey != emu::kDefaultPkey) {
    ++s.counters_.dropped_bad_key;
    return;
  }
  if (qp->type != QpType::ud && !from_peer(*qp, arrival, headers)) {
    ++s.counters_.dropped_no_qp;
    if (packet.info->request) blame_sender(s, qp, headers.bth.dest_qp, headers.lrh.slid);
    return;
  }
  if (!qp->heard && qp->state == QpState::rtr && qp->type != QpType::ud) {
    qp->heard = true;
    tell(s, *qp, AsyncEvent::comm_est);
  }
  if (packet.info->service == emu::Service::ud) {
    receive_datagram(s, *qp, arrival, packet);
  } else if (packet.info->service == emu::Service::uc) {
    receive_unreliable(s, *qp, arrival, packet);
  } else if (packet.info->request) {
    respond(s, *qp, arrival, packet);
  } else {
    acknowledge(s, *qp, arrival, packet);
  }
}

// Another core wrote the packet: each line of it is a miss, and the first one stalls everything.
constexpr std::size_t kPrefetchAhead = 2;
void prefetch(const Arrival& arrival) {
  const std::size_t there =
      arrival.lent.empty() ? emu::buffer_bytes(arrival.desc) : emu::kTrainHeadBytes;
  const std::size_t bytes = std::min(there, 12 * emu::kCacheLine);
  for (std::size_t at = 0; at < bytes; at += emu::kCacheLine) emu::prefetch(arrival.bytes + at);
}

}  // namespace

void receive_all(HostState& s, std::span<const Arrival> arrivals) {
  for (std::size_t i = 0; i < arrivals.size(); ++i) {
    if (i + kPrefetchAhead < arrivals.size()) prefetch(arrivals[i + kPrefetchAhead]);
    receive_one(s, arrivals[i], false);
  }
  settle(s);
}

// Traffic within the node. What the deliveries themselves send goes out with the next advance().
void deliver_loop(HostState& s) {
  const std::uint32_t last = s.loop_sent_;
  for (std::uint32_t i = s.loop_delivered_; i != last; ++i) {
    const emu::TxDesc& desc = s.loop_[i % kLoopPackets];
    if (desc.length == 0) continue;
    qp_injected(s, desc.cookie);
    Arrival arrival{};
    arrival.desc.head_cycle = arrival.desc.arrival_cycle = s.now_;
    arrival.desc.length = desc.length;
    arrival.desc.flits = desc.flits;
    arrival.desc.src = s.options_.node;
    arrival.desc.vl = desc.vl_in;
    arrival.desc.traffic_class = desc.traffic_class;
    arrival.bytes = &s.loop_bytes_[(i % kLoopPackets) * emu::kPacketBytesMax];
    receive_one(s, arrival, true);
  }
  settle(s);
  s.loop_delivered_ = last;
}

}  // namespace hca

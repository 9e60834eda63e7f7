// Packets leave together: headers are written one by one, payload of many packets is read from the
// clients' memory in one call, then each is sealed and handed to the port.
#include <algorithm>
#include <cstring>

#include "emu/base/check.h"
#include "emu/packet/build.h"
#include "hca/host/state.h"

namespace hca {

namespace {

// Cookie: QP number, "returns a credit", the congestion control's (credit.cc), epoch of the QP (15
// bits), "asks for an answer", packets of a train behind the first, its lane's (lanes.cc).
constexpr std::uint64_t kCookieFirst = 1ull << 24;
constexpr int kCookieEpochShift = 32;
constexpr std::uint64_t kCookieEpoch = 0x7fff;
constexpr std::uint64_t kCookieQuestion = 1ull << 47;
// What is lent has been read by nobody yet and leaves no cache on the way, but its receiver copies
// all that came in one turn, for which everybody waits: so much of it counts in an advance().
constexpr std::uint32_t kLentShare = 4;

std::span<std::byte> slot_span(const BurstPacket& packet) {
  return {reinterpret_cast<std::byte*>(packet.slot.bytes), emu::kPacketBytesMax};
}

// After the payload is in place. Nothing follows that of a train.
void finish(const HostState& s, const BurstPacket& packet) {
  if (packet.packets > 1) return;
  const bool seal = s.options_.seals && !packet.loop;
  const std::size_t bytes = seal ? emu::seal_packet(slot_span(packet), packet.unsealed_bytes)
                                 : emu::pad_packet(slot_span(packet), packet.unsealed_bytes);
  CHECK(bytes == packet.desc.length);
}

// Writes the headers and what the descriptor says of the size; returns where the payload goes.
std::size_t begin_packet(const HostState& s, BurstPacket& packet, const emu::PacketHeaders& headers,
                         std::uint32_t payload_bytes) {
  const std::size_t offset = emu::write_headers(slot_span(packet), headers, payload_bytes);
  const std::size_t bytes = emu::packet_bytes(headers.bth.opcode, headers.has_grh, payload_bytes);
  packet.unsealed_bytes = static_cast<std::uint32_t>(offset + payload_bytes);
  packet.desc.length = static_cast<std::uint16_t>(bytes);
  packet.desc.flits = emu::flits_of(bytes, s.options_.flit_bits);
  return offset;
}

// The same of a train, whose packets each have headers of their own on a link.
std::size_t begin_train(const HostState& s, BurstPacket& packet, const emu::PacketHeaders& headers,
                        std::uint32_t payload_bytes, std::uint32_t full_bytes) {
  emu::write_train_headers(slot_span(packet).first<emu::kTrainHeadBytes>(), headers, payload_bytes,
                           full_bytes);
  const auto flits = [&](bool first, bool last, std::uint32_t bytes) {
    const emu::Opcode opcode = emu::part_of(headers.bth.opcode, first, last);
    return emu::flits_of(emu::packet_bytes(opcode, headers.has_grh, bytes), s.options_.flit_bits);
  };
  const std::uint32_t last_bytes = payload_bytes - (packet.packets - 1) * full_bytes;
  packet.desc.more_packets = static_cast<std::uint16_t>(packet.packets - 1);
  packet.desc.length = static_cast<std::uint16_t>(
      (emu::kTrainHeadBytes + payload_bytes + emu::pad_of(payload_bytes)) / 4);
  packet.desc.flits = static_cast<std::uint16_t>(
      flits(true, false, full_bytes) + (packet.packets - 2) * flits(false, false, full_bytes) +
      flits(false, true, last_bytes));
  return emu::kTrainHeadBytes;
}

// Where a packet fails, its QP's later packets of this burst fail with it.
void spread_failures(HostState& s) {
  Burst& burst = s.burst_;
  for (std::uint32_t i = 0; i < burst.packets_count; ++i) {
    if (!burst.packets[i].failed()) continue;
    for (std::uint32_t j = i + 1; j < burst.packets_count; ++j) {
      BurstPacket& later = burst.packets[j];
      if (later.qp_slot != burst.packets[i].qp_slot || later.failed()) continue;
      later.failure = Failure::earlier;
    }
  }
}

bool fetch_payload(HostState& s) {
  Burst& burst = s.burst_;
  bool all_there = true;
  for (std::uint32_t i = 0; i < burst.pieces_count;) {
    i += static_cast<std::uint32_t>(
        s.memory_.read({&burst.pieces[i], &burst.pieces[burst.pieces_count]}));
    if (i == burst.pieces_count) break;
    burst.packets[burst.piece_packet[i]].failure = Failure::memory;
    ++s.counters_.memory_faults;
    all_there = false;
    ++i;
  }
  return all_there;
}

// A READ ends here as a WRITE would. Where a request of the QP itself failed before it, that one's
// completion says so.
void refuse_read(HostState& s, Qp& qp, const BurstPacket& packet) {
  using emu::NakCode;
  const NakCode code = packet.failure == Failure::key ? NakCode::remote_access_error
                                                      : NakCode::remote_operational_error;
  qp.responses_first = qp.responses_last;
  if (packet.failure == Failure::earlier) {
    push_nak(s, qp, packet.psn, emu::kSyndromeNak | static_cast<std::uint8_t>(code), true);
  } else {
    // Of a key, what it lacks was told where it failed.
    if (packet.failure == Failure::memory) blame_remote(s, qp, TroubleKind::remote_memory);
    refuse(s, qp, packet.psn, code, AsyncEvent::qp_access_err);
  }
}

// The packet's bytes could not be had: its request, or the read that it answers, fails.
void give_up(HostState& s, const BurstPacket& packet) {
  if (packet.loop) {
    s.loop_[packet.slot.buffer].length = 0;  // delivered as nothing
  } else {
    s.port_.cancel(packet.slot.buffer);
    lane_came_back(s, packet.desc.traffic_class, packet.desc.cookie);
    if (packet.desc.traffic_class == emu::TrafficClass::best_effort) {
      s.best_effort_out_ -= packet.packets;
      congestion_came_back(s, packet.desc.cookie);
    }
  }
  Qp* qp = s.qp_or_null(packet.qp_slot);
  if (qp == nullptr) return;
  CHECK(qp->in_wire >= packet.packets);
  qp->in_wire -= packet.packets;
  if ((packet.desc.cookie & kCookieQuestion) != 0) question_left(s, *qp);
  if ((packet.desc.cookie & kCookieFirst) != 0) {
    qp->first_in_wire -= packet.packets;
    return_credit(*qp, packet.packets);
  }
  if (s.memory_.gone(qp->client)) {
    if (!qp->dead) qp->responses_first = qp->responses_last;
    lose_program(s, *qp, packet.psn);
    return;
  }
  if (packet.response && !qp->dead) refuse_read(s, *qp, packet);
  if (packet.request && qp->entry(packet.sq_index).status == WcStatus::success &&
      packet.sq_index - qp->sq_done < qp->sq_fetched - qp->sq_done) {
    qp->entry(packet.sq_index).status = WcStatus::loc_prot_err;
    if (qp->sq_current - qp->sq_done > packet.sq_index - qp->sq_done) {
      qp->sq_current = packet.sq_index;
    }
    qp->current_packet = 0;
    qp->gather = {};
  }
}

BurstPacket& next_packet(HostState& s, std::uint32_t qp_slot, emu::NodeId dest) {
  CHECK(s.burst_.packets_count < kBurstPackets);
  BurstPacket& packet = s.burst_.packets[s.burst_.packets_count];
  packet = {};
  packet.qp_slot = qp_slot;
  packet.packets = 1;
  packet.desc.dest = dest;
  return packet;
}

}  // namespace

BurstPacket* open_packet_out(HostState& s, std::uint32_t qp_slot, emu::NodeId dest) {
  BurstPacket& packet = next_packet(s, qp_slot, dest);
  if (s.port_.reserve(packet.slot)) return &packet;
  s.slots_blocked_ = true;
  return nullptr;
}

std::uint32_t train_packets(const HostState& s, const Qp& qp, std::uint32_t left) {
  if (s.options_.seals) return 1;  // CRCs are a packet's
  return std::min({left, emu::kTrainPacketsMax, std::max(1U, emu::kTrainPayloadMax / qp.payload)});
}

BurstPacket* open_train(HostState& s, std::uint32_t qp_slot, emu::NodeId dest,
                        std::uint32_t packets) {
  if (packets > 1 && !stays_here(s, dest)) {
    BurstPacket& packet = next_packet(s, qp_slot, dest);
    packet.packets = packets;
    if (s.port_.reserve_train(packet.slot)) return &packet;
  }
  return open_packet(s, qp_slot, dest);
}

BurstPacket* open_packet(HostState& s, std::uint32_t qp_slot, emu::NodeId dest) {
  if (!stays_here(s, dest)) return open_packet_out(s, qp_slot, dest);
  BurstPacket& packet = next_packet(s, qp_slot, dest);
  packet.loop = true;
  if (s.loop_reserved_ - s.loop_delivered_ < kLoopPackets) {
    packet.slot.buffer = s.loop_reserved_++ % kLoopPackets;
    packet.slot.bytes = &s.loop_bytes_[packet.slot.buffer * emu::kPacketBytesMax];
    return &packet;
  }
  s.slots_blocked_ = true;
  return nullptr;
}

std::uint8_t* close_packet(HostState& s, BurstPacket& packet, Qp* qp,
                           const emu::PacketHeaders& headers, std::uint32_t payload_bytes,
                           const Leaving& leaving) {
  const std::size_t offset = packet.packets > 1
                                 ? begin_train(s, packet, headers, payload_bytes, qp->payload)
                                 : begin_packet(s, packet, headers, payload_bytes);
  packet.multicast = is_group(headers.lrh.dlid);
  emu::TxDesc& desc = packet.desc;
  desc.launch_cycle = leaving.launch;
  desc.buffer = packet.slot.buffer;
  desc.vl_in = leaving.vl_in;
  desc.vl_out = leaving.vl_out;
  desc.vtick = leaving.vtick;
  desc.traffic_class = leaving.traffic_class;
  desc.kind = emu::PacketKind::data;
  if (qp != nullptr) {
    desc.cookie = qp->number | (qp->epoch & kCookieEpoch) << kCookieEpochShift |
                  (leaving.first_time ? kCookieFirst : 0) |
                  (leaving.question ? kCookieQuestion : 0) |
                  std::uint64_t{desc.more_packets} << kCookieMoreShift;
    qp->in_wire += packet.packets;
    if (leaving.first_time) qp->first_in_wire += packet.packets;
    if (leaving.question) ++qp->questions_in_wire;
  }
  if (!packet.loop && qp != nullptr) desc.cookie |= lane_cookie(s, desc, leaving.in_lane);
  if (!packet.loop && desc.traffic_class == emu::TrafficClass::best_effort) {
    s.best_effort_out_ += packet.packets;
    desc.cookie |= congestion_cookie(s, desc);
  }
  ClassCounters& counters = s.counters_.by_class[static_cast<std::size_t>(desc.traffic_class)];
  counters.packets_sent += packet.packets;
  counters.bytes_sent += payload_bytes;
  s.advance_bytes_ += emu::buffer_bytes(desc);
  ++s.burst_.packets_count;
  return packet.slot.bytes + offset;
}

void fail_packet(HostState& s) {
  CHECK(s.burst_.packets_count > 0);
  s.burst_.packets[s.burst_.packets_count - 1].failure = Failure::key;
}

void gather_range(HostState& s, const Range& range, std::uint8_t* bytes, std::uint32_t length) {
  if (range.mapped != nullptr) {
    std::memcpy(bytes, range.mapped, length);
    return;
  }
  Burst& burst = s.burst_;
  CHECK(burst.pieces_count < kBurstPieces);
  burst.piece_packet[burst.pieces_count] = static_cast<std::uint16_t>(burst.packets_count - 1);
  burst.pieces[burst.pieces_count++] = {bytes, range.address, length, range.client};
}

void gather_payload(HostState& s, Qp& qp, std::uint32_t index, std::uint32_t offset,
                    std::uint8_t* bytes, std::uint32_t length) {
  const SendWqe& wqe = qp.wqe(index);
  const std::uint8_t* list = list_of(wqe);
  if ((wqe.flags & kWqeInline) != 0) {
    std::memcpy(bytes, list + offset, length);
    return;
  }
  SgeCursor& cursor = qp.gather;
  if (cursor.bytes != offset) cursor = {};  // a repetition: walk from the start
  while (length > 0) {
    CHECK(cursor.sge < wqe.num_sge);
    Sge sge;
    std::memcpy(&sge, list + cursor.sge * sizeof sge, sizeof sge);
    const std::uint32_t left = sge.length - cursor.offset;
    const std::uint32_t skip = std::min(left, offset - cursor.bytes);
    cursor.offset += skip;
    cursor.bytes += skip;
    const std::uint32_t take = cursor.bytes == offset ? std::min(left - skip, length) : 0;
    if (take > 0) {
      Range range;
      if (!resolve(s.mrs_, sge.lkey, qp.pd, sge.addr + cursor.offset, take, kAccessLocalRead,
                   range)) {
        fail_packet(s);  // the region went away after the request was checked
        return;
      }
      gather_range(s, range, bytes, take);
      bytes += take;
      length -= take;
      offset += take;
      cursor.offset += take;
      cursor.bytes += take;
    }
    if (cursor.offset == sge.length) {
      ++cursor.sge;
      cursor.offset = 0;
    }
  }
}

// Until the peer has answered a request of a reliable service its memory is not its program's to
// change; where it becomes so otherwise, it is brought home (take_back_lent). Nothing ends the loan
// of a READ response, and the peer's next request may change that memory before it has copied it.
bool lend_payload(HostState& s, Qp& qp, std::uint32_t index, std::uint32_t offset,
                  std::uint8_t* home, std::uint32_t length) {
  const BurstPacket& packet = s.burst_.packets[s.burst_.packets_count - 1];
  const SendWqe& wqe = qp.wqe(index);
  if (packet.packets == 1 || qp.is_unreliable() || (wqe.flags & kWqeInline) != 0 ||
      wqe.num_sge != 1) {
    return false;
  }
  Sge sge;
  std::memcpy(&sge, list_of(wqe), sizeof sge);
  Range range;
  const bool here =
      resolve(s.mrs_, sge.lkey, qp.pd, sge.addr + offset, length, kAccessLocalRead, range) &&
      range.mapped != nullptr;
  if (!here || !s.port_.lend(packet.slot, {range.mapped, length}, home)) return false;
  s.advance_bytes_ -= length - length / kLentShare;  // close_packet() counted all of it
  ++s.counters_.payloads_lent;
  return true;
}

void dispatch(HostState& s) {
  Burst& burst = s.burst_;
  if (burst.packets_count == 0) return;
  fetch_payload(s);
  spread_failures(s);
  std::array<emu::TxDesc, kBurstPackets> leaving;
  std::uint32_t leaving_count = 0;
  bool any_failed = false;
  for (std::uint32_t i = 0; i < burst.packets_count; ++i) {
    BurstPacket& packet = burst.packets[i];
    if (packet.failed()) {
      any_failed = true;
      continue;
    }
    finish(s, packet);
    if (packet.loop) {
      s.loop_[packet.slot.buffer] = packet.desc;
    } else {
      leaving[leaving_count++] = packet.desc;
      if (packet.desc.kind == emu::PacketKind::subnet) continue;
      s.counters_.port_packets_sent += packet.packets;
      s.counters_.port_flits_sent += packet.desc.flits;
      s.counters_.port_multicast_sent += packet.multicast ? 1U : 0U;
    }
  }
  if (leaving_count > 0) s.port_.send({leaving.data(), leaving_count});
  s.loop_sent_ = s.loop_reserved_;
  if (any_failed) {
    for (std::uint32_t i = 0; i < burst.packets_count; ++i) {
      if (burst.packets[i].failed()) give_up(s, burst.packets[i]);
    }
    open_lanes(s);
    for (std::uint32_t i = 0; i < burst.packets_count; ++i) {
      if (!burst.packets[i].failed()) continue;
      if (Qp* qp = s.qp_or_null(burst.packets[i].qp_slot)) retire(s, *qp);
    }
  }
  burst.packets_count = 0;
  burst.pieces_count = 0;
}

namespace {

// Packets leave in order, so those that left are of the oldest request that is not done.
void packets_left(HostState& s, Qp& qp, std::uint32_t packets) {
  if (qp.state == QpState::err || qp.state == QpState::sqe || qp.sq_done == qp.sq_fetched) return;
  qp.packets_left_hca += packets;
  if (qp.packets_left_hca < qp.entry(qp.sq_done).packets) return;
  qp.packets_left_hca = 0;
  complete_send(s, qp, WcStatus::success);
  retire(s, qp);
}

}  // namespace

void packet_injected(HostState& s, const emu::Injected& event) {
  if (event.kind != emu::PacketKind::data) return;
  lane_came_back(s, event.traffic_class, event.cookie);
  if (event.traffic_class == emu::TrafficClass::best_effort) {
    s.best_effort_out_ -=
        std::min<std::uint64_t>(s.best_effort_out_, packets_of_cookie(event.cookie));
    congestion_came_back(s, event.cookie);
  }
  qp_injected(s, event.cookie);
}

void qp_injected(HostState& s, std::uint64_t cookie) {
  Qp* qp = s.find_qp(static_cast<std::uint32_t>(cookie & emu::kMask24));
  const std::uint32_t packets = packets_of_cookie(cookie);
  const std::uint64_t epoch = cookie >> kCookieEpochShift & kCookieEpoch;
  if (qp == nullptr || (qp->epoch & kCookieEpoch) != epoch || qp->in_wire < packets) return;
  qp->in_wire -= packets;
  if ((cookie & kCookieFirst) != 0 && qp->first_in_wire >= packets) {
    qp->first_in_wire -= packets;
    return_credit(*qp, packets);
    if (qp->is_unreliable()) packets_left(s, *qp, packets);
  }
  if ((cookie & kCookieQuestion) != 0) question_left(s, *qp);
  if (!qp->request_link.queued && qp->sq_current != qp->sq_posted) want_request(s, *qp);
}

}  // namespace hca

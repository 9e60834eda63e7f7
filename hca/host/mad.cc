// QP1: management datagrams leave when the port has room, and are handed up when they arrive. No
// program's QP can send them: they come from QP1 only, a number that is never given out. The Q_Key
// alone proves nothing, for a program may give its own QP that one.
#include "hca/host/mad.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "emu/packet/build.h"
#include "hca/host/state.h"

namespace hca {

namespace {

// The service level of control traffic; without one in the configuration, SL 0.
std::uint8_t management_sl(const HostState& s) {
  const auto& classes = s.options_.class_of_sl;
  const auto found = std::find(classes.rbegin(), classes.rend(), emu::TrafficClass::control);
  return static_cast<std::uint8_t>(found == classes.rend() ? 0 : classes.rend() - found - 1);
}

bool send_one(HostState& s, const WaitingMad& mad) {
  if (!s.burst_.room()) dispatch(s);
  BurstPacket* packet = mad.subnet ? open_packet_out(s, kGeneralServicesQp, mad.dest)
                                   : open_packet(s, kGeneralServicesQp, mad.dest);
  if (packet == nullptr) return false;
  const std::uint8_t sl = management_sl(s);
  const std::uint16_t lanes = s.options_.lanes_of_sl[sl];
  // The fabric takes datagrams for its agents as control alone, on the lane that always is: no
  // service level need be of that class.
  emu::Vl vl = nth_lane(lanes, s.prng_.below(static_cast<std::uint32_t>(std::popcount(lanes))));
  emu::TrafficClass traffic_class = s.options_.class_of_sl[sl];
  if (mad.subnet) {
    vl = emu::kControlVl;
    traffic_class = emu::TrafficClass::control;
  }
  emu::PacketHeaders headers;
  const emu::Lid dlid = mad.subnet ? mad.dlid : emu::lid_of(mad.dest);
  headers.lrh = {vl, sl, dlid, emu::lid_of(s.options_.node)};
  headers.bth.opcode = emu::Opcode::ud_send_only;
  headers.bth.dest_qp = mad.qpn;
  headers.bth.psn = s.mads_.psn;
  s.mads_.psn = add24(s.mads_.psn, 1);
  headers.deth = {mad.qpn == kGeneralServicesQp ? kGeneralServicesQkey : 0, mad.qpn};
  std::uint8_t* payload =
      close_packet(s, *packet, nullptr, headers, kMadBytes, {0, vl, vl, 0, traffic_class});
  std::memcpy(payload, mad.bytes.data(), kMadBytes);
  if (mad.subnet) packet->desc.kind = emu::PacketKind::subnet;
  return true;
}

bool queue(HostState& s, const WaitingMad& mad) {
  MadQueue& mads = s.mads_;
  if (mads.last - mads.first == kMadsWaitingMax) return false;
  mads.waiting[mads.last++ % kMadsWaitingMax] = mad;
  return true;
}

}  // namespace

std::size_t send_mads(HostState& s) {
  std::size_t sent = 0;
  while (!s.mads_.empty() && !s.slots_blocked_) {
    if (!send_one(s, s.mads_.waiting[s.mads_.first % kMadsWaitingMax])) break;
    ++s.mads_.first;
    if (!s.mads_.reliefs.empty()) queue_owed_reliefs(s);
    ++sent;
  }
  return sent;
}

void receive_mad(HostState& s, const Arrival& arrival, const emu::ParsedPacket& packet) {
  const emu::PacketHeaders& headers = packet.headers;
  if (headers.deth.qkey != kGeneralServicesQkey || headers.deth.src_qp != kGeneralServicesQp ||
      packet.payload_bytes != kMadBytes || headers.lrh.slid != emu::lid_of(arrival.desc.src)) {
    ++s.counters_.dropped_bad_key;
    return;
  }
  Mad bytes;  // the sender may scribble over its packet meanwhile
  std::memcpy(bytes.data(), arrival.bytes + packet.payload_offset, kMadBytes);
  if (take_notice(s, arrival.desc.src, bytes)) return;
  s.events_.mad(arrival.desc.src, bytes);
}

// Came back from the subnet's agents. The fabric names us as its source, as of nothing else that it
// brings: what a node sends to itself stays in it.
void receive_subnet(HostState& s, const Arrival& arrival, const emu::ParsedPacket& packet) {
  if (packet.payload_bytes < kMadBytes) {
    ++s.counters_.dropped_bad_packet;
    return;
  }
  const emu::PacketHeaders& headers = packet.headers;
  s.events_.subnet_mad(headers.lrh.slid, headers.deth.src_qp,
                       {arrival.bytes + packet.payload_offset, packet.payload_bytes});
}

bool queue_mad(HostState& s, emu::NodeId dest, const Mad& mad) {
  return dest < s.options_.nodes && queue(s, {.dest = dest, .bytes = mad});
}

bool Host::send_mad(emu::NodeId dest, const Mad& mad) { return queue_mad(*state_, dest, mad); }

bool Host::send_subnet_mad(emu::Lid dlid, std::uint32_t qpn, const Mad& mad) {
  if (qpn > kGeneralServicesQp) return false;
  return queue(
      *state_,
      {.dest = state_->options_.node, .bytes = mad, .subnet = true, .dlid = dlid, .qpn = qpn});
}

}  // namespace hca

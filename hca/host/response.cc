// The responder's packets: acknowledgements, NAKs and READ responses, in the order of their PSNs.
#include <algorithm>

#include "emu/base/check.h"
#include "emu/packet/build.h"
#include "hca/host/state.h"

namespace hca {

namespace {

emu::Opcode read_opcode(const Response& response, std::uint32_t packets) {
  return emu::part_of(emu::Opcode::rc_read_response_only, response.sent == 0,
                      response.sent + packets == response.packets);
}

// Headers of the response's next packet, or of the next ones.
emu::PacketHeaders headers_of(const HostState& s, const Qp& qp, const Response& response,
                              std::uint32_t packets = 1) {
  const bool is_read = response.kind == ResponseKind::read;
  const bool is_atomic = response.kind == ResponseKind::atomic;
  const emu::Opcode rc = is_read     ? read_opcode(response, packets)
                         : is_atomic ? emu::Opcode::rc_atomic_ack
                                     : emu::Opcode::rc_ack;
  emu::PacketHeaders headers;
  fill_path(s, qp, headers);
  headers.bth.opcode = qp.is_xrc() ? emu::xrc_of(rc) : rc;
  headers.bth.psn = add24(response.psn, response.sent);
  headers.atomic_original = response.address;
  headers.aeth = {is_read || is_atomic
                      ? static_cast<std::uint8_t>(emu::kSyndromeAck | emu::kAckNoCredits)
                      : response.syndrome,
                  response.msn};
  return headers;
}

Leaving leaving_of(const Qp& qp, emu::Cycle launch) {
  return {launch, qp.vl_in, qp.vl_out, 0, qp.traffic_class};
}

std::uint16_t flits_of(const HostState& s, const emu::PacketHeaders& headers,
                       std::uint32_t payload_bytes) {
  return emu::flits_of(emu::packet_bytes(headers.bth.opcode, headers.has_grh, payload_bytes),
                       s.options_.flit_bits);
}

void finish_response(HostState& s, Qp& qp, const Response& response) {
  ++qp.responses_first;
  if (response.fatal) enter_error(s, qp);
}

void count_response(HostState& s, const Response& response) {
  if (response.kind == ResponseKind::ack) ++s.counters_.acks_sent;
  if (response.kind != ResponseKind::nak) return;
  if ((response.syndrome & emu::kSyndromeKindMask) == emu::kSyndromeRnrNak) {
    ++s.counters_.rnr_naks_sent;
  } else {
    ++s.counters_.naks_sent;
  }
}

// Bytes of a READ response; a region that went away meanwhile fails the packet.
void fetch_response(HostState& s, Qp& qp, const Response& response, std::uint32_t offset,
                    std::uint8_t* bytes, std::uint32_t length) {
  Range range;
  if (!resolve(s.mrs_, response.rkey, response.pd, response.address + offset, length,
               kAccessRemoteRead, range, qp.number)) {
    // Of the whole READ: the packets behind this one are no trouble of their own.
    blame_key(s, qp, TroubleKind::remote_key,
              {response.rkey, response.pd, response.address, response.length, kAccessRemoteRead});
    fail_packet(s);
    return;
  }
  gather_range(s, range, bytes, length);
}

}  // namespace

std::uint32_t build_response(HostState& s, Qp& qp) {
  CHECK(!qp.responses_empty());
  Response& response = qp.response(qp.responses_first);
  const bool brings_data = response.brings_data();
  const std::uint32_t offset = response.sent * qp.payload;
  const auto length_of = [&](std::uint32_t packets) {
    return brings_data ? std::min(qp.payload * packets, response.length - offset) : 0;
  };
  const bool is_metered = metered(s, qp.traffic_class, qp.dest);
  const PowerNeed need =
      is_metered ? power_need(s, qp.dest, flits_of(s, headers_of(s, qp, response), length_of(1)))
                 : PowerNeed{};

  // Reads wait for energy like any best-effort packet. Acknowledgements do not wait, but count.
  emu::Cycle launch = qp.last_response_launch > s.now_ ? qp.last_response_launch : 0;
  if (is_metered && brings_data) {
    launch = launch_with_power(s, qp.traffic_class, launch, launch, need);
    if (launch == emu::kNever) return 0;
  }
  const bool together = brings_data && !is_metered;
  const std::uint32_t left = response.packets - response.sent;
  BurstPacket* packet = open_train(s, qp.slot, qp.dest, together ? train_packets(s, qp, left) : 1);
  if (packet == nullptr) return 0;
  if (is_metered) hold_power(s, qp.traffic_class, launch, need);
  qp.last_response_launch = launch;

  const std::uint32_t packets = packet->packets;
  const std::uint32_t length = length_of(packets);
  const emu::PacketHeaders headers = headers_of(s, qp, response, packets);
  packet->psn = headers.bth.psn;
  packet->response = brings_data;
  Leaving leaving = leaving_of(qp, launch);
  leaving.in_lane = brings_data;
  std::uint8_t* payload = close_packet(s, *packet, &qp, headers, length, leaving);
  const Response done = response;
  response.sent += packets;
  if (brings_data) fetch_response(s, qp, done, offset, payload, length);
  if (response.sent == response.packets) {
    count_response(s, done);
    finish_response(s, qp, done);
  }
  return packets;
}

void leave_responses(HostState& s, Qp& qp) {
  settle(s);
  for (; !qp.responses_empty(); ++qp.responses_first) {
    const Response& response = qp.response(qp.responses_first);
    // Its bytes are the program's; whatever is behind it would say that they were sent.
    if (response.brings_data()) break;
    if (s.left_responses_.size() == kLeftResponsesMax) break;
    s.left_responses_.push_back({.headers = headers_of(s, qp, response),
                                 .leaving = leaving_of(qp, qp.last_response_launch),
                                 .dest = qp.dest,
                                 .response = response});
  }
  qp.responses_first = qp.responses_last;
}

std::size_t send_left_responses(HostState& s) {
  std::size_t sent = 0;
  for (; !s.left_responses_.empty(); s.left_responses_.pop_front()) {
    LeftResponse& left = s.left_responses_.front();
    if (!s.burst_.room()) dispatch(s);
    BurstPacket* packet = open_packet(s, kNone, left.dest);
    if (packet == nullptr) break;
    if (left.leaving.launch <= s.now_) left.leaving.launch = 0;
    const emu::TrafficClass traffic_class = left.leaving.traffic_class;
    if (metered(s, traffic_class, left.dest)) {
      hold_power(s, traffic_class, left.leaving.launch,
                 power_need(s, left.dest, flits_of(s, left.headers, 0)));
    }
    close_packet(s, *packet, nullptr, left.headers, 0, left.leaving);
    count_response(s, left.response);
    ++sent;
  }
  return sent;
}

void push_ack(HostState& s, Qp& qp, std::uint32_t psn) {
  if (!qp.responses_empty()) {
    Response& newest = qp.response(qp.responses_last - 1);
    if (newest.kind == ResponseKind::ack) {  // one acknowledgement speaks for all before it
      if (emu::psn_diff(psn, newest.psn) > 0) newest.psn = psn;
      newest.msn = qp.msn;
      return;
    }
  }
  if (qp.responses_last - qp.responses_first == kResponsesMax) return;  // the peer will ask again
  Response& response = qp.response(qp.responses_last++);
  response = {};
  response.kind = ResponseKind::ack;
  response.psn = psn;
  response.msn = qp.msn;
  response.syndrome = emu::kSyndromeAck | emu::kAckNoCredits;
  want_response(s, qp);
}

void push_nak(HostState& s, Qp& qp, std::uint32_t psn, std::uint8_t syndrome, bool fatal) {
  if (fatal) qp.dead = true;
  if (qp.responses_last - qp.responses_first == kResponsesMax) {
    if (fatal) enter_error(s, qp);
    return;
  }
  Response& response = qp.response(qp.responses_last++);
  response = {};
  response.kind = ResponseKind::nak;
  response.psn = psn;
  response.msn = qp.msn;
  response.syndrome = syndrome;
  response.fatal = fatal;
  want_response(s, qp);
}

}  // namespace hca

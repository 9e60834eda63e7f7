#include "fabric/subnet/packet.h"

#include <array>
#include <cstring>

#include "emu/packet/build.h"
#include "emu/packet/mad.h"
#include "emu/packet/parse.h"

namespace fabric {

namespace {
constexpr std::size_t kAnswerPacketMax = emu::kMadPacketBytes - emu::kMadBytes + kAnswerBytesMax;
}

std::size_t answer_packet(SubnetAgent& agent, std::span<std::byte> slot, std::size_t length,
                          emu::NodeId source) {
  if (length != emu::kMadPacketBytes || slot.size() < kAnswerPacketMax) return 0;
  std::array<std::byte, emu::kMadPacketBytes> packet;
  std::memcpy(packet.data(), slot.data(), packet.size());
  emu::ParsedPacket parsed;
  if (emu::parse_packet(packet, parsed) != emu::ParseStatus::ok) return 0;
  emu::PacketHeaders& headers = parsed.headers;
  if (headers.has_grh || headers.bth.opcode != emu::Opcode::ud_send_only) return 0;
  if (parsed.payload_bytes != emu::kMadBytes) return 0;

  MadPayload mad{};
  std::memcpy(mad.data(), &packet[parsed.payload_offset], emu::kMadBytes);
  const emu::Lid dlid = headers.lrh.dlid;
  const Answered answered = agent.answer(mad, source, dlid, headers.bth.dest_qp);
  const std::size_t bytes = answered.bytes == 0 ? emu::kMadBytes : answered.bytes;
  headers.lrh.slid = dlid == emu::kPermissiveLid ? answered.lid : dlid;
  headers.lrh.dlid = emu::lid_of(source);
  std::swap(headers.bth.dest_qp, headers.deth.src_qp);
  headers.bth.ack_request = headers.bth.solicited = false;
  std::array<std::byte, kAnswerPacketMax> answer;
  const std::size_t at = emu::write_headers(answer, headers, bytes);
  std::memcpy(&answer[at], mad.data(), bytes);
  const std::size_t size = emu::seal_packet(answer, at + bytes);
  std::memcpy(slot.data(), answer.data(), size);
  return size;
}

}  // namespace fabric

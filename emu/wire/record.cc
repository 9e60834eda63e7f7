#include "emu/wire/record.h"

#include <algorithm>
#include <cstring>

#include "emu/packet/mad.h"

namespace emu {
namespace {

template <class T>
std::optional<T> head(std::span<const std::byte> body) {
  if (body.size() < sizeof(T)) return std::nullopt;
  T value;
  std::memcpy(&value, body.data(), sizeof value);
  return value;
}

template <class T>
std::optional<T> exactly(std::span<const std::byte> body) {
  return body.size() == sizeof(T) ? head<T>(body) : std::nullopt;
}

bool known(TrafficClass c) { return static_cast<int>(c) < kClassCount; }
bool known(PacketKind k) { return static_cast<int>(k) < kPacketKindCount; }
bool known(Verdict v) { return v <= Verdict::again; }

}  // namespace

bool in_range(const TxDesc& desc) {
  if (desc.length == 0 || desc.length > kPacketBytesMax || desc.flits == 0) return false;
  if (desc.more_packets != 0) return false;  // trains stay in the memory of a host
  if (desc.vl_in >= kVlCount || desc.vl_out >= kVlCount || desc.dest >= kNodesMax) return false;
  if (!known(desc.traffic_class) || !known(desc.kind)) return false;
  if (desc.kind == PacketKind::subnet) {
    return desc.traffic_class == TrafficClass::control && desc.length >= kMadPacketBytes;
  }
  return desc.kind == PacketKind::data || desc.length >= sizeof(ProbeBody);
}

bool in_range(const RxDesc& desc) {
  return desc.length != 0 && desc.length <= kPacketBytesMax && desc.flits != 0 &&
         desc.vl < kVlCount && desc.src < kNodesMax && known(desc.traffic_class) &&
         desc.more_packets == 0 && desc.reserved == 0;
}

std::optional<TxRecord> parse_tx(std::span<const std::byte> body) {
  const auto desc = head<TxDesc>(body);
  if (!desc || !in_range(*desc) || body.size() != sizeof(TxDesc) + desc->length) {
    return std::nullopt;
  }
  return TxRecord{*desc, body.subspan(sizeof(TxDesc))};
}

std::optional<RxRecord> parse_rx(std::span<const std::byte> body) {
  const auto desc = head<RxDesc>(body);
  if (!desc || !in_range(*desc) || body.size() != sizeof(RxDesc) + desc->length) {
    return std::nullopt;
  }
  return RxRecord{*desc, body.subspan(sizeof(RxDesc))};
}

std::optional<Injected> parse_injected(std::span<const std::byte> body) {
  const auto message = exactly<Injected>(body);
  if (!message || !known(message->traffic_class) || !known(message->kind) ||
      message->reserved != 0) {
    return std::nullopt;
  }
  return message;
}

std::optional<Answer> parse_answer(std::span<const std::byte> body) {
  const auto message = exactly<Answer>(body);
  if (!message || !known(message->verdict) ||
      std::ranges::any_of(message->reserved, [](std::uint8_t b) { return b != 0; })) {
    return std::nullopt;
  }
  return message;
}

}  // namespace emu

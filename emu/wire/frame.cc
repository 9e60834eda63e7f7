#include "emu/wire/frame.h"

#include <cstring>

namespace emu {

std::optional<FrameView> parse_frame(std::span<const std::byte> datagram) {
  if (datagram.size() < kFrameOverhead || datagram.size() > kFrameBytesMax) return std::nullopt;
  FrameView view{};
  std::memcpy(&view.header, datagram.data(), sizeof(FrameHeader));
  const FrameHeader& header = view.header;
  if (header.magic != kFrameMagic || header.version != kFrameVersion) return std::nullopt;
  if ((header.flags & ~kFlagsKnown) != 0) return std::nullopt;
  if (header.length != datagram.size() - kFrameOverhead || header.length % 4 != 0) {
    return std::nullopt;
  }
  switch (header.type) {
    case FrameType::hello:
    case FrameType::welcome:
    case FrameType::confirm:
    case FrameType::refuse:
      if (header.length != sizeof(Handshake)) return std::nullopt;
      break;
    case FrameType::data:
      break;
    default:
      return std::nullopt;
  }
  view.bytes = datagram;
  view.payload = datagram.subspan(sizeof(FrameHeader), header.length);
  return view;
}

std::optional<Handshake> parse_handshake(const FrameView& frame) {
  if (frame.header.type == FrameType::data || frame.payload.size() != sizeof(Handshake)) {
    return std::nullopt;
  }
  Handshake body;
  std::memcpy(&body, frame.payload.data(), sizeof body);
  if (body.name.back() != '\0' || body.terms.back() != '\0') return std::nullopt;
  return body;
}

}  // namespace emu

// What a clip needs of the network: packets and bytes on the link per frame, mean and peak rate. In
// comes a clip, out goes what admission is asked for. Pure.
#pragma once

#include <algorithm>
#include <cstdint>

#include "emu/base/units.h"
#include "tools/replay/deadline.h"
#include "tools/replay/frame_header.h"
#include "tools/trace/frame.h"

namespace tools {

// How the network cuts messages: 612 bytes of payload and 26 of RC headers and CRCs (LRH 8, BTH 12,
// ICRC 4, VCRC 2) are 638 bytes, 40 flits of 16 bytes, the papers' message.
struct PacketShape {
  std::uint32_t payload_bytes = 612;
  std::uint32_t header_bytes = 26;
  std::uint32_t flit_bytes = 16;

  constexpr std::uint32_t packets_of(std::uint32_t message_bytes) const {
    return message_bytes == 0 ? 1 : (message_bytes + payload_bytes - 1) / payload_bytes;
  }
  constexpr std::uint64_t link_bytes_of(std::uint32_t message_bytes) const {
    const std::uint32_t full = packets_of(message_bytes) - 1;
    return full * flits_of(payload_bytes) + flits_of(message_bytes - full * payload_bytes);
  }

 private:
  constexpr std::uint64_t flits_of(std::uint32_t bytes) const {
    const std::uint64_t padded = (bytes + 3U) / 4 * 4;
    return (padded + header_bytes + flit_bytes - 1) / flit_bytes * flit_bytes;
  }
};

// A frame goes as pieces of a header and up to `packets` full packets each: a connection's credits
// may be fewer than a large frame's packets, and a message needs all of its credits at once (ACP's
// messages are single packets).
struct FrameCut {
  PacketShape shape;
  std::uint32_t packets = 32;

  constexpr std::uint32_t piece_bytes_max() const {
    const std::uint32_t message = packets * shape.payload_bytes;
    return message > kFrameHeaderBytes ? message - static_cast<std::uint32_t>(kFrameHeaderBytes)
                                       : 1;
  }
  // Pieces that are full, before the last one.
  constexpr std::uint32_t full_pieces_of(std::uint32_t frame_bytes) const {
    return frame_bytes == 0 ? 0 : (frame_bytes - 1) / piece_bytes_max();
  }
  constexpr std::uint32_t packets_of(std::uint32_t frame_bytes) const {
    const std::uint32_t full = full_pieces_of(frame_bytes);
    return full * packets_of_piece(piece_bytes_max()) +
           packets_of_piece(frame_bytes - full * piece_bytes_max());
  }
  constexpr std::uint32_t packets_of_piece(std::uint32_t bytes) const {
    return shape.packets_of(static_cast<std::uint32_t>(kFrameHeaderBytes) + bytes);
  }
  constexpr std::uint64_t link_bytes_of(std::uint32_t frame_bytes) const {
    const auto header = static_cast<std::uint32_t>(kFrameHeaderBytes);
    const std::uint32_t full = full_pieces_of(frame_bytes);
    return full * shape.link_bytes_of(header + piece_bytes_max()) +
           shape.link_bytes_of(header + frame_bytes - full * piece_bytes_max());
  }
};

struct ClipRate {
  std::uint64_t mean_bps = 0;         // on the link, headers included
  std::uint64_t peak_bps = 0;         // of the largest frame, spread over its frame time
  std::uint64_t frame_bytes_max = 0;  // on the link
  std::uint32_t packets_max = 0;      // of a frame

  // The peak as ibv_modify_qp_rate_limit is told it: bytes in a thirtieth of a second, the papers'
  // frame time, whatever the clip's own is.
  constexpr std::uint64_t burst_bytes() const { return (peak_bps + 8 * 30 - 1) / (8 * 30); }
};

inline ClipRate rate_of(const Clip& clip, FrameRate rate, const FrameCut& cut) {
  ClipRate need;
  std::uint64_t total = 0;
  for (const Frame& frame : clip.frames) {
    const std::uint64_t bytes = cut.link_bytes_of(frame.bytes);
    total += bytes;
    need.frame_bytes_max = std::max(need.frame_bytes_max, bytes);
    need.packets_max = std::max(need.packets_max, cut.packets_of(frame.bytes));
  }
  if (clip.frames.empty()) return need;
  const std::uint64_t time_ns = rate.ns_of(clip.frames.size());
  need.mean_bps = static_cast<std::uint64_t>(static_cast<emu::WideUint>(total) * 8 *
                                             1'000'000'000U / std::max<std::uint64_t>(time_ns, 1));
  need.peak_bps = need.frame_bytes_max * 8 * rate.frames / rate.seconds;
  return need;
}

}  // namespace tools

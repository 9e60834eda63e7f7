// Ethernet, ARP, IPv4 and UDP, as much as a port needs: who an incoming frame is for and what it
// carries, the headers of an outgoing one, the answer to an ARP request. In: untrusted bytes. Pure
// functions, called by fabric/port/ethdev.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "emu/wire/udp_socket.h"

namespace fabric {

using Mac = std::array<std::uint8_t, 6>;
struct Station {
  Mac mac{};
  emu::UdpAddress address;
};

inline constexpr std::size_t kEthernetBytes = 14;
inline constexpr std::size_t kUdpHeadersBytes = kEthernetBytes + 20 + 8;
inline constexpr std::size_t kArpFrameBytes = kEthernetBytes + 28;

struct UdpFrame {
  Station from;
  std::span<const std::byte> datagram;
};
// The UDP datagram for `self` in this frame, if it is one. Fragments and IP options are not taken:
// the other end is our own hcad. The UDP checksum is not looked at: veth and virtual cards deliver
// it unfinished, and every datagram carries a stronger tag.
std::optional<UdpFrame> parse_udp_frame(std::span<const std::byte> frame, const Station& self);

// Whether a frame is a piece of a UDP datagram for `self`: a fragment, or cut off by the driver.
// Who has the port is in the first fragment only, so it is not asked for.
bool is_piece(std::span<const std::byte> frame, const Station& self);

// Writes the headers for `payload` bytes that follow them at `frame + kUdpHeadersBytes`; checksums
// of IP and UDP included.
void write_udp_headers(std::span<std::byte> frame, const Station& self, const Station& to,
                       std::uint16_t identification);

// The reply to an ARP request for `self`; nothing for any other frame.
std::optional<std::array<std::byte, kArpFrameBytes>> answer_arp(std::span<const std::byte> frame,
                                                                const Station& self);

}  // namespace fabric

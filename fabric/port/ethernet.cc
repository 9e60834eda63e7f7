#include "fabric/port/ethernet.h"

#include <arpa/inet.h>

#include <algorithm>
#include <cstring>

#include "emu/base/bytes.h"
#include "emu/base/check.h"

namespace fabric {
namespace {

constexpr std::uint16_t kTypeIp = 0x0800;
constexpr std::uint16_t kTypeArp = 0x0806;
constexpr std::uint8_t kProtocolUdp = 17;
constexpr Mac kBroadcast = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff};

// Headers as they lie on the wire; every number in network order.
struct Ethernet {
  Mac to;
  Mac from;
  std::uint16_t type;
};
struct Ip {
  std::uint8_t version_length;
  std::uint8_t service;
  std::uint16_t length;
  std::uint16_t identification;
  std::uint16_t fragment;
  std::uint8_t hops;
  std::uint8_t protocol;
  std::uint16_t checksum;
  std::uint32_t from;
  std::uint32_t to;
};
struct Udp {
  std::uint16_t from;
  std::uint16_t to;
  std::uint16_t length;
  std::uint16_t checksum;
};
struct [[gnu::packed]] Arp {
  std::uint16_t hardware;
  std::uint16_t protocol;
  std::uint8_t hardware_bytes;
  std::uint8_t protocol_bytes;
  std::uint16_t operation;
  Mac from_mac;
  std::uint32_t from_ip;
  Mac to_mac;
  std::uint32_t to_ip;
};
static_assert(sizeof(Ethernet) == kEthernetBytes && sizeof(Ip) == 20 && sizeof(Udp) == 8);
static_assert(sizeof(Arp) + sizeof(Ethernet) == kArpFrameBytes);

template <class T>
T read(std::span<const std::byte> bytes, std::size_t at) {
  T value;
  CHECK(at + sizeof(T) <= bytes.size());
  std::memcpy(&value, &bytes[at], sizeof value);
  return value;
}

// Ones' complement sum of 16-bit words in the order of memory: byte order does not matter to it.
std::uint64_t sum(std::span<const std::byte> bytes, std::uint64_t start) {
  std::uint64_t total = start;
  while (bytes.size() >= 4) {
    total += read<std::uint32_t>(bytes, 0);
    bytes = bytes.subspan(4);
  }
  std::uint32_t rest = 0;
  if (!bytes.empty()) std::memcpy(&rest, bytes.data(), bytes.size());
  return total + rest;
}

std::uint16_t folded(std::uint64_t total) {
  total = (total >> 32) + (total & 0xffffffff);
  total = (total >> 32) + (total & 0xffffffff);
  total = (total >> 16) + (total & 0xffff);
  total = (total >> 16) + (total & 0xffff);
  return static_cast<std::uint16_t>(~total);
}

}  // namespace

std::optional<UdpFrame> parse_udp_frame(std::span<const std::byte> frame, const Station& self) {
  if (frame.size() < kUdpHeadersBytes) return std::nullopt;
  const auto ethernet = read<Ethernet>(frame, 0);
  if (ethernet.type != htons(kTypeIp) || ethernet.to != self.mac) return std::nullopt;
  const auto ip = read<Ip>(frame, kEthernetBytes);
  if (ip.version_length != 0x45 || ip.protocol != kProtocolUdp || ip.to != self.address.ip ||
      (ip.fragment & htons(0x3fff)) != 0 || folded(sum(emu::bytes_of(ip), 0)) != 0) {
    return std::nullopt;
  }
  const std::size_t ip_bytes = ntohs(ip.length);
  if (ip_bytes < sizeof(Ip) + sizeof(Udp) || kEthernetBytes + ip_bytes > frame.size()) {
    return std::nullopt;
  }
  const auto udp = read<Udp>(frame, kEthernetBytes + sizeof(Ip));
  if (udp.to != self.address.port || ntohs(udp.length) != ip_bytes - sizeof(Ip)) {
    return std::nullopt;
  }
  return UdpFrame{{ethernet.from, {ip.from, udp.from}},
                  frame.subspan(kUdpHeadersBytes, ntohs(udp.length) - sizeof(Udp))};
}

bool is_piece(std::span<const std::byte> frame, const Station& self) {
  if (frame.size() < kEthernetBytes + sizeof(Ip)) return false;
  const auto ethernet = read<Ethernet>(frame, 0);
  const auto ip = read<Ip>(frame, kEthernetBytes);
  return ethernet.type == htons(kTypeIp) && ethernet.to == self.mac && ip.version_length == 0x45 &&
         ip.protocol == kProtocolUdp && ip.to == self.address.ip &&
         ((ip.fragment & htons(0x3fff)) != 0 || kEthernetBytes + ntohs(ip.length) > frame.size());
}

void write_udp_headers(std::span<std::byte> frame, const Station& self, const Station& to,
                       std::uint16_t identification) {
  CHECK(frame.size() >= kUdpHeadersBytes && frame.size() - kEthernetBytes <= UINT16_MAX);
  const auto ip_bytes = static_cast<std::uint16_t>(frame.size() - kEthernetBytes);
  const auto udp_bytes = static_cast<std::uint16_t>(ip_bytes - sizeof(Ip));
  const Ethernet ethernet{to.mac, self.mac, htons(kTypeIp)};
  Ip ip{.version_length = 0x45,
        .service = 0,
        .length = htons(ip_bytes),
        .identification = htons(identification),
        .fragment = 0,
        .hops = 64,
        .protocol = kProtocolUdp,
        .checksum = 0,
        .from = self.address.ip,
        .to = to.address.ip};
  ip.checksum = folded(sum(emu::bytes_of(ip), 0));
  Udp udp{self.address.port, to.address.port, htons(udp_bytes), 0};
  const struct {
    std::uint32_t from;
    std::uint32_t to;
    std::uint16_t protocol;
    std::uint16_t length;
  } pseudo{ip.from, ip.to, htons(kProtocolUdp), udp.length};
  const auto payload = frame.subspan(kUdpHeadersBytes);
  udp.checksum = folded(sum(payload, sum(emu::bytes_of(udp), sum(emu::bytes_of(pseudo), 0))));
  if (udp.checksum == 0) udp.checksum = 0xffff;  // 0 would say that there is none
  std::memcpy(frame.data(), &ethernet, sizeof ethernet);
  std::memcpy(&frame[kEthernetBytes], &ip, sizeof ip);
  std::memcpy(&frame[kEthernetBytes + sizeof ip], &udp, sizeof udp);
}

std::optional<std::array<std::byte, kArpFrameBytes>> answer_arp(std::span<const std::byte> frame,
                                                                const Station& self) {
  if (frame.size() < kArpFrameBytes) return std::nullopt;
  const auto ethernet = read<Ethernet>(frame, 0);
  if (ethernet.type != htons(kTypeArp) || (ethernet.to != self.mac && ethernet.to != kBroadcast)) {
    return std::nullopt;
  }
  const auto request = read<Arp>(frame, kEthernetBytes);
  if (request.hardware != htons(1) || request.protocol != htons(kTypeIp) ||
      request.hardware_bytes != 6 || request.protocol_bytes != 4 || request.operation != htons(1) ||
      request.to_ip != self.address.ip) {
    return std::nullopt;
  }
  Arp reply = request;
  reply.operation = htons(2);
  reply.from_mac = self.mac;
  reply.from_ip = self.address.ip;
  reply.to_mac = request.from_mac;
  reply.to_ip = request.from_ip;
  const Ethernet header{request.from_mac, self.mac, htons(kTypeArp)};
  std::array<std::byte, kArpFrameBytes> out;
  std::memcpy(out.data(), &header, sizeof header);
  std::memcpy(&out[kEthernetBytes], &reply, sizeof reply);
  return out;
}

}  // namespace fabric

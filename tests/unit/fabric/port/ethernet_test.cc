// fabricd as a host on the wire: headers against DPDK's own sums, frames that are not for it, ARP.
#include "fabric/port/ethernet.h"

#define ALLOW_EXPERIMENTAL_API  // rte_ipv4_udptcp_cksum_verify

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <rte_ether.h>
#include <rte_ip.h>

#include <vector>

#include "emu/base/prng.h"
#include "tests/unit/emu/wire/seed.h"
#include "tests/unit/random_bytes.h"

namespace fabric {
namespace {

const Station kFabric{{2, 0, 0, 0, 0, 1}, *emu::UdpAddress::resolve("10.0.0.1:4791")};
const Station kNode{{2, 0, 0, 0, 0, 2}, *emu::UdpAddress::resolve("10.0.0.2:777")};

std::vector<std::byte> frame_to_fabric(std::size_t payload, std::byte value) {
  std::vector<std::byte> frame(kUdpHeadersBytes + payload, value);
  write_udp_headers(frame, kNode, kFabric, 5);
  return frame;
}

TEST(Ethernet, SumsAreThoseOfDpdk) {
  emu::Prng prng(emu::test_seed());
  for (std::size_t payload = 0; payload < 600; ++payload) {
    std::vector<std::byte> frame(kUdpHeadersBytes + payload);
    test::fill_at_random(prng, frame);
    write_udp_headers(frame, kNode, kFabric, static_cast<std::uint16_t>(prng()));
    const auto* ip = reinterpret_cast<const rte_ipv4_hdr*>(&frame[kEthernetBytes]);
    ASSERT_EQ(rte_ipv4_udptcp_cksum_verify(ip, ip + 1), 0) << payload;
    rte_ipv4_hdr copy = *ip;
    copy.hdr_checksum = 0;
    ASSERT_EQ(rte_ipv4_cksum(&copy), ip->hdr_checksum) << payload;
  }
}

TEST(Ethernet, AFrameIsReadAsItWasWritten) {
  const auto frame = frame_to_fabric(100, std::byte{7});
  const auto udp = parse_udp_frame(frame, kFabric);
  ASSERT_TRUE(udp);
  EXPECT_EQ(udp->from.mac, kNode.mac);
  EXPECT_EQ(udp->from.address, kNode.address);
  EXPECT_EQ(udp->datagram.size(), 100u);
  EXPECT_EQ(udp->datagram[99], std::byte{7});
}

TEST(Ethernet, PaddingOfShortFramesIsNotPayload) {
  auto frame = frame_to_fabric(4, std::byte{7});
  frame.resize(60);
  const auto udp = parse_udp_frame(frame, kFabric);
  ASSERT_TRUE(udp);
  EXPECT_EQ(udp->datagram.size(), 4u);
}

TEST(Ethernet, EveryTruncationAndEveryBitOfTheHeadersIsNoticed) {
  const auto frame = frame_to_fabric(100, std::byte{7});
  for (std::size_t n = 0; n < frame.size(); ++n) {
    EXPECT_FALSE(parse_udp_frame(std::span(frame).first(n), kFabric)) << n;
  }
  for (std::size_t bit = 0; bit < (kEthernetBytes + 20) * 8; ++bit) {
    if (bit >= 48 && bit < 96) continue;  // who sends it
    auto changed = frame;
    changed[bit / 8] ^= static_cast<std::byte>(1 << (bit % 8));
    EXPECT_FALSE(parse_udp_frame(changed, kFabric)) << bit;
  }
}

TEST(Ethernet, PiecesOfDatagramsAreKnown) {
  const auto whole = frame_to_fabric(100, std::byte{7});
  EXPECT_FALSE(is_piece(whole, kFabric));
  EXPECT_FALSE(is_piece(std::span(whole).first(20), kFabric)) << "too short to say";
  EXPECT_TRUE(is_piece(std::span(whole).first(100), kFabric)) << "the driver cut it";
  EXPECT_FALSE(is_piece(std::span(whole).first(100), kNode)) << "another's";
  constexpr std::size_t kFragment = kEthernetBytes + 6;
  for (const auto& [flags, offset] : {std::pair{0x20, 0}, {0x20, 8}, {0, 8}}) {
    auto fragment = whole;
    fragment[kFragment] = static_cast<std::byte>(flags);
    fragment[kFragment + 1] = static_cast<std::byte>(offset);
    EXPECT_TRUE(is_piece(fragment, kFabric)) << flags << " " << offset;
  }
}

std::vector<std::byte> arp_request(std::uint32_t target) {
  std::vector<std::byte> frame(kArpFrameBytes);
  auto put = [&](std::size_t at, std::initializer_list<int> bytes) {
    for (const int b : bytes) frame[at++] = static_cast<std::byte>(b);
  };
  put(0, {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2, 0, 0, 0, 0, 2, 8, 6});
  put(14, {0, 1, 8, 0, 6, 4, 0, 1, 2, 0, 0, 0, 0, 2, 10, 0, 0, 2});
  std::memcpy(&frame[kEthernetBytes + 24], &target, sizeof target);
  return frame;
}

TEST(Ethernet, AnswersArpForItsOwnAddressOnly) {
  const auto reply = answer_arp(arp_request(kFabric.address.ip), kFabric);
  ASSERT_TRUE(reply);
  EXPECT_EQ((*reply)[21], std::byte{2});  // a reply
  EXPECT_EQ(std::memcmp(reply->data(), kNode.mac.data(), 6), 0);
  EXPECT_EQ(std::memcmp(reply->data() + 22, kFabric.mac.data(), 6), 0);
  EXPECT_EQ(std::memcmp(reply->data() + 28, &kFabric.address.ip, 4), 0);
  EXPECT_EQ(std::memcmp(reply->data() + 38, &kNode.address.ip, 4), 0);
  EXPECT_FALSE(answer_arp(arp_request(kNode.address.ip), kFabric));
  const auto request = arp_request(kFabric.address.ip);
  for (std::size_t n = 0; n < request.size(); ++n) {
    EXPECT_FALSE(answer_arp(std::span(request).first(n), kFabric)) << n;
  }
  EXPECT_FALSE(answer_arp(*reply, kNode)) << "a reply is no request";
}

}  // namespace
}  // namespace fabric

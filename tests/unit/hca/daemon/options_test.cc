// What a node page says of the network.
#include "hca/daemon/options.h"

#include <gtest/gtest.h>

#include "hca/abi/limits.h"

namespace {

std::uint32_t longest_message(std::uint32_t packet_flits, std::uint32_t flit_bits) {
  const auto config = emu::Config::parse("");
  hca::HostOptions options = hca::host_options(*config, 0);
  options.packet_flits = packet_flits;
  options.flit_bits = flit_bits;
  hca::NodePage page{};
  hca::fill_node_page(*config, options, page);
  return page.max_message_bytes;
}

// A message has at most 2^23 packets, and where packets are small they come to less than 2^31.
TEST(NodePage, TheLongestMessageFitsItsPackets) {
  EXPECT_EQ(longest_message(40, 128), hca::kMaxMessageBytes);
  EXPECT_EQ(longest_message(18, 128), hca::kMaxMessageBytes);  // 288 bytes: 256 of payload
  EXPECT_EQ(longest_message(17, 128), 240 * hca::kMaxMessagePackets);
  EXPECT_EQ(longest_message(4, 128), 32 * hca::kMaxMessagePackets);  // 64 without 28 and 4
}

}  // namespace

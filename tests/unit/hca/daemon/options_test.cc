// What a node page says of the network.
#include "hca/daemon/options.h"

#include <gtest/gtest.h>

#include <fmt/format.h>

#include <tuple>

#include "emu/packet/build.h"
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

// To the bit, as at routers: a share in whole percents lost 2 of these 6 Mb/s, or took more than
// routers book.
TEST(HostOptions, TheShareThatAdmissionMayBook) {
  for (const auto& [share, mbps, bps] : {std::tuple{"0.0149", 400, 5'960'000},
                                         {"0.29", 100, 29'000'000},
                                         {"1", 10, 10'000'000},
                                         {"0.01", 25, 250'000},
                                         {"0.9", 400, 360'000'000}}) {
    const auto config = emu::Config::parse(
        fmt::format("[network]\nlink_mbps = {}\n[controls]\nreservable_share = {}\n", mbps, share));
    ASSERT_TRUE(config) << config.error().message;
    EXPECT_EQ(hca::host_options(*config, 0).reservable_bps, static_cast<std::uint64_t>(bps));
  }
}

// What `controls` says of sources holds in a live HCA: the simulator is told by the same function.
TEST(HostOptions, SourcesReactAsConfigured) {
  const auto config = emu::Config::parse(
      "[controls]\nvct_step = 3\nvct_timeout = 5\nvct_messages = 7\nvct_counts = "
      "\"injected\"\nccti_increase = 2\n"
      "ccti_limit = 9\nccti_timer_us = 20.5\ndcqcn_timer_us = 11\ndcqcn_gain = 0.5\n"
      "dcqcn_rate_ai = 0.25\ndcqcn_rate_hai = 0.75\n");
  ASSERT_TRUE(config) << config.error().message;
  const hca::HostOptions options = hca::host_options(*config, 1);
  const hca::CongestionOptions told = hca::congestion_options(options);
  EXPECT_EQ(told.quadrant_of.size(), options.nodes);
  EXPECT_EQ(told.quadrants, 1U);
  const hca::CongestionReaction& reaction = told.reaction;
  EXPECT_EQ(reaction.vct_step_cycles, 3U);
  EXPECT_EQ(reaction.vct_timeout_cycles, 5U);
  EXPECT_EQ(reaction.vct_messages, 7U);
  EXPECT_FALSE(reaction.vct_counts_held);
  EXPECT_EQ(reaction.ccti_increase, 2U);
  EXPECT_EQ(reaction.ccti_limit, 9U);
  EXPECT_EQ(reaction.ccti_timer_ns, 20'500U);
  EXPECT_EQ(reaction.dcqcn_timer_ns, 11'000U);
  EXPECT_EQ(reaction.dcqcn_gain, 0.5);
  EXPECT_EQ(reaction.dcqcn_rate_ai, 0.25);
  EXPECT_EQ(reaction.dcqcn_rate_hai, 0.75);
}

// Neither of the two has a default of its own.
TEST(HostOptions, DefaultsOfSourcesAreThoseOfTheSchema) {
  const hca::CongestionReaction schema =
      hca::host_options(*emu::Config::parse(""), 0).congestion_reaction;
  const hca::CongestionReaction own;
  EXPECT_EQ(schema.vct_step_cycles, own.vct_step_cycles);
  EXPECT_EQ(schema.vct_timeout_cycles, own.vct_timeout_cycles);
  EXPECT_EQ(schema.vct_messages, own.vct_messages);
  EXPECT_EQ(schema.vct_counts_held, own.vct_counts_held);
  EXPECT_EQ(schema.ccti_increase, own.ccti_increase);
  EXPECT_EQ(schema.ccti_limit, own.ccti_limit);
  EXPECT_EQ(schema.ccti_timer_ns, own.ccti_timer_ns);
  EXPECT_EQ(schema.dcqcn_timer_ns, own.dcqcn_timer_ns);
  EXPECT_EQ(schema.dcqcn_gain, own.dcqcn_gain);
  EXPECT_EQ(schema.dcqcn_rate_ai, own.dcqcn_rate_ai);
  EXPECT_EQ(schema.dcqcn_rate_hai, own.dcqcn_rate_hai);
}

// A full packet has the flits that `packet_size` says, on either link layer.
TEST(HostOptions, FullPacketsAreAsLongAsConfigured) {
  for (const bool roce : {false, true}) {
    const auto config = emu::Config::parse(roce ? "[hca]\nlink_layer = \"roce_v2\"\n" : "");
    const hca::HostOptions options = hca::host_options(*config, 0);
    const std::size_t bytes = emu::packet_bytes(emu::Opcode::rc_send_middle, roce,
                                                hca::connection_payload(options, 2048, false));
    EXPECT_EQ(emu::flits_of(bytes, options.flit_bits), 40);
  }
}

// Where routers take packets in whole, the longest one of any connection fits its buffer.
TEST(HostOptions, PacketsOfConnectionsFitTheBuffers) {
  for (const std::uint32_t flits : {40U, 64U, 127U, 300U}) {
    const auto config =
        emu::Config::parse(fmt::format("[network]\nrouter = \"vct\"\nvc_buf_size = {}\n", flits));
    ASSERT_TRUE(config) << config.error().message;
    const hca::HostOptions options = hca::host_options(*config, 0);
    for (const std::uint32_t mtu : {256U, 512U, 2048U}) {
      const std::uint32_t payload = hca::connection_payload(options, mtu, true);
      EXPECT_GE(payload, std::min(mtu, 512U));
      const std::size_t bytes =
          emu::packet_bytes(emu::xrc_of(emu::Opcode::rc_write_only_imm), true, payload);
      EXPECT_LE(emu::flits_of(bytes, options.flit_bits), flits) << mtu;
    }
  }
}

}  // namespace

// hcad's end of UDP before a fabric that is one socket and its sessions: what it makes of the
// answers. Host time is handed in.
#include "hca/attach/udp.h"

#include <gtest/gtest.h>
#include <poll.h>

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "emu/wire/udp_socket.h"

namespace hca {
namespace {

constexpr std::uint64_t kTurnNs = 500'000;
constexpr std::uint64_t kCyclePs = 320'000;

std::vector<emu::Setting> settings(const std::string& packet_size) {
  return {{"network.nodes", "2"}, {"network.packet_size", packet_size}};
}

class UdpAttachmentTest : public testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    emu::AcceptorOptions options;
    options.node_names = {"n0", "n1"};
    options.entropy = emu::random_key();
    options.cycle_ps = kCyclePs;
    options.settings = settings("40");
    fabric_.emplace(options);
  }
  void make(std::optional<emu::Terms> terms) {
    auto made = make_udp_attachment({.fabric = emu::local_address(socket_.fd())->text(),
                                     .node_name = "n1",
                                     .io_uring = GetParam(),
                                     .terms = terms});
    ASSERT_TRUE(made) << made.error().message;
    node_ = std::move(*made);
  }
  void turns(int count) {
    for (int i = 0; i < count; ++i) turn();
  }
  void turn() {
    host_ns_ += kTurnNs;
    node_->service(host_ns_);
    fabric_turn();
  }
  emu::Cycle fabric_cycle() const { return host_ns_ * 1000 / kCyclePs; }
  void fabric_turn() {
    while (
        socket_.receive([this](const emu::UdpAddress& from, std::span<const std::byte> datagram) {
          at_ = from;
          const emu::Arrival arrival = fabric_->receive(datagram, host_ns_);
          if (!arrival.reply.empty()) send({arrival.reply, arrival.reply.size()});
        })) {
    }
    fabric_->service(host_ns_);
    for (emu::NodeId node = 0; node < 2; ++node) {
      const emu::Train train = fabric_->transmit(node, host_ns_, fabric_cycle());
      if (!train.empty()) send(train);
    }
  }
  // As a node that has slept: it sends first, and service() comes last.
  void send_packet() {
    const auto slot = node_->acquire();
    ASSERT_TRUE(slot);
    std::fill_n(slot->bytes, 638, std::uint8_t{0});
    const emu::TxDesc desc{1,  0, slot->buffer, 0, 638, 40, 0, 2, 2, emu::TrafficClass::best_effort,
                           {}, 0};
    ASSERT_EQ(node_->send({&desc, 1}), 1U);
    node_->flush();
  }
  void send(const emu::Train& train) {
    const emu::UdpSocket::Outgoing out{at_, train};
    socket_.send({&out, 1});
  }

  emu::UdpSocket socket_{*emu::open_udp_socket(*emu::UdpAddress::resolve("127.0.0.1:0"))};
  std::optional<emu::Acceptor> fabric_;
  std::unique_ptr<Attachment> node_;
  emu::UdpAddress at_;  // where the node is
  std::uint64_t host_ns_ = 1'000'000'000;
};

TEST_P(UdpAttachmentTest, ANodeOfTheSameTermsAttaches) {
  ASSERT_NO_FATAL_FAILURE(make(emu::Terms{1, settings("40")}));
  turns(20);
  EXPECT_EQ(node_->state(), AttachState::attached) << node_->reason();
  EXPECT_EQ(node_->reason(), "");
}

// Its programs would have another node's addresses, or packets that no other node takes.
TEST_P(UdpAttachmentTest, ANodeOfOtherTermsStaysDownAndSaysWhy) {
  const std::string other = "cluster.toml here is not the fabric's: ";
  for (const auto& [ours, why] :
       {std::pair{emu::Terms{0, settings("40")}, "n1 is node 1 there, node 0 here"},
        {emu::Terms{1, settings("120")}, "network.packet_size is 40 there, 120 here"}}) {
    ASSERT_NO_FATAL_FAILURE(make(ours));
    turns(500);
    EXPECT_EQ(node_->state(), AttachState::down);
    EXPECT_EQ(node_->session(), 0U);
    EXPECT_FALSE(fabric_->attached(1)) << "the fabric hears nothing of it";
    EXPECT_EQ(node_->reason(), other + why);
  }
}

// The last service() was long ago, and so would be what is sent if it had its time.
TEST_P(UdpAttachmentTest, WhatIsSentAfterIdlingIsSentOnce) {
  ASSERT_NO_FATAL_FAILURE(make({}));
  turns(20);
  for (int i = 0; i < 50; ++i) {  // the round trip becomes known
    ASSERT_NO_FATAL_FAILURE(send_packet());
    turn();
  }
  turns(50);
  ASSERT_EQ(node_->frames().frames_repeated, 0U);
  const std::uint64_t sent = node_->frames().frames_out;
  host_ns_ += 15'000'000;
  node_->begin_turn(host_ns_);
  ASSERT_NO_FATAL_FAILURE(send_packet());
  node_->service(host_ns_);
  EXPECT_GT(node_->frames().frames_out, sent);
  turns(4);
  EXPECT_EQ(node_->frames().frames_repeated, 0U);
  EXPECT_EQ(fabric_->channel(1).counters().frames_duplicate, 0U);
}

// It would be ahead of it if a frame had the time of the last service() for its arrival.
TEST_P(UdpAttachmentTest, TimeAfterIdlingIsTheFabrics) {
  ASSERT_NO_FATAL_FAILURE(make({}));
  turns(50);
  const emu::Cycle before = node_->now_cycle();
  host_ns_ += 15'000'000;
  node_->begin_turn(host_ns_);
  EXPECT_GT(node_->now_cycle(), before) << "it goes on by itself for a while";
  fabric_turn();
  std::array<Received, 4> none;
  EXPECT_EQ(node_->receive(none), 0U);
  EXPECT_EQ(node_->now_cycle(), fabric_cycle());
  node_->service(host_ns_);
  EXPECT_EQ(node_->now_cycle(), fabric_cycle());
}

bool readable(int fd) {
  pollfd wait{fd, POLLIN, 0};
  return ::poll(&wait, 1, 0) == 1;
}

// Otherwise a sender that is faster than we are would hold the node for ever.
TEST_P(UdpAttachmentTest, AFloodEndsATurn) {
  ASSERT_NO_FATAL_FAILURE(make({}));
  turns(20);
  emu::UdpSocket stranger{*emu::open_udp_socket({})};
  const std::array<std::byte, 40> bytes{};
  const emu::UdpSocket::Outgoing out{at_, {bytes, bytes.size()}};
  for (int i = 0; i < 200; ++i) stranger.send({&out, 1});
  host_ns_ += kTurnNs;
  node_->service(host_ns_);
  EXPECT_TRUE(readable(node_->fd())) << "some are left, and wake us at once";
  for (int i = 0; i < 40 && readable(node_->fd()); ++i) node_->service(host_ns_);
  EXPECT_FALSE(readable(node_->fd()));
  turns(20);
  EXPECT_EQ(node_->state(), AttachState::attached);
}

INSTANTIATE_TEST_SUITE_P(Ways, UdpAttachmentTest, testing::Bool(), [](const auto& way) {
  return way.param ? std::string("io_uring") : std::string("socket");
});

}  // namespace
}  // namespace hca

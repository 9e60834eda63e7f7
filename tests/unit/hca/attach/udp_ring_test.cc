// What ends the receiving of hcad's UDP socket and what does not. The kernel's own errors: another
// socket takes the number of ours for the moment in which the receive is armed anew.
#include "hca/attach/udp_ring.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <memory>

#include "emu/wire/udp_socket.h"

namespace hca {
namespace {

constexpr int kBuffersAndMore = 40;  // more datagrams than the ring has buffers

class UdpRingTest : public testing::Test {
 protected:
  void SetUp() override {
    auto opened = UdpRing::open(socket_.get());
    if (!opened) GTEST_SKIP() << "no io_uring here: " << opened.error().message;
    ring_ = std::move(*opened);
    to_ = *emu::local_address(socket_.get());
  }
  void send(int count) {
    const std::array<std::byte, 40> bytes{};
    const emu::UdpSocket::Outgoing out{to_, {bytes, bytes.size()}};
    for (int i = 0; i < count; ++i) stranger_.send({&out, 1});
  }
  int receive() {
    int datagrams = 0;
    for (int turn = 0; turn < 20; ++turn) {
      ring_->receive([&](std::span<const std::byte>) { ++datagrams; });
    }
    return datagrams;
  }

  emu::UniqueFd socket_{*emu::open_udp_socket(*emu::UdpAddress::resolve("127.0.0.1:0"))};
  emu::UdpSocket stranger_{*emu::open_udp_socket({})};
  emu::UdpAddress to_;
  std::unique_ptr<UdpRing> ring_;
};

TEST_F(UdpRingTest, AnErrorOfOneReceiveIsNotTheEndOfReceiving) {
  ASSERT_EQ((send(1), receive()), 1);
  // All buffers are taken, so the armed receive ends, and the next one meets another socket: a
  // stream that is connected to nobody, of which recvmsg says EINVAL.
  send(kBuffersAndMore);
  const emu::UniqueFd ours(::dup(socket_.get()));
  const emu::UniqueFd stream(::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0));
  ASSERT_EQ(::dup2(stream.get(), socket_.get()), socket_.get());
  const int before = receive();
  EXPECT_LT(before, kBuffersAndMore) << "the receive never met the other socket";
  ASSERT_EQ(::dup2(ours.get(), socket_.get()), socket_.get());
  EXPECT_EQ(receive(), kBuffersAndMore - before) << "those that waited in the socket";
  EXPECT_EQ((send(3), receive()), 3);
}

}  // namespace
}  // namespace hca

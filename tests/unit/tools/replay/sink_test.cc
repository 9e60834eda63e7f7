// A sink on the device made of memory: pieces come as the test sends them, some without a head.
#include "tools/replay/sink.h"

#include <gtest/gtest.h>

#include <array>
#include <optional>
#include <span>

#include "tests/unit/tools/replay/fake_verbs.h"

namespace tools {
namespace {

// Frames of three pieces of 100 bytes, all of them zero.
class SinkTest : public testing::Test {
 protected:
  static constexpr std::uint32_t kPiece = 100;
  static constexpr std::uint32_t kFrame = 3 * kPiece;

  void SetUp() override {
    fake::faults().clear();
    auto device = Device::open();
    ASSERT_TRUE(device);
    device_.emplace(*std::move(device));
    auto cq = CompletionQueue::create(*device_, 256);
    ASSERT_TRUE(cq);
    cq_.emplace(*std::move(cq));
    auto far = create_qp(*device_, IBV_QPT_RC, *cq_, *cq_, {});
    ASSERT_TRUE(far);
    far_ = *std::move(far);
    ASSERT_TRUE(
        sink_.open(*device_, *cq_, 0, device_->endpoint(*far_, 0), 1, kFrameHeaderBytes + kPiece));
    ASSERT_TRUE(connect_rc(far_.get(), *device_, sink_.endpoint(), 1, 0));
  }

  void send(std::uint64_t number, std::uint32_t piece, bool damaged = false) {
    const std::array<std::uint8_t, kFrame> frame{};
    std::array<std::uint8_t, kFrameHeaderBytes + kPiece> message{};
    write_frame_header({.stream = stream_hash("s"),
                        .number = number,
                        .frame_bytes = kFrame,
                        .frame_crc = crc32c(frame),
                        .offset = piece * kPiece,
                        .bytes = kPiece},
                       std::span(message).first<kFrameHeaderBytes>());
    if (damaged) message[9] ^= 1;
    ibv_sge sge{.addr = reinterpret_cast<std::uint64_t>(message.data()),
                .length = static_cast<std::uint32_t>(message.size()),
                .lkey = 1};
    ibv_send_wr wr{};
    wr.sg_list = &sge;
    wr.num_sge = 1;
    wr.opcode = IBV_WR_SEND;
    ibv_send_wr* bad = nullptr;
    ASSERT_EQ(ibv_post_send(far_.get(), &wr, &bad), 0);
    const auto take = [this](const Completion& done) { sink_.complete(*device_, done); };
    ASSERT_EQ(cq_->poll(*device_, 16, take), 1);
  }
  void send_frame(std::uint64_t number, std::optional<std::uint32_t> damaged = std::nullopt) {
    for (std::uint32_t piece = 0; piece < 3; ++piece) send(number, piece, piece == damaged);
  }
  const SinkCounts& counts() const { return sink_.counts(); }

  std::optional<Device> device_;
  std::optional<CompletionQueue> cq_;
  Qp far_;
  Sink sink_{{.name = "s", .clip = {}, .from = "n0", .to = "n1", .rate = {}}, nullptr};
};

// What follows a damaged piece comes for the first time, though its frame cannot be put together.
TEST_F(SinkTest, PiecesBehindADamagedOneAreNoDuplicates) {
  for (std::uint32_t damaged = 0; damaged < 3; ++damaged) send_frame(damaged, damaged);
  send_frame(3);
  EXPECT_EQ(counts().headers_corrupt, 3U);
  EXPECT_EQ(counts().duplicated, 0U);
  EXPECT_EQ(counts().frames, 1U);
  sink_.end(4);
  sink_.give_up();
  EXPECT_EQ(counts().lost, 3U);
}

TEST_F(SinkTest, WhatIsThereAlreadyIsDuplicated) {
  send_frame(0);
  send(0, 1);  // of a frame that is finished
  EXPECT_EQ(counts().duplicated, 1U);
  send(1, 0);
  send(1, 1);
  send(1, 1);  // of the one that is being put together
  EXPECT_EQ(counts().duplicated, 2U);
  send(0, 2);  // of one before it
  EXPECT_EQ(counts().duplicated, 3U);
  send(1, 2);
  EXPECT_EQ(counts().frames, 2U);
  send_frame(1);
  EXPECT_EQ(counts().duplicated, 4U);
  EXPECT_EQ(counts().frames, 2U);
  EXPECT_EQ(counts().bytes_corrupt, 0U);
}

}  // namespace
}  // namespace tools

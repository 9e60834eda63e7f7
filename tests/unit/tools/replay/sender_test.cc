// A sender on the device made of memory, whose time goes on by 2 ms with each look at the queue.
#include "tools/replay/sender.h"

#include <gtest/gtest.h>

#include "tests/unit/tools/replay/fake_verbs.h"

namespace tools {
namespace {

// Sends two frames of a hundred pieces, the first at `start_ns` from now; returns how many are
// late.
std::uint64_t late_of_two(std::int64_t start_ns) {
  fake::faults().clear();
  const auto device = Device::open();
  EXPECT_TRUE(device);
  auto cq = CompletionQueue::create(*device, 256);
  EXPECT_TRUE(cq);
  const FrameCut cut{.shape = {}, .packets = 1};
  ClipStore clips(*device);
  const auto clip = clips.get("cbr:" + std::to_string(100 * cut.piece_bytes_max()), {});
  EXPECT_TRUE(clip);
  Sender sender({.name = "s", .clip = {}, .from = "n0", .to = "n1", .rate = {}}, *clip,
                {.cut = cut, .admission = false});
  EXPECT_TRUE(sender.open(*device, *cq, 0));
  EXPECT_TRUE(sender.connect(*device, {.lid = 999, .qpn = 5}));
  sender.ask(*device);
  sender.start(device->now() + static_cast<emu::EmuNs>(start_ns), 2);
  for (int turn = 0; turn < 200 && !sender.over(); ++turn) {
    EXPECT_TRUE(sender.tick(*device, device->now()));
    const auto take = [&sender](const Completion& done) { sender.complete(done); };
    EXPECT_GE(cq->poll(*device, 256, take), 0);
  }
  EXPECT_EQ(sender.state(), SendState::done);
  EXPECT_EQ(sender.counts().completed, 2U);
  return sender.counts().posted_late;
}

// Only 64 pieces can be on their way: the others are posted while the first ones leave, but long
// before their own times.
TEST(Sender, LargeFramesAreNotLate) { EXPECT_EQ(late_of_two(100'000'000), 0U); }

TEST(Sender, AFrameWithPiecesBehindTheirTimesIsLateOnce) {
  EXPECT_EQ(late_of_two(-10'000'000), 1U);
}

// What a sender of frames of `packets` full packets each asks for, and how it cuts them then.
struct Asked {
  std::uint64_t peak_bps;  // as the HCA reads it
  std::uint64_t piece_packets_max;
};
Asked asked_at(FrameRate rate, std::uint32_t packets) {
  fake::faults().clear();
  const auto device = Device::open();
  EXPECT_TRUE(device);
  auto cq = CompletionQueue::create(*device, 256);
  EXPECT_TRUE(cq);
  const FrameCut cut{.shape = {}, .packets = packets};
  ClipStore clips(*device);
  const auto clip = clips.get("cbr:" + std::to_string(cut.piece_bytes_max()), {});
  EXPECT_TRUE(clip);
  Sender sender({.name = "s", .clip = {}, .from = "n0", .to = "n1", .rate = rate}, *clip, {});
  EXPECT_TRUE(sender.open(*device, *cq, 0));
  EXPECT_TRUE(sender.connect(*device, {.lid = 999, .qpn = 5}));
  sender.ask(*device);
  EXPECT_TRUE(sender.admitted());
  return {std::uint64_t{fake::faults().burst} * 8 * 30,
          cut.shape.packets_of(sender.message_bytes_max())};
}

// max_burst_sz is of a thirtieth of a second, whatever the stream's own frame time.
TEST(Sender, AsksForThePeakOfItsOwnFrameRate) {
  constexpr std::uint64_t kFrameBits = 32 * 640 * 8;
  EXPECT_EQ(asked_at({}, 32).peak_bps, kFrameBits * 30);
  EXPECT_NEAR(static_cast<double>(asked_at({24, 1}, 32).peak_bps), kFrameBits * 24, 240);
  EXPECT_NEAR(static_cast<double>(asked_at({25, 1}, 32).peak_bps), kFrameBits * 25, 240);
  EXPECT_NEAR(static_cast<double>(asked_at({60, 1}, 32).peak_bps), kFrameBits * 60, 240);
  EXPECT_NEAR(static_cast<double>(asked_at({30'000, 1001}, 32).peak_bps),
              kFrameBits * 30'000.0 / 1001, 240);
}

// A connection has the credits of three bursts: a piece that needed more could never be posted, one
// that needed them all only when the one before it had left, too late.
TEST(Sender, APieceFitsIntoItsCredits) {
  EXPECT_EQ(asked_at({24, 1}, 64).piece_packets_max, 32U);
  EXPECT_EQ(asked_at({24, 1}, 20).piece_packets_max, 32U) << "a frame is a piece";
  EXPECT_EQ(asked_at({5, 1}, 32).piece_packets_max, 5U);
  EXPECT_EQ(asked_at({1, 1}, 5).piece_packets_max, 1U);
}

}  // namespace
}  // namespace tools

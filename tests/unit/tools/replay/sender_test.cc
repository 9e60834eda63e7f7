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

}  // namespace
}  // namespace tools

// The two windows of a channel: bounded, exact at their edges, selective about what is repeated.
#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "emu/wire/receive_window.h"
#include "emu/wire/send_window.h"

namespace emu {
namespace {

constexpr std::uint32_t kFrames = 64;
constexpr std::size_t kFrame = 576;
constexpr std::size_t kPayload = (kFrame - kFrameOverhead) & ~std::size_t{3};

std::vector<std::byte> body(std::size_t n, int value) {
  return std::vector<std::byte>(n, static_cast<std::byte>(value));
}

FrameHeader acknowledgement(std::uint64_t ack, std::uint64_t sack = 0, std::uint32_t window = 64) {
  FrameHeader header{};
  header.ack = ack;
  header.sack = sack;
  header.window = window;
  return header;
}

// Sends everything that may go at `now`; returns how many frames that were.
int send_all(SendWindow& out, std::uint64_t now) {
  int n = 0;
  for (auto s = out.first_sendable(); s != SendWindow::kNone; s = out.first_sendable()) {
    out.sent(s, now);
    ++n;
  }
  return n;
}

TEST(SendWindow, TakesWhatFitsAndNoMore) {
  SendWindow out(kFrames, kFrame);
  std::size_t taken = 0;
  const auto record = body(300, 1);
  while (out.append(RecordKind::tx, record, {})) ++taken;
  EXPECT_EQ(taken, kFrames * kPayload / record_bytes(300));
  EXPECT_LT(out.room(), record_bytes(300));
  // The rest can be filled to the last byte.
  const auto last = body(out.room() - sizeof(RecordHeader), 2);
  EXPECT_TRUE(out.append(RecordKind::tx, last, {}));
  EXPECT_EQ(out.room(), 0u);
  EXPECT_FALSE(out.append(RecordKind::tx, {}, {}));
}

TEST(SendWindow, FullFramesAdjoin) {
  SendWindow out(kFrames, kFrame);
  while (out.append(RecordKind::tx, body(1000, 1), {})) {
  }
  for (std::uint64_t s = 0; s + 1 < 20; ++s) {
    EXPECT_EQ(out.frame(s).size(), kPayload + kFrameOverhead);
    EXPECT_EQ(out.frame(s).data() + out.frame(s).size(), out.frame(s + 1).data());
  }
}

TEST(SendWindow, RepeatsTheHoleOnly) {
  SendWindow out(kFrames, kFrame);
  for (int i = 0; i < 10; ++i) {
    ASSERT_TRUE(out.append(RecordKind::tx, body(100, i), {}));
    out.flush();
  }
  ASSERT_EQ(send_all(out, 1000), 10);
  // Frames 0 to 2 arrived, 3 is missing, 4 to 9 arrived.
  ASSERT_TRUE(out.acknowledge(acknowledgement(3, 0b111111), 2000));
  EXPECT_EQ(out.first_sendable(), 3u);
  EXPECT_EQ(send_all(out, 2100), 1);
  EXPECT_EQ(out.frames_repeated(), 1u);
  ASSERT_TRUE(out.acknowledge(acknowledgement(3, 0b111111), 2200));
  EXPECT_EQ(out.first_sendable(), SendWindow::kNone) << "its repetition is on the way";
  ASSERT_TRUE(out.acknowledge(acknowledgement(10), 3000));
  EXPECT_TRUE(out.idle());
  EXPECT_EQ(out.records_acknowledged(), 10u);
}

TEST(SendWindow, ObeysThePeersWindow) {
  SendWindow out(128, kFrame);
  while (out.append(RecordKind::tx, body(kPayload - sizeof(RecordHeader), 1), {})) {
  }
  EXPECT_EQ(send_all(out, 1), 64) << "what may go before the peer has spoken";
  ASSERT_TRUE(out.acknowledge(acknowledgement(1, 0, 10), 2));
  EXPECT_EQ(send_all(out, 3), 0);
  ASSERT_TRUE(out.acknowledge(acknowledgement(64, 0, 10), 4));
  EXPECT_EQ(send_all(out, 5), 10);
  ASSERT_TRUE(out.acknowledge(acknowledgement(74, 0, 0), 6));
  EXPECT_EQ(send_all(out, 7), 0);
}

TEST(SendWindow, RefusesAcknowledgementsOfTheFuture) {
  SendWindow out(kFrames, kFrame);
  ASSERT_TRUE(out.append(RecordKind::tx, body(100, 1), {}));
  out.flush();
  EXPECT_FALSE(out.acknowledge(acknowledgement(1), 1));
  EXPECT_FALSE(out.acknowledge(acknowledgement(0, 1), 1));
  EXPECT_TRUE(out.acknowledge(acknowledgement(0), 1));
}

TEST(SendWindow, TimerRepeatsEverythingAndBacksOff) {
  SendWindow out(kFrames, kFrame);
  EXPECT_EQ(out.deadline_ns(), SendWindow::kNone);
  for (int i = 0; i < 4; ++i) {
    ASSERT_TRUE(out.append(RecordKind::tx, body(100, i), {}));
    out.flush();
  }
  ASSERT_EQ(send_all(out, 1000), 4);
  const auto first = out.deadline_ns() - 1000;
  out.time_out();
  ASSERT_EQ(send_all(out, 2000), 4);
  EXPECT_EQ(out.deadline_ns() - 2000, 2 * first);
}

// Heard all the time, and never of this frame: it does not arrive. Silence says nothing of the
// kind.
TEST(SendWindow, AFrameThatIsNeverAcknowledgedIsStuckIfThePeerIsHeard) {
  constexpr std::uint64_t kEveryNs = 100'000'000;
  SendWindow out(kFrames, 1000);
  ASSERT_TRUE(out.append(RecordKind::tx, body(700, 1), {}));
  out.flush();
  std::uint64_t now = 1;
  const auto repeat = [&](int times, bool heard) {
    for (int i = 0; i < times; ++i, now += kEveryNs) {
      if (now >= out.deadline_ns()) out.time_out();
      send_all(out, now);
      ASSERT_TRUE(!heard || out.acknowledge(acknowledgement(0), now));
    }
  };
  repeat(20, true);
  repeat(100, false);  // the peer was stopped for 10 s
  repeat(20, true);
  EXPECT_EQ(out.stuck_bytes(), 0u);
  repeat(20, true);
  EXPECT_EQ(out.stuck_bytes(), 700 + sizeof(RecordHeader) + kFrameOverhead);
  out.reset(kFrame);
  EXPECT_EQ(out.stuck_bytes(), 0u);
}

TEST(ReceiveWindow, RecordsAcrossFramesInAnyOrderOfArrival) {
  SendWindow out(kFrames, kFrame);
  ReceiveWindow in(kFrames, kFrame);
  for (int i = 0; i < 9; ++i) {
    ASSERT_TRUE(out.append(RecordKind::rx, body(static_cast<std::size_t>(i) * 397, i), {}));
  }
  out.flush();
  const std::uint64_t frames = out.room() == 0 ? kFrames : 9 * 4 * 397 / kPayload + 1;
  for (std::uint64_t s = frames; s-- > 0;) {
    const auto frame = out.frame(s);
    const auto payload = std::span<const std::byte>(frame).subspan(sizeof(FrameHeader),
                                                                   frame.size() - kFrameOverhead);
    EXPECT_TRUE(in.keep(s, payload)) << s;
    EXPECT_FALSE(in.keep(s, payload)) << s;
    if (s != 0) {
      EXPECT_FALSE(in.front());
      EXPECT_EQ(in.ack(), 0u);
    }
  }
  EXPECT_EQ(in.ack(), frames);
  for (int i = 0; i < 9; ++i) {
    const auto record = in.front();
    ASSERT_TRUE(record) << i;
    EXPECT_EQ(record->kind, RecordKind::rx);
    EXPECT_EQ(std::vector(record->body.begin(), record->body.end()),
              body(static_cast<std::size_t>(i) * 397, i));
    EXPECT_EQ(in.front()->body.data(), record->body.data()) << "stays until pop";
    in.pop();
  }
  EXPECT_FALSE(in.front());
  EXPECT_EQ(in.records_delivered(), 9u);
  EXPECT_EQ(in.window(), kFrames);
}

TEST(ReceiveWindow, ClosesWhenNobodyReads) {
  ReceiveWindow in(kFrames, kFrame);
  std::vector<std::byte> payload(kPayload);
  const RecordHeader header{static_cast<std::uint16_t>(kPayload - 4), RecordKind::tx, 0};
  std::memcpy(payload.data(), &header, sizeof header);
  for (std::uint64_t s = 0; s < kFrames; ++s) EXPECT_TRUE(in.keep(s, payload));
  EXPECT_EQ(in.window(), 0u);
  EXPECT_FALSE(in.keep(kFrames, payload));
  ASSERT_TRUE(in.front());
  in.pop();
  EXPECT_EQ(in.window(), 1u);
  EXPECT_TRUE(in.keep(kFrames, payload));
}

TEST(ReceiveWindow, NonsenseBreaksTheStreamForGood) {
  for (const RecordHeader header :
       {RecordHeader{8, static_cast<RecordKind>(0), 0},
        RecordHeader{8, static_cast<RecordKind>(5), 0}, RecordHeader{8, RecordKind::tx, 1},
        RecordHeader{kRecordBodyMax + 1, RecordKind::tx, 0}}) {
    ReceiveWindow in(kFrames, kFrame);
    std::vector<std::byte> payload(64);
    std::memcpy(payload.data(), &header, sizeof header);
    ASSERT_TRUE(in.keep(0, payload));
    EXPECT_FALSE(in.front());
    EXPECT_TRUE(in.broken());
    EXPECT_FALSE(in.front());
  }
}

}  // namespace
}  // namespace emu

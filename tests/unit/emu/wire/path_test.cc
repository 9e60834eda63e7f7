// The send window over paths of long round trips, in virtual time: how much arrives, and how often
// each frame is sent for it.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <vector>

#include "emu/base/prng.h"
#include "emu/wire/send_window.h"
#include "tests/unit/emu/wire/seed.h"

namespace emu {
namespace {

constexpr std::uint64_t kMs = 1'000'000;
constexpr std::uint32_t kWindow = 1024;
constexpr std::size_t kFrameOfPath = 1472;

// A sender, a path and a receiver that acknowledges whatever arrives as channel.cc does: in lots of
// 16, or after half a millisecond, and at once what is out of order.
class Path {
 public:
  explicit Path(std::uint64_t rtt_ns, std::uint64_t seed = 1) : prng_(seed), rtt_ns_(rtt_ns) {}

  void set_rtt(std::uint64_t rtt_ns) { rtt_ns_ = rtt_ns; }
  void set_loss(double loss) { loss_ = loss; }
  void set_jitter(std::uint64_t ns) { jitter_ns_ = ns; }
  // A full frame so often; 0: as many as fit.
  void set_interval(std::uint64_t ns) { interval_ns_ = ns; }

  void run(std::uint64_t ns) {
    for (const std::uint64_t end = now_ns_ + ns; now_ns_ < end; now_ns_ += kStepNs) {
      write();
      arrive();
      if (now_ns_ >= out_.deadline_ns()) out_.time_out();
      for (auto f = out_.first_sendable(); f != SendWindow::kNone; f = out_.first_sendable()) {
        out_.sent(f, now_ns_);
        ++sent_;
        put_on_way(there_, f, rtt_ns_ / 2);
      }
    }
  }

  std::uint64_t sent() const { return sent_; }
  std::uint64_t arrived() const { return next_; }
  double sent_each() const { return static_cast<double>(sent_) / static_cast<double>(next_); }
  SendWindow& out() { return out_; }

 private:
  static constexpr std::uint64_t kStepNs = 250'000;
  struct Answer {
    std::uint64_t ack;
    std::uint64_t sack;
  };

  template <class T>
  void put_on_way(std::multimap<std::uint64_t, T>& way, const T& what, std::uint64_t delay_ns) {
    if (loss_ > 0 && prng_.uniform() < loss_) return;
    const std::uint64_t jitter =
        jitter_ns_ == 0 ? 0 : prng_.below(static_cast<std::uint32_t>(jitter_ns_));
    way.emplace(now_ns_ + delay_ns + jitter, what);
  }
  void write() {
    if (interval_ns_ != 0 && now_ns_ < written_ns_ + interval_ns_) return;
    written_ns_ = now_ns_;
    do {
      if (!out_.append(RecordKind::tx, body_, {})) return;
      out_.flush();
    } while (interval_ns_ == 0);
  }
  void arrive() {
    for (; !there_.empty() && there_.begin()->first <= now_ns_; there_.erase(there_.begin())) {
      const std::uint64_t sequence = there_.begin()->second;
      const bool in_order = sequence == next_ && holes_.empty();
      if (sequence >= next_) holes_.insert(sequence);
      for (; holes_.erase(next_) != 0; ++next_) {
      }
      answer_by_ns_ = std::min(answer_by_ns_, now_ns_ + kMs / 2);
      if (!in_order || ++unanswered_ == 16) answer();
    }
    if (now_ns_ >= answer_by_ns_) answer();
    for (; !back_.empty() && back_.begin()->first <= now_ns_; back_.erase(back_.begin())) {
      FrameHeader header{};
      header.ack = back_.begin()->second.ack;
      header.sack = back_.begin()->second.sack;
      header.window = kWindow;
      ASSERT_TRUE(out_.acknowledge(header, now_ns_));
    }
  }
  void answer() {
    Answer answer{next_, 0};
    for (const std::uint64_t sequence : holes_) {
      if (sequence > next_ && sequence - next_ <= 64) {
        answer.sack |= std::uint64_t{1} << (sequence - next_ - 1);
      }
    }
    put_on_way(back_, answer, rtt_ns_ - rtt_ns_ / 2);
    unanswered_ = 0;
    answer_by_ns_ = ~std::uint64_t{0};
  }

  const std::vector<std::byte> body_ =
      std::vector<std::byte>(kFrameOfPath - kFrameOverhead - sizeof(RecordHeader));
  Prng prng_;
  std::uint64_t rtt_ns_;
  double loss_ = 0;
  std::uint64_t jitter_ns_ = 0;
  std::uint64_t interval_ns_ = 0;
  SendWindow out_{kWindow, kFrameOfPath};
  std::uint64_t now_ns_ = 1'000 * kMs;
  std::uint64_t written_ns_ = 0;
  std::uint64_t sent_ = 0;
  std::uint64_t next_ = 0;
  std::set<std::uint64_t> holes_;  // what arrived above next_
  int unanswered_ = 0;
  std::uint64_t answer_by_ns_ = ~std::uint64_t{0};
  std::multimap<std::uint64_t, std::uint64_t> there_;
  std::multimap<std::uint64_t, Answer> back_;
};

class SteadyPath : public testing::TestWithParam<std::uint64_t> {};

TEST_P(SteadyPath, SendsEachFrameAboutOnceAndFillsTheWindow) {
  const std::uint64_t rtt_ns = GetParam() * kMs;
  Path path(rtt_ns);
  const std::uint64_t windows = std::min<std::uint64_t>(10'000 * kMs / rtt_ns, 100);
  path.run(windows * rtt_ns);
  EXPECT_GT(path.arrived(), (windows - 7) * kWindow * 8 / 10) << "slow start is six round trips";
  EXPECT_LT(path.sent_each(), 1.1);
  // Nothing is repeated any more when the round trip is known.
  const std::uint64_t repeated = path.out().frames_repeated();
  path.run(2'000 * kMs);
  EXPECT_EQ(path.out().frames_repeated(), repeated);
  EXPECT_EQ(path.out().congestion_window(), kWindow);
}
INSTANTIATE_TEST_SUITE_P(RoundTripMs, SteadyPath, testing::Values(10, 49, 51, 200, 390, 500));

TEST(LongPath, ASteadyRoundTripLeavesTheTimerSlack) {
  Path path(100 * kMs);
  path.set_interval(20 * kMs);
  path.run(10'000 * kMs);  // the variance is gone
  const std::uint64_t repeated = path.out().frames_repeated();
  path.set_jitter(8 * kMs);
  path.run(200 * kMs);
  EXPECT_EQ(path.out().frames_repeated(), repeated) << "a loop may be away for some milliseconds";
}

TEST(LongPath, ARoundTripThatJumpsUpKeepsGoing) {
  for (const auto& [before, after] : {std::pair{1, 60}, {10, 300}, {1, 390}, {50, 500}}) {
    Path path(before * kMs);
    path.run(500 * kMs);
    const std::uint64_t window = path.out().congestion_window();
    path.set_rtt(after * kMs);
    path.run(3'000 * kMs);
    EXPECT_GE(path.out().congestion_window(), window) << "it was cut for nothing: " << after;
    const std::uint64_t arrived = path.arrived();
    const std::uint64_t repeated = path.out().frames_repeated();
    path.run(5'000 * kMs);
    EXPECT_GT(path.arrived() - arrived, 5'000 / after * kWindow * 8 / 10) << before << " " << after;
    EXPECT_EQ(path.out().frames_repeated(), repeated) << before << " " << after;
  }
}

// With fewer frames on the way than a timeout repeats, no acknowledgement tells that one was there
// before: the timer has to grow until a frame gets through it once.
TEST(LongPath, AJumpUnderSparseTrafficIsLearnt) {
  for (const std::uint64_t interval_ms : {20, 100, 400}) {
    Path path(kMs);
    path.set_interval(interval_ms * kMs);
    path.run(2'000 * kMs);
    path.set_rtt(390 * kMs);
    path.run(10'000 * kMs);
    const std::uint64_t repeated = path.out().frames_repeated();
    path.run(10'000 * kMs);
    EXPECT_EQ(path.out().frames_repeated(), repeated) << interval_ms;
    EXPECT_GT(path.out().rtt_ns(), 380 * kMs) << interval_ms;
  }
}

TEST(LongPath, LossIsRepairedAtAnyRoundTrip) {
  const std::uint64_t seed = test_seed();
  for (const std::uint64_t rtt_ms : {20, 390}) {
    for (const double loss : {0.001, 0.2}) {
      Path path(rtt_ms * kMs, seed);
      path.set_loss(loss);
      path.run(10'000 * kMs);
      // The window is halved at each loss, but has eight frames; some trips wait for the timer.
      const std::uint64_t trips = 10'000 / (rtt_ms + 1);
      EXPECT_GT(path.arrived(), trips * 8 / (loss > 0.1 ? 8 : 1)) << rtt_ms << " ms, " << loss;
      EXPECT_LT(path.sent_each(), 1.2 + 4 * loss) << rtt_ms << " ms, " << loss;
      path.set_loss(0);
      path.run(2'000 * kMs);
      const std::uint64_t arrived = path.arrived();
      const std::uint64_t repeated = path.out().frames_repeated();
      path.run(10'000 * kMs);
      EXPECT_GT(path.arrived() - arrived, trips * 8) << rtt_ms << " ms, after " << loss;
      EXPECT_EQ(path.out().frames_repeated(), repeated) << rtt_ms << " ms, after " << loss;
    }
  }
}

// The whole window lost, as when a cable is pulled for a moment: no undoing, a slow start.
TEST(LongPath, ATimeoutThatIsRightCutsTheWindow) {
  Path path(20 * kMs);
  path.run(1'000 * kMs);
  ASSERT_EQ(path.out().congestion_window(), kWindow);
  path.set_loss(1);
  path.run(100 * kMs);
  path.set_loss(0);
  EXPECT_EQ(path.out().congestion_window(), 8u);
  const std::uint64_t sent = path.sent();
  const std::uint64_t arrived = path.arrived();
  path.run(1'000 * kMs);
  EXPECT_GT(path.arrived() - arrived, 20 * kWindow);
  EXPECT_LT(path.sent() - sent, (path.arrived() - arrived) * 11 / 10);
}

}  // namespace
}  // namespace emu

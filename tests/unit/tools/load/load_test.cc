// The generators' parts: arrival processes, sequence counting, messages, the words of the command
// line.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <vector>

#include "tools/load/arrivals.h"
#include "tools/load/kinds.h"
#include "tools/load/message.h"
#include "tools/load/sequence.h"

namespace tools {
namespace {

std::vector<double> gaps_of(const ArrivalOptions& options, std::uint64_t seed, int count) {
  Arrivals arrivals(options, seed);
  arrivals.start(0);
  std::vector<double> gaps;
  double last = static_cast<double>(arrivals.next_ns());
  for (int i = 0; i < count; ++i) {
    arrivals.advance();
    gaps.push_back(static_cast<double>(arrivals.next_ns()) - last);
    last = static_cast<double>(arrivals.next_ns());
  }
  return gaps;
}

TEST(Arrivals, PoissonGapsHaveTheirMeanAndDeviation) {
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    const auto gaps = gaps_of({.kind = ArrivalKind::poisson, .gap_ns = 1e5}, seed, 20'000);
    double sum = 0;
    double squares = 0;
    for (const double gap : gaps) {
      sum += gap;
      squares += gap * gap;
    }
    const double mean = sum / 20'000;
    EXPECT_NEAR(mean, 1e5, 4 * 1e5 / std::sqrt(20'000));
    EXPECT_NEAR(std::sqrt(squares / 20'000 - mean * mean), 1e5, 5e3);
  }
}

TEST(Arrivals, EvenGapsAreEven) {
  for (const double gap : gaps_of({.kind = ArrivalKind::even, .gap_ns = 3.33e6}, 1, 100)) {
    EXPECT_NEAR(gap, 3.33e6, 1.0);
  }
}

TEST(Arrivals, OnOffHasItsDutyCycle) {
  const ArrivalOptions options{
      .kind = ArrivalKind::on_off, .gap_ns = 1e4, .on_ns = 1e6, .off_ns = 3e6};
  Arrivals arrivals(options, 4);
  arrivals.start(0);
  double in_bursts = 0;
  double last = 0;
  const int count = 200'000;
  for (int i = 0; i < count; ++i) {
    const double now = static_cast<double>(arrivals.next_ns());
    if (now - last <= 1.001e4) in_bursts += 1;
    last = now;
    arrivals.advance();
  }
  EXPECT_GT(in_bursts / count, 0.98);  // a burst has about 100 messages
  // A quarter of the time ON; the first message of a burst comes at its beginning, so a little
  // more.
  EXPECT_NEAR(count * 1e4 / last, 0.25, 0.02);
}

TEST(Arrivals, CatchUpNeverSchedulesThePast) {
  Arrivals arrivals({.kind = ArrivalKind::poisson, .gap_ns = 1000}, 2);
  arrivals.start(0);
  arrivals.catch_up(5'000'000);
  EXPECT_EQ(arrivals.next_ns(), 5'000'000U);
  arrivals.catch_up(1'000'000);
  EXPECT_EQ(arrivals.next_ns(), 5'000'000U);
}

TEST(Sequence, InOrder) {
  SequenceTracker seen;
  for (std::uint64_t n = 0; n < 10'000; ++n) EXPECT_TRUE(seen.take(n));
  EXPECT_EQ(seen.unique(), 10'000U);
  EXPECT_EQ(seen.duplicated(), 0U);
  EXPECT_EQ(seen.missing(), 0U);
  EXPECT_EQ(seen.lost(10'003), 3U);
}

TEST(Sequence, AgreesWithASetOnRandomShuffles) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    emu::Prng prng(seed);
    SequenceTracker seen;
    std::map<std::uint64_t, int> plain;
    std::uint64_t head = 0;
    std::uint64_t duplicates = 0;
    for (int i = 0; i < 20'000; ++i) {
      head += prng.below(3);
      const std::uint64_t back = prng.below(SequenceTracker::kWindow / 4);
      const std::uint64_t number = head > back ? head - back : head;
      const bool fresh = ++plain[number] == 1;
      if (!fresh) ++duplicates;
      EXPECT_EQ(seen.take(number), fresh) << number;
    }
    EXPECT_EQ(seen.unique(), plain.size());
    EXPECT_EQ(seen.duplicated(), duplicates);
  }
}

TEST(Sequence, LargeJumpForgetsTheWindow) {
  SequenceTracker seen;
  EXPECT_TRUE(seen.take(0));
  EXPECT_TRUE(seen.take(100'000));
  EXPECT_TRUE(seen.take(99'999));
  EXPECT_FALSE(seen.take(99'999));
  EXPECT_FALSE(seen.take(0));  // older than the window: cannot be told from a repetition
  EXPECT_EQ(seen.missing(), 100'001U - 3);
}

TEST(LoadMessage, RoundTripAndEveryFlippedByte) {
  std::vector<std::uint8_t> message(604);
  write_load_message({.source = 3, .kind = 1, .number = 12345, .launch_ns = 99, .token = 7},
                     message);
  const auto stamp = read_load_stamp(message);
  ASSERT_TRUE(stamp);
  EXPECT_EQ(stamp->number, 12345U);
  EXPECT_EQ(stamp->token, 7U);
  EXPECT_EQ(corrupt_load_bytes(*stamp, message), 0U);
  for (std::size_t i = 0; i < message.size(); ++i) {
    auto bad = message;
    bad[i] = static_cast<std::uint8_t>(~bad[i]);
    const auto read = read_load_stamp(bad);
    if (i < kLoadStampBytes) {
      EXPECT_FALSE(read) << i;
    } else {
      ASSERT_TRUE(read) << i;
      EXPECT_EQ(corrupt_load_bytes(*read, bad), 1U) << i;
    }
  }
  EXPECT_FALSE(read_load_stamp(std::span(message).first(603)));
}

TEST(Kinds, PacketsHaveTheirFlits) {
  EXPECT_EQ(ud_payload(40, 16), 604U);
  EXPECT_EQ(ud_payload(10, 16), 124U);
  for (std::uint32_t flits = 5; flits <= 128; ++flits) {
    const std::uint32_t bytes = ud_payload(flits, 16) + 34;
    EXPECT_EQ((bytes + 15) / 16, flits);
  }
}

TEST(Kinds, RatesAndWords) {
  EXPECT_EQ(parse_rate("48M").value(), 48e6);
  EXPECT_EQ(parse_rate("1.5G").value(), 1.5e9);
  EXPECT_EQ(parse_rate("500k").value(), 5e5);
  EXPECT_EQ(parse_rate("64000").value(), 64e3);
  for (const char* bad : {"", "M", "-1M", "0", "nan", "inf", "1e300", "5 M", "5MB"}) {
    EXPECT_FALSE(parse_rate(bad)) << bad;
  }
  const auto flow = parse_kind("best-effort=51.2M", {});
  ASSERT_TRUE(flow) << flow.error().message;
  EXPECT_EQ(flow->traffic_class, "best_effort");
  EXPECT_NEAR(flow->arrivals.gap_ns, 1e5, 1e-6);  // 5120 bits at 51.2 Mb/s
  const auto control = parse_kind("control", {});
  ASSERT_TRUE(control);
  EXPECT_EQ(control->sl, 15);
  EXPECT_EQ(control->payload_bytes, 124U);
  EXPECT_NEAR(control->arrivals.gap_ns, 3.33e6, 1);
  EXPECT_FALSE(parse_kind("best-effort", {}));  // needs a rate
  EXPECT_FALSE(parse_kind("worst-effort=1M", {}));
}

}  // namespace
}  // namespace tools

// The generators' parts: arrival processes, sequence counting, messages, the words of the command
// line.
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <map>
#include <vector>

#include "tools/load/arrivals.h"
#include "tools/load/kinds.h"
#include "tools/load/message.h"
#include "tools/load/nap.h"
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

// A queue of 1024, messages that leave at a steady rate and turns that come when they should.
TEST(Nap, NoRateUsesUpAQueueForLong) {
  constexpr std::chrono::microseconds kTick(10'000);
  for (double per_second = 1000; per_second < 1.9e6; per_second *= 1.1) {
    SCOPED_TRACE(testing::Message() << per_second << " a second");
    const auto used = [&](std::chrono::microseconds nap) {
      return std::min(per_second * static_cast<double>(nap.count()) / 1e6 / 1024, 1.0);
    };
    std::chrono::microseconds nap = kTick;
    for (int turn = 0; turn < 3; ++turn) nap = next_nap(nap, kTick, used(nap));
    for (int turn = 0; turn < 20; ++turn) {
      nap = next_nap(nap, kTick, used(nap));
      EXPECT_LT(used(nap), 0.95);
    }
    // Who uses less than half in a tick is not woken more often.
    if (used(kTick) < 0.5) {
      EXPECT_EQ(nap, kTick);
    }
  }
}

TEST(Nap, IsShortWhileItHasToBe) {
  constexpr std::chrono::microseconds kTick(10'000);
  EXPECT_EQ(next_nap(kTick, kTick, 1), kTick / 8);
  EXPECT_EQ(next_nap(kTick / 8, kTick, 0.4), kTick / 8);
  EXPECT_EQ(next_nap(kTick / 8, kTick, 1).count(), 500);
  EXPECT_EQ(next_nap(kTick / 8, kTick, 0), kTick / 4);
  EXPECT_EQ(next_nap(kTick, kTick, 0), kTick);
  const std::chrono::microseconds shorter(200);
  EXPECT_EQ(next_nap(shorter, shorter, 1), shorter);
}

TEST(Arrivals, PoissonGapsHaveTheirMeanAndDeviation) {
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    const auto gaps = gaps_of({.gap_ns = 1e5}, seed, 20'000);
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
  // A quarter of the time ON.
  EXPECT_NEAR(count * 1e4 / last, 0.25, 0.01);
}

// ON times that have room for one or two messages carry no more than the rate says: as in the
// laboratory the first message comes at a random place inside its first gap.
TEST(Arrivals, ShortOnTimesKeepTheRate) {
  for (const double gap_ns : {0.3e6, 0.64e6, 5e6}) {
    Arrivals arrivals({.kind = ArrivalKind::on_off, .gap_ns = gap_ns, .on_ns = 1e6, .off_ns = 1e6},
                      6);
    arrivals.start(0);
    const int count = 100'000;
    for (int i = 0; i < count; ++i) arrivals.advance();
    const double mean = static_cast<double>(arrivals.next_ns()) / count;
    EXPECT_NEAR(mean / (2 * gap_ns), 1, 0.02) << gap_ns;
  }
}

// A rate of a message in days must not be looked for without end.
TEST(Arrivals, ARateFarBelowAMessageAnOnTimeIsNotWaitedFor) {
  Arrivals arrivals({.kind = ArrivalKind::on_off, .gap_ns = 1e18, .on_ns = 1e4, .off_ns = 1e4}, 6);
  arrivals.start(0);
  EXPECT_GT(arrivals.next_ns(), 1'000'000'000U);
}

// Shares of a step's length among the messages of a source whose rate changes by a profile.
std::vector<std::size_t> messages_by_step(const ArrivalOptions& options, std::uint64_t seed) {
  std::vector<std::size_t> counts(options.factors.size());
  Arrivals arrivals(options, seed);
  constexpr emu::EmuNs kStartNs = 77'000'123;
  arrivals.start(kStartNs);
  while (arrivals.next_ns() < kStartNs + 4'000'000'000) {
    const double step = static_cast<double>(arrivals.next_ns() - kStartNs) / options.step_ns;
    ++counts[static_cast<std::size_t>(step) % counts.size()];
    arrivals.advance();
  }
  return counts;
}

TEST(Arrivals, APulseIsMetExactly) {
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    const auto counts =
        messages_by_step({.gap_ns = 1e5, .factors = {1, 0, 0.25}, .step_ns = 10.0 / 3 * 1e6}, seed);
    EXPECT_NEAR(static_cast<double>(counts[0]), 4e9 / 3 / 1e5, 500);
    EXPECT_EQ(counts[1], 0U);
    EXPECT_NEAR(static_cast<double>(counts[2]), 4e9 / 3 / 4e5, 250);
  }
}

TEST(Arrivals, OnOffFollowsAProfile) {
  const auto counts = messages_by_step({.kind = ArrivalKind::on_off,
                                        .gap_ns = 1e4,
                                        .on_ns = 1e6,
                                        .off_ns = 1e6,
                                        .factors = {1, 0.5, 0},
                                        .step_ns = 20e6},
                                       3);
  EXPECT_NEAR(static_cast<double>(counts[0]), 4e9 / 3 / 2e4, 4000);
  EXPECT_NEAR(static_cast<double>(counts[1]), 4e9 / 3 / 4e4, 2000);
  EXPECT_EQ(counts[2], 0U);
}

// A profile that changes nothing changes nothing: bursts neither begin with the steps nor end
// there.
TEST(Arrivals, ProfilesKeepTheRateOfBursts) {
  for (const ArrivalLaw law : {ArrivalLaw::on_off, ArrivalLaw::self_similar}) {
    const double shape = 1.9;
    const auto counts = messages_by_step({.law = law,
                                          .shape = shape,
                                          .message_ns = 1e3,
                                          .gap_ns = 1e4,
                                          .factors = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1},
                                          .step_ns = 1e5},
                                         2);
    for (const std::size_t count : counts)
      EXPECT_NEAR(static_cast<double>(count), 4e4, law == ArrivalLaw::on_off ? 2e3 : 8e3);
  }
}

// Bursts go at the pace of the link, and the long mean is what was asked for.
TEST(Arrivals, BurstsKeepTheMeanAndTheLinksPace) {
  for (const ArrivalLaw law : {ArrivalLaw::on_off, ArrivalLaw::self_similar}) {
    const auto gaps =
        gaps_of({.law = law, .shape = 1.9, .message_ns = 1e4, .gap_ns = 5e4}, 2, 400'000);
    double sum = 0;
    std::size_t back_to_back = 0;
    for (const double gap : gaps) {
      sum += gap;
      EXPECT_GE(gap, 1e4 - 1);
      if (gap < 1e4 + 1.5) ++back_to_back;
    }
    EXPECT_NEAR(sum / 400'000, 5e4, law == ArrivalLaw::on_off ? 1e3 : 1e4);
    EXPECT_GT(back_to_back, 300'000U);
  }
}

// The variance of sums falls by 1/n where nothing is remembered, far slower where traffic is
// self-similar.
TEST(Arrivals, SelfSimilarTrafficRemembers) {
  const auto spread = [](ArrivalLaw law) {
    const auto gaps =
        gaps_of({.law = law, .shape = 1.4, .message_ns = 1e4, .gap_ns = 5e4}, 5, 600'000);
    std::vector<double> counts(3000);  // messages in each 10 ms
    double at = 0;
    for (const double gap : gaps) {
      at += gap;
      const auto bin = static_cast<std::size_t>(at / 1e7);
      if (bin < counts.size()) counts[bin] += 1;
    }
    double sum = 0;
    double squares = 0;
    for (const double count : counts) {
      sum += count;
      squares += count * count;
    }
    const double mean = sum / 3000;
    return (squares / 3000 - mean * mean) / mean;
  };
  EXPECT_NEAR(spread(ArrivalLaw::poisson), 1, 0.2);
  EXPECT_GT(spread(ArrivalLaw::self_similar), 2 * spread(ArrivalLaw::on_off));
}

TEST(Kinds, Profiles) {
  const auto right = parse_profile("best-effort=1,0.5,0");
  ASSERT_TRUE(right);
  EXPECT_EQ(right->kind, "best-effort");
  EXPECT_EQ(right->factors, (std::vector<double>{1, 0.5, 0}));
  for (const char* wrong : {"best-effort", "best-effort=", "x=1,", "x=0,0", "x=-1", "x=1;2", "x=a",
                            "x=1,,2", "x=1e9"}) {
    EXPECT_FALSE(parse_profile(wrong)) << wrong;
  }
}

TEST(Arrivals, CatchUpNeverSchedulesThePast) {
  Arrivals arrivals({.gap_ns = 1000}, 2);
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
  EXPECT_EQ(ud_payload(40, {}), 604U);
  EXPECT_EQ(ud_payload(10, {}), 124U);
  for (std::uint32_t flits = 5; flits <= 128; ++flits) {
    const std::uint32_t bytes = ud_payload(flits, {}) + 34;
    EXPECT_EQ((bytes + 15) / 16, flits);
  }
}

TEST(Kinds, StreamsAreAsManyAsTheRateNeedsAndEachIsItsOwn) {
  const std::vector<std::string> to = {"n1", "n2"};
  EXPECT_EQ(synthetic_streams("cbr", "n0", to, 0, 1)->size(), 1U);
  EXPECT_EQ(synthetic_streams("cbr", "n0", to, 11e6, 1)->size(), 3U);
  EXPECT_FALSE(synthetic_streams("cbr", "n0", to, 1e6, 1));
  EXPECT_FALSE(synthetic_streams("cbr", "n0", to, 1e12, 1));
  std::map<std::string, int> clips;
  for (const char* node : {"n0", "n3"}) {
    const auto streams = synthetic_streams("vbr", node, to, 16e6, 7);
    ASSERT_TRUE(streams);
    EXPECT_EQ((*streams)[1].to, "n2");
    EXPECT_EQ((*streams)[2].phase_us, 16'666U);
    EXPECT_TRUE(check_names(*streams));
    for (const StreamPlan& stream : *streams) ++clips[stream.clip];
  }
  EXPECT_EQ(clips.size(), 8U);
  const auto far = synthetic_streams("cbr", std::string(31, 'a'), {std::string(31, 'b')}, 8e6, 1);
  ASSERT_TRUE(far);
  EXPECT_NE((*far)[0].name.substr(0, 48), (*far)[1].name.substr(0, 48));
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
  // Where the stamp needs more than the flits asked for, the gap is that of what is sent: control
  // of 10 flits of 4 bytes has 74 bytes on the link, 19 flits.
  const auto small = parse_kind("control=8M", {.flit_bytes = 4});
  ASSERT_TRUE(small);
  EXPECT_NEAR(small->arrivals.gap_ns, 19 * 32 / 8e6 * 1e9, 1e-6);
  // What no clock of nanoseconds can space, and what no packet can hold.
  EXPECT_FALSE(parse_kind("best-effort=1000G", {.flit_bytes = 4, .packet_flits = 5}));
  EXPECT_FALSE(parse_kind("best-effort=1M", {.flit_bytes = 64, .packet_flits = 128}));
  EXPECT_FALSE(parse_kind("worst-effort=1M", {}));
}

}  // namespace
}  // namespace tools

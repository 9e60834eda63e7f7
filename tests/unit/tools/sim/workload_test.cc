// The papers' workloads without a network: rates, spacing, destinations, and that a seed is a run.
#include "tools/sim/workload.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

namespace tools {
namespace {

struct Frames : FrameBook {
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::uint32_t> messages;
  void frame_begins(std::uint32_t stream, std::uint32_t frame, std::uint32_t count) override {
    EXPECT_TRUE(messages.emplace(std::pair(stream, frame), count).second);
  }
};

// 8 nodes at 400 Mb/s, flits of 32 bit: a frame time is 416 667 cycles.
Setting setting_of(const WorkloadSpec& spec, emu::Cycle end) {
  Setting setting;
  setting.spec = spec;
  setting.time = {80'000};
  setting.flits_per_cycle_mbps = 400;
  setting.flit_bits = 32;
  setting.lanes = {0x8000, 0x7ff0, 0x000f};
  setting.end = end;
  return setting;
}

std::vector<FlitMessage> all_of(const Setting& setting, FrameBook& book, std::uint64_t seed,
                                emu::Cycle step = 1000) {
  auto workload = make_workload(setting, book, seed);
  EXPECT_TRUE(workload) << (workload ? "" : workload.error().message);
  std::vector<FlitMessage> messages;
  for (emu::Cycle at = step; at <= setting.end; at += step) {
    for (auto& source : workload->sources) source->feed(at, messages);
  }
  return messages;
}

double load_of(const std::vector<FlitMessage>& messages, emu::TrafficClass traffic_class,
               emu::Cycle from, emu::Cycle upto) {
  double flits = 0;
  for (const auto& m : messages) {
    if (m.traffic_class == traffic_class && m.created >= from && m.created < upto) flits += m.flits;
  }
  return flits / 8 / static_cast<double>(upto - from);
}

// The same, but each source is asked only when what it said is due.
std::vector<FlitMessage> when_due(const Setting& setting, FrameBook& book, std::uint64_t seed,
                                  emu::Cycle step) {
  auto workload = make_workload(setting, book, seed);
  EXPECT_TRUE(workload) << (workload ? "" : workload.error().message);
  std::vector<FlitMessage> messages;
  std::vector<emu::Cycle> due(workload->sources.size());
  for (emu::Cycle at = step; at <= setting.end; at += step) {
    for (std::size_t i = 0; i < due.size(); ++i) {
      if (due[i] >= at) continue;
      due[i] = workload->sources[i]->feed(at, messages);
      EXPECT_GE(due[i], at);
    }
  }
  return messages;
}

TEST(Workload, SourcesSayWhenTheyAreNext) {
  for (const StreamKind kind :
       {StreamKind::none, StreamKind::cbr, StreamKind::vbr, StreamKind::on_off}) {
    WorkloadSpec spec;
    spec.streams = kind;
    spec.load = 0.6;
    spec.real_time_share = 0.5;
    spec.control_per_frame = 3;
    spec.pulse_cycles = kind == StreamKind::none ? 20'000 : 0;
    spec.flows = {{.label = "flow", .source = 1, .dest = 2, .load = 0.01}};
    const Setting setting = setting_of(spec, 900'000);
    Frames asked;
    Frames due;
    const auto all = all_of(setting, asked, 4, 500);
    const auto some = when_due(setting, due, 4, 500);
    EXPECT_EQ(asked.messages, due.messages);
    ASSERT_GT(all.size(), 200U);
    ASSERT_EQ(all.size(), some.size());
    for (std::size_t i = 0; i < all.size(); ++i) {
      ASSERT_EQ(all[i].created, some[i].created);
      ASSERT_EQ(all[i].source, some[i].source);
      ASSERT_EQ(all[i].dest, some[i].dest);
      ASSERT_EQ(all[i].flits, some[i].flits);
    }
  }
}

TEST(Workload, LoadAndMixAreMet) {
  WorkloadSpec spec;
  spec.load = 0.8;
  spec.real_time_share = 0.75;
  spec.message_flits = 20;
  const Setting setting = setting_of(spec, 2'500'000);
  Frames frames;
  const auto messages = all_of(setting, frames, 1);
  // 60 streams of 4 Mb/s; a header in 20 flits is 20/19 of that; one flit of rounding a message.
  EXPECT_NEAR(load_of(messages, emu::TrafficClass::real_time, 1'000'000, 2'500'000), 0.6 * 20 / 19,
              0.01);
  EXPECT_NEAR(load_of(messages, emu::TrafficClass::best_effort, 0, 2'500'000), 0.2, 0.01);
}

// A frame has at least a byte. What that takes from a normal distribution of frame sizes that is
// wide must not be felt in the load.
TEST(Workload, FramesOfTheWidestSpreadKeepTheirMean) {
  const auto part_of_mean = [](double frame_sd) {
    WorkloadSpec spec;
    spec.load = 1;
    spec.real_time_share = 1;
    spec.stream_kbps = 100'000;
    spec.frame_ms = 0.1;
    spec.frame_sd = frame_sd;
    const Setting setting = setting_of(spec, 1'250'000);  // a thousand frames of each of 32 streams
    Frames frames;
    double flits = 0;
    for (const auto& m : all_of(setting, frames, 5)) flits += m.flits - 1;
    return flits * 32 / 10'000 / static_cast<double>(frames.messages.size());
  };
  EXPECT_NEAR(part_of_mean(kFrameSdMost), 1, 0.01);
  EXPECT_GT(part_of_mean(1), 1.07) << "why there is a limit";
}

TEST(Workload, FramesLeaveEvenlyAndCompletely) {
  WorkloadSpec spec;
  spec.load = 0.02;
  spec.real_time_share = 1;
  spec.message_flits = 20;
  const Setting setting = setting_of(spec, 2'000'000);
  Frames frames;
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::vector<FlitMessage>> seen;
  for (const auto& m : all_of(setting, frames, 2)) seen[{m.stream, m.frame}].push_back(m);
  int whole = 0;
  for (const auto& [key, messages] : seen) {
    if (messages.size() != frames.messages.at(key)) continue;  // the last one of the run
    ++whole;
    const double interval = 416'666.7 / static_cast<double>(messages.size());
    for (std::size_t i = 1; i < messages.size(); ++i) {
      const auto gap = static_cast<double>(messages[i].created - messages[i - 1].created);
      EXPECT_NEAR(gap, interval, 1.5);
    }
    EXPECT_EQ(messages[0].vtick, static_cast<emu::Vtick>(std::ceil(interval / 20)));
  }
  EXPECT_GT(whole, 30);
}

// A stream's Vtick is that of what it books, at arbiters and live HCAs alike: whole cycles, rounded
// up. Of 230 Mb/s on a link of 400 that is 2; with 1 it would have 400.
TEST(Workload, VticksOfStreamsAreThoseOfBookings) {
  emu::Prng prng(3);
  for (int i = 0; i < 1000; ++i) {
    const std::uint64_t rate_bps = 20'000 + prng() % 400'000'000;
    EXPECT_EQ(vtick_of(400e6 / static_cast<double>(rate_bps)), emu::vtick_of(400e6, rate_bps))
        << rate_bps << " of seed 3";
  }
  for (const double cycles : {1.0, 3.0, 97.0, 4000.0})
    EXPECT_EQ(vtick_of(1 / (1 / (cycles * 0.7) * 0.7)), cycles) << "not one more by arithmetic";
  EXPECT_EQ(vtick_of(0.1), 1);
  EXPECT_EQ(vtick_of(1e12), emu::kVtickMax - 1);
  WorkloadSpec spec;
  spec.streams = StreamKind::on_off;
  spec.stream_kbps = 115'000;  // 230 Mb/s while it is ON
  spec.load = 115.0 / 400;
  spec.real_time_share = 1;
  spec.header_flits = 0;
  spec.message_flits = 20;
  const Setting setting = setting_of(spec, 400'000);
  Frames frames;
  const auto workload = make_workload(setting, frames, 2);
  ASSERT_TRUE(workload);
  ASSERT_FALSE(workload->demands.empty());
  for (const StreamDemand& demand : workload->demands) {
    EXPECT_EQ(demand.rate_bps, 115'000'000U);
    EXPECT_EQ(demand.peak_bps, 230'000'000U);
    EXPECT_EQ(demand.vtick, 4) << "its mean rate";
  }
  for (const auto& m : all_of(setting, frames, 2)) EXPECT_EQ(m.vtick, 2);
}

TEST(Workload, CbrFramesAreEqualAndVbrFramesHaveThePapersDeviation) {
  for (const bool vbr : {false, true}) {
    WorkloadSpec spec;
    spec.streams = vbr ? StreamKind::vbr : StreamKind::cbr;
    spec.load = 0.5;
    spec.real_time_share = 1;
    spec.message_flits = 20;
    const Setting setting = setting_of(spec, 3'000'000);
    Frames frames;
    (void)all_of(setting, frames, 3);
    double sum = 0;
    double square = 0;
    for (const auto& [key, count] : frames.messages) {
      sum += count;
      square += static_cast<double>(count) * count;
    }
    const auto n = static_cast<double>(frames.messages.size());
    const double mean = sum / n;
    const double deviation = std::sqrt(square / n - mean * mean);
    EXPECT_NEAR(mean, 16'666.0 * 8 / 32 / 19, 3);
    EXPECT_NEAR(deviation / mean, vbr ? 0.2 : 0, 0.02);
  }
}

TEST(Workload, Mpeg2SequencesHaveTheRatesOfTheTable) {
  constexpr double kRates[] = {7138.2, 15231.4, 13526.4, 8356.5, 6124.2, 18406.0, 13497.9};
  const auto sequences = mpeg2_sequences();
  ASSERT_EQ(sequences.size(), std::size(kRates));
  for (std::size_t i = 0; i < sequences.size(); ++i) {
    const auto& s = sequences[i];
    const double kbps = (s.i_kbit + 3 * s.p_kbit + 8 * s.b_kbit) / 12 * 30;
    // The table implies N = 12, M = 3; row 3 fits no pattern better.
    EXPECT_NEAR(kbps / kRates[i], 1, 0.02) << i;
  }
}

TEST(Workload, BalancedStreamsLoadEveryReceiverAlike) {
  WorkloadSpec spec;
  spec.load = 0.5;
  spec.real_time_share = 1;
  const Setting setting = setting_of(spec, 500'000);
  Frames frames;
  std::map<emu::NodeId, std::set<std::uint32_t>> to;
  for (const auto& m : all_of(setting, frames, 4)) {
    EXPECT_NE(m.source, m.dest);
    to[m.dest].insert(m.stream);
  }
  for (const auto& [dest, streams] : to) EXPECT_EQ(streams.size(), to[0].size());
}

TEST(Workload, PulsesChangeTheLoadAtTheirCycle) {
  WorkloadSpec spec;
  spec.streams = StreamKind::none;
  spec.load = 0.8;
  spec.pulse_load = 0.05;
  spec.pulse_cycles = 50'000;
  spec.message_flits = 16;
  const Setting setting = setting_of(spec, 200'000);
  Frames frames;
  const auto messages = all_of(setting, frames, 5);
  for (const emu::Cycle from : {0, 100'000}) {
    EXPECT_NEAR(load_of(messages, emu::TrafficClass::best_effort, from, from + 50'000), 0.8, 0.04);
    EXPECT_NEAR(load_of(messages, emu::TrafficClass::best_effort, from + 50'000, from + 100'000),
                0.05, 0.01);
  }
}

TEST(Workload, PhasesChangeTheMix) {
  WorkloadSpec spec;
  spec.load = 0.6;
  spec.phases = {0.2, 0.8};
  spec.message_flits = 20;
  const Setting setting = setting_of(spec, 4'000'000);
  Frames frames;
  const auto messages = all_of(setting, frames, 6);
  using enum emu::TrafficClass;
  EXPECT_NEAR(load_of(messages, best_effort, 0, 2'000'000), 0.48, 0.02);
  EXPECT_NEAR(load_of(messages, best_effort, 2'000'000, 4'000'000), 0.12, 0.01);
  EXPECT_NEAR(load_of(messages, real_time, 500'000, 2'000'000), 0.12 * 20 / 19, 0.02);
  EXPECT_NEAR(load_of(messages, real_time, 2'500'000, 4'000'000), 0.48 * 20 / 19, 0.02);
}

// A change at a fraction of a cycle was never reached: the run had no end.
TEST(Workload, PhasesOfAnyLengthEnd) {
  WorkloadSpec spec;
  spec.load = 0.6;
  spec.phases = {0.2, 0.3, 0.5, 0.7, 0.8};
  for (emu::Cycle length = 100'000; length < 100'050; ++length) {
    const Setting setting = setting_of(spec, length);
    for (emu::Cycle cycle = 0; cycle < length; cycle = setting.next_phase(cycle)) {
      const emu::Cycle next = setting.next_phase(cycle);
      ASSERT_GT(next, cycle);
      EXPECT_EQ(setting.share_at(next - 1), setting.share_at(cycle));
      if (next < length) {
        EXPECT_NE(setting.share_at(next), setting.share_at(cycle));
      }
    }
    Frames frames;
    const auto messages = all_of(setting, frames, 7);
    EXPECT_NEAR(load_of(messages, emu::TrafficClass::best_effort, 0, length), 0.3, 0.05);
  }
}

// More of them come where the mix asks for more, and the newest end where it asks for less.
TEST(Workload, StreamsGoOnThroughPhases) {
  WorkloadSpec spec;
  spec.load = 0.6;
  spec.phases = {0.2, 0.8, 0.4};
  spec.message_flits = 20;
  const Setting setting = setting_of(spec, 4'500'000);
  Frames frames;
  std::set<std::uint32_t> streams[3];
  // A frame goes on to its end after its phase's.
  for (const auto& m : all_of(setting, frames, 6)) {
    if (m.stream == kNoStream || m.created % 1'500'000 < 500'000) continue;
    streams[m.created / 1'500'000].insert(m.stream);
  }
  EXPECT_EQ(streams[0].size(), 96u);  // 12 of 4 Mb/s make 0.12 of a link
  EXPECT_EQ(streams[1].size(), 384u);
  EXPECT_EQ(streams[2].size(), 192u);
  EXPECT_TRUE(std::ranges::includes(streams[1], streams[0]));
  EXPECT_TRUE(std::ranges::includes(streams[1], streams[2]));
  EXPECT_TRUE(std::ranges::includes(streams[2], streams[0]));
  EXPECT_EQ(*streams[2].rbegin(), 191u);
}

TEST(Workload, BurstyArrivalsKeepTheMeanLoad) {
  for (const ArrivalLaw law : {ArrivalLaw::on_off, ArrivalLaw::self_similar}) {
    WorkloadSpec spec;
    spec.streams = StreamKind::none;
    spec.arrivals = law;
    spec.load = 0.3;
    const Setting setting = setting_of(spec, 20'000'000);
    Frames frames;
    const auto messages = all_of(setting, frames, 7, 100'000);
    // Pareto's mean converges slowly: that is what makes it self-similar.
    EXPECT_NEAR(load_of(messages, emu::TrafficClass::best_effort, 0, 20'000'000), 0.3,
                law == ArrivalLaw::on_off ? 0.015 : 0.06);
  }
}

// Pulses that change nothing change nothing, however short they are.
TEST(Workload, BurstsPassPulses) {
  for (const std::uint32_t pulse : {40, 300, 1000, 100'000}) {
    WorkloadSpec spec;
    spec.streams = StreamKind::none;
    spec.arrivals = ArrivalLaw::on_off;
    spec.load = spec.pulse_load = 0.3;
    spec.pulse_cycles = pulse;
    const Setting setting = setting_of(spec, 4'000'000);
    Frames frames;
    const auto messages = all_of(setting, frames, 7, 100'000);
    EXPECT_NEAR(load_of(messages, emu::TrafficClass::best_effort, 0, 4'000'000), 0.3, 0.03);
  }
  WorkloadSpec spec;
  spec.streams = StreamKind::none;
  spec.load = 0;
  spec.pulse_load = 0.4;
  spec.pulse_cycles = 10'000;
  Frames frames;
  const auto messages = all_of(setting_of(spec, 2'000'000), frames, 7, 100'000);
  EXPECT_NEAR(load_of(messages, emu::TrafficClass::best_effort, 0, 2'000'000), 0.2, 0.02);
}

TEST(Workload, ControlMessagesComeAtTheirRate) {
  WorkloadSpec spec;
  spec.streams = StreamKind::none;
  spec.load = 0;
  spec.control_per_frame = 10;
  const Setting setting = setting_of(spec, 41'666'700);
  Frames frames;
  const auto messages = all_of(setting, frames, 8, 100'000);
  EXPECT_NEAR(static_cast<double>(messages.size()), 8 * 10 * 100, 3 * std::sqrt(8000.0));
  for (const auto& m : messages) EXPECT_EQ(m.vl_in, 15);
}

TEST(Workload, ASeedIsARunHoweverItIsFed) {
  WorkloadSpec spec;
  spec.load = 0.4;
  const Setting setting = setting_of(spec, 600'000);
  Frames a;
  Frames b;
  Frames c;
  const auto sum = [](const std::vector<FlitMessage>& messages) {
    std::uint64_t total = 0;
    for (const auto& m : messages) total += m.created * 31 + m.dest * 7 + m.vl_out + m.stream;
    return total;
  };
  const auto once = sum(all_of(setting, a, 9, 600'000));
  EXPECT_EQ(once, sum(all_of(setting, b, 9, 1'000)));
  EXPECT_NE(once, sum(all_of(setting, c, 10, 1'000)));
}

TEST(Pattern, EachIsWhatItsNameSays) {
  emu::Prng prng(1);
  const Pattern reversal(PatternKind::bit_reversal, 8, 0, 1);
  EXPECT_EQ(reversal.destination(1, prng), 4);
  EXPECT_EQ(reversal.destination(6, prng), 3);
  EXPECT_EQ(reversal.destination(5, prng), 5);
  const Pattern shuffled(PatternKind::shuffle, 8, 0, 1);
  EXPECT_EQ(shuffled.destination(3, prng), 6);
  EXPECT_EQ(shuffled.destination(4, prng), 1);
  const Pattern partners(PatternKind::permutation, 9, 0, 1);
  std::set<emu::NodeId> taken;
  for (emu::NodeId n = 0; n < 9; ++n) {
    EXPECT_NE(partners.destination(n, prng), n);
    taken.insert(partners.destination(n, prng));
  }
  EXPECT_EQ(taken.size(), 9U);
  const Pattern pairs(PatternKind::pairs, 9, 0, 1);
  int silent = 0;
  for (emu::NodeId n = 0; n < 9; ++n) {
    const emu::NodeId other = pairs.destination(n, prng);
    EXPECT_EQ(pairs.destination(other, prng), n);
    silent += other == n ? 1 : 0;
  }
  EXPECT_EQ(silent, 1);
  const Pattern hot(PatternKind::hot_spot, 8, 0.5, 1);
  int hits = 0;
  for (int i = 0; i < 10'000; ++i) hits += hot.destination(3, prng) == 0 ? 1 : 0;
  EXPECT_NEAR(hits, 10'000 * (0.5 + 0.5 / 7), 200);
  EXPECT_FALSE(Pattern::fits(PatternKind::bit_reversal, 12));
}

}  // namespace
}  // namespace tools

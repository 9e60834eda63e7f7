// Batches of a run: what counts where, and when a frame is complete.
#include "tools/sim/measure.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace tools {
namespace {

void arrive(Measure& measure, std::uint32_t frame, emu::Cycle tail) {
  measure.delivered({.stream = 0, .frame = frame}, tail, tail);
}

// A cycle of 1 us; batches of 100 ms; frames of 30 ms.
Measure meter(std::size_t batches = 3) {
  return {emu::CycleTime{1'000'000}, 100'000, batches, 1, 30.0};
}

TEST(Measure, DeliveriesCountInTheBatchOfTheirTail) {
  Measure measure = meter();
  using enum emu::TrafficClass;
  FlitMessage message{.created = 98'900, .accepted = 99'000, .stream = kNoStream, .flits = 20};
  measure.delivered(message, 99'500, 100'000);
  measure.delivered(message, 99'400, 99'999);
  message.traffic_class = control;
  measure.delivered(message, 99'500, 400'000);  // after the end
  const auto& batches = measure.batches();
  const auto& first = batches[0].classes[static_cast<std::size_t>(best_effort)];
  const auto& second = batches[1].classes[static_cast<std::size_t>(best_effort)];
  EXPECT_EQ(first.messages, 1);
  EXPECT_EQ(first.network_cycles, 599);
  EXPECT_EQ(first.queue_cycles, 400);
  EXPECT_EQ(first.host_cycles, 100);
  EXPECT_EQ(second.flits, 20);
  EXPECT_EQ(batches[2].classes[static_cast<std::size_t>(control)].messages, 0);
}

TEST(Measure, HostsTakeTheirTimeForWhatHasArrived) {
  Measure measure = meter();
  measure.host_takes(7);
  measure.delivered({.created = 90, .accepted = 100, .stream = kNoStream}, 110, 150);
  const auto& best_effort = measure.batches()[0].classes[2];
  EXPECT_EQ(best_effort.network_cycles, 40);
  EXPECT_EQ(best_effort.host_cycles, 10 + 7);
}

std::string written(const Measure& measure) {
  emu::JsonWriter json;
  json.open();
  measure.write(json);
  json.close();
  return json.text();
}

double value_in(const std::string& text, const std::string& key) {
  return std::stod(text.substr(text.find("\"" + key + "\":") + key.size() + 3));
}

// Of each half of a run a thousand messages of best effort: those of the first take long.
std::string tails_of(Measure measure) {
  for (emu::Cycle i = 0; i < 1000; ++i) {
    FlitMessage message{.created = 300'000 + i, .accepted = 300'000 + i, .stream = kNoStream};
    message.source = static_cast<emu::NodeId>(i % 2);
    const emu::Cycle latency = i < 990 ? 100 : 5000;
    measure.offered(message);
    measure.delivered(message, message.created, message.created + latency);
    message.created = message.accepted = 1000;
    message.source = 0;
    measure.delivered(message, 1000, 99'000);
  }
  return written(measure);
}

TEST(Measure, TailsAndSharesAreThoseOfTheSecondHalf) {
  const std::string text = tails_of(meter(4));
  EXPECT_EQ(value_in(text, "tails_from_cycle"), 200'000);
  EXPECT_NEAR(value_in(text, "best_effort_p50_cycles"), 100, 5);
  EXPECT_NEAR(value_in(text, "best_effort_p999_cycles"), 5000, 200);
  EXPECT_NE(text.find("\"node_flits\":[500,500]"), std::string::npos) << text.substr(0, 400);
  EXPECT_NE(text.find("\"node_offered_flits\":[500,500]"), std::string::npos) << text;
}

// Where a change is what is measured there is no warm-up: means and tails are of the same run.
TEST(Measure, TailsOfATransientAreThoseOfAll) {
  Measure measure = meter(4);
  measure.tails_of_all();
  const std::string text = tails_of(std::move(measure));
  EXPECT_EQ(value_in(text, "tails_from_cycle"), 0);
  EXPECT_NEAR(value_in(text, "best_effort_p50_cycles"), 5000, 200);
  EXPECT_NEAR(value_in(text, "best_effort_p99_cycles"), 98'000, 4000);
  EXPECT_NE(text.find("\"node_flits\":[1500,500]"), std::string::npos) << text.substr(0, 400);
}

TEST(Measure, AClassOfWhichNothingCameHasNoTail) {
  const std::string text = tails_of(meter(4));
  for (const char* quantile : {"p50", "p99", "p999"}) {
    const std::string nothing = fmt::format("\"control_{}_cycles\":null", quantile);
    EXPECT_NE(text.find(nothing), std::string::npos) << text.substr(0, 400);
  }
}

TEST(Measure, AFrameIsCompleteWithItsLastMessage) {
  Measure measure = meter();
  for (std::uint32_t frame = 0; frame < 3; ++frame) measure.frame_begins(0, frame, 2);
  const auto frame = [&](std::uint32_t number, emu::Cycle first, emu::Cycle last) {
    arrive(measure, number, first);
    arrive(measure, number, last);
  };
  frame(0, 10'000, 20'000);  // the first: no interval, no deadline
  frame(1, 40'000, 51'000);  // 31 ms later: 1 ms late, and deadlines count from here
  frame(2, 80'000, 110'000);
  const Batch& first = measure.batches()[0];
  EXPECT_EQ(first.frames, 1);
  EXPECT_EQ(first.missed, 1);
  EXPECT_NEAR(first.late_ms, 1, 1e-9);
  EXPECT_DOUBLE_EQ(first.deviation_ms, 1);
  const Batch& second = measure.batches()[1];
  EXPECT_EQ(second.missed, 1);
  EXPECT_NEAR(second.late_ms, 110 - (51 + 30), 1e-9);
  EXPECT_DOUBLE_EQ(second.deviation_ms, 29);
  EXPECT_DOUBLE_EQ(second.deviation_sq, 29 * 29);
  EXPECT_EQ(measure.frames_under_way(), 0U);
}

TEST(Measure, FramesMayOvertakeEachOther) {
  Measure measure = meter();
  measure.frame_begins(0, 0, 1);
  measure.frame_begins(0, 1, 1);
  measure.frame_begins(0, 2, 1);
  arrive(measure, 1, 10'000);
  EXPECT_EQ(measure.frames_under_way(), 3U);  // frame 0 is still the oldest
  arrive(measure, 0, 20'000);
  arrive(measure, 2, 30'000);
  EXPECT_EQ(measure.frames_under_way(), 0U);
}

// The interval is one of frames that follow one another: what lies between a stream's silence and
// its return says nothing of how the network delivers.
TEST(Measure, NoIntervalIsMeasuredOverFramesThatNeverCame) {
  Measure measure = meter();
  for (std::uint32_t frame = 0; frame < 5; ++frame) measure.frame_begins(0, frame, 2);
  const auto come = [&](std::uint32_t frame, emu::Cycle tail) {
    arrive(measure, frame, tail - 100);
    arrive(measure, frame, tail);
  };
  come(0, 10'000);
  arrive(measure, 1, 35'000);
  measure.given_up({.stream = 0, .frame = 1});  // the other half of it
  measure.given_up({.stream = 0, .frame = 2});
  measure.given_up({.stream = 0, .frame = 2});
  come(3, 101'000);
  come(4, 131'000);
  EXPECT_EQ(measure.frames_under_way(), 0U);
  EXPECT_EQ(measure.batches()[0].frames, 0);
  const Batch& batch = measure.batches()[1];
  EXPECT_EQ(batch.frames, 2);
  EXPECT_EQ(batch.missed, 1) << "frame 3 is due at 100 ms, frame 4 30 ms after it came";
  EXPECT_EQ(batch.intervals, 1);
  EXPECT_NEAR(batch.deviation_ms, 0, 1e-9);
}

// Power windows have 500 cycles. A batch of 200 has a part of one or of two, a batch of 700 has a
// whole one and a part.
TEST(Measure, AWindowsEnergyGoesToBatchesByCycles) {
  Measure small({1'000'000}, 200, 5, 0, 30.0);
  Measure large({1'000'000}, 700, 2, 0, 30.0);
  for (Measure* measure : {&small, &large}) {
    measure->window(500, 1000, 100);
    measure->window(1000, 2000, 80);
    measure->window(1500, 5000, 10);
    measure->hca_window(500, 10, 3);
    measure->hca_window(1000, 20, 2);
  }
  const auto values = [](const Measure& measure, double Batch::*member) {
    std::vector<double> found;
    for (const Batch& batch : measure.batches()) found.push_back(batch.*member);
    return found;
  };
  using Values = std::vector<double>;
  EXPECT_EQ(values(small, &Batch::energy_pj), (Values{400, 400, 200 + 400, 800, 800}));
  EXPECT_EQ(values(small, &Batch::window_pj), (Values{1000, 1000, 2000, 2000, 2000}));
  EXPECT_EQ(values(small, &Batch::router_window_pj), (Values{100, 100, 100, 80, 80}));
  EXPECT_EQ(values(small, &Batch::hca_pj), (Values{4, 4, 2 + 4, 8, 8}));
  EXPECT_EQ(values(small, &Batch::hca_window_pj), (Values{3, 3, 3, 2, 2}));
  EXPECT_EQ(values(large, &Batch::energy_pj), (Values{1000 + 800, 1200 + 4000}));
  EXPECT_EQ(values(large, &Batch::window_pj), (Values{2000, 5000}));
}

TEST(Measure, JsonHasASeriesPerMeasure) {
  Measure measure = meter(2);
  measure.window(150'000, 7.5, 2);
  emu::JsonWriter json;
  json.open();
  measure.write(json);
  json.close();
  EXPECT_NE(json.text().find("\"energy_pj\":[0,7.5]"), std::string::npos) << json.text();
  EXPECT_NE(json.text().find("\"best_effort_messages\":[0,0]"), std::string::npos);
}

}  // namespace
}  // namespace tools

// Links that fail during a run: what is asked for is checked, streams whose ways change ask again,
// and no booking is left where nobody goes.
#include "tools/sim/failures.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/unit/tools/sim/runs.h"

namespace tools {
namespace {

TEST(Failures, AreReadAndRefused) {
  const auto failure = parse_failure("17:4 0.25 0.5");
  ASSERT_TRUE(failure);
  EXPECT_EQ(failure->link, (fabric::LinkEnd{17, 4}));
  EXPECT_EQ(failure->from, 0.25);
  EXPECT_EQ(failure->until, 0.5);
  for (const char* text : {"", "17", "17:4", "17:4 0.5", "17:4 0.5 0.5", "17:4 0.5 1.5", "17-4 0 1",
                           "17:99 0 1", "17:4 0 1 2", "17:4 -1 1", "17:4 nan 1"}) {
    EXPECT_FALSE(parse_failure(text)) << text;
  }
}

// Every router between two leaves; real time that fills a good part of what is left.
std::string tree(const std::string& failures, int batch_cycles = 20'000) {
  return fmt::format(R"([network]
topology = "tree:4x2"
alloc_iters = 4
[controls]
admission = true
congestion = "credit"
power_control = true
power_cap_load = 0.6
reservable_share = 0.9
[qos]
scheduler = "two_level"
[workload]
streams = "on_off"
stream_kbps = 200000
placement = "uniform"
load = 0.9
real_time_share = 0.7
[run]
hca = true
batch_cycles = {}
batches = 4
failures = [{}]
)",
                     batch_cycles, failures);
}

std::string refusal(const std::string& failures) {
  auto point = parse_point(tree(failures), "a test");
  if (!point) return point.error().message;
  const auto run = FlitRun::make(*point);
  return run ? "" : run.error().message;
}

TEST(Failures, WhatCannotBeIsRefusedBeforeTheRun) {
  EXPECT_NE(refusal("\"x\"").find("run.failures"), std::string::npos);
  EXPECT_NE(refusal("\"0:0 0.1 0.2\"").find("link 0:0"), std::string::npos);
  // Only where they overlap is leaf 0 cut off.
  const std::string three = "\"0:4 0 1\", \"0:5 0 1\", \"0:6 0 1\", ";
  EXPECT_NE(refusal(three + "\"0:7 0.5 0.6\"").find("no way"), std::string::npos);
  EXPECT_EQ(refusal(three + "\"1:4 0.5 0.6\""), "");
}

// Whoever has a booking has it on the way that its messages take, and nobody has one elsewhere.
void expect_books_follow_ways(const FlitRun& run) {
  const Bookings& bookings = *run.bookings();
  std::size_t hops = 0;
  for (std::uint32_t i = 0; i < bookings.streams(); ++i) {
    ASSERT_NE(bookings.standing(i), Bookings::Standing::asking) << "no answer to stream " << i;
    if (bookings.standing(i) == Bookings::Standing::granted)
      hops += run.network().path(bookings.demand(i).source, bookings.demand(i).dest).size();
  }
  std::size_t booked = 0;
  for (int r = 0; r < bookings.admission().router_count(); ++r)
    booked += bookings.admission().book(static_cast<emu::RouterId>(r)).bookings();
  EXPECT_EQ(booked, hops);
}

std::uint32_t granted(const FlitRun& run) {
  std::uint32_t count = 0;
  for (std::uint32_t i = 0; i < run.bookings()->streams(); ++i)
    count += run.bookings()->standing(i) == Bookings::Standing::granted ? 1 : 0;
  return count;
}

TEST(Failures, StreamsAskAgainAndNoBookingIsLeftBehind) {
  const auto run = make_point(tree(R"("0:4 0.25 1", "1:5 0.25 0.75", "2:6 0.5 0.76")"));
  run->play();
  EXPECT_EQ(run->network().audit(), "");
  EXPECT_EQ(run->network().stuck(), "");
  EXPECT_EQ(run->network().down().size(), 1U);
  const Bookings::Again again = run->bookings()->again();
  EXPECT_GT(again.asked, 0U);
  EXPECT_GT(again.granted, 0U);
  EXPECT_GT(again.cycles, again.asked * 10);
  expect_books_follow_ways(*run);
  const std::string json = run->json();
  EXPECT_NE(json.find("\"links_down\":[0,2,3,2]"), std::string::npos) << json.substr(0, 400);
}

TEST(Failures, WithLinksBackEveryoneIsWhereHeWas) {
  const auto whole = make_point(tree(""));
  const std::uint32_t before = granted(*whole);
  const auto run = make_point(tree(R"("0:4 0.25 0.5", "0:5 0.25 0.5", "0:6 0.25 0.5")"));
  EXPECT_EQ(granted(*run), before);
  run->play();
  EXPECT_NE(run->json().find("\"given_up\":"), std::string::npos);
  EXPECT_EQ(run->json().find("\"given_up\":0,"), std::string::npos) << "one link held them all";
  EXPECT_TRUE(run->network().down().empty());
  expect_books_follow_ways(*run);
  // Who asks first is another matter than before the run.
  EXPECT_GE(granted(*run), before * 9 / 10);
}

// Frames of 0.2 ms, and links that are away for 32 of them.
TEST(Failures, SilenceIsNoInterval) {
  std::string text = tree(R"("0:4 0.25 0.5", "0:5 0.25 0.5", "0:6 0.25 0.5")");
  const std::string of_bursts = "streams = \"on_off\"\nstream_kbps = 200000\n";
  text.replace(text.find(of_bursts), of_bursts.size(),
               "streams = \"vbr\"\nstream_kbps = 50000\nframe_ms = 0.2\n");
  const auto run = play_point(text);
  EXPECT_EQ(run->json().find("\"given_up\":0,"), std::string::npos);
  double intervals = 0;
  double deviation_sq = 0;
  for (const Batch& batch : run->measure().batches()) {
    intervals += batch.intervals;
    deviation_sq += batch.deviation_sq;
  }
  EXPECT_GT(intervals, 1000);
  EXPECT_LT(std::sqrt(deviation_sq / intervals), 0.1) << "ms";
  EXPECT_LT(run->measure().frames_under_way(), 2 * run->bookings()->streams());
}

TEST(Failures, ThePointIsTheRun) {
  const auto played = [](const std::string& failures) {
    const auto run = make_point(tree(failures, 5'000));
    run->play();
    return run->json();
  };
  const std::string text = R"("0:4 0.3 0.6")";
  const std::string one = played(text);
  EXPECT_EQ(one, played(text));
  EXPECT_NE(one, played(R"("0:4 0.3 0.7")"));
}

// Traffic without admission goes round too.
TEST(Failures, WithoutAdmissionNothingAsks) {
  std::string text = tree(R"("0:4 0.3 1")");
  text.replace(text.find("admission = true"), 16, "admission = false");
  const auto run = make_point(text);
  run->play();
  EXPECT_EQ(run->bookings()->again().asked, 0U);
  EXPECT_EQ(run->network().audit(), "");
}

}  // namespace
}  // namespace tools

// Detection at routers by itself: heads made by hand.
#include "fabric/router/detect.h"

#include <gtest/gtest.h>

#include "fabric/router/mark.h"

namespace {

using emu::NoticeKind;
using fabric::DetectOptions;
using fabric::Detector;
using fabric::HeadAt;

constexpr int kPorts[] = {4, 4};

HeadAt head(emu::NodeId src, emu::Vl lane = 0, emu::RouterId router = 0) {
  return {router, 1, lane, src, 9, emu::TrafficClass::best_effort, 0, 100};
}
void come(Detector& detector, std::initializer_list<emu::NodeId> sources, emu::Vl lane = 0) {
  for (const emu::NodeId source : sources) detector.came(head(source, lane));
}

// Section 4.1: a look every so many routings; the most frequent of the buffered headers and the
// history is told, again and again.
TEST(Detector, Approach1LooksEveryPeriod) {
  Detector detector(kPorts, {.approach = 1, .period_routings = 4, .history = 4});
  come(detector, {1, 2, 2});
  for (int i = 0; i < 3; ++i) detector.routed(head(5, 7), 0);
  EXPECT_TRUE(detector.notices().empty()) << "three routings are no period";
  detector.routed(head(5, 7), 0);
  ASSERT_EQ(detector.notices().size(), 1U);
  EXPECT_EQ(detector.notices()[0].source, 5) << "four times in the history, the others less";
  EXPECT_EQ(detector.notices()[0].kind, NoticeKind::congestion);
  EXPECT_EQ(detector.notices()[0].router, 0);
  detector.clear();
  for (int i = 0; i < 4; ++i) detector.routed(head(static_cast<emu::NodeId>(20 + i), 7), 0);
  ASSERT_EQ(detector.notices().size(), 1U) << "it lasts: told again";
  EXPECT_EQ(detector.notices()[0].source, 2);
}

TEST(Detector, TwoOccupiedBuffersAreNoCongestion) {
  Detector detector(kPorts, {.approach = 1, .period_routings = 1});
  come(detector, {1, 2});
  come(detector, {3, 4}, 5);  // another lane
  detector.routed(head(1), 0);
  EXPECT_TRUE(detector.notices().empty());
  come(detector, {2});
  detector.routed(head(1), 0);
  EXPECT_EQ(detector.notices().size(), 1U);
  detector.clear();
  detector.left(0, 1, 0, 0);
  EXPECT_EQ(detector.occupied(0, 1, 0), 2U);
  detector.routed(head(1), 0);
  EXPECT_TRUE(detector.notices().empty());
}

TEST(Detector, WithoutHistoryTheBufferedHeadersDecide) {
  Detector detector(kPorts, {.approach = 1, .period_routings = 1, .history = 0});
  come(detector, {7, 8, 8});
  detector.routed(head(7), 0);
  ASSERT_EQ(detector.notices().size(), 1U);
  EXPECT_EQ(detector.notices()[0].source, 8);
}

// Section 5: told once when it begins, relief to the old when another is to blame, and when less
// than two buffers are occupied.
TEST(Detector, Approach2TellsBeginningChangeAndEnd) {
  Detector detector(kPorts, {.approach = 2, .history = 0});
  come(detector, {1, 1, 2});
  ASSERT_EQ(detector.notices().size(), 1U);
  EXPECT_EQ(detector.notices()[0].source, 1);
  come(detector, {1});
  EXPECT_EQ(detector.notices().size(), 1U) << "it knows";
  come(detector, {2, 2});  // 1 1 2 1 2 2: as often, the oldest stays to blame
  EXPECT_EQ(detector.notices().size(), 1U);
  come(detector, {2});
  ASSERT_EQ(detector.notices().size(), 3U);
  EXPECT_EQ(detector.notices()[1].source, 1);
  EXPECT_EQ(detector.notices()[1].kind, NoticeKind::relief);
  EXPECT_EQ(detector.notices()[2].source, 2);
  EXPECT_EQ(detector.notices()[2].kind, NoticeKind::congestion);
  detector.clear();
  std::size_t buffered = 7;
  for (const emu::NodeId oldest : std::initializer_list<emu::NodeId>{1, 1, 2, 1, 2}) {
    detector.routed(head(oldest), 0);
    detector.left(0, 1, 0, 0);
    ASSERT_EQ(detector.occupied(0, 1, 0), --buffered);
  }
  detector.routed(head(2), 0);
  EXPECT_TRUE(detector.notices().empty()) << "two occupied buffers are not below two";
  detector.left(0, 1, 0, 0);
  detector.routed(head(2), 0);
  ASSERT_EQ(detector.notices().size(), 1U);
  EXPECT_EQ(detector.notices()[0].source, 2);
  EXPECT_EQ(detector.notices()[0].kind, NoticeKind::relief);
}

// The head that is routed is in its buffer, so a lane with one message is as empty as it gets.
TEST(Detector, Approach2RelievesWhenOneBufferIsToMany) {
  Detector detector(kPorts, {.approach = 2, .threshold = 1, .history = 0});
  come(detector, {1, 1});
  ASSERT_EQ(detector.notices().size(), 1U);
  detector.clear();
  detector.routed(head(1), 0);
  EXPECT_TRUE(detector.notices().empty());
  detector.left(0, 1, 0, 0);
  detector.routed(head(1), 0);
  ASSERT_EQ(detector.notices().size(), 1U);
  EXPECT_EQ(detector.notices()[0].kind, NoticeKind::relief);
}

TEST(Detector, ControlIsNobodysFault) {
  Detector detector(kPorts, {.approach = 2});
  for (int i = 0; i < 5; ++i) {
    HeadAt control = head(1, emu::kControlVl);
    control.traffic_class = emu::TrafficClass::control;
    detector.came(control);
    detector.routed(control, 0);
  }
  for (int i = 0; i < 5; ++i) detector.left(0, 1, emu::kControlVl, 0);
  EXPECT_TRUE(detector.notices().empty());
}

TEST(Marker, MarksWhatComesToALongQueue) {
  fabric::Marker marker(kPorts, {.from = 2, .all = 2});
  for (int i = 0; i < 4; ++i) {
    const auto lane = static_cast<emu::Vl>(i);
    HeadAt one = head(1, lane);
    one.handle = static_cast<std::uint32_t>(i);
    marker.routed(one, 3);
    marker.routed(head(2, lane, 1), static_cast<emu::PortId>(i));  // another router, other outputs
  }
  EXPECT_EQ(std::vector(marker.marked().begin(), marker.marked().end()),
            (std::vector<std::uint32_t>{2, 3}));
  marker.clear();
  for (int i = 0; i < 3; ++i) marker.left(0, 1, static_cast<emu::Vl>(i), 3);
  EXPECT_EQ(marker.queued(0, 3), 1U);
  marker.routed(head(1), 3);
  EXPECT_TRUE(marker.marked().empty());
}

// What was routed before anybody watched is not counted when it leaves either.
TEST(Marker, WhatItHasNotSeenComeDoesNotLeave) {
  fabric::Marker marker(kPorts, {.from = 2, .all = 2});
  marker.routed(head(1), 3);
  marker.left(0, 1, 1, 3);  // of another lane
  marker.left(0, 1, 0, 2);  // of router P: another class of the lane, by another output
  EXPECT_EQ(marker.queued(0, 3), 1U);
  marker.left(0, 1, 0, 3);
  EXPECT_EQ(marker.queued(0, 3), 0U);
}

TEST(Detector, WhatItHasNotSeenComeDoesNotLeave) {
  Detector detector(kPorts, {.approach = 1});
  HeadAt one = head(1);
  one.handle = 5;
  detector.came(one);
  detector.left(0, 1, 0, 0);  // routed before
  HeadAt old = head(2);
  old.handle = 5;           // its own name for it
  detector.routed(old, 0);  // it came before
  detector.left(0, 1, 0, 0);
  EXPECT_EQ(detector.occupied(0, 1, 0), 1U);
  detector.routed(one, 0);
  detector.left(0, 1, 0, 0);
  EXPECT_EQ(detector.occupied(0, 1, 0), 0U);
}

// Between the two thresholds a part is marked, and more of it the longer the queue is.
TEST(Marker, MarksAPartBetweenItsThresholds) {
  const auto part = [](std::uint32_t queued) {
    fabric::Marker marker(kPorts, {.from = 2, .all = 10, .seed = 7});
    for (std::uint32_t i = 1; i < queued; ++i) marker.routed(head(1, static_cast<emu::Vl>(i)), 0);
    marker.clear();
    for (int i = 0; i < 1000; ++i) {
      marker.routed(head(1), 0);
      marker.left(0, 1, 0, 0);
    }
    return marker.marked().size();
  };
  EXPECT_EQ(part(2), 0U);
  EXPECT_NEAR(static_cast<double>(part(4)), 222, 60);
  EXPECT_NEAR(static_cast<double>(part(8)), 667, 60);
  EXPECT_EQ(part(11), 1000U);
}

}  // namespace

// Runs of a point for tests, and what they ask of its batches.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "tools/sim/flit_run.h"

namespace tools {

// A point that is right, ready to be played.
inline std::unique_ptr<FlitRun> make_point(const std::string& toml) {
  auto point = parse_point(toml, "a test");
  EXPECT_TRUE(point) << (point ? "" : point.error().message);
  auto run = FlitRun::make(*point);
  EXPECT_TRUE(run) << (run ? "" : run.error().message);
  return std::move(*run);
}

// To its end, with no flit or credit lost.
inline std::unique_ptr<FlitRun> play_point(const std::string& toml) {
  auto run = make_point(toml);
  run->play();
  EXPECT_EQ(run->network().audit(), "");
  return run;
}

// Of one class over all batches.
inline double sum(const FlitRun& run, double ClassBatch::*member,
                  emu::TrafficClass of = emu::TrafficClass::best_effort) {
  double total = 0;
  for (const Batch& batch : run.measure().batches())
    total += batch.classes[static_cast<std::size_t>(of)].*member;
  return total;
}

}  // namespace tools

// What the tests of runs ask of their batches.
#pragma once

#include "tools/sim/flit_run.h"

namespace tools {

// Of one class over all batches.
inline double sum(const FlitRun& run, double ClassBatch::*member,
                  emu::TrafficClass of = emu::TrafficClass::best_effort) {
  double total = 0;
  for (const Batch& batch : run.measure().batches())
    total += batch.classes[static_cast<std::size_t>(of)].*member;
  return total;
}

}  // namespace tools

// engine_bench --threads: the same work on one engine thread and on several, beside the cost of a
// meeting of threads that do nothing; by wall clock, as threads wait for each other.
#pragma once

#include <string>

namespace bench {

// Writes a report to stdout and, unless `json` is empty, to that file. 0 when every number of
// threads had the same deliveries.
int run_threads(bool quick, const std::string& json);

}  // namespace bench

// The same as JSON: every page and series (what `status` and the demo's screen read), and the
// catalogue (what the check of the dashboards reads).
#pragma once

#include <string>
#include <vector>

#include "emu/metrics/read.h"

namespace tools {

// {"pages": [{"process", "pid", "alive", "finished", "skipped", "series": [{"name", "kind",
// "labels": {}, "value"} or, of histograms, {..., "count", "sum", "mean", "p50", "p99", "max"}]}]}
std::string pages_json(const std::vector<emu::PageContent>& pages);
// [{"id", "name", "kind", "scale", "labels": [], "help"}]
std::string catalog_json();

}  // namespace tools

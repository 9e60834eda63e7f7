// Every series of a run directory's pages as Prometheus families. prometheus-cpp asks at each
// scrape; between scrapes nothing is held.
#pragma once

#include <prometheus/collectable.h>
#include <prometheus/metric_family.h>

#include <string>
#include <utility>
#include <vector>

#include "emu/metrics/read.h"

namespace tools {

// The families of these pages. Pages of processes that were killed are left out, those of
// processes that live or ended well are in; a series that two pages hold counts once, that of a
// process that lives before the last words of one that does not, the newest of those.
std::vector<prometheus::MetricFamily> families_of(const std::vector<emu::PageContent>& pages);

class PageCollector final : public prometheus::Collectable {
 public:
  explicit PageCollector(std::string run_dir) : run_dir_(std::move(run_dir)) {}
  std::vector<prometheus::MetricFamily> Collect() const override {
    return families_of(emu::read_pages(run_dir_));
  }

 private:
  std::string run_dir_;
};

}  // namespace tools

// Every series of a run directory's pages as Prometheus families. prometheus-cpp asks at each
// scrape; between scrapes nothing is held but what ended programs counted (tally.h).
#pragma once

#include <prometheus/collectable.h>
#include <prometheus/metric_family.h>

#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "emu/metrics/read.h"
#include "tools/exporter/tally.h"

namespace tools {

// The families of these pages, of which `tally` has heard. Pages of processes that were killed are
// left out, those of processes that live or ended well are in. Counters and histograms that several
// pages hold are added up, with what `tally` has of programs that ended, and stay when no page
// holds them any more; of a gauge that of a process that lives goes before the last words of one
// that does not, the newest of those.
std::vector<prometheus::MetricFamily> families_of(const std::vector<emu::PageContent>& pages,
                                                  const Tally& tally = {});

// Asked by several threads at once.
class PageCollector final : public prometheus::Collectable {
 public:
  explicit PageCollector(std::string run_dir) : run_dir_(std::move(run_dir)) {}
  std::vector<prometheus::MetricFamily> Collect() const override;
  // The pages as they are now. Who calls it between scrapes misses less of programs that end.
  std::vector<emu::PageContent> look() const;

 private:
  std::vector<emu::PageContent> read() const;

  std::string run_dir_;
  mutable std::mutex mutex_;  // of the tally: pages are heard of in the order of their reading
  mutable Tally tally_;
};

}  // namespace tools

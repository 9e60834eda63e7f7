#include "tools/exporter/collect.h"

#include <algorithm>
#include <map>
#include <set>

namespace tools {
namespace {

using emu::MetricKind;
using emu::SeriesValue;

// Exported buckets end below whole powers of two, 2^kFirst to 2^kLast of the stored unit (256 ns
// to 69 s), where the fine buckets have a border too.
inline constexpr int kFirstOctave = 8;
inline constexpr int kLastOctave = 36;

prometheus::ClientMetric::Histogram histogram_of(const SeriesValue& series) {
  prometheus::ClientMetric::Histogram out;
  std::uint64_t below = 0;
  std::size_t bucket = 0;
  for (int octave = kFirstOctave; octave <= kLastOctave; ++octave) {
    const std::uint64_t bound = std::uint64_t{1} << octave;
    for (; bucket < emu::kHistogramBuckets && emu::histogram_bucket_high(bucket) <= bound;
         ++bucket) {
      below += series.words[2 + bucket];
    }
    // "le" includes its bound, and a value of 2^k stands above it (8 cycles of 128 ns): the last
    // that is below.
    out.bucket.push_back({below, static_cast<double>(bound - 1) * series.scale});
  }
  for (; bucket < emu::kHistogramBuckets; ++bucket) below += series.words[2 + bucket];
  out.sample_count = below;
  out.sample_sum = static_cast<double>(series.words[1]) * series.scale;
  return out;
}

prometheus::MetricType type_of(MetricKind kind) {
  switch (kind) {
    case MetricKind::counter:
      return prometheus::MetricType::Counter;
    case MetricKind::gauge:
      return prometheus::MetricType::Gauge;
    case MetricKind::histogram:
      return prometheus::MetricType::Histogram;
  }
  return prometheus::MetricType::Untyped;
}

prometheus::ClientMetric metric_of(const SeriesValue& series) {
  prometheus::ClientMetric metric;
  for (const auto& [key, value] : series.labels) metric.label.push_back({key, value});
  switch (series.kind) {
    case MetricKind::counter:
      metric.counter.value = series.value;
      break;
    case MetricKind::gauge:
      metric.gauge.value = series.value;
      break;
    case MetricKind::histogram:
      metric.histogram = histogram_of(series);
      break;
  }
  return metric;
}

// Those that may be exported, in the order in which they are believed.
std::vector<const emu::PageContent*> believed(const std::vector<emu::PageContent>& pages) {
  std::vector<const emu::PageContent*> order;
  for (const emu::PageContent& page : pages) {
    if (page.alive || page.finished) order.push_back(&page);
  }
  std::ranges::stable_sort(order, [](const emu::PageContent* a, const emu::PageContent* b) {
    if (a->alive || b->alive) return a->alive && !b->alive;
    return a->start_unix_ns > b->start_unix_ns;
  });
  return order;
}

}  // namespace

std::vector<prometheus::MetricFamily> families_of(const std::vector<emu::PageContent>& pages) {
  std::map<std::string, prometheus::MetricFamily> families;
  std::map<std::string, std::set<std::vector<std::pair<std::string, std::string>>>> seen;
  for (const emu::PageContent* page : believed(pages)) {
    for (const SeriesValue& series : page->series) {
      auto& family = families[series.name];
      if (family.name.empty()) {
        family.name = series.name;
        family.type = type_of(series.kind);
        if (const auto metric = emu::metric_by_name(series.name)) {
          family.help = emu::metric_info(*metric).help;
        }
      }
      // Another build's page may call the same name another kind: one family has one type.
      if (family.type != type_of(series.kind)) continue;
      if (seen[series.name].insert(series.labels).second) {
        family.metric.push_back(metric_of(series));
      }
    }
  }
  std::vector<prometheus::MetricFamily> out;
  for (auto& [name, family] : families) out.push_back(std::move(family));
  return out;
}

}  // namespace tools

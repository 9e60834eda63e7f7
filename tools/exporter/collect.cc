#include "tools/exporter/collect.h"

#include <algorithm>
#include <map>

namespace tools {
namespace {

using emu::MetricKind;
using emu::SeriesValue;

// Exported buckets end below whole powers of two, 2^kFirst to 2^kLast of the stored unit (256 ns
// to 69 s), where the fine buckets have a border too.
inline constexpr int kFirstOctave = 8;
inline constexpr int kLastOctave = 36;

prometheus::ClientMetric::Histogram histogram_of(const std::vector<std::uint64_t>& words,
                                                 double scale) {
  prometheus::ClientMetric::Histogram out;
  std::uint64_t below = 0;
  std::size_t bucket = 0;
  for (int octave = kFirstOctave; octave <= kLastOctave; ++octave) {
    const std::uint64_t bound = std::uint64_t{1} << octave;
    for (; bucket < emu::kHistogramBuckets && emu::histogram_bucket_high(bucket) <= bound;
         ++bucket) {
      below += words[2 + bucket];
    }
    // "le" includes its bound, and a value of 2^k stands above it (8 cycles of 128 ns): the last
    // that is below.
    out.bucket.push_back({below, static_cast<double>(bound - 1) * scale});
  }
  for (; bucket < emu::kHistogramBuckets; ++bucket) below += words[2 + bucket];
  out.sample_count = below;
  out.sample_sum = static_cast<double>(words[1]) * scale;
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

// `words`: of all pages that hold it.
prometheus::ClientMetric metric_of(const SeriesValue& series,
                                   const std::vector<std::uint64_t>& words) {
  prometheus::ClientMetric metric;
  for (const auto& [key, value] : series.labels) metric.label.push_back({key, value});
  switch (series.kind) {
    case MetricKind::counter:
      metric.counter.value = static_cast<double>(words[0]) * series.scale;
      break;
    case MetricKind::gauge:
      metric.gauge.value = series.value;
      break;
    case MetricKind::histogram:
      metric.histogram = histogram_of(words, series.scale);
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

// A series of all pages: the first that is believed names it, those after it are added.
struct Merged {
  const SeriesValue* first;
  std::vector<std::uint64_t> words;
};

struct Family {
  prometheus::MetricFamily out;
  std::vector<Merged> series;
  std::map<Labels, std::size_t> index;  // into series
};

void add(Family& family, const SeriesValue& series, const Tally& tally) {
  if (family.out.name.empty()) {
    family.out.name = series.name;
    family.out.type = type_of(series.kind);
    if (const auto metric = emu::metric_by_name(series.name)) {
      family.out.help = emu::metric_info(*metric).help;
    }
  }
  // Another build's page may call the same name another kind: one family has one type.
  if (family.out.type != type_of(series.kind)) return;
  const auto [found, fresh] = family.index.try_emplace(series.labels, family.series.size());
  if (fresh) {
    family.series.push_back({&series, stored_words(series)});
    const auto ended = tally.ended().find({series.name, series.labels});
    if (ended != tally.ended().end()) add_words(family.series.back().words, ended->second);
  } else if (family.series[found->second].first->scale == series.scale) {
    add_words(family.series[found->second].words, stored_words(series));
  }
}

// Those in which an ended program counted, with nothing in them.
std::vector<SeriesValue> ended_series(const Tally& tally) {
  std::vector<SeriesValue> series;
  for (const auto& [key, words] : tally.ended()) {
    const auto metric = emu::metric_by_name(key.first);
    if (!metric) continue;
    const emu::MetricInfo& info = emu::metric_info(*metric);
    if (info.labels == "process") continue;  // of the process itself, and ends with it
    const bool histogram = info.kind == MetricKind::histogram;
    if (words.size() != (histogram ? emu::kHistogramWords : 1)) continue;  // of another build
    series.push_back(
        {.name = key.first, .kind = info.kind, .scale = info.scale, .labels = key.second});
  }
  return series;
}

}  // namespace

std::vector<prometheus::MetricFamily> families_of(const std::vector<emu::PageContent>& pages,
                                                  const Tally& tally) {
  std::map<std::string, Family> families;
  for (const emu::PageContent* page : believed(pages)) {
    for (const SeriesValue& series : page->series) add(families[series.name], series, tally);
  }
  const std::vector<SeriesValue> left = ended_series(tally);
  for (const SeriesValue& series : left) {
    Family& family = families[series.name];
    if (!family.index.contains(series.labels)) add(family, series, tally);
  }
  std::vector<prometheus::MetricFamily> out;
  for (auto& [name, family] : families) {
    for (const Merged& one : family.series) {
      family.out.metric.push_back(metric_of(*one.first, one.words));
    }
    out.push_back(std::move(family.out));
  }
  return out;
}

std::vector<emu::PageContent> PageCollector::read() const {
  auto pages = emu::read_pages(run_dir_);
  tally_.look(pages);
  return pages;
}

std::vector<emu::PageContent> PageCollector::look() const {
  const std::lock_guard lock(mutex_);
  return read();
}

std::vector<prometheus::MetricFamily> PageCollector::Collect() const {
  const std::lock_guard lock(mutex_);
  return families_of(read(), tally_);
}

}  // namespace tools

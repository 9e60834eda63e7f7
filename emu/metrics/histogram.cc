#include "emu/metrics/histogram.h"

#include <cmath>

#include "emu/base/check.h"

namespace emu {
namespace {

std::uint64_t bucket_total(std::span<const std::uint64_t> words) {
  std::uint64_t total = 0;
  for (std::size_t i = 0; i < kHistogramBuckets; ++i) total += words[2 + i];
  return total;
}

}  // namespace

double histogram_quantile(std::span<const std::uint64_t> words, double q) {
  CHECK(words.size() == kHistogramWords);
  const std::uint64_t total = bucket_total(words);
  if (total == 0) return 0;
  // The rank of the value asked for, from 1; linear inside its bucket.
  const double rank = std::fmax(1.0, std::ceil(q * static_cast<double>(total)));
  std::uint64_t before = 0;
  for (std::size_t i = 0; i < kHistogramBuckets; ++i) {
    const std::uint64_t count = words[2 + i];
    if (count != 0 && static_cast<double>(before + count) >= rank) {
      const auto low = static_cast<double>(histogram_bucket_low(i));
      const auto width = static_cast<double>(histogram_bucket_high(i) - histogram_bucket_low(i));
      if (width <= 1) return low;
      const double inside = (rank - static_cast<double>(before) - 0.5) / static_cast<double>(count);
      return low + width * inside;
    }
    before += count;
  }
  return static_cast<double>(histogram_bucket_high(kHistogramBuckets - 1));
}

HistogramSummary summarize_histogram(std::span<const std::uint64_t> words) {
  CHECK(words.size() == kHistogramWords);
  HistogramSummary summary;
  summary.count = bucket_total(words);
  if (summary.count == 0) return summary;
  summary.mean = static_cast<double>(words[1]) / static_cast<double>(summary.count);
  summary.p50 = histogram_quantile(words, 0.5);
  summary.p99 = histogram_quantile(words, 0.99);
  for (std::size_t i = 0; i < kHistogramBuckets; ++i) {
    if (words[2 + i] != 0) summary.max = static_cast<double>(histogram_bucket_high(i) - 1);
  }
  return summary;
}

void PlainHistogram::merge(std::span<const std::uint64_t> other) {
  CHECK(other.size() == kHistogramWords);
  for (std::size_t i = 0; i < kHistogramWords; ++i) words[i] += other[i];
}

}  // namespace emu

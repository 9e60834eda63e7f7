// A histogram of u64 values (nanoseconds, cycles) with a fixed number of buckets: exact below 16,
// then 16 buckets per power of two, so a quantile is right to about 3 %.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

namespace emu {

inline constexpr int kHistogramSubBits = 4;
inline constexpr std::size_t kHistogramSub = std::size_t{1} << kHistogramSubBits;
inline constexpr int kHistogramValueBits = 44;  // 2^44 ns are 4.9 hours; larger counts as that
inline constexpr std::size_t kHistogramBuckets =
    kHistogramSub + (kHistogramValueBits - kHistogramSubBits) * kHistogramSub;
static_assert(kHistogramBuckets == 656);

constexpr std::size_t histogram_bucket(std::uint64_t value) {
  if (value < kHistogramSub) return static_cast<std::size_t>(value);
  const int octave = static_cast<int>(std::bit_width(value)) - 1;  // >= kHistogramSubBits
  if (octave >= kHistogramValueBits) return kHistogramBuckets - 1;
  const auto sub = static_cast<std::size_t>(value >> (octave - kHistogramSubBits)) - kHistogramSub;
  return kHistogramSub + static_cast<std::size_t>(octave - kHistogramSubBits) * kHistogramSub + sub;
}
// Smallest value of a bucket, and the smallest that is beyond it.
constexpr std::uint64_t histogram_bucket_low(std::size_t bucket) {
  if (bucket < kHistogramSub) return bucket;
  const std::size_t octave = (bucket - kHistogramSub) / kHistogramSub;
  return (kHistogramSub + (bucket - kHistogramSub) % kHistogramSub) << octave;
}
constexpr std::uint64_t histogram_bucket_high(std::size_t bucket) {
  if (bucket < kHistogramSub) return bucket + 1;
  return histogram_bucket_low(bucket) +
         (std::uint64_t{1} << ((bucket - kHistogramSub) / kHistogramSub));
}

// The words of a histogram in a page or in a plain array: [count, sum, bucket 0, ...].
inline constexpr std::size_t kHistogramWords = 2 + kHistogramBuckets;

struct HistogramSummary {
  std::uint64_t count = 0;
  double mean = 0;
  double p50 = 0;
  double p99 = 0;
  double max = 0;  // upper bound of the highest bucket in use
};
// `words` are kHistogramWords words. Torn reads are tolerated: buckets are believed, not the count.
HistogramSummary summarize_histogram(std::span<const std::uint64_t> words);
double histogram_quantile(std::span<const std::uint64_t> words, double q);

// For those who keep one in private memory (a simulation, a summary).
struct PlainHistogram {
  std::array<std::uint64_t, kHistogramWords> words{};

  void add(std::uint64_t value, std::uint64_t times = 1) {
    words[0] += times;
    words[1] += value * times;
    words[2 + histogram_bucket(value)] += times;
  }
  void merge(std::span<const std::uint64_t> other);  // kHistogramWords words
  HistogramSummary summary() const { return summarize_histogram(words); }
};

}  // namespace emu

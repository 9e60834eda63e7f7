// The counter page of a process: a file that it maps and counts in, and that anybody may read. One
// writer, plain 64-bit words, no locks; who exports is another process. The page describes itself:
// every series carries its metric's name, its kind and its labels.
//
//   emu::MetricsPage page = *emu::MetricsPage::create(run_dir, "hcad-n0");
//   emu::Counter sent = page.counter(emu::Metric::port_xmit_packets, {"n0", "flitnet0", "1"});
//   sent.add();
#pragma once

#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "emu/base/result.h"
#include "emu/metrics/catalog.h"
#include "emu/metrics/histogram.h"

namespace emu {

// A word that others read while one thread writes it. Relaxed loads and stores are plain moves.
inline void metric_store(std::uint64_t& word, std::uint64_t value) {
  std::atomic_ref<std::uint64_t>(word).store(value, std::memory_order_relaxed);
}

// Handles: a pointer each, copied freely, valid as long as the page. A series that found no room
// counts into a word nobody reads, so callers never ask.
class Counter {
 public:
  Counter() = default;
  explicit Counter(std::uint64_t* word) : word_(word) {}
  void add(std::uint64_t n = 1) { metric_store(*word_, *word_ + n); }
  void set(std::uint64_t total) { metric_store(*word_, total); }  // from a total kept elsewhere
  std::uint64_t value() const { return *word_; }

 private:
  std::uint64_t* word_ = nullptr;
};

class Gauge {
 public:
  Gauge() = default;
  explicit Gauge(std::uint64_t* word) : word_(word) {}
  void set(double value) { metric_store(*word_, std::bit_cast<std::uint64_t>(value)); }
  double value() const { return std::bit_cast<double>(*word_); }

 private:
  std::uint64_t* word_ = nullptr;
};

class Histogram {
 public:
  Histogram() = default;
  explicit Histogram(std::uint64_t* words) : words_(words) {}
  void add(std::uint64_t value, std::uint64_t times = 1) {
    metric_store(words_[2 + histogram_bucket(value)], words_[2 + histogram_bucket(value)] + times);
    metric_store(words_[1], words_[1] + value * times);
    metric_store(words_[0], words_[0] + times);
  }
  void set(const PlainHistogram& from) {  // from one kept elsewhere
    for (std::size_t i = 0; i < kHistogramWords; ++i) metric_store(words_[i], from.words[i]);
  }
  HistogramSummary summary() const { return summarize_histogram({words_, kHistogramWords}); }

 private:
  std::uint64_t* words_ = nullptr;
};

// Room of a page. The file is sparse: what is not used takes no memory.
struct PageLimits {
  std::uint32_t series_max = 8192;
  std::uint32_t words_max = 128 * 1024;
};

// Of the file of such a page: kPageFileBytesMax at most.
std::size_t page_file_bytes(const PageLimits& limits);

class MetricsPage {
 public:
  MetricsPage();
  ~MetricsPage();  // removes the file, unless keep_file()
  MetricsPage(MetricsPage&&) noexcept;
  MetricsPage& operator=(MetricsPage&&) noexcept;

  // Creates <run_dir>/metrics/<process>.page; one of a dead process of that name is replaced.
  // `process` may hold letters, digits, '-', '_' and '.'.
  static Result<MetricsPage> create(const std::string& run_dir, std::string_view process,
                                    const PageLimits& limits = {});
  // A page in private memory, for tests and simulations.
  static MetricsPage in_memory(std::string_view process, const PageLimits& limits = {});

  // A series by its label values, in the order of the catalogue. Asking again gives the same one.
  // Not for the hot path. A value longer than fits is cut; characters that would break the
  // label syntax (quote, comma, '=', backslash, control characters) become '_'.
  Counter counter(Metric metric, std::initializer_list<std::string_view> labels = {});
  Counter counter(Metric metric, std::span<const std::string_view> labels);
  Gauge gauge(Metric metric, std::initializer_list<std::string_view> labels = {});
  Gauge gauge(Metric metric, std::span<const std::string_view> labels);
  Histogram histogram(Metric metric, std::initializer_list<std::string_view> labels = {});
  Histogram histogram(Metric metric, std::span<const std::string_view> labels);

  // The file stays after a clean end of the process, as its last word (a replayer's result), and
  // goes on being exported.
  void keep_file();
  const std::string& path() const;
  std::span<const std::byte> bytes() const;  // as a reader would see it

 private:
  struct State;
  std::uint64_t* series(Metric metric, MetricKind kind, std::span<const std::string_view> labels);

  std::unique_ptr<State> state_;
};

}  // namespace emu

// Reads counter pages. Nothing in a page is believed: it may be torn, truncated or garbage.
// In: files of <run_dir>/metrics. Out: series as values. Called by the exporter and the daemons'
// status.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "emu/base/result.h"
#include "emu/metrics/catalog.h"
#include "emu/metrics/histogram.h"
#include "emu/ring/fd.h"

namespace emu {

struct SeriesValue {
  std::string name;
  MetricKind kind = MetricKind::counter;
  double scale = 1;
  std::vector<std::pair<std::string, std::string>> labels;
  std::uint64_t raw = 0;             // counter: stored value
  double value = 0;                  // counter, gauge: scaled
  std::vector<std::uint64_t> words;  // histogram: kHistogramWords words, not scaled
};

struct PageContent {
  std::string path;
  std::string process;
  std::uint32_t pid = 0;
  std::uint64_t start_unix_ns = 0;
  bool alive = false;     // its writer still holds it
  bool finished = false;  // its writer ended well and left it
  std::vector<SeriesValue> series;
  std::uint32_t skipped = 0;  // entries that could not be
};

// From bytes already read (`alive` stays false).
Result<PageContent> parse_page(std::span<const std::byte> bytes);
Result<PageContent> read_page(const std::string& path);
// Who opens a page once may read it also when its name is gone or another's.
UniqueFd open_page(const std::string& path);
Result<PageContent> read_page(int fd, const std::string& path);
// Every readable page of <run_dir>/metrics, ordered by name; files that are none are skipped.
std::vector<PageContent> read_pages(const std::string& run_dir);

}  // namespace emu

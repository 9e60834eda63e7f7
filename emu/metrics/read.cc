#include "emu/metrics/read.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <optional>

#include "emu/metrics/layout.h"
#include "emu/ring/fd.h"

namespace emu {
namespace {

template <std::size_t N>
std::optional<std::string_view> terminated(const char (&text)[N]) {
  const void* end = std::memchr(text, 0, N);
  if (end == nullptr) return std::nullopt;
  return std::string_view(text, static_cast<std::size_t>(static_cast<const char*>(end) - text));
}

bool is_word(std::string_view text) {
  const auto good = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
  };
  return !text.empty() && std::ranges::all_of(text, good) && !(text[0] >= '0' && text[0] <= '9');
}

bool is_printable(std::string_view text) {
  return std::ranges::all_of(text, [](char c) {
    return static_cast<unsigned char>(c) >= 0x20 && static_cast<unsigned char>(c) < 0x7f &&
           c != '"' && c != '\\';
  });
}

bool parse_labels(std::string_view text, std::vector<std::pair<std::string, std::string>>& labels) {
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(','), text.size());
    const std::string_view pair = text.substr(0, end);
    const std::size_t equals = pair.find('=');
    if (equals == std::string_view::npos || !is_word(pair.substr(0, equals)) ||
        !is_printable(pair.substr(equals + 1))) {
      return false;
    }
    // Prometheus refuses all of a text in which one series has a label twice; "le" is a histogram's
    // own.
    const std::string_view key = pair.substr(0, equals);
    const auto same = [key](const auto& label) { return label.first == key; };
    if (key == "le" || std::ranges::any_of(labels, same)) return false;
    labels.emplace_back(pair.substr(0, equals), pair.substr(equals + 1));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return true;
}

// One series out of a page, or nothing if it cannot be one.
std::optional<SeriesValue> parse_series(const PageSeries& entry,
                                        std::span<const std::byte> values) {
  const auto name = terminated(entry.name);
  const auto labels = terminated(entry.labels);
  SeriesValue series;
  if (!name || !labels || !is_word(*name) || entry.kind >= kMetricKindCount ||
      !std::isfinite(entry.scale) || !parse_labels(*labels, series.labels)) {
    return std::nullopt;
  }
  series.kind = static_cast<MetricKind>(entry.kind);
  const std::size_t words = series.kind == MetricKind::histogram ? kHistogramWords : 1;
  const std::size_t words_there = values.size() / sizeof(std::uint64_t);
  if (entry.words != words || entry.offset > words_there || words > words_there - entry.offset) {
    return std::nullopt;
  }
  series.name = *name;
  series.scale = entry.scale;
  series.words.resize(words);
  std::memcpy(series.words.data(), values.data() + entry.offset * sizeof(std::uint64_t),
              words * sizeof(std::uint64_t));
  if (series.kind == MetricKind::histogram) return series;
  series.raw = series.words[0];
  series.value = series.kind == MetricKind::gauge ? std::bit_cast<double>(series.raw) * series.scale
                                                  : static_cast<double>(series.raw) * series.scale;
  series.words.clear();
  return series;
}

struct Freed {
  void operator()(std::byte* bytes) const { std::free(bytes); }
};

// A page has room for the most series there can be, and most of it was never written: holes of the
// file are skipped, `to` has zeros already. Returns how many bytes the file has.
std::size_t read_data(int fd, std::span<std::byte> to) {
  std::size_t at = 0;
  while (at < to.size()) {
    const off_t data = lseek(fd, static_cast<off_t>(at), SEEK_DATA);
    if (data < 0 && errno == ENXIO) return to.size();  // nothing but a hole, or it has shrunk
    if (data > 0) at = static_cast<std::size_t>(data);
    const off_t hole = lseek(fd, static_cast<off_t>(at), SEEK_HOLE);
    const std::size_t end = hole < 0 ? to.size() : static_cast<std::size_t>(hole);
    while (at < std::min(end, to.size())) {
      const std::size_t wanted = std::min(end, to.size()) - at;
      const ssize_t n = pread(fd, to.data() + at, wanted, static_cast<off_t>(at));
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) return at;
      at += static_cast<std::size_t>(n);
    }
  }
  return to.size();
}

}  // namespace

Result<PageContent> parse_page(std::span<const std::byte> bytes) {
  PageHeader header;
  if (bytes.size() < sizeof header) return fail("a page of {} bytes", bytes.size());
  std::memcpy(&header, bytes.data(), sizeof header);
  if (header.magic != kPageMagic) return fail("not a counter page");
  if (header.version != kPageVersion || header.series_bytes != sizeof(PageSeries)) {
    return fail("a counter page of version {}, not {}", header.version, kPageVersion);
  }
  const auto process = terminated(header.process);
  if (!process || !is_printable(*process)) return fail("a counter page without a process");
  PageContent page;
  page.process = *process;
  page.pid = header.pid;
  page.start_unix_ns = header.start_unix_ns;
  page.finished = header.finished == 1;
  // A truncated file has fewer entries than its header says.
  const std::span<const std::byte> body = bytes.subspan(sizeof header);
  const std::size_t table = std::size_t{header.series_max} * sizeof(PageSeries);
  const std::size_t count = std::min<std::size_t>(
      {header.series_count, header.series_max, body.size() / sizeof(PageSeries)});
  const auto values = table <= body.size() ? body.subspan(table) : std::span<const std::byte>();
  // Each word belongs to one series: entries that share words could ask for far more memory than
  // the file has.
  std::size_t words_left = values.size() / sizeof(std::uint64_t);
  for (std::size_t i = 0; i < count; ++i) {
    PageSeries entry;
    std::memcpy(&entry, body.data() + i * sizeof entry, sizeof entry);
    auto series = entry.words <= words_left ? parse_series(entry, values) : std::nullopt;
    if (series) {
      words_left -= entry.words;
      page.series.push_back(std::move(*series));
    } else {
      ++page.skipped;
    }
  }
  return page;
}

UniqueFd open_page(const std::string& path) {
  return UniqueFd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
}

Result<PageContent> read_page(const std::string& path) {
  const UniqueFd fd = open_page(path);
  if (!fd) return fail("{}: {}", path, std::strerror(errno));
  return read_page(fd.get(), path);
}

Result<PageContent> read_page(int fd, const std::string& path) {
  struct stat info {};
  if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) return fail("{} is not a file", path);
  if (static_cast<std::size_t>(info.st_size) > kPageFileBytesMax) {
    return fail("{} has {} bytes, more than a page can", path, info.st_size);
  }
  const bool alive = flock(fd, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
  // Read, not mapped: a file that shrinks meanwhile is short, not a SIGBUS. Of the kernel zeroed
  // memory costs nothing until it is touched.
  const auto size = static_cast<std::size_t>(info.st_size);
  const std::unique_ptr<std::byte, Freed> bytes(
      static_cast<std::byte*>(std::calloc(std::max<std::size_t>(size, 1), 1)));
  if (!bytes) return fail("{}: no memory for {} bytes", path, size);
  auto page = parse_page({bytes.get(), read_data(fd, {bytes.get(), size})});
  if (!page) return fail("{}: {}", path, page.error().message);
  page->path = path;
  page->alive = alive;
  return page;
}

std::vector<PageContent> read_pages(const std::string& run_dir) {
  std::vector<std::string> paths;
  std::error_code error;
  for (std::filesystem::directory_iterator it(run_dir + "/metrics", error), end;
       !error && it != end; it.increment(error)) {
    const std::filesystem::path& path = it->path();
    if (path.extension() == ".page") paths.push_back(path.string());
  }
  std::ranges::sort(paths);
  std::vector<PageContent> pages;
  for (const std::string& path : paths) {
    if (auto page = read_page(path)) pages.push_back(std::move(*page));
  }
  return pages;
}

}  // namespace emu

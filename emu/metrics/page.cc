#include "emu/metrics/page.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <unordered_map>
#include <utility>
#include <vector>

#include "emu/base/check.h"
#include "emu/metrics/layout.h"
#include "emu/ring/region.h"

namespace emu {
namespace {

bool good_process_name(std::string_view name) {
  return !name.empty() && name.size() < sizeof(PageHeader::process) && name[0] != '.' &&
         std::ranges::all_of(name, [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                  c == '-' || c == '_' || c == '.';
         });
}

// Is there a page at `path` whose writer lives? The writer holds an exclusive lock on it.
bool has_living_writer(const std::string& path) {
  UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  return fd && flock(fd.get(), LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
}

// Blocks of a page's file are had in such steps; most pages use few of the entries they may have.
inline constexpr std::size_t kBlockStep = 64 * 1024;

// Four labels of this length and their keys fit PageSeries::labels.
inline constexpr std::size_t kLabelValueMax = 48;

// Label text of a series: key=value,key=value with what would break it replaced.
std::string label_text(const MetricInfo& info, std::span<const std::string_view> values) {
  std::string text;
  std::string_view keys = info.labels;
  for (const std::string_view value : values) {
    const std::size_t end = std::min(keys.find(','), keys.size());
    CHECK(end > 0);  // more values than the catalogue has labels
    if (!text.empty()) text += ',';
    text += keys.substr(0, end);
    text += '=';
    for (const char c : value.substr(0, kLabelValueMax)) {
      const bool bad = c == ',' || c == '=' || c == '"' || c == '\\' ||
                       static_cast<unsigned char>(c) < 0x20 || c == 0x7f;
      text += bad ? '_' : c;
    }
    keys.remove_prefix(std::min(end + 1, keys.size()));
  }
  CHECK(keys.empty());  // fewer values than the catalogue has labels
  CHECK(text.size() < sizeof(PageSeries::labels));
  return text;
}

}  // namespace

struct MetricsPage::State {
  Region file;                     // of create()
  std::vector<std::uint64_t> own;  // of in_memory()
  std::byte* data = nullptr;
  std::size_t size = 0;
  PageLimits limits;
  std::string path;
  bool keep = false;
  std::uint32_t words_used = 0;
  std::unordered_map<std::string, std::uint64_t*> index;  // "metric:labels"
  Counter dropped;
  std::vector<std::uint64_t> sink;  // where series count that found no room
  // Ends of what has blocks in the file: header and entries, values.
  std::size_t entries_end = 0;
  std::size_t values_end = 0;

  PageHeader& header() { return *reinterpret_cast<PageHeader*>(data); }
  PageSeries& series(std::uint32_t i) {
    return reinterpret_cast<PageSeries*>(data + sizeof(PageHeader))[i];
  }
  std::uint64_t* words() { return reinterpret_cast<std::uint64_t*>(data + words_at()); }

  std::size_t words_at() const {
    return sizeof(PageHeader) + limits.series_max * sizeof(PageSeries);
  }

  // Has blocks for the entries and values up to these numbers. The file is sparse, and the first
  // write to what a full file system has no block for would be the end of the process. 0 or errno.
  int allocate(std::uint32_t series_count, std::uint32_t words_count) {
    if (!file) return 0;
    const int error = extend(entries_end, sizeof(PageHeader) + series_count * sizeof(PageSeries));
    if (error != 0) return error;
    values_end = std::max(values_end, words_at());
    return extend(values_end, words_at() + words_count * sizeof(std::uint64_t));
  }
  int extend(std::size_t& end, std::size_t to) {
    if (to <= end) return 0;
    const std::size_t upto = std::min((to + kBlockStep - 1) / kBlockStep * kBlockStep, size);
    const int error =
        posix_fallocate(file.fd(), static_cast<off_t>(end), static_cast<off_t>(upto - end));
    if (error == 0) end = upto;
    return error;
  }

  void start(std::string_view process) {
    PageHeader& h = header();
    h.magic = kPageMagic;
    h.version = kPageVersion;
    h.pid = static_cast<std::uint32_t>(getpid());
    h.series_max = limits.series_max;
    h.words_max = limits.words_max;
    h.series_bytes = sizeof(PageSeries);
    timespec now{};
    clock_gettime(CLOCK_REALTIME, &now);
    h.start_unix_ns = static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000U +
                      static_cast<std::uint64_t>(now.tv_nsec);
    process.copy(h.process, sizeof h.process - 1);
    sink.assign(kHistogramWords, 0);
    dropped = Counter(sink.data());
  }
};

MetricsPage::MetricsPage() = default;
MetricsPage::MetricsPage(MetricsPage&&) noexcept = default;

MetricsPage& MetricsPage::operator=(MetricsPage&& other) noexcept {
  std::swap(state_, other.state_);
  return *this;
}

MetricsPage::~MetricsPage() {
  if (!state_ || state_->path.empty()) return;
  if (state_->keep) {
    std::atomic_ref<std::uint32_t>(state_->header().finished).store(1, std::memory_order_relaxed);
  } else {
    unlink(state_->path.c_str());
  }
}

std::size_t page_file_bytes(const PageLimits& limits) {
  return sizeof(PageHeader) + std::size_t{limits.series_max} * sizeof(PageSeries) +
         std::size_t{limits.words_max} * sizeof(std::uint64_t);
}

Result<MetricsPage> MetricsPage::create(const std::string& run_dir, std::string_view process,
                                        const PageLimits& limits) {
  if (!good_process_name(process)) return fail("metrics: \"{}\" is no process name", process);
  if (page_file_bytes(limits) > kPageFileBytesMax)
    return fail("metrics: a page of {} series has {} bytes, must be at most {}", limits.series_max,
                page_file_bytes(limits), kPageFileBytesMax);
  const std::string dir = run_dir + "/metrics";
  if (mkdir(dir.c_str(), 0700) != 0 && errno != EEXIST) {
    return fail("cannot make {}: {}", dir, std::strerror(errno));
  }
  const std::string path = fmt::format("{}/{}.page", dir, process);
  if (has_living_writer(path)) return fail("{} is written by another process", path);
  // Made under another name and renamed when complete, so readers never see half a header.
  const std::string fresh = fmt::format("{}/.{}.{}", dir, process, getpid());
  unlink(fresh.c_str());
  UniqueFd fd(open(fresh.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!fd) return fail("cannot make {}: {}", fresh, std::strerror(errno));
  flock(fd.get(), LOCK_EX | LOCK_NB);
  auto file = Region::map_file(std::move(fd), page_file_bytes(limits), Access::read_write);
  if (!file) {
    unlink(fresh.c_str());
    return std::unexpected(file.error());
  }
  MetricsPage page;
  page.state_ = std::make_unique<State>();
  page.state_->file = std::move(*file);
  page.state_->data = page.state_->file.data();
  page.state_->size = page.state_->file.size();
  page.state_->limits = limits;
  // Room for what create() itself counts.
  if (const int error = page.state_->allocate(1, 1); error != 0) {
    unlink(fresh.c_str());
    return fail("cannot make {}: {}", path, std::strerror(error));
  }
  page.state_->start(process);
  if (rename(fresh.c_str(), path.c_str()) != 0) {
    unlink(fresh.c_str());
    return fail("cannot make {}: {}", path, std::strerror(errno));
  }
  page.state_->path = path;
  page.gauge(Metric::process_start_time, {process})
      .set(static_cast<double>(page.state_->header().start_unix_ns) * 1e-9);
  page.state_->dropped = page.counter(Metric::process_series_dropped, {process});
  return page;
}

MetricsPage MetricsPage::in_memory(std::string_view process, const PageLimits& limits) {
  MetricsPage page;
  page.state_ = std::make_unique<State>();
  State& state = *page.state_;
  state.own.assign(page_file_bytes(limits) / sizeof(std::uint64_t), 0);
  state.data = reinterpret_cast<std::byte*>(state.own.data());
  state.size = page_file_bytes(limits);
  state.limits = limits;
  state.start(process);
  return page;
}

std::uint64_t* MetricsPage::series(Metric metric, MetricKind kind,
                                   std::span<const std::string_view> labels) {
  CHECK(state_ != nullptr);
  const MetricInfo& info = metric_info(metric);
  CHECK(info.kind == kind);
  State& state = *state_;
  const std::string text = label_text(info, labels);
  std::uint64_t*& known = state.index[fmt::format("{}:{}", static_cast<int>(metric), text)];
  if (known != nullptr) return known;
  PageHeader& header = state.header();
  const auto need = static_cast<std::uint32_t>(kind == MetricKind::histogram ? kHistogramWords : 1);
  if (header.series_count == state.limits.series_max ||
      state.words_used + need > state.limits.words_max ||
      state.allocate(header.series_count + 1, state.words_used + need) != 0) {
    state.dropped.add();
    known = state.sink.data();
    return known;
  }
  PageSeries& entry = state.series(header.series_count);
  info.name.copy(entry.name, sizeof entry.name - 1);
  text.copy(entry.labels, sizeof entry.labels - 1);
  entry.scale = info.scale;
  entry.offset = state.words_used;
  entry.words = need;
  entry.metric = static_cast<std::uint16_t>(metric);
  entry.kind = static_cast<std::uint8_t>(kind);
  known = state.words() + state.words_used;
  state.words_used += need;
  // Release: the entry is complete before it counts. Pairs with nothing stronger than a reader's
  // read() of the file, which checks every field anyway.
  std::atomic_ref<std::uint32_t>(header.series_count)
      .store(header.series_count + 1, std::memory_order_release);
  return known;
}

Counter MetricsPage::counter(Metric metric, std::initializer_list<std::string_view> labels) {
  return counter(metric, std::span(labels.begin(), labels.size()));
}
Counter MetricsPage::counter(Metric metric, std::span<const std::string_view> labels) {
  return Counter(series(metric, MetricKind::counter, labels));
}
Gauge MetricsPage::gauge(Metric metric, std::initializer_list<std::string_view> labels) {
  return gauge(metric, std::span(labels.begin(), labels.size()));
}
Gauge MetricsPage::gauge(Metric metric, std::span<const std::string_view> labels) {
  return Gauge(series(metric, MetricKind::gauge, labels));
}
Histogram MetricsPage::histogram(Metric metric, std::initializer_list<std::string_view> labels) {
  return histogram(metric, std::span(labels.begin(), labels.size()));
}
Histogram MetricsPage::histogram(Metric metric, std::span<const std::string_view> labels) {
  return Histogram(series(metric, MetricKind::histogram, labels));
}

void MetricsPage::keep_file() { state_->keep = true; }
const std::string& MetricsPage::path() const { return state_->path; }
std::span<const std::byte> MetricsPage::bytes() const { return {state_->data, state_->size}; }

}  // namespace emu

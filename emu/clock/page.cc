#include "emu/clock/page.h"

#include <sys/mman.h>
#include <unistd.h>

#include <utility>

#include "emu/base/check.h"
#include "emu/base/page_file.h"

namespace emu {

namespace {

Result<ClockPage*> map_page(const std::string& path, PageAccess access) {
  const auto memory = map_page_file("clock page", path, sizeof(ClockPage), access);
  if (!memory) return std::unexpected(memory.error());
  return static_cast<ClockPage*>(*memory);
}

std::uint64_t ppm(double ratio) { return static_cast<std::uint64_t>(ratio * 1e6 + 0.5); }

}  // namespace

Result<ClockWriter> ClockWriter::open(const std::string& path, CycleTime cycle_time,
                                      ClockMode mode) {
  auto mapped = map_page(path, PageAccess::write);
  if (!mapped) return std::unexpected(mapped.error());
  ClockWriter writer;
  writer.page_ = *mapped;
  ClockPage& page = *writer.page_;
  const bool known = page.magic == kClockPageMagic && page.version == kClockPageVersion;
  const CycleTime before{page.cycle_ps.load()};
  if (known && before.cycle_ps != 0) {
    // Time goes on even if the length of a cycle has changed.
    writer.start_cycle_ = cycle_time.cycle_from(before, page.cycle.load());
  }
  // A predecessor may have died in mid-write: an odd sequence becomes even here.
  page.sequence.store((page.sequence.load() + 2) & ~std::uint64_t{1});
  page.cycle_ps.store(cycle_time.cycle_ps);
  page.cycle.store(writer.start_cycle_);
  page.mode.store(static_cast<std::uint64_t>(mode));
  page.dilation_ppm.store(ppm(1.0));
  page.dilation_window_ppm.store(ppm(1.0));
  page.version = kClockPageVersion;
  page.magic = kClockPageMagic;
  page.fabric_pid.store(static_cast<std::uint64_t>(::getpid()));
  return writer;
}

ClockWriter::ClockWriter(ClockWriter&& other) noexcept
    : page_(std::exchange(other.page_, nullptr)), start_cycle_(other.start_cycle_) {}

ClockWriter& ClockWriter::operator=(ClockWriter&& other) noexcept {
  std::swap(page_, other.page_);
  start_cycle_ = other.start_cycle_;
  return *this;
}

ClockWriter::~ClockWriter() {
  if (page_ == nullptr) return;
  page_->fabric_pid.store(0);
  ::munmap(page_, sizeof(ClockPage));
}

void ClockWriter::publish_state(const Pace& pace) {
  ClockPage& page = *page_;
  const auto relaxed = std::memory_order_relaxed;
  const auto sequence = page.sequence.load(relaxed);
  page.sequence.store(sequence + 1, relaxed);
  std::atomic_thread_fence(std::memory_order_release);  // pairs with the fence in read()
  page.mode.store(static_cast<std::uint64_t>(pace.options().mode), relaxed);
  page.lag_ns.store(pace.lag_ns(), relaxed);
  page.lag_p99_ns.store(pace.lag_quantile_ns(0.99), relaxed);
  page.given_up_ns.store(pace.given_up_ns(), relaxed);
  page.dilation_ppm.store(ppm(pace.dilation().overall), relaxed);
  page.dilation_window_ppm.store(ppm(pace.dilation().window), relaxed);
  page.sequence.store(sequence + 2, std::memory_order_release);
}

Result<ClockReader> ClockReader::open(const std::string& path) {
  auto mapped = map_page(path, PageAccess::read);
  if (!mapped) return std::unexpected(mapped.error());
  ClockReader reader;
  reader.page_ = *mapped;
  if (reader.page_->magic != kClockPageMagic || reader.page_->version != kClockPageVersion ||
      reader.page_->cycle_ps.load() == 0) {
    return fail("clock page {} is not one of this version of flitnet", path);
  }
  return reader;
}

ClockReader::ClockReader(ClockReader&& other) noexcept
    : page_(std::exchange(other.page_, nullptr)) {}

ClockReader& ClockReader::operator=(ClockReader&& other) noexcept {
  std::swap(page_, other.page_);
  return *this;
}

ClockReader::~ClockReader() {
  if (page_ != nullptr) ::munmap(const_cast<ClockPage*>(page_), sizeof(ClockPage));
}

EmuNs ClockReader::now_ns() const {
  return CycleTime{page_->cycle_ps.load(std::memory_order_relaxed)}.ns(cycle());
}

ClockReading ClockReader::read() const {
  const ClockPage& page = *page_;
  const auto relaxed = std::memory_order_relaxed;
  ClockReading reading;
  // Bounded: a writer that died in mid-write must not hang its readers; the words are then simply
  // from two neighbouring moments.
  for (int attempt = 0; attempt < 100; ++attempt) {
    const auto before = page.sequence.load(std::memory_order_acquire);
    reading.mode = static_cast<ClockMode>(page.mode.load(relaxed) % kClockModeNames.size());
    reading.lag_ns = page.lag_ns.load(relaxed);
    reading.lag_p99_ns = page.lag_p99_ns.load(relaxed);
    reading.given_up_ns = page.given_up_ns.load(relaxed);
    reading.dilation = static_cast<double>(page.dilation_ppm.load(relaxed)) * 1e-6;
    reading.dilation_window = static_cast<double>(page.dilation_window_ppm.load(relaxed)) * 1e-6;
    std::atomic_thread_fence(std::memory_order_acquire);  // pairs with publish_state()
    if (before % 2 == 0 && page.sequence.load(relaxed) == before) break;
  }
  reading.cycle_time.cycle_ps = page.cycle_ps.load(relaxed);
  reading.cycle = cycle();
  reading.running = page.fabric_pid.load(relaxed) != 0;
  return reading;
}

}  // namespace emu

#include "emu/wire/state_page.h"

#include <sys/mman.h>

#include <utility>

#include "emu/base/page_file.h"

namespace emu {

namespace {

constexpr int kAttempts = 16;  // a picture takes microseconds, and comes once a turn

Result<StatePage*> map_page(const std::string& path, PageAccess access) {
  const auto memory = map_page_file("state page", path, sizeof(StatePage), access);
  if (!memory) return std::unexpected(memory.error());
  return static_cast<StatePage*>(*memory);
}

}  // namespace

Result<StateWriter> StateWriter::open(const std::string& path) {
  auto mapped = map_page(path, PageAccess::write);
  if (!mapped) return std::unexpected(mapped.error());
  StateWriter writer;
  writer.page_ = *mapped;
  // A predecessor may have died in mid-write: an odd sequence becomes even here.
  writer.page_->sequence.store((writer.page_->sequence.load() + 2) & ~std::uint64_t{1});
  writer.page_->version = kStatePageVersion;
  writer.page_->magic = kStatePageMagic;
  return writer;
}
StateWriter::StateWriter(StateWriter&& other) noexcept
    : page_(std::exchange(other.page_, nullptr)) {}
StateWriter& StateWriter::operator=(StateWriter&& other) noexcept {
  std::swap(page_, other.page_);
  return *this;
}
StateWriter::~StateWriter() {
  if (page_ != nullptr) ::munmap(page_, sizeof(StatePage));
}

void StateWriter::begin() {
  page_->sequence.store(page_->sequence.load(std::memory_order_relaxed) + 1,
                        std::memory_order_relaxed);
  // Readers must not see what follows with an even sequence; pairs with the fence of read().
  std::atomic_thread_fence(std::memory_order_release);
}

void StateWriter::end(const StateReading& reading) {
  page_->full_buffers.store(reading.full_buffers, std::memory_order_relaxed);
  page_->buffers.store(reading.buffers, std::memory_order_relaxed);
  page_->delivered_flits.store(reading.delivered_flits, std::memory_order_relaxed);
  page_->cycle.store(reading.cycle, std::memory_order_release);
  page_->sequence.store(page_->sequence.load(std::memory_order_relaxed) + 1,
                        std::memory_order_release);
}

void StateWriter::tell(NodeId node, const Notice& notice) {
  NoticeRing& ring = page_->notices[node];
  const std::uint64_t number = ring.told.load(std::memory_order_relaxed);
  const std::uint64_t entry = (number & 0xffffffff) << 32 | std::uint64_t{notice.source} << 24 |
                              std::uint64_t{notice.dest} << 8 |
                              static_cast<std::uint64_t>(notice.kind);
  ring.entries[number % kNoticesKept].store(entry, std::memory_order_relaxed);
  ring.told.store(number + 1, std::memory_order_release);
}

Result<StateReader> StateReader::open(const std::string& path) {
  auto mapped = map_page(path, PageAccess::read);
  if (!mapped) return std::unexpected(mapped.error());
  StateReader reader;
  reader.page_ = *mapped;
  if ((*mapped)->magic != kStatePageMagic || (*mapped)->version != kStatePageVersion)
    return fail("state page {} is of another version", path);
  return reader;
}
StateReader::StateReader(StateReader&& other) noexcept
    : page_(std::exchange(other.page_, nullptr)) {}
StateReader& StateReader::operator=(StateReader&& other) noexcept {
  std::swap(page_, other.page_);
  return *this;
}
StateReader::~StateReader() {
  if (page_ != nullptr) ::munmap(const_cast<StatePage*>(page_), sizeof(StatePage));
}

std::optional<Notice> StateReader::notice(NodeId node, std::uint64_t number) const {
  const std::uint64_t entry =
      page_->notices[node].entries[number % kNoticesKept].load(std::memory_order_relaxed);
  if (entry >> 32 != (number & 0xffffffff)) return {};
  Notice notice{};
  notice.source = static_cast<NodeId>(entry >> 24 & 0xff);
  notice.dest = static_cast<NodeId>(entry >> 8 & 0xffff);
  notice.kind = static_cast<NoticeKind>(entry & 0xff);
  return notice;
}

bool StateReader::read(NodeId node, StateReading& reading, NodeView& view) const {
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    const std::uint64_t before = page_->sequence.load(std::memory_order_acquire);
    if ((before & 1) != 0) continue;
    reading.cycle = page_->cycle.load(std::memory_order_relaxed);
    reading.delivered_flits = page_->delivered_flits.load(std::memory_order_relaxed);
    reading.full_buffers = page_->full_buffers.load(std::memory_order_relaxed);
    reading.buffers = page_->buffers.load(std::memory_order_relaxed);
    for (std::size_t p = 0; p < kStatePortsMax; ++p)
      view.free_lanes[p] = page_->free_lanes[node][p].load(std::memory_order_relaxed);
    // What was read above is older than this look at the sequence; pairs with begin().
    std::atomic_thread_fence(std::memory_order_acquire);
    if (page_->sequence.load(std::memory_order_relaxed) == before) return true;
  }
  return false;
}

}  // namespace emu

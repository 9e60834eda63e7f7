#include "emu/wire/capture.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "emu/packet/build.h"

namespace emu {

namespace {

constexpr std::size_t kPayloadMax = 4096;  // the IBA's

constexpr std::uint64_t kReaderComesNs = 2'000'000'000;
constexpr std::size_t kFileBytes = sizeof(CaptureHead) + ring_bytes<CapturedPacket>(kCaptureSlots);

// Each side has a byte of the file locked while it lives; the other looks whether it has.
enum class Side : int { writer = 0, reader = 1 };

struct flock lock_of(Side side) {
  struct flock lock {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  lock.l_start = static_cast<off_t>(side);
  lock.l_len = 1;
  return lock;
}

bool take(int fd, Side side) {
  const struct flock lock = lock_of(side);
  return ::fcntl(fd, F_OFD_SETLK, &lock) == 0;
}

bool is_there(int fd, Side side) {
  struct flock lock = lock_of(side);
  return ::fcntl(fd, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

RingView<CapturedPacket> ring_of(const Region& file) {
  return {file.data() + sizeof(CaptureHead), kCaptureSlots};
}

}  // namespace

Result<CaptureWriter> CaptureWriter::open(const std::string& path, CycleTime cycle_time,
                                          std::uint64_t nodes) {
  (void)::unlink(path.c_str());
  UniqueFd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!fd) return fail("capture {}: {}", path, std::strerror(errno));
  if (!take(fd.get(), Side::writer)) return fail("capture {}: {}", path, std::strerror(errno));
  // With its blocks: where a sparse file's are not to be had, the first write is the fabric's end.
  if (const int error = ::posix_fallocate(fd.get(), 0, kFileBytes); error != 0) {
    (void)::unlink(path.c_str());
    return fail("capture {} of {} bytes: {}", path, kFileBytes, std::strerror(error));
  }
  auto file = Region::map_file(std::move(fd), kFileBytes, Access::read_write);
  if (!file) return std::unexpected(file.error());
  CaptureWriter writer;
  writer.file_ = std::move(*file);
  writer.path_ = path;
  writer.nodes_ = nodes;
  writer.ring_ = RingProducer(ring_of(writer.file_));
  writer.head()->version = kCaptureVersion;
  writer.head()->cycle_ps = cycle_time.cycle_ps;
  writer.head()->magic = kCaptureMagic;
  return writer;
}

CaptureWriter::~CaptureWriter() {
  if (!file_) return;
  (void)::unlink(path_.c_str());
}

void CaptureWriter::packet(const RxDesc& desc, NodeId dest, const std::uint8_t* bytes) {
  if ((nodes_ >> desc.src & 1) == 0 && (nodes_ >> dest & 1) == 0) return;
  if (desc.more_packets == 0) {
    std::memcpy(next_.bytes.data(), bytes, std::min<std::size_t>(desc.length, next_.bytes.size()));
    push(desc, dest, desc.length);
    return;
  }
  const std::span train(reinterpret_cast<const std::byte*>(bytes), buffer_bytes(desc));
  ParsedPacket parsed;
  if (parse_train(train, desc.more_packets + 1U, parsed) != ParseStatus::ok ||
      parsed.full_payload_bytes > kPayloadMax) {
    return;  // its receiver drops it
  }
  for (std::uint32_t i = 0; i < parsed.packets; ++i) {
    const auto slot = std::as_writable_bytes(std::span(next_.bytes));
    push(desc, dest, cut_packet(train, parsed, i, slot));
  }
}

void CaptureWriter::push(const RxDesc& desc, NodeId dest, std::size_t length) {
  next_.head_cycle = desc.head_cycle;
  next_.arrival_cycle = desc.arrival_cycle;
  next_.length = static_cast<std::uint16_t>(length);
  next_.src = desc.src;
  next_.dest = dest;
  next_.vl = desc.vl;
  next_.traffic_class = desc.traffic_class;
  if (!ring_.push(next_)) head()->left_out.store(++left_out_, std::memory_order_relaxed);
}

bool CaptureWriter::read_by_somebody(std::uint64_t host_ns) {
  if (asked_ns_ == 0) asked_ns_ = host_ns;
  if (is_there(file_.fd(), Side::reader)) return true;
  const bool begun = head()->begun.load(std::memory_order_relaxed) != 0;
  return !begun && host_ns - asked_ns_ < kReaderComesNs;
}

Result<CaptureReader> CaptureReader::open(const std::string& path) {
  UniqueFd fd(::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW));
  if (!fd) return fail("capture {}: {}", path, std::strerror(errno));
  if (!take(fd.get(), Side::reader)) return fail("capture {}: read by another process", path);
  if (::lseek(fd.get(), 0, SEEK_END) < static_cast<off_t>(kFileBytes))
    return fail("capture {}: too short", path);
  auto file = Region::map_file(std::move(fd), kFileBytes, Access::read_write);
  if (!file) return std::unexpected(file.error());
  CaptureReader reader;
  reader.file_ = std::move(*file);
  if (reader.head()->magic != kCaptureMagic || reader.head()->version != kCaptureVersion)
    return fail("capture {}: of another version of flitnet", path);
  reinterpret_cast<CaptureHead*>(reader.file_.data())->begun.store(1, std::memory_order_relaxed);
  reader.cycle_ps_ = reader.head()->cycle_ps;
  reader.ring_ = RingConsumer(ring_of(reader.file_));
  return reader;
}

bool CaptureReader::ended() const { return ring_.broken() || !is_there(file_.fd(), Side::writer); }

}  // namespace emu

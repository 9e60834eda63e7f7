#include "emu/ring/region.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

// Linux 5.1; glibc 2.36 has it only with _GNU_SOURCE and recent headers.
#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

namespace emu {
namespace {

Result<std::byte*> map_bytes(int fd, std::size_t bytes, Access access) {
  const int protection = access == Access::read_only ? PROT_READ : PROT_READ | PROT_WRITE;
  void* data = mmap(nullptr, bytes, protection, MAP_SHARED, fd, 0);
  if (data == MAP_FAILED) {
    return fail("cannot map {} bytes of shared memory: {}", bytes, std::strerror(errno));
  }
  return static_cast<std::byte*>(data);
}

}  // namespace

Region::Region(Region&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      fd_(std::move(other.fd_)) {}

Region& Region::operator=(Region&& other) noexcept {
  if (this != &other) {
    reset();
    data_ = std::exchange(other.data_, nullptr);
    size_ = std::exchange(other.size_, 0);
    fd_ = std::move(other.fd_);
  }
  return *this;
}

void Region::reset() {
  if (data_ != nullptr) munmap(data_, size_);
  data_ = nullptr;
  size_ = 0;
  fd_.reset();
}

Result<Region> Region::create(std::string_view name, std::size_t bytes) {
  if (bytes == 0 || bytes > kRegionBytesMax) return fail("a region of {} bytes", bytes);
  const std::string label(name);
  Region region;
  region.fd_ = UniqueFd(memfd_create(label.c_str(), MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!region.fd_) return fail("memfd_create {}: {}", label, std::strerror(errno));
  if (ftruncate(region.fd(), static_cast<off_t>(bytes)) != 0) {
    return fail("shared memory {} of {} bytes: {}", label, bytes, std::strerror(errno));
  }
  if (fcntl(region.fd(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) != 0) {
    return fail("sealing shared memory {}: {}", label, std::strerror(errno));
  }
  auto data = map_bytes(region.fd(), bytes, Access::read_write);
  if (!data) return std::unexpected(data.error());
  region.data_ = *data;
  region.size_ = bytes;
  return region;
}

Result<Region> Region::map(UniqueFd fd, std::size_t bytes_min, Access access) {
  // Only a memfd answers F_GET_SEALS; without both seals the peer could pull the pages away.
  const int seals = fcntl(fd.get(), F_GET_SEALS);
  if (seals < 0) return fail("the descriptor offered is not shared memory");
  if ((seals & (F_SEAL_SHRINK | F_SEAL_GROW)) != (F_SEAL_SHRINK | F_SEAL_GROW)) {
    return fail("the shared memory offered can change its size: not sealed");
  }
  struct stat info {};
  if (fstat(fd.get(), &info) != 0) return fail("shared memory: {}", std::strerror(errno));
  const auto bytes = static_cast<std::size_t>(info.st_size);
  if (bytes < bytes_min || bytes == 0 || bytes > kRegionBytesMax) {
    return fail("the shared memory offered has {} bytes, not {} or more", bytes, bytes_min);
  }
  auto data = map_bytes(fd.get(), bytes, access);
  if (!data) return std::unexpected(data.error());
  Region region;
  region.data_ = *data;
  region.size_ = bytes;
  region.fd_ = std::move(fd);
  return region;
}

Result<Region> Region::map_file(UniqueFd fd, std::size_t bytes, Access access) {
  struct stat info {};
  if (fstat(fd.get(), &info) != 0) return fail("file to map: {}", std::strerror(errno));
  if (static_cast<std::size_t>(info.st_size) < bytes) {
    if (access == Access::read_only) {
      return fail("the file has {} bytes, not {}", info.st_size, bytes);
    }
    if (ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0) {
      return fail("cannot size a file to {} bytes: {}", bytes, std::strerror(errno));
    }
  }
  auto data = map_bytes(fd.get(), bytes, access);
  if (!data) return std::unexpected(data.error());
  Region region;
  region.data_ = *data;
  region.size_ = bytes;
  region.fd_ = std::move(fd);
  return region;
}

Result<void> Region::seal_writes() {
  if (fcntl(fd(), F_ADD_SEALS, F_SEAL_FUTURE_WRITE | F_SEAL_SEAL) != 0) {
    return fail("sealing shared memory against writes: {}", std::strerror(errno));
  }
  return {};
}

Result<UniqueFd> Region::reopen_read_only() const {
  UniqueFd copy = reopen(fd(), O_RDONLY);
  if (!copy) return fail("reopening shared memory read-only: {}", std::strerror(errno));
  return copy;
}

}  // namespace emu

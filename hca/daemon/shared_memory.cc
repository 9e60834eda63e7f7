#include "hca/daemon/shared_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>

namespace hca {

namespace {

// A memfd may be as large as it likes and costs nothing until it is used, but what is mapped of it
// takes addresses. About two of the largest regions of each client, and in all half of the 2^47
// addresses that a process has: the rest is for queues and for all else.
constexpr std::uint64_t kClientBytesMax = std::uint64_t{2} << 40;
constexpr std::uint64_t kMappedBytesMax = std::uint64_t{64} << 40;

// Of the process, as the addresses are: it may have several nodes.
std::atomic<std::uint64_t> g_mapped_bytes{0};

bool take(std::uint64_t bytes, std::uint64_t& client_bytes) {
  if (bytes > kClientBytesMax - client_bytes) return false;
  if (g_mapped_bytes.fetch_add(bytes, std::memory_order_relaxed) > kMappedBytesMax - bytes) {
    g_mapped_bytes.fetch_sub(bytes, std::memory_order_relaxed);
    return false;
  }
  client_bytes += bytes;
  return true;
}

void give_back(std::uint64_t bytes, std::uint64_t& client_bytes) {
  client_bytes -= bytes;
  g_mapped_bytes.fetch_sub(bytes, std::memory_order_relaxed);
}

}  // namespace

SharedMemory SharedMemory::map(int fd, std::uint64_t offset, std::uint64_t length,
                               std::uint64_t& client_bytes) {
  const int seals = ::fcntl(fd, F_GET_SEALS);
  struct stat info {};
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0 || ::fstat(fd, &info) != 0) return {};
  const auto size = static_cast<std::uint64_t>(info.st_size);
  if (length == 0 || offset > size || length > size - offset) return {};
  // A block of a memfd is a page. Who gives back a huge one of which we have a mapping, as any seal
  // allows, kills us when there is no other (SIGBUS): of those the kernel copies.
  const auto page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  if (static_cast<std::uint64_t>(info.st_blksize) != page) return {};
  const std::uint64_t first = offset / page * page;
  const std::size_t bytes = (offset - first + length + page - 1) / page * page;
  if (!take(bytes, client_bytes)) return {};
  // A memfd that is sealed against writing cannot be mapped writable: then the kernel copies.
  void* data =
      ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, static_cast<off_t>(first));
  if (data == MAP_FAILED) {
    give_back(bytes, client_bytes);
    return {};
  }
  SharedMemory shared;
  shared.data_ = data;
  shared.bytes_ = bytes;
  shared.start_ = static_cast<std::uint8_t*>(data) + (offset - first);
  shared.client_bytes_ = &client_bytes;
  return shared;
}

SharedMemory::~SharedMemory() {
  if (data_ == nullptr) return;
  ::munmap(data_, bytes_);
  give_back(bytes_, *client_bytes_);
}

}  // namespace hca

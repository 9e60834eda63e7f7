#include "emu/base/page_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace emu {
namespace {

Result<void*> map_open_file(int fd, std::string_view what, const std::string& path,
                            std::size_t bytes, bool writes) {
  struct stat status {};
  if (::fstat(fd, &status) != 0 || !S_ISREG(status.st_mode))
    return fail("{} {} is not a regular file", what, path);
  if (status.st_size < static_cast<off_t>(bytes)) {
    if (!writes) return fail("{} {} is too short ({} bytes)", what, path, status.st_size);
    // With its blocks: where a sparse file's are not to be had, the first write ends the process.
    const int error = ::posix_fallocate(fd, 0, static_cast<off_t>(bytes));
    if (error != 0) return fail("{} {}: {}", what, path, std::strerror(error));
  }
  const int protection = writes ? PROT_READ | PROT_WRITE : PROT_READ;
  void* memory = ::mmap(nullptr, bytes, protection, MAP_SHARED, fd, 0);
  if (memory == MAP_FAILED) return fail("{} {}: mmap: {}", what, path, std::strerror(errno));
  return memory;
}

}  // namespace

Result<void*> map_page_file(std::string_view what, const std::string& path, std::size_t bytes,
                            PageAccess access) {
  const bool writes = access == PageAccess::write;
  const int flags = (writes ? O_RDWR | O_CREAT : O_RDONLY) | O_CLOEXEC | O_NOFOLLOW;
  const int fd = ::open(path.c_str(), flags, 0600);
  if (fd < 0) return fail("{} {}: {}", what, path, std::strerror(errno));
  auto mapped = map_open_file(fd, what, path, bytes, writes);
  ::close(fd);
  return mapped;
}

}  // namespace emu

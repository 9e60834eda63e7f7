#include "emu/ring/pid_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <utility>

namespace emu {
namespace {

pid_t read_pid(int fd) {
  char text[24] = {};
  const ssize_t got = pread(fd, text, sizeof text - 1, 0);
  if (got <= 0) return 0;
  const long pid = std::strtol(text, nullptr, 10);
  return pid > 0 ? static_cast<pid_t>(pid) : 0;
}

// Somebody may have removed or replaced the file between open and lock.
bool still_at_path(int fd, const std::string& path) {
  struct stat ours {};
  struct stat there {};
  return fstat(fd, &ours) == 0 && stat(path.c_str(), &there) == 0 && ours.st_ino == there.st_ino &&
         ours.st_dev == there.st_dev;
}

// It runs no more but still has its lock: the kernel drops that with the last of its threads, which
// may wait for a core. Or it has ended since we looked.
bool is_dying(pid_t pid) {
  if (pid == 0) return false;  // it has not said yet who it is
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  const std::string text((std::istreambuf_iterator<char>(file)), {});
  const std::size_t name_end = text.rfind(')');
  return name_end == std::string::npos || text.compare(name_end + 1, 2, " Z") == 0 ||
         text.compare(name_end + 1, 2, " X") == 0;
}

}  // namespace

PidFile::~PidFile() { release(); }

PidFile::PidFile(PidFile&& other) noexcept
    : path_(std::exchange(other.path_, {})), fd_(std::move(other.fd_)) {}

PidFile& PidFile::operator=(PidFile&& other) noexcept {
  if (this != &other) {
    release();
    path_ = std::exchange(other.path_, {});
    fd_ = std::move(other.fd_);
  }
  return *this;
}

Result<PidFile> PidFile::acquire(const std::string& path) {
  // A few rounds are enough: a lock that is only looked at (holder() below, or a script) is gone in
  // a moment, and each loss of the race means that another process ended meanwhile.
  constexpr int kRounds = 16;
  constexpr int kRoundsOfTheDying = 5000;
  pid_t busy = 0;
  for (int round = 0; round < kRounds || (is_dying(busy) && round < kRoundsOfTheDying); ++round) {
    UniqueFd fd(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (!fd) return fail("cannot open {}: {}", path, std::strerror(errno));
    if (flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
      if (errno != EWOULDBLOCK) return fail("cannot lock {}: {}", path, std::strerror(errno));
      busy = read_pid(fd.get());
      usleep(1000);
      continue;
    }
    if (!still_at_path(fd.get(), path)) continue;
    const std::string text = std::to_string(getpid()) + "\n";
    if (ftruncate(fd.get(), 0) != 0 ||
        pwrite(fd.get(), text.data(), text.size(), 0) != static_cast<ssize_t>(text.size())) {
      return fail("cannot write {}: {}", path, std::strerror(errno));
    }
    PidFile file;
    file.path_ = path;
    file.fd_ = std::move(fd);
    return file;
  }
  return fail("{} is held by process {}: stop it first", path, busy);
}

pid_t PidFile::holder(const std::string& path) {
  UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd) return 0;
  if (flock(fd.get(), LOCK_SH | LOCK_NB) == 0) return 0;
  return read_pid(fd.get());
}

void PidFile::release() {
  // Unlink before the lock goes, so that no successor's file is removed.
  if (fd_) unlink(path_.c_str());
  fd_.reset();
  path_.clear();
}

}  // namespace emu

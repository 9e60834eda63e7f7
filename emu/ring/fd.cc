#include "emu/ring/fd.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdio>
#include <system_error>
#include <utility>

#include "emu/base/quiet_thread.h"

namespace emu {
namespace {

// Pipes, sockets, and the kernel's own memory: nothing else can be sealed.
bool closes_at_once(int fd) {
  if (fcntl(fd, F_GET_SEALS) >= 0) return true;
  struct statx info {};
  if (!look_at(fd, info)) return false;
  if (S_ISFIFO(info.stx_mode)) return true;
  // One may hold up whoever closes it last for as long as its sender said.
  constexpr linger kAtOnce{};
  return S_ISSOCK(info.stx_mode) &&
         setsockopt(fd, SOL_SOCKET, SO_LINGER, &kAtOnce, sizeof kAtOnce) == 0;
}

}  // namespace

// Not by close(), which is a cancellation point: a thread of a verbs program that is cancelled must
// not unwind through a destructor.
void UniqueFd::reset() {
  if (fd_ >= 0) (void)syscall(SYS_close, fd_);
  fd_ = -1;
}

bool look_at(int fd, struct statx& info) {
  return statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_TYPE | STATX_INO, &info) == 0;
}

UniqueFd reopen(int fd, int flags) {
  char path[40];  // verbs programs come here from their polls: nothing is allocated
  std::snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
  return UniqueFd(open(path, flags | O_CLOEXEC));
}

void ForeignFd::reset() {
  if (!fd_) return;
  if (closes_at_once(fd_.get())) return fd_.reset();
  try {
    quiet_thread([fd = std::move(fd_)]() mutable { fd.reset(); }).detach();
  } catch (const std::system_error&) {
    // No thread is to be had: it was closed here.
  }
}

}  // namespace emu

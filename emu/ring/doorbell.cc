#include "emu/ring/doorbell.h"

#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace emu {

Result<UniqueFd> make_eventfd() {
  UniqueFd fd(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  if (!fd) return fail("eventfd: {}", std::strerror(errno));
  return fd;
}

// By system calls, which are no cancellation points: who posts is not where a thread may end.
void signal_eventfd(int fd) noexcept {
  const std::uint64_t one = 1;
  // EAGAIN: the counter is full, so the reader has its wake-up already.
  [[maybe_unused]] const long written = ::syscall(SYS_write, fd, &one, sizeof one);
}

void drain_eventfd(int fd) noexcept {
  std::uint64_t count = 0;
  [[maybe_unused]] const long got = ::syscall(SYS_read, fd, &count, sizeof count);
}

}  // namespace emu

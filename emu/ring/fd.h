// A file descriptor with one owner. Everything in this room that opens one returns it in this.
#pragma once

#include <sys/stat.h>

#include <utility>

namespace emu {

class UniqueFd {
 public:
  UniqueFd() = default;
  explicit UniqueFd(int fd) : fd_(fd) {}
  ~UniqueFd() { reset(); }
  UniqueFd(UniqueFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept {
    if (this != &other) {
      reset();
      fd_ = std::exchange(other.fd_, -1);
    }
    return *this;
  }
  UniqueFd(const UniqueFd&) = delete;
  UniqueFd& operator=(const UniqueFd&) = delete;

  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }
  int release() { return std::exchange(fd_, -1); }
  void reset();  // closes

 private:
  int fd_ = -1;
};

// One that another process handed over. The last word on its close may be with a file system that
// does not answer (a FUSE daemon that hangs): then a thread of its own waits for it, not who has
// others to serve.
class ForeignFd {
 public:
  ForeignFd() = default;
  explicit ForeignFd(UniqueFd fd) : fd_(std::move(fd)) {}
  ~ForeignFd() { reset(); }
  ForeignFd(ForeignFd&&) = default;
  ForeignFd& operator=(ForeignFd&& other) noexcept {
    if (this != &other) {
      reset();
      fd_ = std::move(other.fd_);
    }
    return *this;
  }

  int get() const { return fd_.get(); }
  explicit operator bool() const { return static_cast<bool>(fd_); }
  UniqueFd take() { return std::move(fd_); }  // of a process that is trusted with its kind
  void reset();                               // closes

 private:
  UniqueFd fd_;
};

// What the descriptor leads to (a pipe from either end, shared memory), opened anew by /proc:
// access, and flags such as O_NONBLOCK, are then its own. None: errno says why.
UniqueFd reopen(int fd, int flags);

// The type of what a program handed over and its inode, as far as this host knows: a file system
// that does not answer (a FUSE daemon that hangs, an NFS server that is away) must not hold others
// up. false: errno says why.
bool look_at(int fd, struct statx& info);

}  // namespace emu

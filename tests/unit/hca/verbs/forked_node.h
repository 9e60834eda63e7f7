// A node in a child process, whose descriptors are its own: the program and its hcad run out of
// them one without the other.
#pragma once

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <vector>

#include "tests/unit/hca/verbs/node.h"

namespace test {

// Takes every descriptor that this process may still have but `left`, until it is destroyed.
class Scarce {
 public:
  explicit Scarce(std::size_t left) {
    ::getrlimit(RLIMIT_NOFILE, &before_);
    const rlimit few{256, before_.rlim_max};
    ::setrlimit(RLIMIT_NOFILE, &few);
    for (int fd = ::open("/dev/null", O_RDONLY | O_CLOEXEC); fd >= 0; fd = ::dup(fd)) {
      taken_.push_back(fd);
    }
    for (; left > 0 && !taken_.empty(); --left) {
      ::close(taken_.back());
      taken_.pop_back();
    }
  }
  ~Scarce() {
    for (const int fd : taken_) ::close(fd);
    ::setrlimit(RLIMIT_NOFILE, &before_);
  }
  Scarce(const Scarce&) = delete;
  Scarce& operator=(const Scarce&) = delete;

 private:
  rlimit before_{};
  std::vector<int> taken_;
};

class ForkedNode {
 public:
  // Before any thread of this process runs.
  ForkedNode() {
    EXPECT_EQ(::pipe2(to_child_, O_CLOEXEC), 0);
    EXPECT_EQ(::pipe2(from_child_, O_CLOEXEC), 0);
    child_ = ::fork();
    EXPECT_GE(child_, 0);
    if (child_ == 0) live();
    char socket[256] = {};
    EXPECT_GT(::read(from_child_[0], socket, sizeof socket - 1), 0);
    ::setenv(hca::kNodeSocketVariable, socket, 1);
  }
  ~ForkedNode() {
    tell(kEnd);
    ::waitpid(child_, nullptr, 0);
    for (const int fd : {to_child_[0], to_child_[1], from_child_[0], from_child_[1]}) ::close(fd);
  }
  ForkedNode(const ForkedNode&) = delete;
  ForkedNode& operator=(const ForkedNode&) = delete;

  // From now on hcad has room for so many descriptors more; kPlenty: as before.
  static constexpr char kPlenty = 100;
  void leave(char descriptors) { tell(descriptors); }

 private:
  static constexpr char kEnd = 101;

  void tell(char what) {
    EXPECT_EQ(::write(to_child_[1], &what, 1), 1);
    EXPECT_EQ(::read(from_child_[0], &what, 1), 1);
  }
  [[noreturn]] void live() {
    {
      Node node;
      const std::string socket = node.socket();
      (void)!::write(from_child_[1], socket.c_str(), socket.size());
      std::unique_ptr<Scarce> scarce;
      char what = 0;
      while (::read(to_child_[0], &what, 1) == 1 && what != kEnd) {
        scarce.reset();
        if (what != kPlenty) scarce = std::make_unique<Scarce>(static_cast<std::size_t>(what));
        (void)!::write(from_child_[1], "x", 1);
      }
    }
    (void)!::write(from_child_[1], "x", 1);
    ::_exit(0);
  }

  pid_t child_ = -1;
  int to_child_[2];
  int from_child_[2];
};

}  // namespace test

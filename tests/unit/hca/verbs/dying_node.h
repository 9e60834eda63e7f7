// A node in a child process that kills itself, as SIGKILL does, at a chosen store into the rings
// that it shares with programs. Those pages are read-only: each store faults, is counted, and runs
// alone with the page open (one step of the processor), so a death between any two can be had.
#pragma once

#include <sys/mman.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstring>

#include "tests/unit/hca/verbs/node.h"

#if defined(__x86_64__)

namespace test {

class DyingNode {
 public:
  // Before any thread of this process runs.
  DyingNode() {
    EXPECT_EQ(::pipe(to_child_), 0);
    EXPECT_EQ(::pipe(from_child_), 0);
    child_ = ::fork();
    EXPECT_GE(child_, 0);
    if (child_ == 0) live();
    char socket[256] = {};
    EXPECT_GT(::read(from_child_[0], socket, sizeof socket - 1), 0);
    dir_ = std::string(socket).substr(0, std::string(socket).rfind('/'));
    ::setenv(hca::kNodeSocketVariable, socket, 1);
  }
  ~DyingNode() {
    kill();
    for (const int fd : {to_child_[0], to_child_[1], from_child_[0], from_child_[1]}) ::close(fd);
    std::filesystem::remove_all(dir_);
  }
  DyingNode(const DyingNode&) = delete;
  DyingNode& operator=(const DyingNode&) = delete;

  // From now on the `store`-th store into rings (counted from 0) is never done.
  void die_at(int store) {
    EXPECT_EQ(::write(to_child_[1], &store, sizeof store), ssize_t{sizeof store});
    char done = 0;
    EXPECT_EQ(::read(from_child_[0], &done, 1), 1);
  }
  bool died() {
    if (child_ > 0 && ::waitpid(child_, nullptr, WNOHANG) == child_) child_ = -1;
    return child_ < 0;
  }
  void kill() {
    if (died()) return;
    ::kill(child_, SIGKILL);
    ::waitpid(child_, nullptr, 0);
    child_ = -1;
  }

 private:
  struct Range {
    std::uintptr_t begin;
    std::uintptr_t end;
  };
  static inline Range ranges_[16];
  static inline int ranges_count_ = 0;
  static inline int stores_left_ = 0;

  static void protect(int protection) {
    for (int i = 0; i < ranges_count_; ++i) {
      ::mprotect(reinterpret_cast<void*>(ranges_[i].begin), ranges_[i].end - ranges_[i].begin,
                 protection);
    }
  }
  static constexpr greg_t kTrapFlag = 0x100;

  static void on_store(int, siginfo_t* info, void* context) {
    const auto at = reinterpret_cast<std::uintptr_t>(info->si_addr);
    bool ours = false;
    for (int i = 0; i < ranges_count_; ++i) ours |= at >= ranges_[i].begin && at < ranges_[i].end;
    if (!ours || stores_left_ == 0) ::kill(::getpid(), SIGKILL);
    --stores_left_;
    protect(PROT_READ | PROT_WRITE);
    static_cast<ucontext_t*>(context)->uc_mcontext.gregs[REG_EFL] |= kTrapFlag;
  }
  static void after_store(int, siginfo_t*, void* context) {
    protect(PROT_READ);
    static_cast<ucontext_t*>(context)->uc_mcontext.gregs[REG_EFL] &= ~kTrapFlag;
  }

  static void find_rings() {
    std::FILE* maps = std::fopen("/proc/self/maps", "r");
    char line[512];
    while (maps != nullptr && std::fgets(line, sizeof line, maps) != nullptr) {
      const bool ring =
          std::strstr(line, "flitnet-cq") != nullptr || std::strstr(line, "flitnet-qp") != nullptr;
      Range range{};
      if (!ring || std::sscanf(line, "%lx-%lx", &range.begin, &range.end) != 2) continue;
      if (ranges_count_ < 16) ranges_[ranges_count_++] = range;
    }
    if (maps != nullptr) std::fclose(maps);
  }

  [[noreturn]] void live() {
    Node node;
    const std::string socket = node.socket();
    (void)!::write(from_child_[1], socket.c_str(), socket.size());
    int store = 0;
    if (::read(to_child_[0], &store, sizeof store) != ssize_t{sizeof store}) ::_exit(1);
    struct sigaction action {};
    action.sa_flags = SA_SIGINFO;
    action.sa_sigaction = on_store;
    ::sigaction(SIGSEGV, &action, nullptr);
    action.sa_sigaction = after_store;
    ::sigaction(SIGTRAP, &action, nullptr);
    find_rings();
    stores_left_ = store;
    protect(PROT_READ);
    (void)!::write(from_child_[1], "x", 1);
    while (true) ::pause();
  }

  pid_t child_ = -1;
  int to_child_[2];
  int from_child_[2];
  std::string dir_;
};

}  // namespace test

#endif

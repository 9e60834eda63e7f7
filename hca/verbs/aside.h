// Where cores are few, a thread that polls may have got the core of the one process that works for
// it, and nothing parts them: both are always ready to run, and so is whoever has the other core.
// Each message would wait there for its turn behind this thread, and the other way round.
#pragma once

#include <cstdint>

namespace hca {

// When to leave: pure state, one a thread.
class Beside {
 public:
  static constexpr unsigned kLooksMost = 64;                 // in a row
  static constexpr std::uint64_t kAgainNs = 10'000'000;      // the kernel may bring them together
  static constexpr std::uint64_t kStayedNs = 1'000'000'000;  // it may run nowhere else so far

  // The thread looked in vain on CPU `mine`, the process works on `theirs` (-1: there are several).
  bool should_leave(int mine, int theirs, std::uint64_t host_ns) {
    if (theirs < 0 || mine != theirs) {
      looks_ = 0;
      return false;
    }
    if (++looks_ < kLooksMost || host_ns < not_before_ns_) return false;
    looks_ = 0;
    not_before_ns_ = host_ns + kAgainNs;
    return true;
  }
  void stayed(std::uint64_t host_ns) { not_before_ns_ = host_ns + kStayedNs; }

 private:
  unsigned looks_ = 0;
  std::uint64_t not_before_ns_ = 0;
};

// If the calling thread may run elsewhere than on `cpu`, it leaves, until the kernel moves it
// again; its affinity is afterwards what it was. Returns the CPU where it went, -1 if it stayed.
int step_aside(int cpu);

}  // namespace hca

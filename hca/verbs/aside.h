// Who has which core, where cores are few and polling threads many.
#pragma once

#include <cstdint>

#include "emu/ring/patience.h"

namespace hca {

// A thread that polls may have got the core of the one process that works for it, and nothing parts
// them: both are always ready to run, and so is whoever has the other core. Each message would wait
// there for its turn behind this thread, and the other way round. When to leave: pure state, one a
// thread.
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

// Two threads that share a core and answer each other: to pass it to and fro with each look takes
// longer than the look, and a message would wait for half of that. Whoever posted last is answered
// last. So it gives the core away, and the other one keeps it while its message is due: from half
// of the time on that answers took lately. Pure state, one a thread.
class Exchange {
 public:
  static constexpr std::uint64_t kKeptNs = 8'000;  // at a time
  static constexpr unsigned kSure = 4;             // posts in a row, each with one answer

  void posted() { has_posted_ = true; }

  bool waits() const { return waits_; }
  void received(std::uint64_t host_ns) {  // the time counts where it waits()
    if (has_posted_ || !waits_) {         // no answer, or not the first one
      has_posted_ = false;
      answers_ = 0;
      return;
    }
    waits_ = false;
    const std::uint64_t took_ns = host_ns - since_ns_;
    typical_ns_ = answers_ == 0 ? took_ns : (typical_ns_ * 7 + took_ns) / 8;
    if (answers_ < kSure) ++answers_;
  }

  // After a look in vain.
  bool keeps_core(std::uint64_t host_ns) {
    if (has_posted_) {
      has_posted_ = false;
      if (waits_) answers_ = 0;  // it goes on posting unanswered
      waits_ = true;
      since_ns_ = given_ns_ = host_ns;
    }
    if (answers_ < kSure || !waits_) return false;
    const std::uint64_t waited_ns = host_ns - since_ns_;
    return waited_ns * 2 >= typical_ns_ && waited_ns < typical_ns_ * 2 &&
           host_ns - given_ns_ < kKeptNs;
  }
  void gave_core(std::uint64_t host_ns) { given_ns_ = host_ns; }  // and has it again

 private:
  bool has_posted_ = false;  // since its last look in vain
  bool waits_ = false;
  unsigned answers_ = 0;  // in a row, kSure at most
  std::uint64_t since_ns_ = 0;
  std::uint64_t given_ns_ = 0;
  std::uint64_t typical_ns_ = 0;
};

// Who sleeps on a channel looks once more before. Between two looks of a thread that is busy it
// gives its core away, and has it again. Where a message finds everybody asleep that only stands in
// the way: the process that works for it was woken to this core, and whom that one wakes comes here
// as long as nobody else stands in line; to wake another core takes longer than the message. Pure
// state, one a thread.
class Awakening {
 public:
  // The thread looks in vain, and armed before.
  bool goes_on_sleeping(std::uint64_t host_ns) {
    if (host_ns - looked_ns_ > emu::Patience::kMostNs) since_ns_ = host_ns;
    looked_ns_ = host_ns;
    return host_ns - since_ns_ < emu::Patience::kMostNs;
  }

 private:
  std::uint64_t looked_ns_ = 0;  // last
  std::uint64_t since_ns_ = 0;   // its first look after a long time
};

// The calling thread's.
Exchange& exchange();

// If the calling thread may run elsewhere than on `cpu`, it leaves, until the kernel moves it
// again; its affinity is afterwards what it was. Returns the CPU where it went, -1 if it stayed.
int step_aside(int cpu);

}  // namespace hca

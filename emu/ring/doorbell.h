// Wakes a process that says it sleeps, and only that one: a wake-up costs microseconds, a look at
// the flag nanoseconds. One word in shared memory per direction, one eventfd that crosses with the
// attach message. A sleeper may wait for many doorbells at once (poll, epoll, io_uring).
//
//   sleeper:  doorbell.prepare_sleep();         waker:  ring.push(...);
//             if (ring.empty()) wait(fd);               doorbell.wake();
//             doorbell.awake();
//
// No wake-up is lost: both sides change the flag by a read-modify-write, so one of the two comes
// first. If the waker's did, the sleeper's acquires everything pushed before it and the ring is
// seen not to be empty; if the sleeper's did, the waker reads "asleep" and writes the eventfd.
// (Read-modify-writes rather than two fences: same cost on x86, and ThreadSanitizer understands
// them.)
#pragma once

#include <atomic>
#include <cstdint>

#include "emu/base/result.h"
#include "emu/ring/fd.h"
#include "emu/ring/spsc.h"

namespace emu {

// The shared word, alone on its cache line. Zero: awake.
struct DoorbellWord {
  alignas(kCacheLine) std::atomic<std::uint32_t> asleep;
};
static_assert(sizeof(DoorbellWord) == kCacheLine);

Result<UniqueFd> make_eventfd();       // nonblocking, close-on-exec
void signal_eventfd(int fd) noexcept;  // never blocks; a full counter is already a wake-up
void drain_eventfd(int fd) noexcept;   // one read, never blocks

// The end that pushed something. A peer that never clears its flag costs one eventfd write a call.
class DoorbellWaker {
 public:
  DoorbellWaker() = default;
  DoorbellWaker(DoorbellWord* word, int event_fd) : word_(word), event_fd_(event_fd) {}
  // Call after the push. Returns true if it had to wake.
  bool wake() {
    // fetch_and(0) rather than a load: see above. acq_rel orders it after the push.
    if (word_->asleep.fetch_and(0, std::memory_order_acq_rel) == 0) return false;
    signal_eventfd(event_fd_);
    return true;
  }

 private:
  DoorbellWord* word_ = nullptr;
  int event_fd_ = -1;  // owned by the attachment
};

// The end that waits.
class DoorbellSleeper {
 public:
  DoorbellSleeper() = default;
  DoorbellSleeper(DoorbellWord* word, int event_fd) : word_(word), event_fd_(event_fd) {}
  // Afterwards look at the rings once more; only if they are empty wait for the eventfd.
  void prepare_sleep() { word_->asleep.exchange(1, std::memory_order_acq_rel); }
  // After waiting, or instead of it.
  void awake() {
    word_->asleep.store(0, std::memory_order_relaxed);
    drain_eventfd(event_fd_);
  }
  // Somebody rang since prepare_sleep(), or is about to write the eventfd.
  bool rung() const { return word_->asleep.load(std::memory_order_relaxed) == 0; }
  // Cheaper, when it was not waited: the eventfd stays as it is, a later wait may return at once.
  void cancel_sleep() { word_->asleep.store(0, std::memory_order_relaxed); }
  int event_fd() const { return event_fd_; }

 private:
  DoorbellWord* word_ = nullptr;
  int event_fd_ = -1;
};

}  // namespace emu

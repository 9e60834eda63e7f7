#include "fabric/crew/crew.h"

#include <utility>

namespace fabric {

namespace {

void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#else
  std::atomic_signal_fence(std::memory_order_seq_cst);
#endif
}
// Tens of microseconds: what falling asleep and being woken costs. With fewer processors than parts
// whoever waits keeps a processor from the one waited for.
int spins_of(std::uint32_t parts) {
  constexpr int kSpins = 1000;
  return parts <= std::thread::hardware_concurrency() ? kSpins : 0;
}

// Until `value` is no longer `old`.
void await(const std::atomic<std::uint32_t>& value, std::uint32_t old, int spins) {
  for (; value.load(std::memory_order_acquire) == old; --spins) {
    if (spins > 0) {
      relax();
    } else {
      value.wait(old, std::memory_order_acquire);
    }
  }
}

}  // namespace

Crew::Crew(int parts, std::function<void(int part)> work)
    : parts_(static_cast<std::uint32_t>(parts)), spins_(spins_of(parts_)), work_(std::move(work)) {
  for (int part = 1; part < parts; ++part) threads_.emplace_back([this, part] { serve(part); });
}

Crew::~Crew() {
  ends_ = true;
  round_.fetch_add(1, std::memory_order_release);
  round_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void Crew::run() {
  round_.fetch_add(1, std::memory_order_release);
  round_.notify_all();
  work_(0);
  meet();
}

void Crew::meet() {
  const std::uint32_t meeting = meetings_.load(std::memory_order_relaxed);
  if (here_.fetch_add(1, std::memory_order_acq_rel) + 1 == parts_) {
    here_.store(0, std::memory_order_relaxed);
    meetings_.store(meeting + 1, std::memory_order_release);
    meetings_.notify_all();
    return;
  }
  await(meetings_, meeting, spins_);
}

void Crew::serve(int part) {
  for (std::uint32_t seen = 0;; ++seen) {
    await(round_, seen, spins_);
    if (ends_) return;
    work_(part);
    meet();
  }
}

}  // namespace fabric

#include "hca/verbs/sleep.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <ctime>
#include <mutex>
#include <span>

#include "emu/clock/host.h"

namespace hca {

namespace {

constexpr std::uint64_t kSleepNs = 100'000;  // at most; hcad wakes us sooner

CqPage& page_of(const PolledInTurn::Ring& ring) { return *reinterpret_cast<CqPage*>(ring->data()); }

// Both compare with what was taken before they sleep; they pair with the tail store in hca/host.
void wait_on(CqPage& page) {
  const timespec timeout{0, kSleepNs};
  const std::uint32_t taken = page.head.load(std::memory_order_relaxed);
  ::syscall(SYS_futex, &page.tail, FUTEX_WAIT, taken, &timeout, nullptr, 0);
}

// false: this kernel (before Linux 5.16), or who confines the program, has not the call.
bool wait_on_all(std::span<const PolledInTurn::Ring> rings) {
  static std::atomic<bool> has_call{true};
  if (!has_call.load(std::memory_order_relaxed)) return false;
  std::array<futex_waitv, PolledInTurn::kMost> waits{};
  for (std::size_t i = 0; i < rings.size(); ++i) {
    CqPage& page = page_of(rings[i]);
    waits[i].val = page.head.load(std::memory_order_relaxed);
    waits[i].uaddr = reinterpret_cast<std::uintptr_t>(&page.tail);
    waits[i].flags = FUTEX_32;
  }
  const auto until_ns = static_cast<std::int64_t>(emu::host_now_ns() + kSleepNs);
  const timespec until{until_ns / 1'000'000'000, until_ns % 1'000'000'000};
  if (::syscall(SYS_futex_waitv, waits.data(), rings.size(), 0, &until, CLOCK_MONOTONIC) >= 0 ||
      errno == EAGAIN || errno == ETIMEDOUT || errno == EINTR) {
    return true;
  }
  has_call.store(false, std::memory_order_relaxed);
  return false;
}

}  // namespace

void sleep_on(Cq& cq) {
  static thread_local PolledInTurn in_turn;
  std::array<PolledInTurn::Ring, PolledInTurn::kMost> held;  // no resize takes them from under us
  std::size_t count = 0;
  {
    const std::lock_guard lock(cq.lock);
    count = in_turn.polled(cq.region, held);
  }
  const std::span rings(held.data(), count);
  for (const auto& ring : rings) page_of(ring).sleepers.fetch_add(1, std::memory_order_seq_cst);
  if (count == 1 || !wait_on_all(rings)) wait_on(page_of(rings[0]));
  for (const auto& ring : rings) page_of(ring).sleepers.fetch_sub(1, std::memory_order_seq_cst);
}

}  // namespace hca

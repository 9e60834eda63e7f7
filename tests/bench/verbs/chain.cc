#include "tests/bench/verbs/chain.h"

#include <sched.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>

#include "emu/base/check.h"
#include "tests/bench/verbs/endpoint.h"

namespace bench {

namespace {

// Between two neighbours.
struct Link {
  alignas(64) std::atomic<std::uint64_t> ping;
  alignas(64) std::atomic<std::uint64_t> pong;
};
using Links = std::array<Link, kPartiesOfAWay - 1>;

void await(const std::atomic<std::uint64_t>& word, std::uint64_t value, bool politely) {
  constexpr unsigned kLooks = 64;
  for (unsigned looks = 0; word.load(std::memory_order_acquire) != value; ++looks) {
    if (politely && looks >= kLooks) ::sched_yield();
#if defined(__x86_64__)
    if (!politely) __builtin_ia32_pause();
#endif
  }
}

// What party `self` does for one word on its way there and back.
void pass_on(Links& links, std::size_t self, std::size_t parties, std::uint64_t word) {
  const bool politely = parties > 2;
  const bool last = self + 1 == parties;
  if (self > 0) await(links[self - 1].ping, word, politely);
  if (!last) {
    links[self].ping.store(word, std::memory_order_release);
    await(links[self].pong, word, politely);
  }
  if (self > 0) links[self - 1].pong.store(word, std::memory_order_release);
}

}  // namespace

std::vector<std::uint64_t> measure_chain(std::size_t parties, std::size_t count) {
  CHECK(parties >= 2 && parties <= kPartiesOfAWay);
  void* shared =
      ::mmap(nullptr, sizeof(Links), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED) stop("mmap");
  Links& links = *new (shared) Links{};
  std::vector<pid_t> others;
  for (std::size_t self = 1; self < parties; ++self) {
    others.push_back(::fork());
    if (others.back() < 0) stop("fork");
    if (others.back() == 0) {
      for (std::uint64_t word = 1; word <= count; ++word) pass_on(links, self, parties, word);
      ::_exit(0);
    }
  }
  std::vector<std::uint64_t> times;
  for (std::uint64_t word = 1; word <= count; ++word) {
    const auto begin = std::chrono::steady_clock::now();
    pass_on(links, 0, parties, word);
    const std::chrono::nanoseconds took = std::chrono::steady_clock::now() - begin;
    times.push_back(static_cast<std::uint64_t>(took.count()) / 2);
  }
  for (const pid_t pid : others) ::waitpid(pid, nullptr, 0);
  ::munmap(shared, sizeof(Links));
  return times;
}

}  // namespace bench

#include "emu/daemon/daemon.h"

#include <poll.h>
#include <sched.h>
#include <sys/epoll.h>
#include <time.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "emu/clock/host.h"
#include "emu/ring/crowd.h"
#include "emu/ring/fd.h"
#include "emu/ring/patience.h"

namespace emu {

namespace {

timespec span_of(std::uint64_t ns) {
  return {static_cast<time_t>(ns / 1'000'000'000), static_cast<long>(ns % 1'000'000'000)};
}

class Loop {
 public:
  explicit Loop(std::span<Daemon* const> daemons) : daemons_(daemons), rung_(daemons.size()) {}

  Result<void> open() {
    wait_ = UniqueFd(::epoll_create1(EPOLL_CLOEXEC));
    for (std::size_t i = 0; i < daemons_.size(); ++i) {
      for (const int fd : daemons_[i]->wake_fds()) {
        epoll_event event{};
        event.events = EPOLLIN;
        event.data.u64 = i << 32 | static_cast<unsigned>(fd);
        if (::epoll_ctl(wait_.get(), EPOLL_CTL_ADD, fd, &event) != 0)
          return fail("epoll: {}", std::strerror(errno));
      }
    }
    return {};
  }

  bool end() const {
    return std::any_of(daemons_.begin(), daemons_.end(),
                       [](const Daemon* daemon) { return daemon->ends(); });
  }

  void turn() {
    const std::uint64_t host_ns = host_now_ns();
    Rest least = Rest::sleep;
    std::uint64_t naps = 0;  // the shortest, until when
    bool woke = false;
    for (Daemon* daemon : daemons_) {
      const Turn turn = daemon->turn(host_ns);
      if (turn.rest == Rest::nap && (naps == 0 || turn.nap_until_ns < naps))
        naps = turn.nap_until_ns;
      least = std::min(least, turn.rest);
      woke |= turn.woke;
    }
    if (woke && gave_way()) return;
    switch (least) {
      case Rest::none:
        return;
      case Rest::look:
        (void)::sched_yield();
        return;
      case Rest::nap:
        return nap(naps);
      case Rest::sleep:
        return sleep(host_ns);
    }
  }

 private:
  // To whom was woken: where it is this core that it waits for, it would stand there until
  // everybody's work is done and we sleep. Only while everybody was asleep: who works without a
  // pause has others to work for, and they are awake on their cores.
  bool gave_way() {
    const std::uint64_t from_ns = host_now_ns();
    if (from_ns - rung_ns_ > Patience::kMostNs || !crowd_.lets(from_ns)) return false;
    (void)::sched_yield();
    crowd_.gave(from_ns, host_now_ns());
    return true;
  }

  static void nap(std::uint64_t until_ns) {
    const timespec until = span_of(until_ns);
    (void)::clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, nullptr);
  }

  void sleep(std::uint64_t host_ns) {
    std::uint64_t most_ns = ~std::uint64_t{0};
    std::size_t asleep = 0;
    while (asleep < daemons_.size() && most_ns != 0)
      most_ns = std::min(most_ns, daemons_[asleep++]->fall_asleep(host_ns));
    if (most_ns != 0) wait(most_ns);
    for (std::size_t i = 0; i < asleep; ++i) {
      daemons_[i]->wake_up(rung_[i]);
      rung_[i].clear();
    }
  }

  void wait(std::uint64_t most_ns) {
    std::array<epoll_event, 64> events;
    const timespec limit = span_of(most_ns);
    int woken = -1;
    if (have_pwait2_) {
      woken = ::epoll_pwait2(wait_.get(), events.data(), events.size(), &limit, nullptr);
      if (woken < 0) have_pwait2_ = errno != ENOSYS && errno != EPERM;
    }
    if (!have_pwait2_) {
      pollfd all{wait_.get(), POLLIN, 0};
      (void)::ppoll(&all, 1, &limit, nullptr);
      woken = ::epoll_wait(wait_.get(), events.data(), events.size(), 0);
    }
    if (woken > 0) rung_ns_ = host_now_ns();
    for (int i = 0; i < woken; ++i) {
      const std::uint64_t which = events[static_cast<std::size_t>(i)].data.u64;
      rung_[which >> 32].push_back(static_cast<int>(which & 0xffff'ffffU));
    }
  }

  std::span<Daemon* const> daemons_;
  std::vector<std::vector<int>> rung_;  // of each daemon
  UniqueFd wait_;
  Crowd crowd_;
  std::uint64_t rung_ns_ = 0;  // when somebody woke us last
  // Linux 5.11 has it, old seccomp profiles do not let it pass. epoll_wait() alone counts in ms.
  bool have_pwait2_ = true;
};

}  // namespace

Result<void> run(std::span<Daemon* const> daemons, const std::atomic<bool>& stop) {
  Loop loop(daemons);
  if (auto done = loop.open(); !done) return done;
  while (!stop.load(std::memory_order_relaxed) && !loop.end()) loop.turn();
  return {};
}

}  // namespace emu

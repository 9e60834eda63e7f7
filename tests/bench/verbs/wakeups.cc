// What waking costs: processes in a ring, each asleep on an eventfd, as the parties of a message
// are when nobody has sent for a while.
#include "tests/bench/verbs/wakeups.h"

#include <signal.h>
#include <sys/epoll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <utility>

#include "emu/ring/doorbell.h"
#include "tests/bench/verbs/endpoint.h"

namespace bench {

namespace {

class Sleeper {
 public:
  Sleeper() {
    auto event = emu::make_eventfd();
    if (!event) stop("eventfd");
    event_ = std::move(*event);
  }
  void wake() const { emu::signal_eventfd(event_.get()); }
  // Once in each process that sleeps on it.
  void begin() {
    poll_ = emu::UniqueFd(::epoll_create1(EPOLL_CLOEXEC));
    epoll_event wanted{};
    wanted.events = EPOLLIN;
    if (!poll_ || ::epoll_ctl(poll_.get(), EPOLL_CTL_ADD, event_.get(), &wanted) != 0) {
      stop("epoll");
    }
  }
  void sleep() const {
    epoll_event event;
    while (::epoll_wait(poll_.get(), &event, 1, -1) != 1) {
    }
    emu::drain_eventfd(event_.get());
  }

 private:
  emu::UniqueFd event_;
  emu::UniqueFd poll_;
};

[[noreturn]] void pass_on(Sleeper& mine, const Sleeper& next) {
  mine.begin();
  while (true) {
    mine.sleep();
    next.wake();
  }
}

}  // namespace

std::vector<std::uint64_t> measure_wakeups(std::size_t count) {
  std::array<Sleeper, 2 * kWakeupsOfAWay> ring;
  std::array<pid_t, ring.size() - 1> others;
  for (std::size_t i = 0; i < others.size(); ++i) {
    others[i] = ::fork();
    if (others[i] < 0) stop("fork");
    if (others[i] == 0) pass_on(ring[i + 1], ring[(i + 2) % ring.size()]);
  }
  ring[0].begin();
  std::vector<std::uint64_t> times;
  for (std::size_t i = 0; i < count; ++i) {
    ::usleep(3'000);
    const auto begin = std::chrono::steady_clock::now();
    ring[1].wake();
    ring[0].sleep();
    const std::chrono::nanoseconds took = std::chrono::steady_clock::now() - begin;
    times.push_back(static_cast<std::uint64_t>(took.count()) / 2);
  }
  for (const pid_t pid : others) ::kill(pid, SIGKILL);
  for (const pid_t pid : others) ::waitpid(pid, nullptr, 0);
  return times;
}

}  // namespace bench

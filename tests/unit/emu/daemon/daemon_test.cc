// The loop that daemons share: who has his way when they want to go on differently, and who hears
// of what woke the process.
#include "emu/daemon/daemon.h"

#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <deque>
#include <functional>
#include <string>

#include "emu/clock/host.h"
#include "emu/ring/doorbell.h"

namespace emu {
namespace {

constexpr std::uint64_t kLongNs = 60'000'000'000;  // a test that waits so long has failed

// Writes down what it is asked, and answers by a list; behind its end it says that it ends.
class Scripted : public Daemon {
 public:
  Scripted(std::string& story, char name, std::deque<Turn> turns)
      : story_(story), name_(name), turns_(std::move(turns)), bell_(std::move(*make_eventfd())) {}

  Turn turn(std::uint64_t) override {
    say('t');
    if (on_turn) on_turn();
    const Turn next = turns_.front();
    turns_.pop_front();
    return next;
  }
  bool ends() const override { return turns_.empty(); }
  std::uint64_t fall_asleep(std::uint64_t) override {
    say('s');
    return sleep_ns;
  }
  void wake_up(std::span<const int> rung) override {
    say('w');
    for (const int fd : rung) {
      if (fd == bell_.get()) say('!');
      drain_eventfd(fd);
    }
  }
  std::vector<int> wake_fds() const override { return {bell_.get()}; }

  void ring() const { signal_eventfd(bell_.get()); }

  std::uint64_t sleep_ns = kLongNs;
  std::function<void()> on_turn;

 private:
  void say(char what) { (story_ += name_) += what; }

  std::string& story_;
  char name_;
  std::deque<Turn> turns_;
  UniqueFd bell_;
};

class DaemonTest : public testing::Test {
 protected:
  void run_all(std::vector<Daemon*> all) {
    const auto done = run(all, stop_);
    ASSERT_TRUE(done) << done.error().message;
  }
  std::string story_;
  std::atomic<bool> stop_{false};
};

constexpr Turn kNone{Rest::none};
constexpr Turn kLook{Rest::look};
constexpr Turn kSleep{Rest::sleep};

TEST_F(DaemonTest, WhoHasWorkKeepsAllAwake) {
  Scripted a(story_, 'a', {kSleep, kSleep, kNone});
  Scripted b(story_, 'b', {kNone, kLook, kNone});
  run_all({&a, &b});
  EXPECT_EQ(story_, "atbtatbtatbt");
}

TEST_F(DaemonTest, AllSleepTogetherAndTheBellIsHeardByItsOwner) {
  Scripted a(story_, 'a', {kSleep, kNone});
  Scripted b(story_, 'b', {kSleep, kNone});
  b.ring();
  run_all({&a, &b});
  EXPECT_EQ(story_, "atbtasbsawbwb!atbt");
}

TEST_F(DaemonTest, TheShortestSleepIsSlept) {
  Scripted a(story_, 'a', {kSleep, kNone});
  Scripted b(story_, 'b', {kSleep, kNone});
  b.sleep_ns = 1'000;
  run_all({&a, &b});
  EXPECT_EQ(story_, "atbtasbsawbwatbt");
}

// Kernels before 5.11 and old profiles of containers refuse epoll_pwait2.
void refuse_pwait2(int error) {
  std::array<sock_filter, 4> code{
      {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
       BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_epoll_pwait2, 0, 1),
       BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | static_cast<unsigned>(error)),
       BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)}};
  const sock_fprog program{code.size(), code.data()};
  ASSERT_EQ(::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
  ASSERT_EQ(::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program), 0);
}

TEST_F(DaemonTest, SleepsAreSleptWithoutPwait2) {
  constexpr std::uint64_t kSleepNs = 50'000'000;
  for (const int error : {ENOSYS, EPERM}) {
    const auto child = [&] {
      refuse_pwait2(error);
      Scripted a(story_, 'a', {kSleep, kSleep, kNone});
      a.sleep_ns = kSleepNs;
      const std::uint64_t began = host_now_ns();
      run_all({&a});
      const bool slept = host_now_ns() - began >= 2 * kSleepNs;
      Scripted b(story_, 'b', {kSleep, kNone});
      b.ring();
      run_all({&b});
      ::_exit(slept && story_ == "atasawatasawatbtbsbwb!bt" && !HasFailure() ? 0 : 1);
    };
    EXPECT_EXIT(child(), testing::ExitedWithCode(0), "") << std::strerror(error);
  }
}

TEST_F(DaemonTest, WhoWasCalledWhileFallingAsleepWakesTheOthers) {
  Scripted a(story_, 'a', {kSleep, kNone});
  Scripted b(story_, 'b', {kSleep, kNone});
  Scripted c(story_, 'c', {kSleep, kNone});
  b.sleep_ns = 0;
  run_all({&a, &b, &c});
  EXPECT_EQ(story_, "atbtctasbsawbwatbtct") << "c was not asked, so it is not woken";
}

TEST_F(DaemonTest, ANapLastsUntilTheFirstThatWantsToGoOn) {
  const std::uint64_t now = host_now_ns();
  Scripted a(story_, 'a', {{Rest::nap, now + kLongNs}, kNone});
  Scripted b(story_, 'b', {{Rest::nap, now + 1'000}, kNone});
  Scripted c(story_, 'c', {kSleep, kNone});
  run_all({&a, &b, &c});
  EXPECT_EQ(story_, "atbtctatbtct");
}

// Seen by what comes next: having given the core away the loop looks before it sleeps. Only where
// the turn comes soon after the bell: on a loaded machine not each time.
TEST_F(DaemonTest, WhoWasWokenWakesOthersAndGivesThemTheCore) {
  constexpr int kTries = 1000;
  constexpr auto kGaveWay = "atasawa!atatasawa!at";
  Turn woke = kSleep;
  woke.woke = true;
  for (int i = 0; i < kTries && story_ != kGaveWay; ++i) {
    story_.clear();
    Scripted a(story_, 'a', {woke, woke, kSleep, kNone});
    a.on_turn = [&] { a.ring(); };
    run_all({&a});
    ASSERT_EQ(story_.substr(0, 10), "atasawa!at") << "nobody had rung before the first turn";
  }
  EXPECT_EQ(story_, kGaveWay);
}

TEST_F(DaemonTest, OneEndsAll) {
  Scripted a(story_, 'a', {kNone});
  Scripted b(story_, 'b', {kNone, kNone, kNone});
  run_all({&a, &b});
  EXPECT_EQ(story_, "atbt");
}

TEST_F(DaemonTest, AStopIsHeardBetweenTurns) {
  Scripted a(story_, 'a', {kNone, kNone, kNone});
  a.on_turn = [this] { stop_ = true; };
  run_all({&a});
  EXPECT_EQ(story_, "at");
}

}  // namespace
}  // namespace emu

// hca/verbs/aside.h: when a thread leaves a CPU, and that it may run afterwards where it might
// before; when it keeps its core.
#include "hca/verbs/aside.h"

#include <sched.h>
#include <unistd.h>

#include <cstring>
#include <thread>

#include <gtest/gtest.h>

namespace {

cpu_set_t allowed() {
  cpu_set_t set;
  EXPECT_EQ(::sched_getaffinity(0, sizeof set, &set), 0);
  return set;
}

cpu_set_t only(int cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(static_cast<unsigned>(cpu), &set);
  return set;
}

// In a thread of its own, whose affinity is nobody else's.
template <class Test>
void aside(Test test) {
  std::thread(test).join();
}

TEST(Beside, LeavesAfterSoManyLooksInARow) {
  hca::Beside beside;
  for (unsigned i = 1; i < hca::Beside::kLooksMost; ++i) EXPECT_FALSE(beside.should_leave(1, 1, i));
  EXPECT_FALSE(beside.should_leave(0, 1, 100));  // elsewhere once
  for (unsigned i = 1; i < hca::Beside::kLooksMost; ++i)
    EXPECT_FALSE(beside.should_leave(1, 1, 100 + i));
  EXPECT_TRUE(beside.should_leave(1, 1, 200));
}

TEST(Beside, NotForSeveralProcesses) {
  hca::Beside beside;
  for (unsigned i = 0; i < 4 * hca::Beside::kLooksMost; ++i)
    EXPECT_FALSE(beside.should_leave(-1, -1, i));
}

TEST(Beside, NotAgainForAWhile) {
  hca::Beside beside;
  const auto looks = [&beside](std::uint64_t host_ns) {
    bool leaves = false;
    for (unsigned i = 0; i < hca::Beside::kLooksMost; ++i)
      leaves |= beside.should_leave(3, 3, host_ns);
    return leaves;
  };
  EXPECT_TRUE(looks(5));
  EXPECT_FALSE(looks(4 + hca::Beside::kAgainNs));
  const std::uint64_t later_ns = 5 + hca::Beside::kAgainNs;
  EXPECT_TRUE(looks(later_ns));
  beside.stayed(later_ns);
  EXPECT_FALSE(looks(later_ns + hca::Beside::kAgainNs));
  EXPECT_TRUE(looks(later_ns + hca::Beside::kStayedNs));
}

// A program that posts, waits in vain for `took_ns` and receives; returns when.
std::uint64_t exchanged(hca::Exchange& exchange, std::uint64_t at_ns, std::uint64_t took_ns) {
  exchange.posted();
  EXPECT_FALSE(exchange.keeps_core(at_ns));
  exchange.received(at_ns + took_ns);
  return at_ns + took_ns;
}

constexpr std::uint64_t kLongNs = emu::Patience::kMostNs + 1;

TEST(Awakening, WhoSleptSleepsAgainUntilAMessageIsThroughWithIt) {
  hca::Awakening awakening;
  std::uint64_t now = 10 * kLongNs;
  for (int round = 0; round < 3; ++round) {
    EXPECT_TRUE(awakening.goes_on_sleeping(now));
    EXPECT_TRUE(awakening.goes_on_sleeping(now + emu::Patience::kMostNs / 2)) << "an answer";
    EXPECT_FALSE(awakening.goes_on_sleeping(now + emu::Patience::kMostNs)) << "it is busy";
    now += 3 * kLongNs;
  }
}

TEST(Awakening, WhoIsBusyGivesItsCoreAwayAndLooks) {
  hca::Awakening awakening;
  std::uint64_t now = 10 * kLongNs;
  (void)awakening.goes_on_sleeping(now);
  (void)awakening.goes_on_sleeping(now += emu::Patience::kMostNs);
  for (int i = 0; i < 100; ++i) {
    EXPECT_FALSE(awakening.goes_on_sleeping(now += emu::Patience::kMostNs / (1 + i % 7))) << i;
  }
}

TEST(Exchange, KeepsTheCoreWhileItsAnswerIsDue) {
  constexpr std::uint64_t kTookNs = 12'000;
  hca::Exchange exchange;
  std::uint64_t at_ns = 1'000'000;
  for (unsigned i = 0; i < hca::Exchange::kSure; ++i) at_ns = exchanged(exchange, at_ns, kTookNs);
  exchange.posted();
  EXPECT_FALSE(exchange.keeps_core(at_ns));
  EXPECT_FALSE(exchange.keeps_core(at_ns + kTookNs / 2 - 1));
  EXPECT_TRUE(exchange.keeps_core(at_ns + kTookNs / 2));
  EXPECT_TRUE(exchange.keeps_core(at_ns + hca::Exchange::kKeptNs - 1));
  EXPECT_FALSE(exchange.keeps_core(at_ns + hca::Exchange::kKeptNs));  // so long at a time
  exchange.gave_core(at_ns + hca::Exchange::kKeptNs);
  EXPECT_TRUE(exchange.keeps_core(at_ns + hca::Exchange::kKeptNs));
  exchange.gave_core(at_ns + 2 * kTookNs);
  EXPECT_FALSE(exchange.keeps_core(at_ns + 2 * kTookNs));  // it did not come
}

TEST(Exchange, FollowsWhatAnswersTake) {
  hca::Exchange exchange;
  std::uint64_t at_ns = 1'000'000;
  for (unsigned i = 0; i < hca::Exchange::kSure; ++i) at_ns = exchanged(exchange, at_ns, 4'000);
  for (unsigned i = 0; i < 64; ++i) at_ns = exchanged(exchange, at_ns, 40'000);
  exchange.posted();
  EXPECT_FALSE(exchange.keeps_core(at_ns));
  exchange.gave_core(at_ns + 19'000);
  EXPECT_FALSE(exchange.keeps_core(at_ns + 19'000));
  exchange.gave_core(at_ns + 21'000);
  EXPECT_TRUE(exchange.keeps_core(at_ns + 21'000));
}

TEST(Exchange, NotWhereNothingIsAnswered) {
  constexpr std::uint64_t kTookNs = 4'000;
  hca::Exchange stream;  // receives without a post in between
  std::uint64_t at_ns = 1'000'000;
  for (unsigned i = 0; i < 8 * hca::Exchange::kSure; ++i) {
    EXPECT_FALSE(stream.keeps_core(at_ns += kTookNs / 2));
    stream.received(at_ns += kTookNs / 2);
  }
  hca::Exchange sure;
  for (unsigned i = 0; i < hca::Exchange::kSure; ++i) at_ns = exchanged(sure, at_ns, kTookNs);
  sure.received(at_ns);  // a second one for one post
  sure.posted();
  EXPECT_FALSE(sure.keeps_core(at_ns));
  EXPECT_FALSE(sure.keeps_core(at_ns + kTookNs));
  sure.received(at_ns + kTookNs);
  for (unsigned i = 0; i < hca::Exchange::kSure; ++i) at_ns = exchanged(sure, at_ns, kTookNs);
  for (unsigned i = 0; i < 2; ++i) {
    sure.posted();
    EXPECT_FALSE(sure.keeps_core(at_ns));
  }
  EXPECT_FALSE(sure.keeps_core(at_ns + kTookNs));  // it posted again before it was answered
}

TEST(Aside, LeavesTheCpuAndMayRunWhereItMight) {
  if (const cpu_set_t all = allowed(); CPU_COUNT(&all) < 2) GTEST_SKIP() << "one CPU";
  aside([] {
    const cpu_set_t before = allowed();
    const int cpu = ::sched_getcpu();
    const int there = hca::step_aside(cpu);
    EXPECT_NE(there, cpu);
    ASSERT_GE(there, 0);
    EXPECT_TRUE(CPU_ISSET(static_cast<unsigned>(there), &before));
    const cpu_set_t after = allowed();
    EXPECT_TRUE(CPU_EQUAL(&before, &after));
  });
}

TEST(Aside, AMaskOfItsOwnIsKept) {
  const cpu_set_t all = allowed();
  if (CPU_COUNT(&all) < 3) GTEST_SKIP() << "fewer than three CPUs";
  aside([all] {
    cpu_set_t mine = all;
    CPU_CLR(static_cast<unsigned>(::sched_getcpu()), &mine);
    ASSERT_EQ(::sched_setaffinity(0, sizeof mine, &mine), 0);
    EXPECT_GE(hca::step_aside(::sched_getcpu()), 0);
    const cpu_set_t after = allowed();
    EXPECT_TRUE(CPU_EQUAL(&mine, &after));
  });
}

TEST(Aside, WhoMayRunNowhereElseStays) {
  aside([] {
    const int cpu = ::sched_getcpu();
    const cpu_set_t mine = only(cpu);
    ASSERT_EQ(::sched_setaffinity(0, sizeof mine, &mine), 0);
    EXPECT_EQ(hca::step_aside(cpu), -1);
    const cpu_set_t after = allowed();
    EXPECT_TRUE(CPU_EQUAL(&mine, &after));
  });
}

TEST(Aside, ACpuThatIsNotItsOwnIsNoMatter) {
  aside([] {
    const cpu_set_t before = allowed();
    EXPECT_EQ(hca::step_aside(CPU_SETSIZE - 1), -1);
    const cpu_set_t after = allowed();
    EXPECT_TRUE(CPU_EQUAL(&before, &after));
  });
}

}  // namespace

// A sleeper is woken exactly when it says that it sleeps, and no wake-up is lost.
#include "emu/ring/doorbell.h"

#include <gtest/gtest.h>

#include <thread>

#include "emu/ring/region.h"
#include "emu/ring/spsc.h"
#include "emu/ring/unix_socket.h"

namespace {

using emu::DoorbellSleeper;
using emu::DoorbellWaker;
using emu::DoorbellWord;

struct Bell {
  DoorbellWord word{};
  emu::UniqueFd fd = *emu::make_eventfd();
  DoorbellWaker waker{&word, fd.get()};
  DoorbellSleeper sleeper{&word, fd.get()};
};

TEST(Doorbell, OnlyASleeperIsWoken) {
  Bell bell;
  EXPECT_FALSE(bell.waker.wake());
  EXPECT_FALSE(*emu::wait_readable(bell.fd.get(), 0));
  bell.sleeper.prepare_sleep();
  EXPECT_TRUE(bell.waker.wake());
  EXPECT_FALSE(bell.waker.wake());  // once is enough
  EXPECT_TRUE(*emu::wait_readable(bell.fd.get(), 0));
  bell.sleeper.awake();
  EXPECT_FALSE(*emu::wait_readable(bell.fd.get(), 0));
}

TEST(Doorbell, CancelledSleepIsNotWoken) {
  Bell bell;
  bell.sleeper.prepare_sleep();
  bell.sleeper.cancel_sleep();
  EXPECT_FALSE(bell.waker.wake());
}

TEST(Doorbell, AFullCounterDoesNotBlock) {
  Bell bell;
  const std::uint64_t full = ~std::uint64_t{0} - 1;
  ASSERT_EQ(write(bell.fd.get(), &full, sizeof full), static_cast<ssize_t>(sizeof full));
  emu::signal_eventfd(bell.fd.get());
  EXPECT_TRUE(*emu::wait_readable(bell.fd.get(), 0));
}

// Ping-pong in which both sides really sleep each time: a lost wake-up would hang (the 60 s of the
// test's timeout), so both wait without a limit.
using Wait = void (*)(DoorbellSleeper& sleeper, bool something, std::uint64_t round);

void ping_pong(Wait wait) {
  constexpr std::size_t kPingCapacity = 8;
  constexpr std::uint64_t kRounds = 3'000;
  auto region = *emu::Region::create("pingpong", 2 * emu::ring_bytes<std::uint64_t>(kPingCapacity));
  emu::RingView<std::uint64_t> there(region.data(), kPingCapacity);
  emu::RingView<std::uint64_t> back(region.data() + emu::ring_bytes<std::uint64_t>(kPingCapacity),
                                    kPingCapacity);
  Bell to_peer;
  Bell to_us;
  const auto receive = [wait](emu::RingConsumer<std::uint64_t>& ring, DoorbellSleeper& sleeper) {
    std::uint64_t value = 0;
    for (std::uint64_t round = 0; !ring.pop(value); ++round) {
      sleeper.prepare_sleep();
      wait(sleeper, !ring.empty(), round);
    }
    return value;
  };
  std::thread peer([&] {
    emu::RingConsumer<std::uint64_t> in(there);
    emu::RingProducer<std::uint64_t> out(back);
    for (std::uint64_t i = 0; i < kRounds; ++i) {
      out.push(receive(in, to_peer.sleeper) + 1);
      to_us.waker.wake();
    }
  });
  emu::RingConsumer<std::uint64_t> in(back);
  emu::RingProducer<std::uint64_t> out(there);
  for (std::uint64_t i = 0; i < kRounds; ++i) {
    out.push(i);
    to_peer.waker.wake();
    ASSERT_EQ(receive(in, to_us.sleeper), i + 1);
  }
  peer.join();
}

void wait_until_readable(const DoorbellSleeper& sleeper) {
  while (!*emu::wait_readable(sleeper.event_fd(), -1)) {
  }
}

TEST(Doorbell, NoWakeUpIsLost) {
  ping_pong([](DoorbellSleeper& sleeper, bool something, std::uint64_t) {
    if (!something) wait_until_readable(sleeper);
    sleeper.awake();
  });
}

// As the daemons do: first a wait that times out, which leaves the eventfd as it is even if the
// ring comes just then; and an eventfd is read only when it was readable.
TEST(Doorbell, NoWakeUpIsLostToTimeouts) {
  ping_pong([](DoorbellSleeper& sleeper, bool something, std::uint64_t round) {
    bool readable = false;
    if (!something && round % 2 == 0) {
      readable = *emu::wait_readable(sleeper.event_fd(), 0);
    } else if (!something) {
      wait_until_readable(sleeper);
      readable = true;
    }
    readable ? sleeper.awake() : sleeper.cancel_sleep();
  });
}

}  // namespace

// The ring against a plain queue, across two threads, and against a peer that scribbles.
#include "emu/ring/spsc.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <deque>
#include <random>
#include <thread>
#include <vector>

#include "emu/base/prng.h"
#include "emu/ring/region.h"

namespace {

using emu::Prng;
using emu::Region;
using emu::RingConsumer;
using emu::RingProducer;
using emu::RingView;

struct Entry {
  std::uint64_t number;
  std::uint64_t check;
};
Entry entry_of(std::uint64_t n) { return {n, n * 0x9e3779b97f4a7c15ULL + 1}; }
bool intact(const Entry& e) { return e.check == entry_of(e.number).check; }

constexpr std::size_t kCapacity = 64;

std::uint64_t fresh_seed() {
  const std::uint64_t seed = std::random_device{}();
  testing::Test::RecordProperty("seed", std::to_string(seed));
  std::printf("seed %llu\n", static_cast<unsigned long long>(seed));
  return seed;
}

struct Ring {
  Region region = *Region::create("ring", emu::ring_bytes<Entry>(kCapacity));
  RingView<Entry> view{region.data(), kCapacity};
  RingProducer<Entry> producer{view};
  RingConsumer<Entry> consumer{view};
};

TEST(Spsc, ZeroedMemoryIsAnEmptyRing) {
  Ring ring;
  Entry e{};
  EXPECT_TRUE(ring.consumer.empty());
  EXPECT_FALSE(ring.consumer.pop(e));
  EXPECT_EQ(ring.producer.room(kCapacity), kCapacity);
}

TEST(Spsc, FillsToItsCapacityAndNoFurther) {
  Ring ring;
  for (std::size_t i = 0; i < kCapacity; ++i) ASSERT_TRUE(ring.producer.push(entry_of(i)));
  EXPECT_FALSE(ring.producer.push(entry_of(999)));
  EXPECT_EQ(ring.producer.pending(), kCapacity);
  Entry e{};
  ASSERT_TRUE(ring.consumer.pop(e));
  EXPECT_EQ(e.number, 0u);
  EXPECT_TRUE(ring.producer.push(entry_of(999)));
  EXPECT_EQ(ring.producer.popped(), 1u);
}

// Random pushes and pops of random batches, compared with a std::deque.
TEST(Spsc, BatchesEqualAPlainQueue) {
  Prng random(fresh_seed());
  Ring ring;
  std::deque<std::uint64_t> model;
  std::uint64_t next = 0;
  std::array<Entry, 100> batch{};
  for (int step = 0; step < 20'000; ++step) {
    const std::size_t count = random.below(100);
    if (random.below(2) == 0) {
      for (std::size_t i = 0; i < count; ++i) batch[i] = entry_of(next + i);
      const std::size_t pushed = ring.producer.push({batch.data(), count});
      ASSERT_EQ(pushed, std::min(count, kCapacity - model.size()));
      for (std::size_t i = 0; i < pushed; ++i) model.push_back(next++);
    } else {
      const std::size_t popped = ring.consumer.pop({batch.data(), count});
      ASSERT_EQ(popped, std::min(count, model.size()));
      for (std::size_t i = 0; i < popped; ++i) {
        ASSERT_EQ(batch[i].number, model.front());
        ASSERT_TRUE(intact(batch[i]));
        model.pop_front();
      }
    }
  }
}

// Two threads: everything arrives once, whole and in order.
TEST(Spsc, TwoThreadsKeepOrder) {
  constexpr std::uint64_t kTotal = 200'000;
  const std::uint64_t seed = fresh_seed();
  Ring ring;
  std::thread producer([&] {
    Prng random(seed);
    std::array<Entry, 32> batch{};
    for (std::uint64_t next = 0; next < kTotal;) {
      const std::size_t count =
          std::min<std::size_t>(1 + random.below(32), static_cast<std::size_t>(kTotal - next));
      for (std::size_t i = 0; i < count; ++i) batch[i] = entry_of(next + i);
      const std::size_t pushed = ring.producer.push({batch.data(), count});
      next += pushed;
      if (pushed == 0) std::this_thread::yield();
    }
  });
  std::array<Entry, 32> batch{};
  std::uint64_t expected = 0;
  bool good = true;
  while (expected < kTotal) {
    const std::size_t popped = ring.consumer.pop(batch);
    for (std::size_t i = 0; i < popped; ++i) {
      good = good && batch[i].number == expected && intact(batch[i]);
      ++expected;
    }
    if (popped == 0) std::this_thread::yield();
  }
  producer.join();
  EXPECT_TRUE(good);
  EXPECT_FALSE(ring.producer.broken());
  EXPECT_FALSE(ring.consumer.broken());
}

TEST(Spsc, ImpossibleTailIsRefused) {
  Ring ring;
  ring.producer.push(entry_of(1));
  Entry e{};
  ASSERT_EQ(ring.consumer.available(), 1u);
  // More than a capacity ahead, behind what was seen, and far behind what was popped.
  for (const std::uint64_t lie : {kCapacity + 1, std::size_t{0}, ~std::size_t{0}}) {
    ring.view.words().tail.store(lie);
    EXPECT_LE(ring.consumer.available(kCapacity), kCapacity);
  }
  EXPECT_TRUE(ring.consumer.broken());
  EXPECT_TRUE(ring.consumer.pop(e));  // what was seen before the lie is still there
  EXPECT_FALSE(ring.consumer.pop(e));
}

TEST(Spsc, ImpossibleHeadIsRefused) {
  Ring ring;
  for (std::size_t i = 0; i < kCapacity; ++i) ring.producer.push(entry_of(i));
  ring.view.words().head.store(kCapacity + 1);  // popped more than was pushed
  EXPECT_EQ(ring.producer.room(1), 0u);
  EXPECT_TRUE(ring.producer.broken());
  ring.view.words().head.store(10);
  EXPECT_EQ(ring.producer.room(1), 10u);
}

// A peer that writes random bytes over the whole region, through a mapping of its own, between and
// during our operations: no more than a capacity is ever handed out, and nothing outside the ring
// is written (the guard words behind it stay).
TEST(Spsc, ScribblingPeerDoesNoHarm) {
  Prng random(fresh_seed());
  const std::size_t bytes = emu::ring_bytes<Entry>(kCapacity);
  Region region = *Region::create("scribbled", bytes + 4096);
  Region theirs = *Region::map(emu::UniqueFd(dup(region.fd())), bytes, emu::Access::read_write);
  std::memset(region.data() + bytes, 0x5a, 4096);
  RingView<Entry> view(region.data(), kCapacity);
  RingProducer<Entry> producer(view);
  RingConsumer<Entry> consumer(view);
  std::vector<Entry> batch(2 * kCapacity);
  for (int step = 0; step < 50'000; ++step) {
    for (int i = 0; i < 4; ++i) {
      // Mostly the indices, and mostly near what they are: that is what could lead astray.
      const std::size_t word = random.below(2) == 0
                                   ? 8 * random.below(2)
                                   : random.below(static_cast<std::uint32_t>(bytes / 8));
      std::uint64_t junk = 0;
      std::memcpy(&junk, theirs.data() + word * 8, sizeof junk);
      junk = random.below(4) == 0 ? random() : junk + random.below(100) - 50;
      std::memcpy(theirs.data() + word * 8, &junk, sizeof junk);
    }
    ASSERT_LE(consumer.available(kCapacity), kCapacity);
    ASSERT_LE(consumer.pop(batch), kCapacity);
    ASSERT_LE(producer.room(kCapacity), kCapacity);
    ASSERT_LE(producer.push(batch), kCapacity);
    ASSERT_LE(producer.pending(), kCapacity);
  }
  EXPECT_TRUE(consumer.broken());
  EXPECT_TRUE(producer.broken());
  for (std::size_t i = 0; i < 4096; ++i) ASSERT_EQ(region.data()[bytes + i], std::byte{0x5a});
}

TEST(SpscDeathTest, CapacityMustBeAPowerOfTwo) {
  Region region = *Region::create("ring", 4096);
  EXPECT_DEATH(RingView<Entry>(region.data(), 48), "has_single_bit");
}

}  // namespace

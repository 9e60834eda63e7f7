#include "emu/wire/lending.h"

#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "emu/base/prng.h"
#include "emu/wire/message.h"
#include "tests/unit/emu/wire/seed.h"

namespace emu {
namespace {

constexpr std::uint32_t buffer_of(std::uint16_t pool, std::size_t train) {
  return std::uint32_t{pool} << 16 | static_cast<std::uint32_t>(train * kTrainSlots);
}

TEST(Lending, KnowsWhatWasLentOnly) {
  Lending lending;
  EXPECT_FALSE(lending.is_open(3));
  EXPECT_TRUE(lending.find(buffer_of(3, 0)).empty());
  lending.bring_home(buffer_of(3, 0));
  lending.bring_home_all(3);
  lending.end(buffer_of(3, 0));
  lending.open(3, 2 * kTrainSlots);
  EXPECT_TRUE(lending.is_open(3));
  EXPECT_FALSE(lending.is_open(2));
  EXPECT_TRUE(lending.find(buffer_of(3, 0)).empty());
  EXPECT_TRUE(lending.find(buffer_of(3, 1000)).empty());
  EXPECT_TRUE(lending.find(buffer_of(0xffff, 0)).empty());
}

// Random events, against a list of what is where.
TEST(Lending, BringsEachPayloadHomeOnce) {
  const std::uint64_t seed = test_seed();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  Prng prng(seed);
  constexpr std::size_t kPools = 4;
  constexpr std::size_t kTrains = 6;
  struct Train {
    std::vector<std::uint8_t> payload;
    std::vector<std::uint8_t> home;
    bool lent = false;
  };
  std::array<std::array<Train, kTrains>, kPools> trains;
  Lending lending;
  for (std::uint16_t pool = 0; pool < kPools; ++pool) lending.open(pool, kTrains * kTrainSlots);
  const auto expect_home = [](Train& train) {
    EXPECT_TRUE(!train.lent || train.home == train.payload);
    train.lent = false;
  };
  for (int i = 0; i < 20'000; ++i) {
    const auto pool = static_cast<std::uint16_t>(prng.below(kPools));
    const std::size_t at = prng.below(kTrains);
    Train& train = trains[pool][at];
    const std::uint32_t buffer = buffer_of(pool, at);
    switch (prng.below(12)) {
      case 0:
        lending.bring_home_all(pool);
        for (Train& each : trains[pool]) expect_home(each);
        break;
      case 1:
        lending.close(pool);
        EXPECT_FALSE(lending.is_open(pool));
        for (Train& each : trains[pool]) expect_home(each);
        lending.open(pool, kTrains * kTrainSlots);
        break;
      case 2:
      case 3:
        lending.bring_home(buffer);
        expect_home(train);
        break;
      case 4:
      case 5:
        lending.end(buffer);
        EXPECT_FALSE(train.lent && train.home == train.payload);
        train.lent = false;
        break;
      default:
        if (train.lent) break;
        train.payload.assign(1 + prng.below(100), static_cast<std::uint8_t>(1 + prng.below(255)));
        train.home.assign(train.payload.size(), 0);
        lending.lend(buffer, train.payload, train.home.data());
        train.lent = true;
    }
    ASSERT_EQ(lending.find(buffer).data(), train.lent ? train.payload.data() : nullptr);
  }
}

}  // namespace
}  // namespace emu

// The table of messages and the queue of launches.
#include "hca/wire/message.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "emu/base/prng.h"
#include "hca/wire/launch.h"

namespace hca {
namespace {

TEST(MessageTable, EachNodeHasItsShare) {
  MessageTable table(3, 5);
  std::set<MessageId> taken;
  for (int i = 0; i < 5; ++i) taken.insert(table.take(1));
  EXPECT_EQ(taken.size(), 5U);
  EXPECT_EQ(table.take(1), kNoMessage);
  EXPECT_EQ(table.room(1), 0);
  EXPECT_EQ(table.room(0), 5);
  for (const MessageId id : taken) EXPECT_EQ(table[id].owner, 1);
  table.give_back(*taken.begin());
  EXPECT_EQ(table.take(1), *taken.begin());
  EXPECT_NE(table.take(0), kNoMessage);
}

TEST(LaunchQueue, EarliestFirstThenInOrderOfSubmission) {
  emu::Prng random(4);
  MessageTable messages(1, 2000);
  LaunchQueue queue(messages);
  EXPECT_EQ(queue.next(), emu::kNever);
  std::vector<std::pair<emu::Cycle, MessageId>> expected;
  for (MessageId id = 0; id < 2000; ++id) {
    const emu::Cycle launch = random.below(50);
    queue.push(launch, id);
    expected.emplace_back(launch, id);
  }
  std::stable_sort(expected.begin(), expected.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  for (const auto& [launch, id] : expected) {
    ASSERT_EQ(queue.next(), launch);
    ASSERT_EQ(queue.pop(), id);
  }
  EXPECT_EQ(queue.next(), emu::kNever);
}

// Launches near and far, handed in while others leave, against a sorted list.
TEST(LaunchQueue, AgreesWithASortedList) {
  constexpr MessageId kMessages = 3000;
  emu::Prng random(5);
  MessageTable messages(1, kMessages);
  LaunchQueue queue(messages);
  std::multimap<emu::Cycle, MessageId> expected;  // equal keys in the order of insertion
  std::vector<MessageId> idle;
  for (MessageId id = 0; id < kMessages; ++id) idle.push_back(id);
  emu::Cycle now = 100;
  for (int i = 0; i < 100'000; ++i) {
    if (!idle.empty() && random.below(2) == 0) {
      const std::uint32_t spread = random.below(3) == 0 ? 5000 : 60;
      const emu::Cycle launch = now + 1 + random.below(spread);
      queue.push(launch, idle.back());
      expected.emplace(launch, idle.back());
      idle.pop_back();
    } else if (!expected.empty()) {
      ASSERT_EQ(queue.next(), expected.begin()->first) << i;
      now = std::max(now, queue.next());
      ASSERT_EQ(queue.pop(), expected.begin()->second) << i;
      idle.push_back(expected.begin()->second);
      expected.erase(expected.begin());
    }
    // Sometimes everything leaves, and time jumps.
    if (random.below(500) != 0) continue;
    for (; !expected.empty(); expected.erase(expected.begin())) {
      ASSERT_EQ(queue.pop(), expected.begin()->second) << i;
      idle.push_back(expected.begin()->second);
    }
    ASSERT_EQ(queue.next(), emu::kNever);
    now += random.below(100'000);
  }
}

}  // namespace
}  // namespace hca

// The table of messages and the queue of launches.
#include "hca/wire/message.h"

#include <gtest/gtest.h>

#include <algorithm>
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
  LaunchQueue queue(2000);
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

}  // namespace
}  // namespace hca

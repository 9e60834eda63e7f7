// The state machine where something goes wrong: messages for ids that are gone or over, events that
// are taken back, what nodes and programs say that do not mean well.
#include <gtest/gtest.h>
#include <rdma/rdma_user_cm.h>

#include <cerrno>
#include <cstdint>

#include "tests/unit/hca/cm/pair.h"

namespace {

using namespace cm_test;

class CmStates : public CmTest {
 protected:
  // a serves UD at 7174 and has seen b's question: (listener, a's id, b's id).
  Joined question() {
    Joined j{};
    j.listener = a.create(RDMA_PS_UDP, 10);
    EXPECT_EQ(a.bind(j.listener, 0, 7174), 0);
    EXPECT_EQ(a.listen(j.listener), 0);
    j.client = b.create(RDMA_PS_UDP, 20);
    EXPECT_EQ(b.resolve(j.client, kFirst, 7174), 0);
    EXPECT_EQ(b.connect(j.client, 0x33), 0);
    carry();
    const auto event = a.event();
    EXPECT_EQ(event.event, kConnectRequest);
    j.server = event.id;
    return j;
  }
};

// A channel is readable if and only if an event waits: each way in which one goes away.
TEST_F(CmStates, AnEventThatIsTakenBackIsNotReadable) {
  const std::uint32_t id = a.create(RDMA_PS_UDP, 10);
  ASSERT_EQ(a.resolve(id, 0xef010101, 0), 0);
  EXPECT_FALSE(a.readable[a.file]);
  std::uint32_t group = 0;
  ASSERT_EQ(a.join(id, 0xef010101, group), 0);
  EXPECT_TRUE(a.readable[a.file]);
  ASSERT_EQ(a.leave(group), 0);
  EXPECT_FALSE(a.readable[a.file]);
  ASSERT_EQ(a.join(id, 0xef010101, group), 0);
  ASSERT_EQ(a.destroy(id), 0);
  EXPECT_FALSE(a.readable[a.file]);
}

TEST_F(CmStates, AnEventThatMovesMakesTheOtherFileReadable) {
  const Joined j = join();
  EXPECT_FALSE(a.readable[a.file]);
  ASSERT_EQ(b.disconnect(j.client), 0);
  carry();
  EXPECT_TRUE(a.readable[a.file]);
  const hca::CmFileId old = a.file;
  a.file = a.cm.open();
  ASSERT_EQ(a.migrate(j.server, old), 0);
  EXPECT_FALSE(a.readable[old]);
  EXPECT_TRUE(a.readable[a.file]);
  EXPECT_EQ(a.event().event, kDisconnected);
  EXPECT_FALSE(a.readable[a.file]);
}

TEST_F(CmStates, OfTwoEventsOneStaysReadable) {
  const std::uint32_t first = a.create(RDMA_PS_UDP, 10);
  const std::uint32_t second = a.create(RDMA_PS_UDP, 11);
  ASSERT_EQ(a.resolve(first, 0xef010101, 0), 0);
  ASSERT_EQ(a.resolve(second, 0xef010101, 0), 0);
  std::uint32_t group = 0;
  ASSERT_EQ(a.join(first, 0xef010101, group), 0);
  ASSERT_EQ(a.join(second, 0xef010101, group), 0);
  ASSERT_EQ(a.destroy(first), 0);
  EXPECT_TRUE(a.readable[a.file]);
  EXPECT_EQ(a.event().event, kMulticastJoin);
  EXPECT_FALSE(a.readable[a.file]);
}

TEST_F(CmStates, AnIdMovesToWhereItIs) {
  const Joined j = join();
  ASSERT_EQ(b.disconnect(j.client), 0);
  carry();
  EXPECT_EQ(a.migrate(j.server, a.file), 0);
  EXPECT_TRUE(a.readable[a.file]);
  EXPECT_EQ(a.event().event, kDisconnected);
  EXPECT_EQ(a.event().event, ~0u);
}

}  // namespace

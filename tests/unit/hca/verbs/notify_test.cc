// Arming a CQ: what fires and what does not, in the middle of a poll, and while the ring moves; and
// what cannot be asked of one.
#include <poll.h>
#include <sched.h>

#include <atomic>
#include <cerrno>
#include <thread>

#include "hca/verbs/objects.h"
#include "tests/unit/hca/verbs/node.h"

namespace {

using test::Node;
using test::Program;

class Notify : public testing::Test {
 protected:
  Notify() { std::tie(from, to) = program.make_pair(); }
  // A message, received: its completion waits in the CQ.
  void message(unsigned flags) {
    ASSERT_EQ(program.receive(to, 1), 0);
    ASSERT_EQ(program.send(from, 2, 8, flags), 0);
    ++completions;
    while (hca::to_cq(program.cq)->page().tail.load() != completions) ::sched_yield();
    // The event follows the completion; when hcad has answered this, it has told of both.
    ibv_qp_attr attributes{};
    ibv_qp_init_attr init{};
    ASSERT_EQ(ibv_query_qp(to, &attributes, IBV_QP_STATE, &init), 0);
  }
  bool fired() {
    pollfd wanted{program.channel->fd, POLLIN, 0};
    if (::poll(&wanted, 1, 0) == 0) return false;
    ibv_cq* cq = nullptr;
    void* user = nullptr;
    EXPECT_EQ(ibv_get_cq_event(program.channel, &cq, &user), 0);
    ibv_ack_cq_events(cq, 1);
    return true;
  }
  Node node;
  Program program;
  ibv_qp* from;
  ibv_qp* to;
  std::uint32_t completions = 0;
};

TEST_F(Notify, SolicitedOnlyIsNotFiredByWhatWaitsUnsolicited) {
  message(0);
  ASSERT_EQ(ibv_req_notify_cq(program.cq, 1), 0);
  EXPECT_FALSE(fired());
  message(0);
  EXPECT_FALSE(fired());
  ASSERT_EQ(ibv_req_notify_cq(program.cq, 0), 0);  // any: these two are enough
  EXPECT_TRUE(fired());
}

TEST_F(Notify, SolicitedOnlyLeavesWhoWaitsForAnyOne) {
  ASSERT_EQ(ibv_req_notify_cq(program.cq, 0), 0);
  ASSERT_EQ(ibv_req_notify_cq(program.cq, 1), 0);
  message(0);
  EXPECT_TRUE(fired());
}

TEST_F(Notify, SolicitedOnlyIsFiredByASolicitedOneThatWaits) {
  message(IBV_SEND_SOLICITED);
  message(0);
  ASSERT_EQ(ibv_req_notify_cq(program.cq, 1), 0);
  EXPECT_TRUE(fired());
  ASSERT_EQ(ibv_req_notify_cq(program.cq, 1), 0);  // it was told of
  EXPECT_FALSE(fired());
  EXPECT_EQ(program.poll(2).size(), 2u);
}

TEST_F(Notify, SolicitedOnlyForgetsWhatWasPolled) {
  message(IBV_SEND_SOLICITED);
  EXPECT_EQ(program.poll(1).size(), 1u);
  message(0);
  ASSERT_EQ(ibv_req_notify_cq(program.cq, 1), 0);
  EXPECT_FALSE(fired());
}

TEST_F(Notify, SolicitedOnlyIsFiredByAnErrorThatWaits) {
  message(0);
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_ERR;
  ASSERT_EQ(program.receive(to, 5), 0);
  ASSERT_EQ(ibv_modify_qp(to, &attributes, IBV_QP_STATE), 0);
  while (hca::to_cq(program.cq)->page().tail.load() != completions + 1) ::sched_yield();
  ASSERT_EQ(ibv_req_notify_cq(program.cq, 1), 0);
  EXPECT_TRUE(fired());
}

// A resize carries it over.
TEST_F(Notify, SolicitedOnlyAfterAResize) {
  message(IBV_SEND_SOLICITED);
  ASSERT_EQ(ibv_resize_cq(program.cq, 256), 0);
  ASSERT_EQ(ibv_req_notify_cq(program.cq, 1), 0);
  EXPECT_TRUE(fired());
}

// Between start and end the lock is this thread's already.
TEST_F(Notify, InTheMiddleOfAnExtendedPoll) {
  message(0);
  message(0);
  ibv_cq_ex* cq = hca::to_cq(program.cq);
  ibv_poll_cq_attr attributes{};
  ASSERT_EQ(ibv_start_poll(cq, &attributes), 0);
  ASSERT_EQ(ibv_req_notify_cq(program.cq, 0), 0);
  EXPECT_TRUE(fired());  // one more waits
  ASSERT_EQ(ibv_next_poll(cq), 0);
  ASSERT_EQ(ibv_req_notify_cq(program.cq, 0), 0);
  EXPECT_FALSE(fired());
  ibv_end_poll(cq);
  message(0);
  while (!fired()) ::sched_yield();
}

// Threads that sleep on the ring while it moves, again and again.
TEST_F(Notify, SleepersOutliveTheRing) {
  std::atomic<bool> stop{false};
  std::atomic<std::uint32_t> got{0};
  const auto sleeper = [&] {
    ibv_wc wc;
    while (!stop) got += ibv_poll_cq(program.cq, 1, &wc) == 1 ? 1 : 0;
  };
  std::thread one(sleeper);
  std::thread two(sleeper);
  for (std::uint32_t i = 0; i < 200; ++i) {
    ASSERT_EQ(ibv_resize_cq(program.cq, i % 2 == 0 ? 128 : 64), 0);
    ASSERT_EQ(program.receive(to, 1), 0);
    ASSERT_EQ(program.send(from, 2, 8, IBV_SEND_SIGNALED), 0);
    while (got != 2 * (i + 1)) ::sched_yield();
  }
  stop = true;
  one.join();
  two.join();
}

// Completions have the emulated time alone: who asks for the time of day is told that there is
// none.
TEST_F(Notify, TimestampsHaveNoWallClock) {
  ibv_cq_init_attr_ex wanted{};
  wanted.cqe = 4;
  constexpr std::uint64_t kStandard = IBV_WC_STANDARD_FLAGS;
  wanted.wc_flags = kStandard | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK;
  errno = 0;
  EXPECT_EQ(ibv_create_cq_ex(program.context, &wanted), nullptr);
  EXPECT_EQ(errno, EOPNOTSUPP);
  wanted.wc_flags = kStandard | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP;
  ibv_cq_ex* const cq = ibv_create_cq_ex(program.context, &wanted);
  ASSERT_NE(cq, nullptr);
  EXPECT_EQ(ibv_destroy_cq(ibv_cq_ex_to_cq(cq)), 0);
}

}  // namespace

// When a slot of a queue is free again: once its completion was polled, or that of a later request
// of the queue. So no more completions wait than the program has asked slots for.
#include <sched.h>

#include "hca/verbs/objects.h"
#include "tests/unit/hca/verbs/node.h"

namespace {

using test::Node;
using test::Program;

constexpr int kSlots = 16;  // of each queue of Program::make_qp

class Slots : public testing::Test {
 protected:
  Slots() { std::tie(from, to) = program.make_pair(); }
  // An RDMA write, which needs no receive.
  int write(unsigned flags, std::uint64_t id = 0) const {
    ibv_sge piece = program.sge(0, 8);
    ibv_send_wr wr{};
    wr.wr_id = id;
    wr.sg_list = &piece;
    wr.num_sge = 1;
    wr.opcode = IBV_WR_RDMA_WRITE;
    wr.send_flags = flags;
    wr.wr.rdma = {program.sge(4096, 8).addr, program.mr->rkey};
    ibv_send_wr* bad = nullptr;
    return ibv_post_send(from, &wr, &bad);
  }
  void fill(unsigned flags) const {
    for (int i = 0; i < kSlots; ++i) ASSERT_EQ(write(flags), 0);
    EXPECT_EQ(write(flags), ENOMEM);
  }
  // Until hcad has completed so many sends, polled or not.
  void await_done(std::uint32_t count) const {
    while (hca::to_qp(from)->page().sq_head.load() != count) ::sched_yield();
  }
  Node node;
  Program program;
  ibv_qp* from;
  ibv_qp* to;
};

TEST_F(Slots, ACompletionThatWaitsHoldsItsSlot) {
  fill(IBV_SEND_SIGNALED);
  await_done(kSlots);
  EXPECT_EQ(write(IBV_SEND_SIGNALED), ENOMEM);
  for (int i = 0; i < 3; ++i) {
    ASSERT_EQ(program.poll(1).size(), 1u);
    EXPECT_EQ(write(IBV_SEND_SIGNALED), 0);
    EXPECT_EQ(write(IBV_SEND_SIGNALED), ENOMEM);
  }
  EXPECT_EQ(program.poll(kSlots).size(), std::size_t{kSlots});
  fill(IBV_SEND_SIGNALED);
}

TEST_F(Slots, ASignaledRequestFreesThoseBeforeIt) {
  for (int i = 0; i < kSlots - 2; ++i) ASSERT_EQ(write(0), 0);
  ASSERT_EQ(write(IBV_SEND_SIGNALED, 7), 0);
  ASSERT_EQ(write(0), 0);
  await_done(kSlots);
  EXPECT_EQ(write(0), ENOMEM);
  ASSERT_EQ(program.poll(1)[0].wr_id, 7u);
  for (int i = 0; i < kSlots - 1; ++i) ASSERT_EQ(write(0), 0);
  EXPECT_EQ(write(0), ENOMEM);  // the one after it still holds its slot
}

TEST_F(Slots, TheExtendedCallsCountAlike) {
  fill(IBV_SEND_SIGNALED);
  await_done(kSlots);
  ibv_cq_ex* cq = hca::to_cq(program.cq);
  ibv_poll_cq_attr attributes{};
  ASSERT_EQ(ibv_start_poll(cq, &attributes), 0);
  ASSERT_EQ(ibv_next_poll(cq), 0);
  ibv_end_poll(cq);
  EXPECT_EQ(write(IBV_SEND_SIGNALED), 0);
  EXPECT_EQ(write(IBV_SEND_SIGNALED), 0);
  EXPECT_EQ(write(IBV_SEND_SIGNALED), ENOMEM);
}

TEST_F(Slots, ReceivesToo) {
  for (int i = 0; i < kSlots; ++i) ASSERT_EQ(program.receive(to, 1), 0);
  EXPECT_EQ(program.receive(to, 1), ENOMEM);
  ASSERT_EQ(program.send(from, 2, 8, 0), 0);
  while (hca::to_qp(to)->page().rq_head.load() != 1) ::sched_yield();
  EXPECT_EQ(program.receive(to, 1), ENOMEM);
  ASSERT_EQ(program.poll(1)[0].wr_id, 1u);
  EXPECT_EQ(program.receive(to, 1), 0);
  EXPECT_EQ(program.receive(to, 1), ENOMEM);
}

TEST_F(Slots, AResetFreesAll) {
  fill(IBV_SEND_SIGNALED);
  await_done(kSlots);
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_RESET;
  ASSERT_EQ(ibv_modify_qp(from, &attributes, IBV_QP_STATE), 0);
  ASSERT_EQ(ibv_modify_qp(to, &attributes, IBV_QP_STATE), 0);
  Program::connect(from, to);
  Program::connect(to, from);
  fill(IBV_SEND_SIGNALED);
}

TEST_F(Slots, WhatIsFlushedIsFree) {
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_ERR;
  ASSERT_EQ(ibv_modify_qp(from, &attributes, IBV_QP_STATE), 0);
  for (int round = 0; round < 3; ++round) {
    fill(0);
    for (const ibv_wc& wc : program.poll(kSlots)) EXPECT_EQ(wc.status, IBV_WC_WR_FLUSH_ERR);
  }
}

// Posts beyond the CQ's room find no slot, so the CQ is never overrun.
TEST_F(Slots, WhoPollsLateOverrunsNothing) {
  for (int i = 0; i < 1000; ++i) (void)write(IBV_SEND_SIGNALED);
  await_done(kSlots);
  EXPECT_EQ(hca::to_cq(program.cq)->page().overrun.load(), 0u);
  EXPECT_EQ(program.poll(kSlots).size(), std::size_t{kSlots});
  ibv_wc wc;
  EXPECT_EQ(ibv_poll_cq(program.cq, 1, &wc), 0);
}

// Queues that share a CQ: what is polled of one frees nothing of another.
TEST_F(Slots, TwoQueuesCountForThemselves) {
  ibv_qp* other = program.make_qp();
  Program::connect(other, other);
  for (int i = 0; i < kSlots; ++i) ASSERT_EQ(program.receive(other, 3), 0);
  fill(IBV_SEND_SIGNALED);
  EXPECT_EQ(program.poll(kSlots).size(), std::size_t{kSlots});
  EXPECT_EQ(program.receive(other, 3), ENOMEM);
  fill(IBV_SEND_SIGNALED);
}

}  // namespace

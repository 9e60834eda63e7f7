// What programs see when their hcad has died: every work request completes, flushed, in order.
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include "hca/verbs/objects.h"
#include "tests/unit/hca/verbs/node.h"

namespace {

using test::Node;
using test::Program;

// Two sends wait for a receive that never comes, three receives for a message.
struct Scene {
  Scene() { std::tie(from, to) = program.make_pair(); }
  Node node;
  Program program;
  ibv_qp* from;
  ibv_qp* to;
};

TEST(Death, FlushesAllThatWasPostedInOrder) {
  Scene s;
  for (const std::uint64_t id : {1u, 2u, 3u}) ASSERT_EQ(s.program.receive(s.from, id), 0);
  for (const std::uint64_t id : {10u, 11u}) ASSERT_EQ(s.program.send(s.from, id, 8, 0), 0);
  s.node.kill();
  const auto done = s.program.poll(6);  // one more than there are: -EIO says that none will come
  ASSERT_EQ(done.size(), 5u);
  std::vector<std::uint64_t> sends;
  std::vector<std::uint64_t> receives;
  for (const ibv_wc& wc : done) {
    EXPECT_EQ(wc.status, IBV_WC_WR_FLUSH_ERR);
    EXPECT_EQ(wc.qp_num, s.from->qp_num);
    ((wc.opcode & IBV_WC_RECV) != 0 ? receives : sends).push_back(wc.wr_id);
  }
  EXPECT_EQ(sends, (std::vector<std::uint64_t>{10, 11}));
  EXPECT_EQ(receives, (std::vector<std::uint64_t>{1, 2, 3}));
}

// What completed before is told as it was, and first.
TEST(Death, CompletionsComeBeforeFlushes) {
  Scene s;
  ASSERT_EQ(s.program.receive(s.to, 1), 0);
  ASSERT_EQ(s.program.send(s.from, 2), 0);
  ASSERT_EQ(ibv_req_notify_cq(s.program.cq, 0), 0);
  ibv_cq* cq = nullptr;
  void* user = nullptr;
  ASSERT_EQ(ibv_get_cq_event(s.program.channel, &cq, &user), 0);
  ibv_ack_cq_events(cq, 1);
  auto done = s.program.poll(2);
  ASSERT_EQ(done.size(), 2u);
  for (const ibv_wc& wc : done) EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
  ASSERT_EQ(s.program.receive(s.to, 3), 0);
  s.node.kill();
  done = s.program.poll(2);
  ASSERT_EQ(done.size(), 1u);
  EXPECT_EQ(done[0].wr_id, 3u);
  EXPECT_EQ(done[0].status, IBV_WC_WR_FLUSH_ERR);
}

// Who sleeps on the channel is woken once for an armed CQ, then told that the device is gone.
TEST(Death, WakesTheCompletionChannel) {
  Scene s;
  ASSERT_EQ(s.program.receive(s.to, 1), 0);
  ASSERT_EQ(ibv_req_notify_cq(s.program.cq, 0), 0);
  s.node.kill();
  ibv_cq* cq = nullptr;
  void* user = nullptr;
  ASSERT_EQ(ibv_get_cq_event(s.program.channel, &cq, &user), 0);
  EXPECT_EQ(cq, s.program.cq);
  ibv_ack_cq_events(cq, 1);
  EXPECT_EQ(s.program.poll(1).size(), 1u);
  EXPECT_EQ(ibv_get_cq_event(s.program.channel, &cq, &user), -1);
  EXPECT_EQ(errno, EIO);
}

TEST(Death, TellsDeviceFatalOnceAndQueuesInError) {
  Scene s;
  s.node.kill();
  ibv_async_event event{};
  do {  // communication established may stand before it
    ASSERT_EQ(ibv_get_async_event(s.program.context, &event), 0);
    ibv_ack_async_event(&event);
  } while (event.event_type == IBV_EVENT_COMM_EST);
  EXPECT_EQ(event.event_type, IBV_EVENT_DEVICE_FATAL);
  EXPECT_EQ(ibv_get_async_event(s.program.context, &event), -1);
  EXPECT_EQ(s.from->state, IBV_QPS_ERR);
  ibv_qp_attr attributes{};
  ibv_qp_init_attr init{};
  ASSERT_EQ(ibv_query_qp(s.from, &attributes, IBV_QP_STATE, &init), 0);
  EXPECT_EQ(attributes.qp_state, IBV_QPS_ERR);
  attributes.qp_state = IBV_QPS_ERR;
  EXPECT_EQ(ibv_modify_qp(s.from, &attributes, IBV_QP_STATE), 0);
  attributes.qp_state = IBV_QPS_RESET;
  EXPECT_EQ(ibv_modify_qp(s.from, &attributes, IBV_QP_STATE), EIO);
  EXPECT_EQ(ibv_alloc_pd(s.program.context), nullptr);
}

short readable(int fd) {
  pollfd wanted{fd, POLLIN, 0};
  (void)::poll(&wanted, 1, -1);
  return wanted.revents;
}

// Programs that ask for POLLIN alone hear of the last event, once.
TEST(Death, DeviceFatalIsReadable) {
  Node node;
  Program program;
  const int fd = program.context->async_fd;
  ASSERT_EQ(::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) | O_NONBLOCK), 0);
  ibv_async_event event{};
  EXPECT_EQ(ibv_get_async_event(program.context, &event), -1);
  EXPECT_EQ(errno, EAGAIN);
  node.kill();
  EXPECT_EQ(readable(fd), POLLIN);
  ASSERT_EQ(ibv_get_async_event(program.context, &event), 0);
  EXPECT_EQ(event.event_type, IBV_EVENT_DEVICE_FATAL);
  pollfd wanted{fd, POLLIN, 0};
  EXPECT_EQ(::poll(&wanted, 1, 0), 0);
  EXPECT_EQ(ibv_get_async_event(program.context, &event), -1);
  EXPECT_EQ(errno, EIO);
}

TEST(Death, EventsBeforeItAreReadable) {
  Scene s;
  ibv_send_wr wr{};
  wr.opcode = IBV_WR_RDMA_WRITE;
  ibv_sge piece = s.program.sge(0, 8);
  wr.sg_list = &piece;
  wr.num_sge = 1;
  wr.wr.rdma = {piece.addr, s.program.mr->rkey ^ 1};  // no such key: the responder hears of it
  ibv_send_wr* bad = nullptr;
  ASSERT_EQ(ibv_post_send(s.from, &wr, &bad), 0);
  EXPECT_EQ(readable(s.program.context->async_fd), POLLIN);
  ibv_async_event event{};
  ASSERT_EQ(ibv_get_async_event(s.program.context, &event), 0);
  EXPECT_EQ(event.event_type, IBV_EVENT_QP_ACCESS_ERR);
  ibv_ack_async_event(&event);
}

// A device that is opened again after its hcad came back is the new one; the old one stays as it
// was for who has it open.
TEST(Death, OpenedAnewItIsTheNewHcads) {
  Node node;
  Program program;
  ibv_device** list = ibv_get_device_list(nullptr);
  node.restart(9);
  ibv_context* again = ibv_open_device(list[0]);
  ASSERT_NE(again, nullptr);
  ibv_port_attr port{};
  ASSERT_EQ(ibv_query_port(again, 1, &port), 0);
  EXPECT_EQ(port.lid, 9);
  ASSERT_EQ(ibv_query_port(program.context, 1, &port), 0);
  EXPECT_EQ(port.lid, 1);
  EXPECT_EQ(ibv_close_device(again), 0);
  ibv_free_device_list(list);
}

// As with any QP in ERR; the queue never fills up.
TEST(Death, LaterPostsAreFlushedToo) {
  Scene s;
  s.node.kill();
  EXPECT_TRUE(s.program.poll(1).empty());
  for (std::uint64_t i = 0; i < 40; ++i) {
    ASSERT_EQ(s.program.send(s.from, i, 8, 0), 0);
    ASSERT_EQ(s.program.receive(s.from, i), 0);
    const auto done = s.program.poll(2);
    ASSERT_EQ(done.size(), 2u);
    for (const ibv_wc& wc : done) EXPECT_EQ(wc.wr_id, i);
  }
}

TEST(Death, ExtendedPollSeesFlushes) {
  Scene s;
  ibv_cq_init_attr_ex init{};
  init.cqe = 16;
  init.wc_flags = IBV_WC_EX_WITH_BYTE_LEN;
  ibv_cq_ex* cq = ibv_create_cq_ex(s.program.context, &init);
  ASSERT_NE(cq, nullptr);
  ibv_qp_init_attr plain{};
  plain.send_cq = plain.recv_cq = ibv_cq_ex_to_cq(cq);
  plain.cap = {4, 4, 1, 1, 0};
  plain.qp_type = IBV_QPT_RC;
  ibv_qp* qp = ibv_create_qp(s.program.pd, &plain);
  ASSERT_NE(qp, nullptr);
  Program::connect(qp, qp);
  ASSERT_EQ(s.program.receive(qp, 77), 0);
  s.node.kill();
  ibv_poll_cq_attr attributes{};
  int got = ENOENT;
  while (got == ENOENT) got = ibv_start_poll(cq, &attributes);
  ASSERT_EQ(got, 0);
  EXPECT_EQ(cq->wr_id, 77u);
  EXPECT_EQ(cq->status, IBV_WC_WR_FLUSH_ERR);
  EXPECT_EQ(ibv_next_poll(cq), ENOENT);
  ibv_end_poll(cq);
  EXPECT_EQ(ibv_destroy_qp(qp), 0);
  EXPECT_EQ(ibv_destroy_cq(ibv_cq_ex_to_cq(cq)), 0);
}

// A forked child's connection is not its own: it may neither post nor flush its parent's queues.
TEST(Death, AForkedChildLeavesItsParentsQueuesAlone) {
  Scene s;
  ASSERT_EQ(s.program.receive(s.to, 5), 0);
  ASSERT_EQ(s.program.send(s.from, 4), 0);
  while (hca::to_cq(s.program.cq)->page().tail.load() != 2) ::sched_yield();
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    ibv_wc wc;
    int got = 0;
    while (got == 0) got = ibv_poll_cq(s.program.cq, 1, &wc);
    const bool refused =
        got < 0 && s.program.send(s.from, 1) == EIO && s.program.receive(s.to, 1) == EIO;
    (void)ibv_destroy_qp(s.to);  // as destructors do: what waits in its CQ is the parent's
    ::_exit(refused ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  // The parent has what waited for it, and goes on.
  std::uint64_t waited = 0;
  for (const ibv_wc& wc : s.program.poll(2)) waited += wc.wr_id;
  EXPECT_EQ(waited, 4U + 5U);
  ASSERT_EQ(s.program.receive(s.to, 7), 0);
  ASSERT_EQ(s.program.send(s.from, 6), 0);
  for (const ibv_wc& wc : s.program.poll(2)) EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
}

}  // namespace

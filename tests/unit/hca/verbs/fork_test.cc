// A child of fork gets its errors whatever its parent's other threads were doing.
#include <sys/wait.h>
#include <unistd.h>

#include <thread>

#include "emu/ring/unix_socket.h"
#include "hca/verbs/link.h"
#include "hca/verbs/objects.h"
#include "tests/unit/hca/verbs/node.h"

namespace {

// How a child ended that may hang; the alarm is no measure of time, it ends what would never end.
template <class Function>
int status_of_child(Function function) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(20);
    ::_exit(function() ? 0 : 1);
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  return status;
}

// A thread asks an hcad that does not answer yet, and so has the turn.
TEST(Fork, WhileAnotherThreadAsks) {
  char path[] = "/tmp/flitnet-fork-XXXXXX";
  const std::string dir = ::mkdtemp(path);
  emu::UniqueFd listener = *emu::listen_unix(dir + "/s");
  auto link = hca::Link::open((dir + "/s").c_str());
  ASSERT_NE(link, nullptr);
  emu::UniqueFd hcad = *emu::accept_unix(listener.get());
  hca::ControlRequest request{};
  request.op = hca::ControlOp::create_pd;
  int answer = -1;
  std::thread asks([&] { answer = link->ask(request); });
  std::array<std::byte, 200> buffer;
  ASSERT_TRUE(*emu::wait_readable(hcad.get(), -1));
  ASSERT_TRUE(emu::receive_message(hcad.get(), buffer));  // the thread waits for the reply now

  const int status = status_of_child([&] {
    std::size_t got = 0;
    return link->ask(request) == EIO && link->talk(buffer, buffer, got) == EIO;
  });
  EXPECT_EQ(status, 0);

  hca::ControlReply reply{};
  reply.op = request.op;
  ASSERT_TRUE(*emu::send_message(hcad.get(), std::as_bytes(std::span(&reply, 1))));
  asks.join();
  EXPECT_EQ(answer, 0);
  std::filesystem::remove_all(dir);
}

// As if a thread were in the middle of a post, a poll.
TEST(Fork, WhileAnotherThreadPosts) {
  test::Node node;
  test::Program program;
  ibv_qp* qp = program.make_qp(IBV_QPT_RC, IBV_QP_EX_WITH_SEND);
  test::Program::connect(qp, qp);
  hca::Qp& ours = *hca::to_qp(qp);
  hca::Cq& cq = *hca::to_cq(program.cq);
  std::atomic<int> step{0};
  std::thread holder([&] {
    const std::scoped_lock locks(ours.send_lock, ours.recv_lock, cq.lock);
    step = 1;
    while (step != 2) ::sched_yield();
  });
  while (step != 1) ::sched_yield();
  const int status = status_of_child([&] {
    ibv_qp_ex* ex = ibv_qp_to_qp_ex(qp);
    ibv_wr_start(ex);
    ibv_wr_send(ex);
    ibv_wc wc;
    ibv_async_event event;
    return ibv_wr_complete(ex) == EIO && program.send(qp, 1) == EIO &&
           program.receive(qp, 1) == EIO && ibv_poll_cq(program.cq, 1, &wc) == -EIO &&
           ibv_req_notify_cq(program.cq, 0) == EIO && ibv_resize_cq(program.cq, 128) == EIO &&
           ibv_get_async_event(program.context, &event) == -1 && ibv_destroy_qp(qp) == 0;
  });
  EXPECT_EQ(status, 0);
  step = 2;
  holder.join();
}

}  // namespace

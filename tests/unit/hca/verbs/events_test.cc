// Events of objects that go before anybody asked for them go, too, and only they; who waits for an
// event is disturbed by signals as in a read of the kernel's device.
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <csignal>
#include <map>
#include <thread>
#include <vector>

#include "hca/verbs/objects.h"
#include "tests/unit/hca/verbs/node.h"

namespace {

using test::Node;
using test::Program;

bool has_event(int fd) {
  pollfd wanted{fd, POLLIN, 0};
  return ::poll(&wanted, 1, 0) != 0;
}

void never_wait(int fd) { ASSERT_EQ(::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) | O_NONBLOCK), 0); }

// What a program has for one event after the other: a CQ and two QPs that speak by it.
struct Queue {
  Queue(Program& of, ibv_comp_channel* channel) : program(of) {
    cq = ibv_create_cq(program.context, 8, nullptr, channel, 0);
    ibv_cq* const other = std::exchange(program.cq, cq);
    from = program.make_qp();
    to = program.make_qp();
    program.qps.resize(program.qps.size() - 2);  // they are ours
    program.cq = other;
    Program::connect(from, to);
    Program::connect(to, from, 0, IBV_QPS_RTR);
  }
  // Two completions, each an event if one is asked for; the first also says COMM_EST of `to`.
  void message() {
    ASSERT_EQ(program.receive(to, 1), 0);
    ASSERT_EQ(program.send(from, 2), 0);
    completions += 2;
    while (hca::to_cq(cq)->page().tail.load() != completions) ::sched_yield();
    heard();
  }
  // When hcad has answered, the events of what it did before are in their pipes.
  void heard() const {
    ibv_qp_attr attributes{};
    ibv_qp_init_attr init{};
    ASSERT_EQ(ibv_query_qp(to, &attributes, IBV_QP_STATE, &init), 0);
  }
  void fire() {
    ASSERT_EQ(ibv_req_notify_cq(cq, 0), 0);
    message();
  }
  void destroy_qps() {
    EXPECT_EQ(ibv_destroy_qp(from), 0);
    EXPECT_EQ(ibv_destroy_qp(to), 0);
  }
  void destroy() {
    destroy_qps();
    EXPECT_EQ(ibv_destroy_cq(cq), 0);
  }

  Program& program;
  ibv_cq* cq;
  ibv_qp* from;
  ibv_qp* to;
  std::uint32_t completions = 0;
};

class Events : public testing::Test {
 protected:
  Events() {
    never_wait(program.channel->fd);
    never_wait(program.context->async_fd);
  }
  // The CQ that an event of the channel names, or null: there is none.
  ibv_cq* completion() {
    ibv_cq* cq = nullptr;
    void* user = nullptr;
    if (ibv_get_cq_event(program.channel, &cq, &user) != 0) {
      EXPECT_EQ(errno, EAGAIN);
      return nullptr;
    }
    ibv_ack_cq_events(cq, 1);
    return cq;
  }
  void expect_no_completion() {
    EXPECT_FALSE(has_event(program.channel->fd));
    EXPECT_EQ(completion(), nullptr);
  }
  // The next asynchronous event, or one without an element: there is none.
  ibv_async_event async() {
    ibv_async_event event{};
    if (ibv_get_async_event(program.context, &event) != 0) {
      EXPECT_EQ(errno, EAGAIN);
      return {};
    }
    ibv_ack_async_event(&event);
    return event;
  }
  void expect_no_async() {
    EXPECT_FALSE(has_event(program.context->async_fd));
    EXPECT_EQ(async().element.qp, nullptr);
  }
  Queue make_queue() { return {program, program.channel}; }

  Node node;
  Program program;
};

TEST_F(Events, OfADestroyedCqGo) {
  Queue queue = make_queue();
  queue.fire();
  ASSERT_TRUE(has_event(program.channel->fd));
  queue.destroy();
  expect_no_completion();
}

TEST_F(Events, OfOtherCqsStayInTheirOrder) {
  std::vector<Queue> queues;
  for (int i = 0; i < 5; ++i) queues.push_back(make_queue());
  for (Queue& queue : queues) queue.fire();
  queues[3].destroy();
  queues[0].destroy();
  for (const int i : {1, 2, 4}) EXPECT_EQ(completion(), queues[static_cast<std::size_t>(i)].cq);
  expect_no_completion();
  for (const int i : {1, 2, 4}) queues[static_cast<std::size_t>(i)].destroy();
}

// Nor does the next CQ hear of what another with its number did.
TEST_F(Events, AreNotANewCqs) {
  std::vector<ibv_cq*> others;  // all numbers but one
  while (ibv_cq* cq = ibv_create_cq(program.context, 1, nullptr, nullptr, 0)) others.push_back(cq);
  ASSERT_EQ(ibv_destroy_cq(others.back()), 0);
  others.pop_back();
  Queue old = make_queue();
  const std::uint32_t number = hca::to_cq(old.cq)->number;
  old.fire();
  old.destroy();
  Queue fresh = make_queue();
  ASSERT_EQ(hca::to_cq(fresh.cq)->number, number);
  expect_no_completion();
  fresh.fire();
  EXPECT_EQ(completion(), fresh.cq);
  fresh.destroy();
  for (ibv_cq* cq : others) EXPECT_EQ(ibv_destroy_cq(cq), 0);
}

// Who watches for changes alone still hears of what stays.
TEST_F(Events, ThatStayAreSeenByTheirEdge) {
  const emu::UniqueFd watch(::epoll_create1(EPOLL_CLOEXEC));
  epoll_event wanted{};
  wanted.events = EPOLLIN | EPOLLET;
  ASSERT_EQ(::epoll_ctl(watch.get(), EPOLL_CTL_ADD, program.channel->fd, &wanted), 0);
  Queue goes = make_queue();
  Queue stays = make_queue();
  goes.fire();
  stays.fire();
  goes.destroy();
  EXPECT_EQ(::epoll_wait(watch.get(), &wanted, 1, 0), 1);
  EXPECT_EQ(completion(), stays.cq);
  stays.fire();
  stays.destroy();
  EXPECT_EQ(::epoll_wait(watch.get(), &wanted, 1, 0), 0);
}

TEST_F(Events, OfADestroyedQpGo) {
  Queue one = make_queue();
  Queue two = make_queue();
  one.message();
  two.message();
  ASSERT_TRUE(has_event(program.context->async_fd));
  one.destroy_qps();
  const ibv_async_event event = async();
  EXPECT_EQ(event.event_type, IBV_EVENT_COMM_EST);
  EXPECT_EQ(event.element.qp, two.to);
  expect_no_async();
  two.message();
  two.destroy_qps();
  expect_no_async();
  EXPECT_EQ(ibv_destroy_cq(one.cq), 0);
  EXPECT_EQ(ibv_destroy_cq(two.cq), 0);
}

// An SRQ, a CQ and a QP may have one number: each takes its own.
TEST_F(Events, OfADestroyedSrqGo) {
  ibv_srq_init_attr init{};
  init.attr = {4, 1, 0};
  ibv_srq* const srq = ibv_create_srq(program.pd, &init);
  ASSERT_NE(srq, nullptr);
  ibv_qp_init_attr wanted{};
  wanted.send_cq = wanted.recv_cq = program.cq;
  wanted.cap = {4, 0, 1, 0, 0};
  wanted.qp_type = IBV_QPT_RC;
  wanted.srq = srq;
  ibv_qp* const to = ibv_create_qp(program.pd, &wanted);
  ASSERT_NE(to, nullptr);
  ibv_qp* const from = program.make_qp();
  Program::connect(from, to);
  Program::connect(to, from);
  ibv_sge piece = program.sge(32768, 4096);
  ibv_recv_wr receive{1, nullptr, &piece, 1};
  ibv_recv_wr* bad = nullptr;
  ASSERT_EQ(ibv_post_srq_recv(srq, &receive, &bad), 0);
  ibv_srq_attr limit{0, 0, 1};
  ASSERT_EQ(ibv_modify_srq(srq, &limit, IBV_SRQ_LIMIT), 0);
  ASSERT_EQ(program.send(from, 2), 0);
  EXPECT_EQ(program.poll(2).size(), 2u);
  EXPECT_EQ(ibv_destroy_qp(to), 0);
  ASSERT_TRUE(has_event(program.context->async_fd));
  ibv_cq* cq = nullptr;  // one with the SRQ's number
  std::vector<ibv_cq*> cqs;
  while (cq == nullptr) {
    cqs.push_back(ibv_create_cq(program.context, 1, nullptr, nullptr, 0));
    ASSERT_NE(cqs.back(), nullptr);
    if (hca::to_cq(cqs.back())->number == static_cast<hca::Srq*>(srq)->number) cq = cqs.back();
  }
  for (ibv_cq* each : cqs) EXPECT_EQ(ibv_destroy_cq(each), 0);
  EXPECT_TRUE(has_event(program.context->async_fd));
  EXPECT_EQ(ibv_destroy_srq(srq), 0);
  expect_no_async();
}

TEST_F(Events, OfABrokenCqGo) {
  ibv_cq* const small = ibv_create_cq(program.context, 1, nullptr, nullptr, 0);
  ibv_cq* const other = std::exchange(program.cq, small);
  const auto [from, to] = program.make_pair();
  program.qps.clear();
  program.cq = other;
  for (int i = 0; i < 4; ++i) {
    ASSERT_EQ(program.receive(to, 1), 0);
    ASSERT_EQ(program.send(from, 2), 0);
  }
  while (hca::to_cq(small)->page().overrun.load() == 0) ::sched_yield();
  EXPECT_EQ(ibv_destroy_qp(from), 0);
  EXPECT_EQ(ibv_destroy_qp(to), 0);
  ASSERT_TRUE(has_event(program.context->async_fd));
  EXPECT_EQ(ibv_destroy_cq(small), 0);
  expect_no_async();
}

// A QP of an SRQ, which tells of its last WQE each time that it fails.
struct Failing {
  Failing(Program& of, ibv_srq* srq) : program(of) {
    ibv_qp_init_attr wanted{};
    wanted.send_cq = wanted.recv_cq = program.cq;
    wanted.cap = {1, 0, 1, 0, 0};
    wanted.qp_type = IBV_QPT_RC;
    wanted.srq = srq;
    qp = ibv_create_qp(program.pd, &wanted);
  }
  void fail() const {
    Program::connect(qp, qp, 0, IBV_QPS_RTR);
    for (const ibv_qp_state state : {IBV_QPS_ERR, IBV_QPS_RESET}) {
      ibv_qp_attr attributes{};
      attributes.qp_state = state;
      ASSERT_EQ(ibv_modify_qp(qp, &attributes, IBV_QP_STATE), 0);
    }
  }
  Program& program;
  ibv_qp* qp;
};

// What a pipe has no room for waits until it is read, unless its object goes.
TEST_F(Events, MoreThanAPipeHolds) {
  const int pipe = hca::to_context(program.context)->session->events.get();
  ASSERT_EQ(::fcntl(pipe, F_SETPIPE_SZ, 4096), 4096);
  constexpr int kPipeEvents = 4096 / sizeof(hca::AsyncRecord);
  ibv_srq_init_attr init{};
  init.attr = {4, 1, 0};
  ibv_srq* const srq = ibv_create_srq(program.pd, &init);
  Failing stays(program, srq);
  Failing goes(program, srq);
  constexpr int kEvents = 2 * kPipeEvents;
  for (int i = 0; i < kEvents; ++i) {
    stays.fail();
    goes.fail();
  }
  EXPECT_EQ(ibv_destroy_qp(goes.qp), 0);
  int got = 0;
  for (int waits = 0; waits < 200;) {
    const ibv_async_event event = async();
    if (event.element.qp == nullptr) {
      // After more answers than hcad gives in a turn it has seen that the pipe has room.
      ibv_qp_attr attributes{};
      ibv_qp_init_attr init_attributes{};
      ASSERT_EQ(ibv_query_qp(stays.qp, &attributes, IBV_QP_STATE, &init_attributes), 0);
      ++waits;
      continue;
    }
    EXPECT_EQ(event.event_type, IBV_EVENT_QP_LAST_WQE_REACHED);
    EXPECT_EQ(event.element.qp, stays.qp);
    ++got;
    waits = 0;
  }
  EXPECT_EQ(got, kEvents);
  EXPECT_EQ(ibv_destroy_qp(stays.qp), 0);
  EXPECT_EQ(ibv_destroy_srq(srq), 0);
}

TEST_F(Events, OfCompletionsMoreThanAPipeHolds) {
  ASSERT_EQ(::fcntl(program.channel->fd, F_SETPIPE_SZ, 4096), 4096);
  Queue often = make_queue();
  Queue goes = make_queue();
  Queue once = make_queue();
  Queue late = make_queue();
  constexpr int kEvents = 4096 / sizeof(hca::ChannelRecord) + 10;
  std::array<ibv_wc, 2> done;
  for (int i = 0; i < kEvents; ++i) {
    often.fire();
    ASSERT_EQ(ibv_poll_cq(often.cq, 2, done.data()), 2);
  }
  goes.fire();
  once.fire();
  late.message();
  ASSERT_EQ(ibv_req_notify_cq(late.cq, 0), 0);  // the library fires itself
  goes.destroy();
  std::map<ibv_cq*, int> got;
  for (int waits = 0; waits < 200;) {
    ibv_cq* const cq = completion();
    if (cq == nullptr) often.heard();  // hcad sees in one of its turns that the pipe has room
    cq == nullptr ? ++waits : ++got[cq];
  }
  EXPECT_EQ(got, (std::map<ibv_cq*, int>{{often.cq, kEvents}, {once.cq, 1}, {late.cq, 1}}));
  for (Queue* queue : {&often, &once, &late}) queue->destroy();
}

// While a thread waits for events of a CQ that stays, others come, fire and go.
TEST_F(Events, OfACqThatStaysAreNeverLost) {
  constexpr int kEvents = 200;
  ibv_comp_channel* const channel = ibv_create_comp_channel(program.context);
  Queue stays(program, channel);
  std::atomic<int> got{0};
  std::thread waiter([&] {
    while (got < kEvents) {
      ibv_cq* cq = nullptr;
      void* user = nullptr;
      ASSERT_EQ(ibv_get_cq_event(channel, &cq, &user), 0);
      const bool ours = cq == stays.cq;
      ibv_ack_cq_events(cq, 1);  // then a CQ that waits for this to go may be gone
      if (ours) ++got;
    }
  });
  for (int i = 0; i < kEvents; ++i) {
    Queue goes(program, channel);
    goes.fire();
    stays.fire();
    goes.destroy();
    while (got != i + 1) ::sched_yield();
    std::array<ibv_wc, 2> done;
    EXPECT_EQ(ibv_poll_cq(stays.cq, 2, done.data()), 2);
  }
  waiter.join();
  stays.destroy();
  EXPECT_EQ(ibv_destroy_comp_channel(channel), 0);
}

// ---- signals ----

std::atomic<int> signals{0};

// A thread that waits for an asynchronous event, and may be disturbed.
class Waiter {
 public:
  explicit Waiter(ibv_context* context, int flags) {
    struct sigaction action {};
    action.sa_handler = [](int) { ++signals; };
    action.sa_flags = flags;
    ::sigaction(SIGUSR1, &action, nullptr);
    signals = 0;
    thread_ = std::thread([this, context] {
      id_ = ::gettid();
      result = ibv_get_async_event(context, &event);
      error = errno;
      done = true;
    });
    while (id_ == 0) ::sched_yield();
  }
  ~Waiter() { join(); }
  void join() {
    if (thread_.joinable()) thread_.join();
  }
  // Sends a signal to the thread when it sleeps, and returns when it sleeps again or is done.
  void disturb() {
    sleep();
    const int before = signals;
    if (done) return;
    ::pthread_kill(thread_.native_handle(), SIGUSR1);
    while (signals == before) ::sched_yield();
    sleep();
  }

  std::atomic<bool> done{false};
  int result = 0;
  int error = 0;
  ibv_async_event event{};

 private:
  void sleep() const {
    while (!done && test::state_of(id_) != 'S') ::sched_yield();
  }
  std::atomic<pid_t> id_{0};
  std::thread thread_;
};

// ThreadSanitizer keeps a signal back until the thread's next call, which here is never.
#ifdef __SANITIZE_THREAD__
constexpr bool kSignalsArrive = false;
#else
constexpr bool kSignalsArrive = true;
#endif

TEST(Signals, WhoAsksForARestartWaitsOn) {
  if (!kSignalsArrive) GTEST_SKIP() << "signals do not arrive in a read here";
  Node node;
  Program program;
  Queue queue(program, nullptr);
  Waiter waiter(program.context, SA_RESTART);
  for (int i = 0; i < 3; ++i) waiter.disturb();
  EXPECT_FALSE(waiter.done) << waiter.error;
  queue.message();
  waiter.join();
  EXPECT_EQ(waiter.result, 0);
  EXPECT_EQ(waiter.event.event_type, IBV_EVENT_COMM_EST);
  if (waiter.result == 0) ibv_ack_async_event(&waiter.event);
  queue.destroy();
}

TEST(Signals, OthersAreInterrupted) {
  if (!kSignalsArrive) GTEST_SKIP() << "signals do not arrive in a read here";
  Node node;
  Program program;
  Waiter waiter(program.context, 0);
  while (!waiter.done) waiter.disturb();
  waiter.join();
  EXPECT_EQ(waiter.result, -1);
  EXPECT_EQ(waiter.error, EINTR);
}

}  // namespace

// Once a device is closed its program's memory is its own again. Who waits for an event while
// another thread closes the device hears of that, and touches nothing of what has gone.
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <functional>
#include <memory>
#include <thread>
#include <utility>

#include "hca/verbs/objects.h"
#include "tests/unit/hca/verbs/node.h"

namespace {

using test::Node;
using test::Program;

// A thread within a call that waits.
class Waiting {
 public:
  explicit Waiting(std::function<int()> call)
      : thread_([this, call = std::move(call)] {
          id_ = ::gettid();
          result_ = call();
          error_ = errno;
          done_ = true;
        }) {
    while (!done_ && test::state_of(id_) != 'S') ::sched_yield();
  }
  bool waits() const { return !done_; }
  int result() {
    thread_.join();
    errno = error_;
    return result_;
  }
  void expect_closed() {
    EXPECT_EQ(result(), -1);
    EXPECT_EQ(errno, EIO);
  }

 private:
  std::atomic<pid_t> id_{0};
  std::atomic<bool> done_{false};
  int result_ = 0;
  int error_ = 0;
  std::thread thread_;
};

// The bytes of a context that has gone are others' at once, and no object.
void close_device(ibv_context* context) {
  ASSERT_EQ(ibv_close_device(context), 0);
  const std::unique_ptr<std::byte[]> others(new std::byte[sizeof(hca::Context)]);
  std::fill_n(others.get(), sizeof(hca::Context), std::byte{0xa5});
  ::usleep(100'000);  // hcad sees it meanwhile, and who waits wakes
}

TEST(Closing, EndsAWaitForAnAsynchronousEvent) {
  Node node;
  Program program;
  for (int i = 0; i < 5; ++i) {
    ibv_context* const context = ibv_open_device(program.context->device);
    ASSERT_NE(context, nullptr);
    Waiting waiting([context] {
      ibv_async_event event{};
      return ibv_get_async_event(context, &event);
    });
    close_device(context);
    waiting.expect_closed();
  }
}

TEST(Closing, EndsAWaitForACompletion) {
  Node node;
  Program program;
  for (int i = 0; i < 5; ++i) {
    ibv_context* const context = ibv_open_device(program.context->device);
    ASSERT_NE(context, nullptr);
    ibv_comp_channel* const channel = ibv_create_comp_channel(context);
    ASSERT_NE(channel, nullptr);
    Waiting waiting([channel] {
      ibv_cq* cq = nullptr;
      void* user = nullptr;
      return ibv_get_cq_event(channel, &cq, &user);
    });
    close_device(context);
    waiting.expect_closed();
    delete static_cast<hca::Channel*>(channel);  // its device would be asked to destroy it
  }
}

TEST(Closing, EndsWhatOthersWrite) {
  Node node;
  Program writer;
  // Its device is closed under its objects, which then nobody can destroy.
  static Program* const target = new Program;
  ibv_qp* const from = writer.make_qp();
  ibv_qp* const to = target->make_qp();
  Program::connect(from, to);
  Program::connect(to, from);
  std::ranges::fill(writer.bytes, 0xee);
  constexpr int kWrites = 16;
  auto busy = node.busy();
  for (int i = 0; i < kWrites; ++i) {
    ibv_sge all = writer.sge(0, static_cast<std::uint32_t>(writer.bytes.size()));
    ibv_send_wr wr{};
    wr.sg_list = &all;
    wr.num_sge = 1;
    wr.opcode = IBV_WR_RDMA_WRITE;
    wr.send_flags = IBV_SEND_SIGNALED;
    wr.wr.rdma = {reinterpret_cast<std::uint64_t>(target->bytes.data()), target->mr->rkey};
    ibv_send_wr* bad = nullptr;
    ASSERT_EQ(ibv_post_send(from, &wr, &bad), 0);
  }
  Waiting closing([] { return ibv_close_device(target->context); });
  EXPECT_TRUE(closing.waits());  // hcad does not know yet
  busy.unlock();
  EXPECT_EQ(closing.result(), 0);
  std::ranges::fill(target->bytes, 0);
  EXPECT_EQ(writer.poll(kWrites).back().status, IBV_WC_WR_FLUSH_ERR);
  EXPECT_EQ(std::ranges::count(target->bytes, 0), std::ssize(target->bytes));
}

}  // namespace

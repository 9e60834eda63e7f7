// Who waits for an event while another thread closes the device hears of that, and touches nothing
// of what has gone.
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
  void expect_closed() {
    thread_.join();
    EXPECT_EQ(result_, -1);
    EXPECT_EQ(error_, EIO);
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

}  // namespace

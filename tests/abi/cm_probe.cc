// A thread waits for rdma_cm events while another ends the ids that they are of, then the channel,
// as rping does when it leaves: the thread goes on waiting, as it does in the kernel. Argument: an
// address of this node.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <rdma/rdma_cma.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <memory>
#include <string>
#include <thread>

namespace {

constexpr int kRounds = 300;
std::atomic<int> failures{0};

// Until the thread sits in read(), whatever came before.
void wait_until_it_reads(const std::atomic<int>& thread) {
  while (thread.load() == 0) std::this_thread::yield();
  const std::string path = "/proc/self/task/" + std::to_string(thread.load()) + "/syscall";
  for (;;) {
    std::ifstream file(path);
    std::string call;
    if (file >> call && call == std::to_string(SYS_read)) return;
    std::this_thread::yield();
  }
}

bool round(const sockaddr_in& own) {
  rdma_event_channel* channel = rdma_create_event_channel();
  if (channel == nullptr) return false;
  const auto number = std::make_shared<std::atomic<int>>(0);
  // One call, which began before the channel was closed: it may bring the event or wait for ever.
  std::thread([channel, number] {
    number->store(static_cast<int>(::syscall(SYS_gettid)));
    rdma_cm_event* event = nullptr;
    if (rdma_get_cm_event(channel, &event) == 0) {
      rdma_ack_cm_event(event);
      return;
    }
    std::fprintf(stderr, "rdma_get_cm_event: %s\n", std::strerror(errno));
    ++failures;
  }).detach();
  wait_until_it_reads(*number);
  rdma_cm_id* id = nullptr;
  sockaddr_in address = own;
  if (rdma_create_id(channel, &id, nullptr, RDMA_PS_TCP) != 0) return false;
  // Its answer is an event, and may be taken back before it is fetched.
  auto* const to = reinterpret_cast<sockaddr*>(&address);
  if (rdma_resolve_addr(id, nullptr, to, 1000) != 0) return false;
  rdma_destroy_id(id);
  return ::close(channel->fd) == 0;
}

}  // namespace

int main(int, char** argv) {
  sockaddr_in own{};
  own.sin_family = AF_INET;
  own.sin_port = htons(7000);
  if (::inet_pton(AF_INET, argv[1], &own.sin_addr) != 1) return 2;
  for (int i = 0; i < kRounds; ++i) {
    if (!round(own)) {
      std::perror("cm_probe");
      return 1;
    }
  }
  std::printf("%d rounds, %d failures\n", kRounds, failures.load());
  std::fflush(stdout);
  ::_exit(failures.load() == 0 ? 0 : 1);  // the threads still wait
}

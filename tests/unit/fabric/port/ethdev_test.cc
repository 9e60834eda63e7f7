// A DPDK port over one end of a veth pair, in a network namespace of this process. What it opens
// anew when the link was down is its own.
#include "fabric/port/ethdev.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "emu/ring/fd.h"
#include "fabric/daemon/eal.h"

// DPDK 22.11 forgets what libxdp made for an af_xdp port, 80 bytes each time one is opened.
extern "C" const char* __lsan_default_suppressions();
extern "C" const char* __lsan_default_suppressions() { return "leak:xsk_umem__create\n"; }

namespace fabric {
namespace {

bool run(std::vector<std::string> words) {
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  pid_t child = 0;
  if (::posix_spawnp(&child, arguments[0], nullptr, nullptr, arguments.data(), environ) != 0) {
    return false;
  }
  int status = 0;
  return ::waitpid(child, &status, 0) == child && status == 0;
}

const char* const kMac = "02:00:00:00:00:01";

bool set_link(const char* state) { return run({"ip", "link", "set", "flit0", state}); }

bool make_pair() {
  return run({"ip", "link", "add", "flit0", "type", "veth", "peer", "name", "flit1"}) &&
         run({"ip", "link", "set", "flit0", "address", kMac}) && set_link("up") &&
         run({"ip", "link", "set", "flit1", "up"}) &&
         run({"ip", "addr", "add", "10.99.0.2/24", "dev", "flit1"}) &&
         run({"ip", "neigh", "add", "10.99.0.1", "lladdr", kMac, "dev", "flit1"});
}

bool is_xdp(int fd) {
  int domain = 0;
  socklen_t size = sizeof domain;
  return ::getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &size) == 0 && domain == AF_XDP;
}

constexpr int kFilesMax = 256;

int xdp_sockets() {
  int count = 0;
  for (int fd = 0; fd < kFilesMax; ++fd) count += is_xdp(fd) ? 1 : 0;
  return count;
}

// How often this thread, or the whole process, has waited for something so far.
long waits(int whose = RUSAGE_THREAD) {
  rusage usage{};
  ::getrusage(whose, &usage);
  return usage.ru_nvcsw;
}

class EthdevTest : public testing::TestWithParam<std::string> {
 protected:
  static void SetUpTestSuite() {
    ready_ = ::unshare(CLONE_NEWNET) == 0 && make_pair() &&
             start_eal({.run_dir = testing::TempDir(), .log_path = "", .memory_mb = 64});
  }
  void SetUp() override {
    if (!ready_) GTEST_SKIP() << "no network namespace here, or no DPDK";
    kernel_.emplace(*emu::open_udp_socket({}));
  }
  void open() {
    auto opened = open_ethdev("net_" + GetParam() + "0,iface=flit0", address_, 1500);
    if (!opened) GTEST_SKIP() << opened.error().message;
    port_ = std::move(*opened);
  }
  // The link goes down and comes back, and so does the port: it hears what is sent to it.
  void flap() {
    ASSERT_TRUE(set_link("down"));
    turn();
    ASSERT_TRUE(set_link("up"));
    until_heard();
  }
  void until_heard() {
    const int before = heard_;
    for (int i = 0; i < 3000 && heard_ == before; ++i) turn();
    ASSERT_GT(heard_, before);
  }
  void turn() {
    const long before = waits();
    port_->service(host_ns_ += 1'000'000);
    waited_ += waits() - before;
    const std::array<std::byte, 40> bytes{};
    const emu::UdpSocket::Outgoing out{address_, {bytes, bytes.size()}};
    kernel_->send({&out, 1});
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    port_->receive([this](const emu::UdpAddress&, std::span<const std::byte>) {
      ++heard_;
      return true;
    });
  }

  inline static bool ready_ = false;
  const emu::UdpAddress address_ = *emu::UdpAddress::resolve("10.99.0.1:4791");
  std::unique_ptr<Datagrams> port_;
  std::optional<emu::UdpSocket> kernel_;  // at the other end of the pair
  int heard_ = 0;
  std::uint64_t host_ns_ = 1'000'000'000;
  long waited_ = 0;  // times that service() gave its core away
};

TEST_P(EthdevTest, SocketsOfOthersStay) {
  const emu::UniqueFd other(::socket(AF_XDP, SOCK_RAW | SOCK_CLOEXEC, 0));
  if (!other) GTEST_SKIP() << "no AF_XDP here";
  ASSERT_NO_FATAL_FAILURE(open());
  if (!port_) return;
  for (int i = 0; i < 3; ++i) {
    ASSERT_NO_FATAL_FAILURE(flap());
    EXPECT_TRUE(is_xdp(other.get()));
    EXPECT_EQ(xdp_sockets(), GetParam() == "af_xdp" ? 2 : 1);
  }
  ASSERT_TRUE(set_link("down"));
  turn();
  ASSERT_TRUE(set_link("up"));
  turn();
  port_.reset();  // while it is being opened anew
  EXPECT_EQ(xdp_sockets(), 1);
  EXPECT_TRUE(is_xdp(other.get()));
}

// As who removes a virtual network and brings it up again: the kernel gives it another number.
TEST_P(EthdevTest, AnInterfaceThatIsMadeAnewIsOpenedAnew) {
  ASSERT_NO_FATAL_FAILURE(open());
  if (!port_) return;
  for (int i = 0; i < 2; ++i) {
    ASSERT_NO_FATAL_FAILURE(until_heard());
    ASSERT_TRUE(run({"ip", "link", "delete", "flit0"}));
    for (int gone = 0; gone < 10; ++gone) turn();
    ASSERT_TRUE(make_pair());
    ASSERT_NO_FATAL_FAILURE(until_heard());
    ASSERT_NO_FATAL_FAILURE(flap());
  }
}

// Emulated time would stand still with it, and in real mode that ends the run.
TEST_P(EthdevTest, TheLoopDoesNotWaitForTheDevice) {
  ASSERT_NO_FATAL_FAILURE(open());
  if (!port_) return;
  const auto others = [] { return waits(RUSAGE_SELF) - waits(); };
  const long before = others();
  for (int i = 0; i < 4; ++i) ASSERT_NO_FATAL_FAILURE(flap());
  // The kernel makes who closes and opens wait several times. What threads of one process share,
  // its memory map above all, lets the loop wait now and then as well.
  EXPECT_LT(waited_, others() - before);
}

INSTANTIATE_TEST_SUITE_P(Ways, EthdevTest, testing::Values("af_xdp", "af_packet"),
                         [](const auto& way) { return way.param; });

}  // namespace
}  // namespace fabric

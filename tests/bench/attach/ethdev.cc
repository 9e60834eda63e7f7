// A DPDK port on one end of a veth pair, a kernel socket on the other, in a network namespace of
// this process's own; beside dpdk-testpmd on the same end of the same pair.
#include <arpa/inet.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "emu/clock/host.h"
#include "emu/wire/udp_socket.h"
#include "fabric/daemon/eal.h"
#include "fabric/port/ethdev.h"
#include "hca/attach/udp.h"
#include "tests/bench/attach/measure.h"

namespace bench {
namespace {

constexpr char kNodeAddress[] = "10.77.0.1/24";
constexpr char kFabric[] = "10.77.0.2:4791";

// Starts a program by its argument list; output goes to `out`, or nowhere. -1: it cannot start.
pid_t start(std::vector<std::string> arguments, const std::string& out) {
  std::vector<char*> argv;
  for (std::string& a : arguments) argv.push_back(a.data());
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  const char* target = out.empty() ? "/dev/null" : out.c_str();
  posix_spawn_file_actions_addopen(&actions, 1, target, O_WRONLY | O_CREAT | O_TRUNC, 0600);
  posix_spawn_file_actions_adddup2(&actions, 1, 2);
  pid_t pid = -1;
  const int error = ::posix_spawnp(&pid, argv[0], &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  return error == 0 ? pid : -1;
}

bool succeeds(const std::vector<std::string>& arguments) {
  const pid_t pid = start(arguments, "");
  int status = 0;
  return pid > 0 && ::waitpid(pid, &status, 0) == pid && status == 0;
}

// The namespace ends with this process, and the interfaces with it.
std::string make_network() {
  if (::unshare(CLONE_NEWNET) != 0) return "no network namespace without root";
  const bool made =
      succeeds({"ip", "link", "set", "lo", "up"}) &&
      succeeds({"ip", "link", "add", "fnode", "type", "veth", "peer", "name", "ffabric"}) &&
      succeeds({"ip", "addr", "add", kNodeAddress, "dev", "fnode"}) &&
      // The peer reads raw frames: sums must be finished and trains cut before they leave.
      succeeds({"ethtool", "-K", "fnode", "tx", "off"}) &&
      succeeds({"ip", "link", "set", "fnode", "up"}) &&
      succeeds({"ip", "link", "set", "ffabric", "up"});
  return made ? "" : "cannot make a veth pair";
}

std::string device(const std::string& driver) {
  if (driver == "af_packet") {
    return "net_af_packet0,iface=ffabric,blocksz=65536,framesz=2048,framecnt=1024,qpairs=1";
  }
  return "net_" + driver + "0,iface=ffabric";
}

std::string mac_of(const std::string& interface) {
  std::ifstream file("/sys/class/net/" + interface + "/address");
  std::string mac;
  file >> mac;
  return mac;
}

// /sys shows the namespace that mounted it; ask the kernel by `ip` instead.
std::string mac_by_ip(const std::string& interface, const std::string& scratch) {
  const pid_t pid = start({"ip", "-br", "link", "show", interface}, scratch);
  if (pid <= 0) return "";
  ::waitpid(pid, nullptr, 0);
  std::ifstream file(scratch);
  std::string name, state, mac;
  file >> name >> state >> mac;
  return mac.size() == 17 ? mac : mac_of(interface);
}

class Testpmd {
 public:
  Testpmd(const std::string& driver, const std::string& mode, const std::string& log) : log_(log) {
    pid_ = start({"dpdk-testpmd", "--no-huge", "--no-shconf", "-m", "256", "--no-pci", "-l", "0,1",
                  "--vdev=" + device(driver), "--", "--forward-mode=" + mode, "--auto-start",
                  "--stats-period=1", "--nb-cores=1", "--total-num-mbufs=8192", "--no-flush-rx"},
                 log);
    const std::uint64_t limit = emu::host_now_ns() + 10'000'000'000;
    while (pid_ > 0 && text().find("Port statistics") == std::string::npos &&
           emu::host_now_ns() < limit && ::waitpid(pid_, nullptr, WNOHANG) == 0) {
      ::usleep(50'000);
    }
    running_ = text().find("Port statistics") != std::string::npos;
  }
  ~Testpmd() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGTERM);
    for (int i = 0; i < 60; ++i) {
      if (::waitpid(pid_, nullptr, WNOHANG) != 0) return;
      ::usleep(50'000);
    }
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  Testpmd(const Testpmd&) = delete;
  Testpmd& operator=(const Testpmd&) = delete;
  bool running() const { return running_; }
  // The best second that it has printed.
  double rx_pps() const {
    const std::string all = text();
    double best = 0;
    for (auto at = all.find("Rx-pps:"); at != std::string::npos; at = all.find("Rx-pps:", at + 1)) {
      best = std::max(best, std::strtod(&all[at + 7], nullptr));
    }
    return best;
  }

 private:
  std::string text() const {
    std::ifstream file(log_);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  std::string log_;
  pid_t pid_ = -1;
  bool running_ = false;
};

bool measure_testpmd(WayResult& result, const std::string& driver, const Effort& effort,
                     const std::string& dir) {
  auto socket = emu::open_udp_socket(emu::UdpAddress::resolve("10.77.0.1:0").value());
  const std::string mac = mac_by_ip("ffabric", dir + "/ip");
  if (!socket ||
      !succeeds({"ip", "neigh", "replace", "10.77.0.2", "lladdr", mac, "dev", "fnode"})) {
    return false;
  }
  bool measured = false;
  {
    const Testpmd sink(driver, "rxonly", dir + "/rxonly.log");
    if (sink.running()) {
      flood(socket->get(), kFabric, 3'500'000'000, [] { return ::usleep(1000), 0; });
      result.reference_packets_per_s = sink.rx_pps() * packets_per_datagram();
      measured = result.reference_packets_per_s > 0;
    }
  }
  const Testpmd echo(driver, "5tswap", dir + "/5tswap.log");
  if (echo.running()) {
    result.reference_round_trip = echo_round_trip(socket->get(), kFabric, effort.round_trips / 4);
  }
  return measured;
}

// Datagrams a second of the driver's bare receive loop, headers read; 0: it does not open.
double bare_loop(const std::string& driver, const Effort& effort) {
  auto socket = emu::open_udp_socket(emu::UdpAddress::resolve("10.77.0.1:0").value());
  auto datagrams =
      fabric::open_ethdev(device(driver), emu::UdpAddress::resolve(kFabric).value(), 1500);
  if (!socket || !datagrams) return 0;
  return flood(socket->get(), kFabric, effort.throughput_ns, [&] {
    std::uint64_t got = 0;
    (*datagrams)->receive([&](const emu::UdpAddress&, std::span<const std::byte>) {
      ++got;
      return true;
    });
    return got;
  });
}

// Without testpmd: the bare loop, in a process of its own, because DPDK's af_xdp keeps its socket
// bound to the queue after the port is closed, and the next one would find the device busy.
void measure_bare(WayResult& result, const std::string& driver, const Effort& effort,
                  const std::string& dir) {
  int ends[2];
  if (::pipe(ends) != 0) return;
  std::fflush(nullptr);
  const pid_t child = ::fork();
  if (child == 0) {
    double rate = 0;
    if (fabric::start_eal({dir, "", 128})) rate = bare_loop(driver, effort);
    ::_exit(::write(ends[1], &rate, sizeof rate) == sizeof rate ? 0 : 1);
  }
  ::close(ends[1]);
  double rate = 0;
  if (child > 0 && ::read(ends[0], &rate, sizeof rate) == sizeof rate) {
    result.reference = "bare DPDK loop";
    result.reference_packets_per_s = rate;
  }
  ::close(ends[0]);
  if (child > 0) ::waitpid(child, nullptr, 0);
}

void measure_port(WayResult& result, const std::string& driver, const Effort& effort) {
  fabric::PacketMemory memory;
  fabric::EthdevPortOptions options;
  options.device = device(driver);
  options.listen = kFabric;
  options.session.rules = rules();
  options.session.cluster_key = emu::random_key();
  auto port = fabric::EthdevPort::open(options, memory);
  auto node = hca::make_udp_attachment(
      {.fabric = kFabric, .node_name = "n0", .cluster_key = options.session.cluster_key});
  if (!port || !node) {
    result.skipped = port ? node.error().message : port.error().message;
    return;
  }
  if (!attach(**node, **port)) {
    result.skipped = "the node did not attach: " + (*node)->reason();
    return;
  }
  result.cost = measure_cost(**node, **port, memory, effort);
  result.packets_per_s = measure_throughput(**node, **port, memory, effort);
  result.round_trip = measure_round_trip(**node, **port, memory, effort);
}

}  // namespace

WayResult run_ethdev(const Effort& effort, const std::string& driver) {
  WayResult result{.name = "ethdev, " + driver, .reference = "dpdk-testpmd", .asked_ratio = 0.5};
  result.skipped = make_network();
  if (!result.skipped.empty()) return result;
  std::string dir = std::filesystem::temp_directory_path() / "flitnet-bench-XXXXXX";
  if (::mkdtemp(dir.data()) == nullptr) {
    result.skipped = "no scratch directory";
    return result;
  }
  const bool by_testpmd = measure_testpmd(result, driver, effort, dir);
  (void)succeeds({"ip", "neigh", "flush", "dev", "fnode"});
  if (!by_testpmd) measure_bare(result, driver, effort, dir);
  if (auto eal = fabric::start_eal({dir, "", 128}); !eal) {
    result.skipped = eal.error().message;
  } else {
    measure_port(result, driver, effort);
    fabric::stop_eal();
  }
  std::filesystem::remove_all(dir);
  return result;
}

}  // namespace bench

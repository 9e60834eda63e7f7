// flitnet-exporter: the counter pages of a run directory for Prometheus, as JSON, and as a
// sysfs-shaped tree. Exit 0: done, or stopped by SIGTERM or SIGINT; 1: cannot; 2: bad usage.
#include <arpa/inet.h>
#include <fmt/core.h>
#include <poll.h>
#include <prometheus/exposer.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "emu/base/complain.h"
#include "emu/cli/command_line.h"
#include "emu/config/config.h"
#include "emu/metrics/read.h"
#include "tools/exporter/collect.h"
#include "tools/exporter/json.h"
#include "tools/exporter/sysfs.h"
#include "tools/exporter/watch.h"

namespace {

constexpr std::string_view kAll = "*";  // --nodes

struct Arguments {
  std::string run;
  std::string listen = "127.0.0.1:9748";
  std::string sysfs;
  std::string nodes = std::string(kAll);
  bool json = false;
  bool catalog = false;
};

// Where the tree is unless --sysfs says so.
std::string in_run(const Arguments& arguments) { return arguments.run + "/sys"; }

constexpr std::string_view kProcess = "flitnet-exporter";

int complain(const std::string& message, int code) {
  return emu::complain(kProcess, message, code);
}

// SIGTERM and SIGINT are taken by Waiter alone, in this and every later thread.
sigset_t stop_signals() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  sigaddset(&set, SIGINT);
  return set;
}

// Counters change all the time; nodes attach while we start, and programs ask for their state
// first.
constexpr std::chrono::milliseconds kPeriod{1000};
constexpr std::chrono::milliseconds kPeriodAtFirst{100};
constexpr int kUpdatesAtFirst = 20;

// Between two updates: looks as soon as a page comes or goes.
class Waiter {
 public:
  Waiter(const std::string& run_dir, const sigset_t& stop)
      : watch_(run_dir), stop_(::signalfd(-1, &stop, SFD_NONBLOCK | SFD_CLOEXEC)) {}

  // false: no descriptor to hear of signals by.
  bool can_stop() const { return static_cast<bool>(stop_); }
  // false: a signal says stop.
  bool wait(std::chrono::milliseconds period, const tools::PageCollector& collector) {
    using Clock = std::chrono::steady_clock;
    const Clock::time_point end = Clock::now() + period;
    for (;;) {
      if (watch_.changed()) collector.look();
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - Clock::now());
      if (left.count() <= 0) return true;
      std::array<pollfd, 2> fds{{{stop_.get(), POLLIN, 0}, {watch_.fd(), POLLIN, 0}}};
      ::poll(fds.data(), fds.size(), static_cast<int>(left.count()));
      if (fds[0].revents != 0) return false;
    }
  }

 private:
  tools::PageWatch watch_;
  emu::UniqueFd stop_;
};

constexpr const char* kNobody = "off";  // --listen: no Prometheus

// civetweb takes "999.1.1.1:1" for port 1 of every address: only numbers that are one pass.
bool is_address(const std::string& text) {
  const std::size_t colon = text.rfind(':');
  if (colon == std::string::npos) return false;
  const std::string port = text.substr(colon + 1);
  in_addr ignored{};
  return inet_pton(AF_INET, text.substr(0, colon).c_str(), &ignored) == 1 && !port.empty() &&
         port.size() <= 5 && port.find_first_not_of("0123456789") == std::string::npos &&
         std::stoi(port) <= 65535;
}

// Indices of the nodes that `--nodes` names; names that no node has are none.
std::vector<std::size_t> nodes_here(const Arguments& arguments, const emu::Config& config) {
  std::vector<std::size_t> nodes;
  const std::string list = "," + arguments.nodes + ",";
  for (std::size_t i = 0; i < config.nodes.size(); ++i) {
    if (arguments.nodes == kAll || list.find("," + config.nodes[i].name + ",") != list.npos) {
      nodes.push_back(i);
    }
  }
  return nodes;
}

// The tree needs to know the nodes: no readable configuration, no tree.
std::optional<tools::SysfsTree> make_tree(const Arguments& arguments,
                                          const tools::PageCollector& collector) {
  const auto config = emu::Config::load(arguments.run + "/cluster.toml");
  if (!config) {
    complain("no sysfs tree: " + config.error().message, 0);
    return std::nullopt;
  }
  auto tree = tools::SysfsTree::make(arguments.sysfs, *config, nodes_here(arguments, *config),
                                     collector.look());
  if (tree) return std::move(*tree);
  complain("no sysfs tree: " + tree.error().message, 0);
  return std::nullopt;
}

// Why a socket cannot have an address: by trying. Empty: it can.
std::string why_not(const std::string& address) {
  const std::size_t colon = address.rfind(':');
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(static_cast<std::uint16_t>(std::stoi(address.substr(colon + 1))));
  inet_pton(AF_INET, address.substr(0, colon).c_str(), &to.sin_addr);
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int on = 1;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  const bool can =
      bind(fd, reinterpret_cast<const sockaddr*>(&to), sizeof to) == 0 && ::listen(fd, 1) == 0;
  const int error = can ? 0 : errno;
  if (fd >= 0) close(fd);
  if (error == 0) return "";
  if (error == EADDRINUSE) return "another program listens there; choose another port";
  if (error == EADDRNOTAVAIL) return "this host has no such address";
  return std::strerror(error);
}

// A connection has a thread to itself, also one that asks nothing; so there are some for those who
// ask, and who has asked nothing by then is not waited for (civetweb's default: 30 s).
constexpr const char* kThreads = "16";
constexpr const char* kRequestMs = "1000";

// Null: the address cannot be had. Until `what` is registered there is nothing at /metrics, so it
// says that it listens behind that.
std::unique_ptr<prometheus::Exposer> listen(
    const std::string& address, const std::shared_ptr<prometheus::Collectable>& what) try {
  auto exposer = std::make_unique<prometheus::Exposer>(std::vector<std::string>{
      "listening_ports", address, "num_threads", kThreads, "request_timeout_ms", kRequestMs});
  exposer->RegisterCollectable(what);
  for (const int port : exposer->GetListeningPorts()) fmt::print("listening on port {}\n", port);
  std::fflush(stdout);
  return exposer;
} catch (const std::exception& error) {
  // civetweb says "null context" of whatever it was.
  const std::string why = why_not(address);
  complain(fmt::format("cannot listen on {}: {}", address, why.empty() ? error.what() : why), 1);
  return nullptr;
}

// Who takes the cluster down says so first, and removes its tree with all else: of large clusters
// thousands of files, for which nobody needs to wait twice.
bool goes_with_its_run(const Arguments& arguments) {
  return arguments.sysfs == in_run(arguments) && std::filesystem::exists(arguments.run + "/ending");
}

int serve(const Arguments& arguments) {
  const sigset_t stop = stop_signals();
  pthread_sigmask(SIG_BLOCK, &stop, nullptr);
  Waiter waiter(arguments.run, stop);
  if (!waiter.can_stop()) return complain(fmt::format("no signals: {}", std::strerror(errno)), 1);
  const auto collector = std::make_shared<tools::PageCollector>(arguments.run);
  std::unique_ptr<prometheus::Exposer> exposer;
  if (arguments.listen != kNobody) {
    exposer = listen(arguments.listen, collector);
    if (!exposer) return 1;
  }
  std::optional<tools::SysfsTree> tree = make_tree(arguments, *collector);
  int updates = 0;
  do {
    const auto pages = collector->look();
    if (!tree) continue;
    ++updates;
    if (auto updated = tree->update(pages); !updated) complain(updated.error().message, 0);
  } while (waiter.wait(tree && updates < kUpdatesAtFirst ? kPeriodAtFirst : kPeriod, *collector));
  if (tree && !goes_with_its_run(arguments)) tree->remove();
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  emu::CommandLine line("Exports what a flitnet cluster counts.");
  Arguments arguments;
  line.option("--run", arguments.run, "run directory of the cluster");
  line.option("--listen", arguments.listen,
              "address for Prometheus; port 0: any; off: nobody listens")
      .show_default();
  line.option("--sysfs", arguments.sysfs,
              "folder of the sysfs-shaped tree (default: sys in the run directory)");
  line.option("--nodes", arguments.nodes, "nodes of this host, n0,n1, of which there are devices")
      .show_default();
  line.flag("--json", arguments.json, "print every series once and exit");
  line.flag("--catalog", arguments.catalog, "print the catalogue and exit");
  if (const auto code = line.parse(argc, argv)) return *code;
  if (arguments.catalog) return emu::write_out(kProcess, tools::catalog_json());
  if (arguments.run.empty()) return complain("--run is missing: the run directory of a cluster", 2);
  if (arguments.json)
    return emu::write_out(kProcess, tools::pages_json(emu::read_pages(arguments.run)));
  if (arguments.listen != kNobody && !is_address(arguments.listen)) {
    return complain("--listen " + arguments.listen + ": must be IPv4:port or off", 2);
  }
  if (arguments.sysfs.empty()) arguments.sysfs = in_run(arguments);
  return serve(arguments);
}

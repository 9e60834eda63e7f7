// 64 bytes from program to program by RC SEND, and a bare ping-pong through shared memory between
// the same two processes. The round trip is taken by the host's clock; what the fabric adds is
// emulated time, measured in the same run and taken off: a message with a launch time leaves at
// exactly that time, and its completion tells when its last flit arrived.
//
// Run by `./flitnet bench verbs` on node n0; the other end is a child of this process on node n1.
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include <fmt/core.h>

#include "tests/bench/verbs/endpoint.h"

namespace {

using bench::Completion;
using bench::Endpoint;

struct Plan {
  std::size_t calibrations = 50;
  std::size_t round_trips = 20'000;
  std::size_t messages = 200'000;
};
constexpr std::size_t kWindow = 128;                 // messages under way when the rate is measured
constexpr std::uint64_t kLaunchAheadNs = 3'000'000;  // more than any nap of hcad

std::uint64_t host_ns() {
  return static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
}

std::uint64_t quantile(std::vector<std::uint64_t>& values, double q) {
  std::sort(values.begin(), values.end());
  return values[static_cast<std::size_t>(q * static_cast<double>(values.size() - 1))];
}

void pass_on(int pair, std::uint64_t word) {
  if (::send(pair, &word, sizeof word, MSG_NOSIGNAL) != sizeof word) bench::stop("send");
}
std::uint64_t get(int pair) {
  std::uint64_t word = 0;
  if (::recv(pair, &word, sizeof word, MSG_WAITALL) != sizeof word) bench::stop("recv");
  return word;
}

// ---- the bare ping-pong ----------------------------------------------------------------------

struct Bare {
  alignas(64) std::atomic<std::uint64_t> ping;
  alignas(64) std::atomic<std::uint64_t> pong;
};

void await(const std::atomic<std::uint64_t>& word, std::uint64_t value) {
  while (word.load(std::memory_order_acquire) != value) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
  }
}

void answer_bare(Bare& bare, std::size_t count) {
  for (std::uint64_t i = 1; i <= count; ++i) {
    await(bare.ping, i);
    bare.pong.store(i, std::memory_order_release);
  }
}

std::vector<std::uint64_t> measure_bare(Bare& bare, std::size_t count) {
  std::vector<std::uint64_t> times;
  for (std::uint64_t i = 1; i <= count; ++i) {
    const std::uint64_t begin = host_ns();
    bare.ping.store(i, std::memory_order_release);
    await(bare.pong, i);
    times.push_back((host_ns() - begin) / 2);
  }
  return times;
}

// ---- over verbs ------------------------------------------------------------------------------

void await_receive(Endpoint& end) {
  while (!end.wait().is_receive) {
  }
  end.receive();
}

void answer(Endpoint& end, int pair, const Plan& plan) {
  for (std::size_t i = 0; i < plan.calibrations;) {
    const Completion done = end.wait();
    if (!done.is_receive) continue;
    end.receive();
    pass_on(pair, done.time_ns);
    ++i;
  }
  for (std::size_t i = 0; i < plan.round_trips; ++i) {
    await_receive(end);
    end.send();
  }
  for (std::size_t i = 0; i < plan.messages; ++i) await_receive(end);
  pass_on(pair, 0);
}

std::uint64_t measure_emulated(Endpoint& end, int pair, std::size_t count) {
  std::vector<std::uint64_t> times;
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint64_t launch = end.now() + kLaunchAheadNs;
    end.send_at(launch);
    times.push_back(get(pair) - launch);
    while (end.wait().is_receive) bench::stop("a message that nobody sent");
  }
  return quantile(times, 0.5);
}

std::vector<std::uint64_t> measure_round_trips(Endpoint& end, std::size_t count) {
  std::vector<std::uint64_t> times;
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint64_t begin = host_ns();
    end.send();
    await_receive(end);  // completions of sends are taken on the way
    times.push_back((host_ns() - begin) / 2);
  }
  return times;
}

// How many sends of the round trips were not yet seen to complete does not matter: the window
// counts from here on, and the queue is deeper than it.
double measure_rate(Endpoint& end, int pair, std::size_t count) {
  const std::uint64_t begin = host_ns();
  std::size_t sent = 0;
  std::size_t completed = 0;
  while (completed + kWindow < count) {
    while (sent < count && sent - completed < kWindow) {
      end.send();
      ++sent;
    }
    if (!end.wait().is_receive) ++completed;
  }
  for (; sent < count; ++sent) end.send();
  (void)get(pair);  // the last one has arrived
  return static_cast<double>(count) * 1e9 / static_cast<double>(host_ns() - begin);
}

struct Figures {
  std::uint64_t emulated_ns = 0;
  std::uint64_t median_ns = 0;
  std::uint64_t p99_ns = 0;
  double per_second = 0;
  std::uint64_t bare_median_ns = 0;
  std::uint64_t bare_p99_ns = 0;
};

std::uint64_t beyond(std::uint64_t whole, std::uint64_t part) {
  return whole > part ? whole - part : 0;
}

std::string to_json(const Figures& f) {
  return fmt::format(
      "{{\"message_bytes\": {}, \"latency_median_ns\": {}, \"latency_p99_ns\": {}, "
      "\"emulated_latency_ns\": {}, \"messages_per_second\": {:.0f}, "
      "\"shared_memory_median_ns\": {}, \"shared_memory_p99_ns\": {}}}\n",
      bench::kMessageBytes, f.median_ns, f.p99_ns, f.emulated_ns, f.per_second, f.bare_median_ns,
      f.bare_p99_ns);
}

void print(const Figures& f) {
  fmt::print("RC SEND of {} bytes, program to program, half a round trip\n", bench::kMessageBytes);
  fmt::print("  without the fabric's time   median {:9.2f} us   p99 {:9.2f} us\n",
             static_cast<double>(f.median_ns) / 1e3, static_cast<double>(f.p99_ns) / 1e3);
  fmt::print("  the fabric's (emulated)            {:9.2f} us\n",
             static_cast<double>(f.emulated_ns) / 1e3);
  fmt::print("  messages per second         {:9.0f}\n", f.per_second);
  fmt::print("bare shared memory            median {:9.2f} us   p99 {:9.2f} us\n",
             static_cast<double>(f.bare_median_ns) / 1e3, static_cast<double>(f.bare_p99_ns) / 1e3);
}

Figures measure(int pair, Bare& bare, const Plan& plan) {
  Figures f;
  std::vector<std::uint64_t> times = measure_bare(bare, plan.round_trips);
  f.bare_median_ns = quantile(times, 0.5);
  f.bare_p99_ns = quantile(times, 0.99);
  Endpoint end(pair);
  f.emulated_ns = measure_emulated(end, pair, plan.calibrations);
  times = measure_round_trips(end, plan.round_trips);
  f.median_ns = beyond(quantile(times, 0.5), f.emulated_ns);
  f.p99_ns = beyond(quantile(times, 0.99), f.emulated_ns);
  f.per_second = measure_rate(end, pair, plan.messages);
  return f;
}

int other_end(int pair, Bare& bare, const Plan& plan, const std::string& run,
              const std::string& node) {
  const std::string socket = run + "/nodes/" + node + "/hcad.sock";
  ::setenv("FLITNET_NODE_SOCKET", socket.c_str(), 1);
  answer_bare(bare, plan.round_trips);
  Endpoint end(pair);
  answer(end, pair, plan);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Latency and rate of small messages over verbs.", "verbs_bench");
  const char* run_variable = std::getenv("FLITNET_RUN");
  std::string run = run_variable != nullptr ? run_variable : "";
  std::string node = "n1";
  std::string json_path;
  bool quick = false;
  app.add_option("--run", run, "run directory of a cluster");
  app.add_option("--to", node, "node of the other end");
  auto* json = app.add_option("--json", json_path, "JSON, to a file or to stdout")->expected(0, 1);
  app.add_flag("--quick", quick, "a tenth of the messages");
  CLI11_PARSE(app, argc, argv);
  if (run.empty()) {
    std::fprintf(stderr, "verbs_bench: no cluster; start it by ./flitnet bench verbs\n");
    return 2;
  }
  Plan plan;
  if (quick) plan = {10, 2'000, 20'000};
  int pair[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0) bench::stop("socketpair");
  void* shared =
      ::mmap(nullptr, sizeof(Bare), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED) bench::stop("mmap");
  Bare& bare = *new (shared) Bare{};
  const pid_t child = ::fork();
  if (child < 0) bench::stop("fork");
  if (child == 0) {
    ::close(pair[0]);
    return other_end(pair[1], bare, plan, run, node);
  }
  ::close(pair[1]);
  const Figures figures = measure(pair[0], bare, plan);
  int status = 0;
  ::waitpid(child, &status, 0);
  if (json->count() == 0 || !json_path.empty()) print(figures);
  if (json->count() != 0 && json_path.empty()) fmt::print("{}", to_json(figures));
  if (!json_path.empty()) {
    std::FILE* out = std::fopen(json_path.c_str(), "w");
    if (out == nullptr) bench::stop(json_path.c_str());
    std::fputs(to_json(figures).c_str(), out);
    std::fclose(out);
  }
  return status == 0 ? 0 : 1;
}

// 64 bytes from program to program by RC SEND, and what the machine takes for as much without
// verbs (chain.h, wakeups.h). The round trip is taken by the host's clock; what the fabric adds is
// emulated time, measured in the same run and taken off: a message with a launch time leaves at
// exactly that time, and its completion tells when its last flit arrived.
//
// Run by `./flitnet bench verbs` on node n0; the other end is a child of this process on node n1.
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include <fmt/core.h>

#include "emu/cli/command_line.h"
#include "tests/bench/verbs/chain.h"
#include "tests/bench/verbs/endpoint.h"
#include "tests/bench/verbs/wakeups.h"

namespace {

using bench::Completion;
using bench::Endpoint;
using bench::Memory;

struct Plan {
  std::size_t calibrations = 50;
  std::size_t round_trips = 20'000;
  std::size_t messages = 200'000;
  std::size_t slept_round_trips = 500;
  std::size_t lists = 20'000;
  std::size_t blocks = 10'000;
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

// By a third party. Which of the three share a core is chance and stays as it was at first, so
// other processes are asked several times.
std::uint64_t measure_relayed(std::size_t round_trips) {
  constexpr std::size_t kTimes = 5;
  std::vector<std::uint64_t> medians;
  for (std::size_t i = 0; i < kTimes; ++i) {
    std::vector<std::uint64_t> times = bench::measure_chain(3, round_trips / kTimes);
    medians.push_back(quantile(times, 0.5));
  }
  return quantile(medians, 0.5);
}

double measure_memcpy() {
  constexpr std::size_t kBlocks = 256;  // 16 MiB: beyond the caches of one core
  std::vector<char> from(kBlocks * bench::kBlockBytes, 1);
  std::vector<char> to(from.size());
  const std::uint64_t begin = host_ns();
  constexpr int kRounds = 16;
  for (int round = 0; round < kRounds; ++round) {
    for (std::size_t at = 0; at < from.size(); at += bench::kBlockBytes) {
      std::memcpy(&to[at], &from[at], bench::kBlockBytes);
      asm volatile("" : : "r"(to.data()) : "memory");
    }
  }
  return static_cast<double>(kRounds * from.size()) * 1e9 / static_cast<double>(host_ns() - begin);
}

// ---- over verbs ------------------------------------------------------------------------------

void await_receive(Endpoint& end) {
  while (!end.wait().is_receive) {
  }
  end.receive();
}

void await_receive_asleep(Endpoint& end) {
  while (!end.wait_asleep().is_receive) {
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
  for (std::size_t i = 0; i < plan.round_trips; ++i) {
    await_receive(end);
    end.write_with_immediate();
  }
  for (std::size_t i = 0; i < plan.slept_round_trips; ++i) {
    await_receive_asleep(end);
    end.send();
  }
  for (std::size_t i = 0; i < plan.messages; ++i) await_receive(end);
  pass_on(pair, 0);
  (void)get(pair);  // RDMA WRITEs need nobody at this end
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

std::vector<std::uint64_t> measure_writes(Endpoint& end, std::size_t count) {
  std::vector<std::uint64_t> times;
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint64_t begin = host_ns();
    end.write_with_immediate();
    await_receive(end);
    times.push_back((host_ns() - begin) / 2);
  }
  return times;
}

// Everybody sleeps: each round trip begins in silence.
std::vector<std::uint64_t> measure_slept(Endpoint& end, std::size_t count) {
  std::vector<std::uint64_t> times;
  for (std::size_t i = 0; i < count; ++i) {
    ::usleep(3'000);
    const std::uint64_t begin = host_ns();
    end.send();
    await_receive_asleep(end);
    times.push_back((host_ns() - begin) / 2);
  }
  return times;
}

// Lists of RDMA WRITEs, half a queue of them under way at any time, so many at least and for so
// long: memory that nobody had touched before costs a fault a page. In host time, and in emulated
// time from the first completion to the last.
constexpr std::uint64_t kListsLeastNs = 300'000'000;
struct Rate {
  double per_second = 0;
  double per_emulated_second = 0;
};
Rate measure_lists(Endpoint& end, std::uint32_t bytes, std::uint32_t count, std::size_t lists,
                   Memory memory) {
  end.drain();
  const std::uint64_t begin = host_ns();
  std::uint64_t first_ns = 0;
  std::uint64_t last_ns = 0;
  std::size_t posted = 0;
  const auto goes_on = [&] { return posted < lists || host_ns() - begin < kListsLeastNs; };
  for (std::size_t done = 0; done < posted || goes_on();) {
    while ((posted - done) * count < bench::kDepth / 2 && goes_on()) {
      end.write_list(bytes, count, memory);
      ++posted;
    }
    const Completion completion = end.wait();
    if (completion.is_receive) continue;
    if (done == 0) first_ns = completion.time_ns;
    last_ns = completion.time_ns;
    ++done;
  }
  const auto requests = static_cast<double>(posted * count);
  const double emulated_ns = std::max(1.0, static_cast<double>(last_ns - first_ns));
  return {requests * 1e9 / static_cast<double>(host_ns() - begin),
          (requests - count) * 1e9 / emulated_ns};
}

// Blocks by two connections, which take turns over the lanes of their service level: one lane alone
// leaves the link a cycle between a packet's tail and the next head, which is routed then
// (fabric/router/README.md). In bits per emulated second.
double measure_two_lanes(std::array<Endpoint*, 2> ends, std::size_t blocks) {
  std::size_t posted = 0;
  const auto post = [&](Endpoint& end) {
    end.write_list(bench::kBlockBytes, 1, Memory::plain);
    ++posted;
  };
  for (Endpoint* end : ends) end->drain();
  while (posted < bench::kDepth) post(*ends[posted % 2]);
  std::uint64_t first_ns = ~std::uint64_t{0};
  std::uint64_t last_ns = 0;
  for (std::size_t done = 0; done < posted; ++done) {
    Endpoint& end = *ends[done % 2];
    const std::uint64_t at_ns = end.wait().time_ns;
    first_ns = std::min(first_ns, at_ns);
    last_ns = std::max(last_ns, at_ns);
    if (posted < blocks) post(end);
  }
  // When the first is complete its neighbour nearly is.
  return static_cast<double>(posted - 2) * bench::kBlockBytes * 8e9 /
         static_cast<double>(last_ns - first_ns);
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
  std::uint64_t write_median_ns = 0;
  std::uint64_t slept_median_ns = 0;
  double per_second = 0;
  double list_per_second = 0;
  double block_bytes_per_second = 0;
  double shared_block_bytes_per_second = 0;
  double block_bits_per_emulated_second = 0;
  double two_lanes_bits_per_emulated_second = 0;
  std::uint64_t bare_median_ns = 0;
  std::uint64_t bare_p99_ns = 0;
  std::uint64_t relayed_median_ns = 0;  // by a third party
  std::uint64_t chain_median_ns = 0;    // by as many as a message has
  std::uint64_t wakeups_median_ns = 0;
  double memcpy_bytes_per_second = 0;
};

std::uint64_t beyond(std::uint64_t whole, std::uint64_t part) {
  return whole > part ? whole - part : 0;
}

std::string to_json(const Figures& f) {
  return fmt::format(
      "{{\"message_bytes\": {}, \"latency_median_ns\": {}, \"latency_p99_ns\": {}, "
      "\"write_latency_median_ns\": {}, \"slept_latency_median_ns\": {}, "
      "\"emulated_latency_ns\": {}, \"messages_per_second\": {:.0f}, "
      "\"list_messages_per_second\": {:.0f}, \"block_bytes_per_second\": {:.0f}, "
      "\"shared_block_bytes_per_second\": {:.0f}, "
      "\"block_bits_per_emulated_second\": {:.0f}, "
      "\"two_lanes_bits_per_emulated_second\": {:.0f}, "
      "\"shared_memory_median_ns\": {}, \"shared_memory_p99_ns\": {}, "
      "\"relayed_median_ns\": {}, \"chain_median_ns\": {}, \"wakeups_median_ns\": {}, "
      "\"memcpy_bytes_per_second\": {:.0f}}}\n",
      bench::kMessageBytes, f.median_ns, f.p99_ns, f.write_median_ns, f.slept_median_ns,
      f.emulated_ns, f.per_second, f.list_per_second, f.block_bytes_per_second,
      f.shared_block_bytes_per_second, f.block_bits_per_emulated_second,
      f.two_lanes_bits_per_emulated_second, f.bare_median_ns, f.bare_p99_ns, f.relayed_median_ns,
      f.chain_median_ns, f.wakeups_median_ns, f.memcpy_bytes_per_second);
}

double us(std::uint64_t ns) { return static_cast<double>(ns) / 1e3; }

void print(const Figures& f) {
  fmt::print("RC SEND of {} bytes, program to program, half a round trip\n", bench::kMessageBytes);
  fmt::print("  without the fabric's time   median {:9.2f} us   p99 {:9.2f} us\n", us(f.median_ns),
             us(f.p99_ns));
  fmt::print("  the fabric's (emulated)            {:9.2f} us\n", us(f.emulated_ns));
  fmt::print("  by RDMA WRITE               median {:9.2f} us\n", us(f.write_median_ns));
  fmt::print("  after 3 ms of sleep         median {:9.2f} us\n", us(f.slept_median_ns));
  fmt::print("messages per second           {:9.0f} posted singly, {:9.0f} WRITEs in lists of {}\n",
             f.per_second, f.list_per_second, bench::kListRequests);
  fmt::print("RC WRITE of {} bytes       {:9.1f} MB/s ({:.2f} Mb/s of emulated time)\n",
             bench::kBlockBytes, f.block_bytes_per_second / 1e6,
             f.block_bits_per_emulated_second / 1e6);
  fmt::print("  by two connections           {:10.2f} Mb/s of emulated time\n",
             f.two_lanes_bits_per_emulated_second / 1e6);
  fmt::print("  of memory made to be shared {:9.1f} MB/s\n", f.shared_block_bytes_per_second / 1e6);
  fmt::print("bare shared memory            median {:9.2f} us   p99 {:9.2f} us\n",
             us(f.bare_median_ns), us(f.bare_p99_ns));
  fmt::print("  with a third party          median {:9.2f} us\n", us(f.relayed_median_ns));
  fmt::print("  by {} parties                median {:9.2f} us\n", bench::kPartiesOfAWay,
             us(f.chain_median_ns));
  fmt::print("bare wake-ups, {} in a row     median {:9.2f} us\n", bench::kWakeupsOfAWay,
             us(f.wakeups_median_ns));
  fmt::print("memcpy                        {:9.1f} MB/s\n", f.memcpy_bytes_per_second / 1e6);
}

// What the machine does by itself.
Figures measure_bare(const Plan& plan) {
  Figures f;
  std::vector<std::uint64_t> times = bench::measure_chain(2, plan.round_trips);
  f.bare_median_ns = quantile(times, 0.5);
  f.bare_p99_ns = quantile(times, 0.99);
  f.relayed_median_ns = measure_relayed(plan.round_trips);
  times = bench::measure_chain(bench::kPartiesOfAWay, plan.round_trips);
  f.chain_median_ns = quantile(times, 0.5);
  times = bench::measure_wakeups(plan.slept_round_trips);
  f.wakeups_median_ns = quantile(times, 0.5);
  f.memcpy_bytes_per_second = measure_memcpy();
  return f;
}

void measure(Figures& f, int pair, const Plan& plan) {
  std::vector<std::uint64_t> times;
  Endpoint end(pair);
  Endpoint beside(pair);
  f.emulated_ns = measure_emulated(end, pair, plan.calibrations);
  times = measure_round_trips(end, plan.round_trips);
  f.median_ns = beyond(quantile(times, 0.5), f.emulated_ns);
  f.p99_ns = beyond(quantile(times, 0.99), f.emulated_ns);
  times = measure_writes(end, plan.round_trips);
  f.write_median_ns = beyond(quantile(times, 0.5), f.emulated_ns);
  times = measure_slept(end, plan.slept_round_trips);
  f.slept_median_ns = beyond(quantile(times, 0.5), f.emulated_ns);
  f.per_second = measure_rate(end, pair, plan.messages);
  f.list_per_second =
      measure_lists(end, bench::kMessageBytes, bench::kListRequests, plan.lists, Memory::plain)
          .per_second;
  const Rate blocks = measure_lists(end, bench::kBlockBytes, 1, plan.blocks, Memory::plain);
  f.block_bytes_per_second = blocks.per_second * bench::kBlockBytes;
  f.block_bits_per_emulated_second = blocks.per_emulated_second * bench::kBlockBytes * 8;
  f.shared_block_bytes_per_second =
      measure_lists(end, bench::kBlockBytes, 1, plan.blocks, Memory::shared).per_second *
      bench::kBlockBytes;
  f.two_lanes_bits_per_emulated_second = measure_two_lanes({&end, &beside}, plan.blocks);
  pass_on(pair, 0);
}

int other_end(int pair, const Plan& plan, const std::string& run, const std::string& node) {
  const std::string socket = run + "/nodes/" + node + "/hcad.sock";
  ::setenv("FLITNET_NODE_SOCKET", socket.c_str(), 1);
  Endpoint end(pair);
  const Endpoint beside(pair);
  answer(end, pair, plan);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  emu::CommandLine line("Latency and rate of small messages over verbs.", "verbs_bench");
  const char* run_variable = std::getenv("FLITNET_RUN");
  std::string run = run_variable != nullptr ? run_variable : "";
  std::string node = "n1";
  std::string json_path;
  bool quick = false;
  line.option("--run", run, "run directory of a cluster");
  line.option("--to", node, "node of the other end");
  const auto json =
      line.option("--json", json_path, "JSON, to a file or to stdout").optional_value();
  line.flag("--quick", quick, "a tenth of the messages");
  if (const auto code = line.parse(argc, argv)) return *code;
  if (run.empty()) {
    std::fprintf(stderr, "verbs_bench: no cluster; start it by ./flitnet bench verbs\n");
    return 2;
  }
  Plan plan;
  if (quick) plan = {10, 2'000, 20'000, 50, 1'000, 500};
  int pair[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0) bench::stop("socketpair");
  Figures figures = measure_bare(plan);
  const pid_t child = ::fork();
  if (child < 0) bench::stop("fork");
  if (child == 0) {
    ::close(pair[0]);
    return other_end(pair[1], plan, run, node);
  }
  ::close(pair[1]);
  measure(figures, pair[0], plan);
  int status = 0;
  ::waitpid(child, &status, 0);
  if (!json.given() || !json_path.empty()) print(figures);
  if (json.given() && json_path.empty()) fmt::print("{}", to_json(figures));
  if (!json_path.empty()) {
    std::FILE* out = std::fopen(json_path.c_str(), "w");
    if (out == nullptr) bench::stop(json_path.c_str());
    std::fputs(to_json(figures).c_str(), out);
    std::fclose(out);
  }
  return status == 0 ? 0 : 1;
}

#include "tests/bench/engine/threads.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <thread>
#include <vector>

#include "fabric/crew/crew.h"
#include "fabric/link/packing.h"
#include "tests/bench/engine/workload.h"

namespace bench {

namespace {

using Clock = std::chrono::steady_clock;

double ns_since(Clock::time_point start) {
  return std::chrono::duration<double, std::nano>(Clock::now() - start).count();
}
struct ThreadsRun {
  double ns_per_cycle = 0;
  std::uint64_t digest = 0;
  int ports = 0;
};

// Of all routers, those that lead somewhere: the engine steps them in blocks.
int ports_of(const fabric::Network& network) {
  int ports = network.nodes();
  for (int r = 0; r < network.routers(); ++r) {
    const auto router = static_cast<emu::RouterId>(r);
    for (int p = 0; p < network.ports(router); ++p)
      ports += network.peer(router, static_cast<emu::PortId>(p)).router != emu::kNoRouter;
  }
  return ports;
}

ThreadsRun run_once(Case which, int threads, emu::Cycle cycles) {
  which.spec.threads = threads;
  auto network = fabric::Network::make(which.spec).value();
  Workload workload(which, network->nodes(), 1);
  const auto advance = [&](emu::Cycle until) {
    double ns = 0;
    while (network->now() < until) {
      workload.feed(network->now() + kBatch, [&](emu::NodeId node, const hca::SendPacket& packet) {
        network->submit(node, packet);
      });
      const auto start = Clock::now();
      network->step(kBatch);
      ns += ns_since(start);
      network->clear_events();
    }
    return ns;
  };
  advance(cycles / 4);  // the queues fill
  const emu::Cycle from = network->now();
  const double ns = advance(from + cycles);
  return {ns / static_cast<double>(network->now() - from), network->digest(), ports_of(*network)};
}

// One meeting of threads that have nothing else to do.
double meeting_ns(int threads) {
  constexpr int kMeetings = 20'000;
  fabric::Crew* crew = nullptr;
  fabric::Crew idle(threads, [&](int) {
    for (int i = 0; i < kMeetings; ++i) crew->meet();
  });
  crew = &idle;
  std::vector<double> ns;
  for (int i = 0; i < 5; ++i) {
    const auto start = Clock::now();
    idle.run();
    ns.push_back(ns_since(start) / kMeetings);
  }
  return median(ns);
}

struct Row {
  std::string name;
  int threads;
  int ports;
  double ns_per_cycle;
  double speed_up;
};

// Runs of all numbers of threads take turns, so that a change of the machine's speed meets all.
bool measure(const Case& which, const std::vector<int>& threads, int repeats,
             std::vector<Row>& rows) {
  const emu::Cycle cycles = 40'000 / which.scale;
  std::vector<std::vector<double>> ns(threads.size());
  ThreadsRun alone;
  bool same = true;
  for (int i = 0; i < repeats; ++i) {
    for (std::size_t t = 0; t < threads.size(); ++t) {
      const ThreadsRun run = run_once(which, threads[t], cycles);
      ns[t].push_back(run.ns_per_cycle);
      if (threads[t] == 1) alone = run;
      same &= run.digest == alone.digest;
    }
  }
  const double one = median(ns[0]);
  for (std::size_t t = 0; t < threads.size(); ++t) {
    const double cost = median(ns[t]);
    rows.push_back({which.name, threads[t], alone.ports, cost, one / cost});
    fmt::print("{:<26}{:>9}{:>14.0f}{:>11.2f}\n", which.name, threads[t], cost, one / cost);
  }
  std::fflush(stdout);
  return same;
}

int write_report(const std::string& path, const std::vector<Row>& rows, double meeting) {
  std::string text = "{\"results\":[";
  for (const Row& r : rows)
    text += fmt::format(
        "{}\n{{\"case\":\"{}\",\"threads\":{},\"ns_per_cycle\":{:.1f},\"speed_up\":{:.3f}}}",
        &r == rows.data() ? "" : ",", r.name, r.threads, r.ns_per_cycle, r.speed_up);
  text += fmt::format("\n],\"meeting_ns\":{:.1f}}}\n", meeting);
  std::FILE* file = std::fopen(path.c_str(), "w");
  if (file == nullptr) {
    fmt::print(stderr, "engine_bench: cannot write {}\n", path);
    return 1;
  }
  const bool written = std::fwrite(text.data(), 1, text.size(), file) == text.size();
  return std::fclose(file) == 0 && written ? 0 : 1;
}

}  // namespace

int run_threads(bool quick, const std::string& json) {
  const int processors = static_cast<int>(std::thread::hardware_concurrency());
  std::vector<int> threads = {1, 2};
  for (int n = 4; n <= processors; n *= 2) threads.push_back(n);
  const double meeting = meeting_ns(2);
  fmt::print("{} processors; a meeting of two idle threads: {:.0f} ns\n", processors, meeting);
  fmt::print("{:<26}{:>9}{:>14}{:>11}\n", "case", "threads", "ns/cycle", "speed-up");
  std::vector<Row> rows;
  bool same = true;
  for (const Case& which : all_cases()) {
    if (which.scale > 1 || which.name == "mesh4x4/vclk/0.4")
      same &= measure(which, threads, quick ? 3 : 7, rows);
  }
  for (Case which : all_cases()) {
    if (which.name != "fattree64/vclk/0.5" && which.name != "torus8x8x8/vclk/0.3") continue;
    which.name.replace(which.name.find("vclk"), 4, "two_level");
    which.spec.scheduler = emu::SchedulerKind::two_level;
    same &= measure(which, threads, quick ? 3 : 7, rows);
  }
  fmt::print("deliveries: {}\n", same ? "the same for every number of threads" : "DIFFERENT");
  // Estimates, not measurements: blocks of routers, their HCAs with them, shared out evenly,
  // and a meeting whose one counter every thread has to touch in turn.
  for (const int n : {16, 64}) {
    for (const Row& r : rows) {
      if (r.threads != 1) continue;
      const int room =
          static_cast<int>(fabric::Packing::room(static_cast<std::size_t>(r.ports), n));
      const int blocks = (r.ports + room - 1) / room;
      const int parts = std::min(n, blocks);
      const int of_one = (blocks + parts - 1) / parts;  // of the part that has most
      const double cost = r.ns_per_cycle * of_one / blocks + meeting * parts / 2;
      fmt::print("estimate, {} processors: {:<26}{:>6} threads{:>12.0f} ns/cycle{:>8.1f}\n", n,
                 r.name, parts, cost, r.ns_per_cycle / cost);
    }
  }
  const int failed = json.empty() ? 0 : write_report(json, rows, meeting);
  return same ? failed : 1;
}

}  // namespace bench

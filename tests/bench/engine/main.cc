// engine_bench: cost of a cycle of the engine, sources and sinks included, on one core.
//   engine_bench [--quick] [--sweep] [--reference FILE] [--json FILE]
// FILE: what another simulator needs for a cycle, as CSV with a header:
//   topology,offered_flits_per_node_cycle,us_per_cycle,...
//   engine_bench --threads [--quick] [--json FILE]   the same on several engine threads
//   engine_bench --only CASE [--cycles N]     one run, prints ns per cycle; valgrind runs this
//   engine_bench --instructions CASE...       instructions per cycle by valgrind, one case a line
#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tests/bench/engine/threads.h"
#include "tests/bench/engine/workload.h"
#include "tests/model/plain_model.h"

namespace bench {
namespace {

struct Options {
  bool quick = false;
  bool sweep = false;
  bool threads = false;
  std::string reference;
  std::string json;
  std::string only;
  std::vector<std::string> counted;
  emu::Cycle cycles = 200'000;
};

struct Run {
  double ns_per_cycle = 0;
  double delivered = 0;  // flits per node and cycle
  double flit_hops_per_cycle = 0;
  std::uint64_t routers = 0;
  std::uint64_t digest = 0;  // Network::digest
};

struct Result {
  std::string name;
  double ns_per_cycle;
  double ns_per_flit_hop;
  double delivered;
  std::uint64_t routers;
  std::optional<double> instructions_per_cycle;
  std::optional<double> plain_ratio;
  std::optional<double> reference_ratio;
};

// Processor time of this thread: the engine never waits, and a shared machine takes turns.
double cpu_ns() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e9 + static_cast<double>(now.tv_nsec);
}

double hops_so_far(const fabric::Network& network) {
  std::uint64_t flits = 0;
  for (int r = 0; r < network.routers(); ++r) {
    const auto router = static_cast<emu::RouterId>(r);
    for (int p = 0; p < network.ports(router); ++p)
      for (const auto& lane : network.router_counters(router, static_cast<emu::PortId>(p)).sent)
        flits += lane.flits;
  }
  return static_cast<double>(flits);
}

Run run_fast(const Case& which, emu::Cycle cycles, std::uint64_t seed) {
  auto network = fabric::Network::make(which.spec).value();
  Workload workload(which, network->nodes(), seed);
  std::uint64_t flits = 0;
  const auto advance = [&](emu::Cycle until) {
    while (network->now() < until) {
      workload.feed(network->now() + kBatch, [&](emu::NodeId node, const hca::SendPacket& packet) {
        network->submit(node, packet);
      });
      network->step(kBatch);
      for (const auto& event : network->delivered()) flits += event.flits;
      network->clear_events();
    }
  };
  advance(std::max<emu::Cycle>(cycles / 10, which.scale > 1 ? 1'500 : 0));  // the queues fill
  flits = 0;
  const double hops = hops_so_far(*network);
  const emu::Cycle from = network->now();
  const double start = cpu_ns();
  advance(from + cycles);
  const double ns = (cpu_ns() - start);
  const auto ran = static_cast<double>(network->now() - from);
  return {.ns_per_cycle = ns / ran,
          .delivered = static_cast<double>(flits) / ran / network->nodes(),
          .flit_hops_per_cycle = (hops_so_far(*network) - hops) / ran,
          .routers = static_cast<std::uint64_t>(network->routers()),
          .digest = network->digest()};
}

double plain_ns_per_cycle(const Case& which, emu::Cycle cycles) {
  const auto plain = model::make_plain_model(which.spec, nullptr);
  model::PlainModel& network = *plain;
  const auto probe = fabric::Network::make(which.spec).value();
  Workload workload(which, probe->nodes(), 1);
  const double start = cpu_ns();
  while (network.now() < cycles) {
    workload.feed(network.now() + kBatch, [&](emu::NodeId node, const hca::SendPacket& packet) {
      network.submit(node, packet);
    });
    for (emu::Cycle c = 0; c < kBatch; ++c) network.step();
    network.delivered.clear();
    network.injected.clear();
  }
  return (cpu_ns() - start) / static_cast<double>(network.now());
}

// Runs itself under callgrind; the count it prints, or nothing when there is no valgrind.
std::optional<double> instructions_of(const std::string& name, emu::Cycle cycles) {
  int ends[2];
  if (pipe(ends) != 0) return std::nullopt;
  const std::string count = fmt::format("{}", cycles);
  const std::string self = std::filesystem::read_symlink("/proc/self/exe").string();
  const char* argv[] = {"valgrind",   "--tool=callgrind", "--callgrind-out-file=/dev/null",
                        self.c_str(), "--only",           name.c_str(),
                        "--cycles",   count.c_str(),      nullptr};
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDERR_FILENO);
  posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
  posix_spawn_file_actions_addclose(&actions, ends[0]);
  pid_t child = 0;
  const int failed =
      posix_spawnp(&child, argv[0], &actions, nullptr, const_cast<char* const*>(argv), environ);
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
  std::string text;
  char buffer[4096];
  for (ssize_t n = 0; failed == 0 && (n = read(ends[0], buffer, sizeof buffer)) > 0;)
    text.append(buffer, static_cast<std::size_t>(n));
  close(ends[0]);
  if (failed != 0) return std::nullopt;
  int status = 0;
  waitpid(child, &status, 0);
  const std::size_t at = text.find("Collected :");
  if (status != 0 || at == std::string::npos) return std::nullopt;
  return std::strtod(text.c_str() + at + 11, nullptr);
}

// Set-up is the same in a short and a long run, so their difference is cycles alone.
std::optional<double> instructions_per_cycle(const Case& which) {
  constexpr emu::Cycle kShort = 6400;
  constexpr emu::Cycle kLong = 3 * kShort;
  const auto low = instructions_of(which.name, kShort);
  if (!low) return std::nullopt;
  const auto high = instructions_of(which.name, kLong);
  if (!high) return std::nullopt;
  // A run executes a tenth more to fill the queues.
  return (*high - *low) / (1.1 * static_cast<double>(kLong - kShort));
}

Result measure(const Case& which, const Options& options) {
  const bool large = which.scale > 1;
  // The plain model and valgrind take a hundred times as long: not for every point of a curve.
  const bool compared = !large && !options.sweep;
  const int repeats = (options.quick ? 3 : 9) / (large ? 3 : 1);
  const emu::Cycle cycles = (options.quick ? 50'000 : options.cycles) / which.scale;
  std::vector<double> ns;
  Run run;
  for (int i = 0; i < repeats; ++i) {
    run = run_fast(which, cycles, static_cast<std::uint64_t>(1 + i));
    ns.push_back(run.ns_per_cycle);
  }
  const double cycle_ns = median(ns);
  std::optional<double> plain_ratio;
  if (compared) plain_ratio = plain_ns_per_cycle(which, options.quick ? 2'000 : 10'000) / cycle_ns;
  return {.name = which.name,
          .ns_per_cycle = cycle_ns,
          .ns_per_flit_hop = cycle_ns / run.flit_hops_per_cycle,
          .delivered = run.delivered,
          .routers = run.routers,
          .instructions_per_cycle =
              compared && which.counted ? instructions_per_cycle(which) : std::nullopt,
          .plain_ratio = plain_ratio,
          .reference_ratio = std::nullopt};
}

// ns per cycle of the other simulator, by "topology,load".
std::map<std::string, double> read_reference(const std::string& path) {
  std::map<std::string, double> costs;
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);  // the header
  while (std::getline(file, line)) {
    const std::size_t load = line.find(',');
    const std::size_t cost = line.find(',', load + 1);
    if (cost == std::string::npos) continue;
    std::string topology = line.substr(0, load);
    if (topology == "fly8") topology = "single8";
    const double offered = std::strtod(line.c_str() + load + 1, nullptr);
    costs[fmt::format("{}/vclk/{}", topology, offered)] =
        std::strtod(line.c_str() + cost + 1, nullptr) * 1000;
  }
  return costs;
}

// Host time to pass one emulated second (of 80 ns cycles) in an idle network of 512 nodes.
double idle_second_ms() {
  constexpr emu::Cycle kSecond = 12'500'000;
  auto network = fabric::Network::make(idle_spec()).value();
  const double start = cpu_ns();
  network->run_until(kSecond);
  return (cpu_ns() - start) / 1e6;
}

std::string ratio_text(const std::optional<double>& ratio) {
  return ratio ? fmt::format("{:.1f}x", *ratio) : "-";
}
std::string ratio_json(const std::optional<double>& ratio) {
  return ratio ? fmt::format("{:.1f}", *ratio) : "null";
}

std::string to_json(const std::vector<Result>& results, double idle_ms) {
  std::string text = "{\"results\":[";
  for (const Result& r : results) {
    text += fmt::format(
        "{}\n{{\"case\":\"{}\",\"routers\":{},\"ns_per_cycle\":{:.2f},"
        "\"ns_per_flit_hop\":{:.2f},\"delivered\":{:.4f},\"instructions_per_cycle\":{},"
        "\"plain_ratio\":{},\"reference_ratio\":{}}}",
        &r == results.data() ? "" : ",", r.name, r.routers, r.ns_per_cycle, r.ns_per_flit_hop,
        r.delivered, ratio_json(r.instructions_per_cycle), ratio_json(r.plain_ratio),
        ratio_json(r.reference_ratio));
  }
  return text + fmt::format("\n],\"idle_second_ms\":{:.3f}}}\n", idle_ms);
}

int write_json(const std::string& path, const std::string& text) {
  std::FILE* file = std::fopen(path.c_str(), "w");
  if (file == nullptr) {
    fmt::print(stderr, "engine_bench: cannot write {}\n", path);
    return 1;
  }
  const bool written = std::fwrite(text.data(), 1, text.size(), file) == text.size();
  return std::fclose(file) == 0 && written ? 0 : 1;
}

int run_all(const Options& options) {
  std::vector<Result> results;
  const auto reference = read_reference(options.reference);
  fmt::print("{:<24}{:>10}{:>14}{:>11}{:>13}{:>12}{:>16}\n", "case", "ns/cycle", "ns/flit-hop",
             "delivered", "instr/cycle", "plain/fast", "reference/fast");
  for (const Case& which : options.sweep ? sweep_cases() : all_cases()) {
    Result& r = results.emplace_back(measure(which, options));
    if (const auto other = reference.find(r.name); other != reference.end())
      r.reference_ratio = other->second / r.ns_per_cycle;
    fmt::print("{:<24}{:>10.1f}{:>14.2f}{:>11.3f}{:>13}{:>12}{:>16}\n", r.name, r.ns_per_cycle,
               r.ns_per_flit_hop, r.delivered,
               r.instructions_per_cycle ? fmt::format("{:.0f}", *r.instructions_per_cycle) : "-",
               ratio_text(r.plain_ratio), ratio_text(r.reference_ratio));
    std::fflush(stdout);
  }
  const double idle_ms = idle_second_ms();
  fmt::print("an idle second of 512 nodes: {:.3f} ms\n", idle_ms);
  return options.json.empty() ? 0 : write_json(options.json, to_json(results, idle_ms));
}

int count_instructions(const std::vector<std::string>& names) {
  const std::vector<Case> cases = all_cases();
  for (const std::string& name : names) {
    const auto which = std::ranges::find(cases, name, &Case::name);
    if (which == cases.end()) {
      fmt::print(stderr, "engine_bench: no case {}\n", name);
      return 2;
    }
    const auto count = instructions_per_cycle(*which);
    if (!count) {
      fmt::print(stderr, "engine_bench: valgrind does not run\n");
      return 1;
    }
    fmt::print("{} {:.0f}\n", name, *count);
  }
  return 0;
}

int run_one(const Options& options) {
  for (const Case& which : all_cases()) {
    if (which.name != options.only) continue;
    const Run run = run_fast(which, options.cycles, 1);
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    fmt::print("{} {:.2f} ns per cycle, {:.4f} delivered, {} MiB at most, digest {:016x}\n",
               which.name, run.ns_per_cycle, run.delivered, usage.ru_maxrss / 1024, run.digest);
    return 0;
  }
  fmt::print(stderr, "engine_bench: no case {}\n", options.only);
  return 2;
}

std::optional<Options> parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const bool has_value = i + 1 < argc;
    if (word == "--quick") {
      options.quick = true;
    } else if (word == "--sweep") {
      options.sweep = true;
    } else if (word == "--threads") {
      options.threads = true;
    } else if (word == "--reference" && has_value) {
      options.reference = argv[++i];
    } else if (word == "--json" && has_value) {
      options.json = argv[++i];
    } else if (word == "--only" && has_value) {
      options.only = argv[++i];
    } else if (word == "--instructions" && has_value) {
      options.counted.assign(argv + i + 1, argv + argc);
      return options;
    } else if (word == "--cycles" && has_value) {
      options.cycles = std::strtoull(argv[++i], nullptr, 10);
    } else {
      fmt::print(
          stderr,
          "usage: engine_bench [--quick] [--sweep|--threads] [--reference FILE] [--json FILE] "
          "[--only CASE [--cycles N]] [--instructions CASE...]\n");
      return std::nullopt;
    }
  }
  return options;
}

}  // namespace
}  // namespace bench

int main(int argc, char** argv) {
  const auto options = bench::parse(argc, argv);
  if (!options) return 2;
  if (!options->counted.empty()) return bench::count_instructions(options->counted);
  if (options->threads) return bench::run_threads(options->quick, options->json);
  return options->only.empty() ? bench::run_all(*options) : bench::run_one(*options);
}

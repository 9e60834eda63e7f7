// attach_bench: packets of 640 bytes a second and round trips of each way to attach, the fabric's
// engine bypassed, each beside a bare reference on the same path in the same run.
//   attach_bench [--quick] [--json FILE] [--only NAME]
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "tests/bench/attach/measure.h"

namespace bench {
namespace {

struct Options {
  bool quick = false;
  std::string json;
  std::string only;
};

// What a child tells: WayResult as plain bytes.
struct Plain {
  double packets_per_s, reference_packets_per_s, asked_packets_per_s, asked_ratio;
  RoundTrip round_trip, reference_round_trip;
  Cost cost;
  bool has_reference_round_trip;
  char name[64], reference[64], skipped[256];
};

void copy(std::span<char> to, const std::string& from) { from.copy(to.data(), to.size() - 1); }

// In a process of its own: DPDK starts once per process, and a network namespace is entered for
// good.
WayResult in_child(const std::string& name, const std::function<WayResult()>& way) {
  int ends[2];
  if (::pipe(ends) != 0) return {.name = name, .skipped = "pipe"};
  std::fflush(nullptr);
  const pid_t child = ::fork();
  if (child == 0) {
    ::close(ends[0]);
    const WayResult r = way();
    Plain plain{r.packets_per_s,
                r.reference_packets_per_s,
                r.asked_packets_per_s,
                r.asked_ratio,
                r.round_trip,
                r.reference_round_trip.value_or(RoundTrip{}),
                r.cost,
                r.reference_round_trip.has_value(),
                {},
                {},
                {}};
    copy(plain.name, r.name);
    copy(plain.reference, r.reference);
    copy(plain.skipped, r.skipped);
    const bool told = ::write(ends[1], &plain, sizeof plain) == sizeof plain;
    ::_exit(told ? 0 : 1);
  }
  ::close(ends[1]);
  Plain plain{};
  const bool heard = child > 0 && ::read(ends[0], &plain, sizeof plain) == sizeof plain;
  ::close(ends[0]);
  int status = 0;
  if (child > 0) ::waitpid(child, &status, 0);
  if (!heard) return {.name = name, .skipped = fmt::format("its process failed ({})", status)};
  WayResult r{.name = plain.name,
              .packets_per_s = plain.packets_per_s,
              .round_trip = plain.round_trip,
              .cost = plain.cost,
              .reference = plain.reference,
              .reference_packets_per_s = plain.reference_packets_per_s,
              .asked_packets_per_s = plain.asked_packets_per_s,
              .asked_ratio = plain.asked_ratio,
              .skipped = plain.skipped};
  if (plain.has_reference_round_trip) r.reference_round_trip = plain.reference_round_trip;
  return r;
}

void print(const WayResult& r) {
  if (!r.skipped.empty()) {
    fmt::print("{:<18} skipped: {}\n", r.name, r.skipped);
    return;
  }
  fmt::print("{:<18} {:6.2f} M/s  round trip {:.2f} us, p99 {:.2f}  cost {:.0f} + {:.0f} ns\n",
             r.name, r.packets_per_s / 1e6, r.round_trip.p50_us, r.round_trip.p99_us,
             r.cost.node_ns, r.cost.fabric_ns);
  std::string bare = fmt::format("{:.2f} M/s", r.reference_packets_per_s / 1e6);
  if (r.reference_round_trip) {
    bare += fmt::format(", round trip {:.2f} us, p99 {:.2f}", r.reference_round_trip->p50_us,
                        r.reference_round_trip->p99_us);
  }
  const std::string asked = r.asked_ratio > 0
                                ? fmt::format("at least {:.1f} of it", r.asked_ratio)
                                : fmt::format("at least {:.0f} M/s", r.asked_packets_per_s / 1e6);
  fmt::print("{:<18} {}: {}; ratio {:.2f}; asked {}: {}\n", "", r.reference, bare, r.ratio(), asked,
             r.met() ? "met" : "NOT met");
}

std::string json_of(const RoundTrip& core, const std::vector<WayResult>& results, bool quick) {
  std::string out = fmt::format(
      "{{\"benchmark\": \"attach\", \"quick\": {}, \"packet_bytes\": {}, \"core_to_core_us\": "
      "{{\"p50\": {:.3f}, \"p99\": {:.3f}}}, \"ways\": [",
      quick, kPacketBytes, core.p50_us, core.p99_us);
  for (const WayResult& r : results) {
    if (&r != results.data()) out += ", ";
    out += fmt::format("{{\"name\": \"{}\"", r.name);
    if (!r.skipped.empty()) {
      out += fmt::format(", \"skipped\": \"{}\"}}", r.skipped);
      continue;
    }
    out += fmt::format(
        ", \"packets_per_s\": {:.0f}, \"round_trip_us\": {{\"p50\": {:.3f}, \"p99\": {:.3f}}}, "
        "\"cost_ns\": {{\"node\": {:.1f}, \"fabric\": {:.1f}}}, \"reference\": \"{}\", "
        "\"reference_packets_per_s\": {:.0f}, \"ratio\": {:.4f}, \"met\": "
        "{}",
        r.packets_per_s, r.round_trip.p50_us, r.round_trip.p99_us, r.cost.node_ns, r.cost.fabric_ns,
        r.reference, r.reference_packets_per_s, r.ratio(), r.met());
    if (r.reference_round_trip) {
      out += fmt::format(", \"reference_round_trip_us\": {{\"p50\": {:.3f}, \"p99\": {:.3f}}}",
                         r.reference_round_trip->p50_us, r.reference_round_trip->p99_us);
    }
    out += "}";
  }
  return out + "]}\n";
}

int run(const Options& options) {
  const Effort effort = options.quick ? Effort{300'000'000, 2'000} : Effort{};
  const std::vector<std::pair<std::string, std::function<WayResult()>>> ways = {
      {"shm", [&] { return run_shm(effort); }},
      {"udp", [&] { return run_udp(effort, true); }},
      {"udp-socket", [&] { return run_udp(effort, false); }},
      {"af_packet", [&] { return run_ethdev(effort, "af_packet"); }},
      {"af_xdp", [&] { return run_ethdev(effort, "af_xdp"); }},
  };
  const RoundTrip core = core_to_core(effort);
  fmt::print("packets of {} bytes; core to core {:.2f} us, p99 {:.2f}\n", kPacketBytes, core.p50_us,
             core.p99_us);
  std::vector<WayResult> results;
  for (const auto& [name, way] : ways) {
    if (!options.only.empty() && options.only != name) continue;
    results.push_back(in_child(name, way));
    print(results.back());
    std::fflush(stdout);
  }
  if (results.empty()) {
    fmt::print(stderr, "attach_bench: no way '{}': shm, udp, udp-socket, af_packet, af_xdp\n",
               options.only);
    return 2;
  }
  if (options.json.empty()) return 0;
  std::FILE* file = std::fopen(options.json.c_str(), "w");
  if (file == nullptr) {
    fmt::print(stderr, "attach_bench: cannot write {}\n", options.json);
    return 1;
  }
  fmt::print(file, "{}", json_of(core, results, options.quick));
  std::fclose(file);
  return 0;
}

}  // namespace
}  // namespace bench

int main(int argc, char** argv) {
  bench::Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument == "--quick") {
      options.quick = true;
    } else if (argument == "--json" && i + 1 < argc) {
      options.json = argv[++i];
    } else if (argument == "--only" && i + 1 < argc) {
      options.only = argv[++i];
    } else {
      fmt::print(stderr, "usage: attach_bench [--quick] [--json FILE] [--only NAME]\n");
      return 2;
    }
  }
  return bench::run(options);
}

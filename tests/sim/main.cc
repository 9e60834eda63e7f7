// flitnet-sim: a scenario on a whole cluster in one thread and virtual time.
#include <cstdio>
#include <fstream>
#include <string>

#include "emu/cli/command_line.h"
#include "tests/sim/run.h"

namespace {

struct Options {
  std::string config_path;
  std::string plan_path;
  std::string json_path;
  std::string traces = "traces";
  std::string mix = "80:20";
  std::uint32_t nodes = 0;
  std::int64_t best_effort_bps = -1;
  double seconds = 5;
  double drop = 0;
  sim::LoadOptions load;
  std::uint64_t seed = 1;
  bool no_admission = false;
  bool no_congestion_control = false;
  bool no_power_control = false;
  bool quiet = false;
  bool progress = false;
};

constexpr int kBadInput = 2;

emu::Result<emu::Config> config_of(const Options& options) {
  emu::Config config;
  if (!options.config_path.empty()) {
    auto loaded = emu::Config::load(options.config_path);
    if (!loaded) return std::unexpected(loaded.error());
    config = std::move(*loaded);
  } else if (options.nodes != 0) {
    auto made = emu::Config::parse(fmt::format("[network]\nnodes = {}\n", options.nodes));
    if (!made) return std::unexpected(made.error());
    config = std::move(*made);
  }
  if (options.no_admission) config.controls.admission = false;
  if (options.no_congestion_control) config.controls.congestion_control = false;
  if (options.no_power_control) config.controls.power_control = false;
  return config;
}

emu::Result<sim::Scenario> scenario_of(Options& options, const emu::Config& config) {
  int real_time = 0;
  int best_effort = 0;
  if (std::sscanf(options.mix.c_str(), "%d:%d", &real_time, &best_effort) != 2 || real_time < 0 ||
      best_effort < 0 || real_time + best_effort != 100) {
    return emu::fail("--mix {}: two numbers that make 100, as 80:20", options.mix);
  }
  options.load.real_time_share = real_time / 100.0;
  auto scenario = options.plan_path.empty()
                      ? sim::make_scenario(config, options.traces, options.load, options.seed)
                      : sim::read_scenario(config, options.plan_path);
  if (!scenario) return scenario;
  scenario->seconds = options.seconds;
  scenario->seed = options.seed;
  if (options.best_effort_bps >= 0) {
    scenario->best_effort_bps = static_cast<std::uint64_t>(options.best_effort_bps);
  }
  return scenario;
}

int write_json(const Options& options, const std::string& json) {
  if (options.json_path.empty()) {
    if (!options.quiet) std::fputs(json.c_str(), stdout);
    return 0;
  }
  std::ofstream file(options.json_path);
  file << json;
  file.close();
  if (file) return 0;
  std::fprintf(stderr, "cannot write %s\n", options.json_path.c_str());
  return 1;
}

// Plays, and says every emulated second that is done.
void tell_seconds(sim::Run& run) {
  const double seconds = run.scenario().seconds;
  for (double told = 1; told < seconds && !run.over(); ++told) {
    while (!run.over() && seconds - static_cast<double>(run.left_ns()) * 1e-9 < told) run.turn();
    fmt::print("{:.0f}\n", told);
    std::fflush(stdout);
  }
}

int fail(const emu::Error& error) {
  std::fprintf(stderr, "%s\n", error.message.c_str());
  return kBadInput;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  emu::CommandLine line(
      "A scenario on a whole cluster in one thread and virtual time: same seed, same JSON.");
  line.option("--config", options.config_path, "cluster file (default: 8 nodes, one router)");
  line.option("--nodes", options.nodes, "nodes of one router, without --config").range(2, 8);
  line.option("--plan", options.plan_path, "streams, as the replayer's plan");
  line.option("--traces", options.traces, "folder of *.trace, without --plan");
  line.option("--load", options.load.load, "part of every link, without --plan").range(0.0, 1.5);
  line.option("--mix", options.mix, "real-time:best-effort, as 80:20");
  line.flag("--overload", options.load.overload, "streams for more than the links have");
  line.option("--best-effort-bps", options.best_effort_bps, "of each node, on the link");
  line.option("--seconds", options.seconds, "of traffic").range(0.1, 3600.0);
  line.option("--seed", options.seed, "of every random choice");
  line.option("--drop", options.drop, "part of the packets lost at the receiving attachment")
      .range(0.0, 0.5);
  line.flag("--no-admission", options.no_admission);
  line.flag("--no-congestion-control", options.no_congestion_control);
  line.flag("--no-power-control", options.no_power_control);
  line.option("--json", options.json_path, "file; default: standard output");
  line.flag("--quiet", options.quiet);
  line.flag("--progress", options.progress, "a line with every emulated second, with --json");
  if (const auto code = line.parse(argc, argv)) return *code;
  const auto config = config_of(options);
  if (!config) return fail(config.error());
  auto scenario = scenario_of(options, *config);
  if (!scenario) return fail(scenario.error());
  sim::ClusterOptions cluster;
  cluster.config = *config;
  cluster.seed = options.seed;
  cluster.drop = options.drop;
  auto run = sim::Run::make(cluster, std::move(*scenario));
  if (!run) return fail(run.error());
  (*run)->admit();
  (*run)->start();
  if (options.progress) tell_seconds(**run);
  (*run)->play();
  return write_json(options, (*run)->json());
}

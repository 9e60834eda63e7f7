// hcad: one node of a cluster as a process. Reads the command line and the configuration, takes the
// node's folder of the run directory, runs until SIGTERM.
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>

#include <CLI/CLI.hpp>
#include <atomic>
#include <cstdio>
#include <filesystem>
#include <string>

#include <fmt/core.h>

#include "emu/base/log.h"
#include "emu/config/config.h"
#include "emu/ring/pid_file.h"
#include "hca/daemon/node.h"

namespace {

constexpr int kFailed = 1;
constexpr int kBadInput = 2;

std::atomic<bool> g_stop{false};  // the only thing a signal handler may touch

int complain(const std::string& message, int code) {
  std::fprintf(stderr, "hcad: %s\n", message.c_str());
  return code;
}

void on_signals() {
  struct sigaction action {};
  action.sa_handler = [](int) { g_stop.store(true); };
  ::sigaction(SIGTERM, &action, nullptr);
  ::sigaction(SIGINT, &action, nullptr);
  ::signal(SIGPIPE, SIG_IGN);
}

emu::Result<void> make_directories(const std::string& run_dir, const std::string& node) {
  for (const std::string& path : {run_dir, run_dir + "/log", run_dir + "/metrics",
                                  run_dir + "/nodes", run_dir + "/nodes/" + node}) {
    std::error_code error;
    std::filesystem::create_directories(path, error);
    if (error) return emu::fail("directory {}: {}", path, error.message());
    ::chmod(path.c_str(), 0700);
  }
  return {};
}

emu::Result<void> run_node(const std::string& run_dir, const emu::Config& config, int index) {
  const std::string& name = config.nodes[static_cast<std::size_t>(index)].name;
  if (auto done = make_directories(run_dir, name); !done) return done;
  auto pid_file = emu::PidFile::acquire(run_dir + "/nodes/" + name + "/hcad.pid");
  if (!pid_file) return std::unexpected(pid_file.error());
  if (auto done = emu::open_log(run_dir + "/log/hcad-" + name + ".log", "hcad"); !done) return done;
  // Naps of some microseconds are part of the loop; the kernel's default adds 50 to each.
  ::prctl(PR_SET_TIMERSLACK, 1000UL);
  auto node = hca::Node::make(run_dir, config, static_cast<emu::NodeId>(index));
  if (!node) {
    emu::log_error(node.error().message);
    return std::unexpected(node.error());
  }
  emu::log_info(fmt::format("node {} serves", name));
  (*node)->run(g_stop);
  emu::log_info("ends");
  return {};
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("One node of a flitnet cluster.", "hcad");
  std::string run_dir;
  std::string node;
  std::string config_path;
  app.add_option("--run", run_dir, "run directory of the cluster")->required();
  app.add_option("--node", node, "name of the node, as in the configuration")->required();
  app.add_option("--config", config_path, "configuration; default: cluster.toml there");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kBadInput;
  }
  on_signals();
  const std::string path = config_path.empty() ? run_dir + "/cluster.toml" : config_path;
  const auto config = emu::Config::load(path);
  if (!config) return complain(config.error().message, kBadInput);
  const int index = config->node_index(node);
  if (index < 0) {
    return complain(fmt::format("--node {}: {} names no such node", node, path), kBadInput);
  }
  const auto done = run_node(run_dir, *config, index);
  return done ? 0 : complain(done.error().message, kFailed);
}

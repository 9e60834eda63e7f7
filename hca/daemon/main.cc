// hcad: one node of a cluster as a process. Reads the command line and the configuration, takes the
// node's folder of the run directory, runs until SIGTERM.
#include <atomic>
#include <string>

#include <fmt/core.h>

#include "emu/base/log.h"
#include "emu/cli/command_line.h"
#include "emu/config/config.h"
#include "emu/ring/pid_file.h"
#include "emu/ring/start.h"
#include "hca/daemon/node.h"

namespace {

int complain(const std::string& message, int code) { return emu::complain("hcad", message, code); }

emu::Result<void> run_node(const std::string& run_dir, const emu::Config& config, int index,
                           const std::atomic<bool>& stop) {
  const std::string& name = config.nodes[static_cast<std::size_t>(index)].name;
  const std::string folder = "nodes/" + name;
  if (auto done = emu::make_run_directories(run_dir, {&folder, 1}); !done) return done;
  auto pid_file = emu::PidFile::acquire(run_dir + "/nodes/" + name + "/hcad.pid");
  if (!pid_file) return std::unexpected(pid_file.error());
  if (auto done = emu::open_log(run_dir + "/log/hcad-" + name + ".log", "hcad"); !done) return done;
  auto node = hca::Node::make(run_dir, config, static_cast<emu::NodeId>(index));
  if (!node) {
    emu::log_error(node.error().message);
    return std::unexpected(node.error());
  }
  emu::log_info(fmt::format("node {} serves", name));
  (*node)->run(stop);
  emu::log_info("ends");
  return {};
}

}  // namespace

int main(int argc, char** argv) {
  emu::CommandLine line("One node of a flitnet cluster.", "hcad");
  std::string run_dir;
  std::string node;
  std::string config_path;
  line.option("--run", run_dir, "run directory of the cluster").required();
  line.option("--node", node, "name of the node, as in the configuration").required();
  line.option("--config", config_path, "configuration; default: cluster.toml there");
  if (const auto code = line.parse(argc, argv)) return *code;
  const std::atomic<bool>& stop = emu::prepare_process();
  emu::raise_descriptor_limit();
  const std::string path = config_path.empty() ? run_dir + "/cluster.toml" : config_path;
  const auto config = emu::Config::load(path);
  if (!config) return complain(config.error().message, emu::kExitBadInput);
  const int index = config->node_index(node);
  if (index < 0) {
    return complain(fmt::format("--node {}: {} names no such node", node, path),
                    emu::kExitBadInput);
  }
  const auto done = run_node(run_dir, *config, index, stop);
  return done ? 0 : complain(done.error().message, emu::kExitFailed);
}

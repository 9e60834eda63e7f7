// hcad: one node of a cluster as a process. Reads the command line and the configuration, takes the
// node's folder of the run directory, runs until SIGTERM.
#include <array>
#include <atomic>
#include <string>

#include <fmt/core.h>

#include "emu/base/complain.h"
#include "emu/base/exit_code.h"
#include "emu/cli/command_line.h"
#include "emu/config/config.h"
#include "emu/ring/start.h"
#include "hca/daemon/node.h"

namespace {

int complain(const std::string& message, int code) { return emu::complain("hcad", message, code); }

emu::Result<void> run_node(const std::string& run_dir, const emu::Config& config, int index,
                           const std::atomic<bool>& stop) {
  auto node = hca::Node::make(run_dir, config, static_cast<emu::NodeId>(index));
  if (!node) return std::unexpected(node.error());
  const std::array<emu::Daemon*, 1> alone = {node->get()};
  return emu::run(alone, stop);
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

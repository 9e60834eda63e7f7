// flitnetd: the fabric and all nodes of a cluster as one process, by one loop. For hosts with few
// cores: a message goes from program to program through one process instead of three, so nobody on
// its way waits for a switch of processes, or for being woken. What fabricd and hcad are otherwise,
// with their places in the run directory; what ends one of them ends all.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "emu/cli/command_line.h"
#include "emu/config/config.h"
#include "emu/wire/lending.h"
#include "fabric/daemon/process.h"
#include "hca/daemon/node.h"

namespace {

using Daemons = std::vector<std::unique_ptr<emu::Daemon>>;

emu::Result<Daemons> make_nodes(const std::string& run_dir, const emu::Config& config,
                                emu::Lending& lending) {
  if (config.attach.kind != emu::AttachKind::shm)
    return emu::fail("attach.kind: must be shm where nodes share the process of the fabric");
  Daemons nodes;
  for (std::size_t i = 0; i < config.nodes.size(); ++i) {
    auto node = hca::Node::make(run_dir, config, static_cast<emu::NodeId>(i), &lending);
    if (!node) return emu::fail("{}: {}", config.nodes[i].name, node.error().message);
    nodes.push_back(std::move(*node));
  }
  return nodes;
}

}  // namespace

int main(int argc, char** argv) {
  emu::CommandLine line("The fabric and all nodes of a flitnet cluster.", "flitnetd");
  std::string run_dir;
  std::string config_path;
  line.option("--run", run_dir, "run directory of the cluster").required();
  line.option("--config", config_path, "configuration; default: cluster.toml there");
  if (const auto code = line.parse(argc, argv)) return *code;
  return fabric::run_process("flitnetd", run_dir, config_path,
                             [&run_dir](const emu::Config& config, emu::Lending& lending) {
                               return make_nodes(run_dir, config, lending);
                             });
}

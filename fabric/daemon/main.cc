// fabricd: the fabric of a cluster as one process. Reads the command line; process.h is the rest.
#include <cstdio>
#include <string>

#include "emu/base/complain.h"
#include "emu/base/exit_code.h"
#include "emu/cli/command_line.h"
#include "emu/config/config.h"
#include "fabric/daemon/process.h"
#include "fabric/daemon/spec.h"

namespace {

int complain(const std::string& message, int code) {
  return emu::complain("fabricd", message, code);
}

int count_nodes(const std::string& path) {
  fabric::NetworkSpec spec;
  spec.topology = fabric::TopologyKind::file;
  spec.graph_source = path;
  spec.graph_text = fabric::content_of(path);
  const auto graph = fabric::make_graph(fabric::shape_of(spec));
  if (!graph) return complain(graph.error().message, emu::kExitBadInput);
  std::printf("%zu\n", graph->nodes.size());
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  emu::CommandLine line("The fabric of a flitnet cluster.", "fabricd");
  std::string run_dir;
  std::string config_path;
  std::string check_path;
  std::string graph_path;
  line.option("--run", run_dir, "run directory of the cluster");
  line.option("--config", config_path, "configuration; default: cluster.toml there");
  line.option("--check", check_path, "only say whether this configuration is right");
  line.option("--count-nodes", graph_path, "only say how many nodes a topology file has");
  if (const auto code = line.parse(argc, argv)) return *code;
  if (!check_path.empty()) {
    const auto config = fabric::load_config(check_path);
    return config ? 0 : complain(config.error().message, emu::kExitBadInput);
  }
  if (!graph_path.empty()) return count_nodes(graph_path);
  if (run_dir.empty()) return complain("--run DIR or --check FILE is needed", emu::kExitBadInput);
  return fabric::run_process("fabricd", run_dir, config_path);
}

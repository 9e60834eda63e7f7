// fabricd: the fabric of a cluster as one process. Reads the command line and the configuration,
// takes the run directory, runs until SIGTERM.
#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>

#include "emu/base/log.h"
#include "emu/cli/command_line.h"
#include "emu/config/config.h"
#include "emu/ring/pid_file.h"
#include "emu/ring/start.h"
#include "fabric/daemon/eal.h"
#include "fabric/daemon/fabric.h"
#include "fabric/daemon/spec.h"

namespace {

int complain(const std::string& message, int code) {
  return emu::complain("fabricd", message, code);
}

// What the schema cannot know, the engine says: whether such a network can be built.
emu::Result<emu::Config> load_config(const std::string& path) {
  auto config = path.empty() ? emu::Result<emu::Config>(emu::Config()) : emu::Config::load(path);
  if (!config) return config;
  const std::string name = std::filesystem::path(path).filename();
  auto network = fabric::Network::make(fabric::network_spec(*config, 0));
  if (!network) return emu::fail("{}: {}", name, network.error().message);
  if ((*network)->nodes() != static_cast<int>(config->nodes.size())) {
    return emu::fail("{}: network.nodes: {} named, but the topology has {}", name,
                     config->nodes.size(), (*network)->nodes());
  }
  if (config->network.vc_buf_size < config->buffer_flits_least()) {
    return emu::fail(
        "{}: network.vc_buf_size = {}: must be at least {} for router vct: management "
        "datagrams",
        name, config->network.vc_buf_size, config->buffer_flits_least());
  }
  fabric::tell_links(*config, **network);
  return config;
}

// The configuration that runs stands in the run directory, complete: other programs read it there.
emu::Result<void> write_config(const emu::Config& config, const std::string& path) {
  const std::string fresh = path + ".new";
  std::ofstream out(fresh, std::ios::trunc);
  out << config.to_toml();
  out.close();
  if (!out || std::rename(fresh.c_str(), path.c_str()) != 0) {
    return emu::fail("cannot write {}: {}", path, std::strerror(errno));
  }
  return {};
}

emu::Result<void> run_fabric(const std::string& run_dir, const emu::Config& config,
                             emu::PidFile pid_file, const std::atomic<bool>& stop) {
  if (auto done = emu::open_log(run_dir + "/log/fabricd.log", "fabricd"); !done) return done;
  fabric::EalOptions eal;
  eal.run_dir = run_dir;
  eal.log_path = run_dir + "/log/fabricd-dpdk.log";
  // The mempool of a node's packets takes about 2.4 MB of it.
  eal.memory_mb = std::max(eal.memory_mb, 64 + 4 * static_cast<std::uint32_t>(config.nodes.size()));
  if (auto done = fabric::start_eal(eal); !done) return done;
  emu::Result<void> result;
  {
    auto fabric = fabric::Fabric::make(run_dir, config, std::move(pid_file));
    if (fabric) {
      emu::log_info(fmt::format("{} nodes, {} Mb/s, {} bit flits", config.nodes.size(),
                                config.network.link_mbps, config.network.flit_bits));
      result = (*fabric)->run(stop);
    } else {
      result = std::unexpected(fabric.error());
    }
  }
  if (result) {
    emu::log_info("ends");
  } else {
    emu::log_error(result.error().message);
  }
  fabric::stop_eal();
  return result;
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
    const auto config = load_config(check_path);
    return config ? 0 : complain(config.error().message, emu::kExitBadInput);
  }
  if (!graph_path.empty()) return count_nodes(graph_path);
  if (run_dir.empty()) return complain("--run DIR or --check FILE is needed", emu::kExitBadInput);
  const std::atomic<bool>& stop = emu::prepare_process();
  if (auto done = emu::make_run_directories(run_dir, {}); !done) {
    return complain(done.error().message, emu::kExitFailed);
  }
  auto pid_file = emu::PidFile::acquire(run_dir + "/fabricd.pid");
  if (!pid_file) return complain(pid_file.error().message, emu::kExitFailed);

  const std::string resolved = run_dir + "/cluster.toml";
  if (config_path.empty() && std::filesystem::exists(resolved)) config_path = resolved;
  auto config = load_config(config_path);
  if (!config) return complain(config.error().message, emu::kExitBadInput);
  if (auto done = write_config(*config, resolved); !done) {
    return complain(done.error().message, emu::kExitFailed);
  }
  auto done = run_fabric(run_dir, *config, std::move(*pid_file), stop);
  return done ? 0 : complain(done.error().message, emu::kExitFailed);
}

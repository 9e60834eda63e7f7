#include "fabric/daemon/process.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <utility>

#include "emu/base/complain.h"
#include "emu/base/exit_code.h"
#include "emu/base/log.h"
#include "emu/ring/pid_file.h"
#include "emu/ring/start.h"
#include "fabric/daemon/eal.h"
#include "fabric/daemon/fabric.h"
#include "fabric/daemon/notices.h"
#include "fabric/daemon/publish.h"
#include "fabric/daemon/spec.h"

namespace fabric {

// What the schema cannot know, the engine says: whether such a network can be built.
emu::Result<emu::Config> load_config(const std::string& path) {
  auto config = path.empty() ? emu::Result<emu::Config>(emu::Config()) : emu::Config::load(path);
  if (!config) return config;
  const std::string name = std::filesystem::path(path).filename();
  auto network = Network::make(network_spec(*config, 0));
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
  if (auto fits = page_fits(**network); !fits)
    return emu::fail("{}: {}", name, fits.error().message);
  auto notices = Notices::make_wanted(*config, config->controls.congestion, **network);
  if (!notices) return emu::fail("{}: {}", name, notices.error().message);
  tell_links(*config, network_spec(*config, 0));
  // By the links that the topology's file told: the others read what is written.
  auto written = emu::Config::parse(config->to_toml(), name);
  return written ? config : written;
}

namespace {

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

// The fabric first: the others come to it. They go before it does.
emu::Result<void> run_all(const std::string& run_dir, const emu::Config& config,
                          emu::PidFile pid_file, const Neighbours& neighbours,
                          const std::atomic<bool>& stop) {
  emu::Lending lending;
  auto fabric = Fabric::make(run_dir, config, std::move(pid_file), neighbours ? &lending : nullptr);
  if (!fabric) return std::unexpected(fabric.error());
  emu::log_info(fmt::format("{} nodes, {} Mb/s, {} bit flits", config.nodes.size(),
                            config.network.link_mbps, config.network.flit_bits));
  std::vector<std::unique_ptr<emu::Daemon>> others;
  if (neighbours) {
    const emu::Log log = emu::current_log();
    auto made = neighbours(config, lending);
    emu::log_to(log);
    if (!made) return std::unexpected(made.error());
    others = std::move(*made);
  }
  std::vector<emu::Daemon*> all = {fabric->get()};
  for (const auto& other : others) all.push_back(other.get());
  auto done = emu::run(all, stop);
  return done ? (*fabric)->outcome() : done;
}

emu::Result<void> run_logged(const std::string& run_dir, const emu::Config& config,
                             emu::PidFile pid_file, const Neighbours& neighbours,
                             const std::atomic<bool>& stop) {
  if (auto done = emu::open_log(run_dir + "/log/fabricd.log", "fabricd"); !done) return done;
  const emu::Log log = emu::current_log();
  EalOptions eal;
  eal.run_dir = run_dir;
  eal.log_path = run_dir + "/log/fabricd-dpdk.log";
  // The mempool of a node's packets takes about 2.4 MB of it.
  eal.memory_mb = std::max(eal.memory_mb, 64 + 4 * static_cast<std::uint32_t>(config.nodes.size()));
  if (auto done = start_eal(eal); !done) return done;
  auto result = run_all(run_dir, config, std::move(pid_file), neighbours, stop);
  emu::log_to(log);
  if (result) {
    emu::log_info("ends");
  } else {
    emu::log_error(result.error().message);
  }
  stop_eal();
  return result;
}

}  // namespace

int run_process(const std::string& name, const std::string& run_dir, std::string config_path,
                const Neighbours& neighbours) {
  const auto complain = [&name](const std::string& message, int code) {
    return emu::complain(name, message, code);
  };
  const std::atomic<bool>& stop = emu::prepare_process();
  emu::raise_descriptor_limit();
  if (auto done = emu::make_run_directories(run_dir, {}); !done)
    return complain(done.error().message, emu::kExitFailed);
  auto pid_file = emu::PidFile::acquire(run_dir + "/fabricd.pid");
  if (!pid_file) return complain(pid_file.error().message, emu::kExitFailed);

  const std::string resolved = run_dir + "/cluster.toml";
  if (config_path.empty() && std::filesystem::exists(resolved)) config_path = resolved;
  auto config = load_config(config_path);
  if (!config) return complain(config.error().message, emu::kExitBadInput);
  if (auto done = write_config(*config, resolved); !done)
    return complain(done.error().message, emu::kExitFailed);
  auto done = run_logged(run_dir, *config, std::move(*pid_file), neighbours, stop);
  return done ? 0 : complain(done.error().message, emu::kExitFailed);
}

}  // namespace fabric

// The process of a fabric: takes the run directory, starts DPDK, makes the fabric of a
// configuration and runs until SIGTERM. Called by the main functions of fabricd and flitnetd.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "emu/base/result.h"
#include "emu/config/config.h"
#include "emu/daemon/daemon.h"
#include "emu/wire/lending.h"

namespace fabric {

// With what the schema cannot know and the engine says: whether such a network can be built. An
// empty path: the defaults.
emu::Result<emu::Config> load_config(const std::string& path);

// Who else runs by this process's loop; null: nobody. They may lend one another payloads.
using Neighbours = std::function<emu::Result<std::vector<std::unique_ptr<emu::Daemon>>>(
    const emu::Config&, emu::Lending&)>;

// An empty `config_path`: the run directory's. Returns the exit code; what is wrong is one line on
// stderr, by this name.
int run_process(const std::string& name, const std::string& run_dir, std::string config_path,
                const Neighbours& neighbours = nullptr);

}  // namespace fabric

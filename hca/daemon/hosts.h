// The names of all nodes for the programs on this one, as /etc/hosts has them.
#pragma once

#include <string>

#include "emu/base/result.h"
#include "emu/config/config.h"

namespace hca {

// A line "127.1.0.1\tn0" for each node; whoever reads meanwhile sees the old file or the new one.
// Read by hca/verbs/hosts.cc.
emu::Result<void> write_hosts(const std::string& path, const emu::Config& config);

}  // namespace hca

// The port for hcads of other hosts that the configuration asks for.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "emu/base/result.h"
#include "emu/config/config.h"
#include "fabric/port/packets.h"
#include "fabric/port/port.h"

namespace fabric {

// Null for [attach] kind = "shm". The key file is made in the run directory if none is named.
// `taken` says whether a node is attached by another port. Before any shm node attaches.
emu::Result<std::unique_ptr<Port>> open_remote_port(const emu::AttachConfig& config,
                                                    const EdgeRules& rules,
                                                    const std::string& run_dir,
                                                    PacketMemory& memory,
                                                    std::function<bool(emu::NodeId)> taken);

}  // namespace fabric

// The port for hcads of other hosts that the configuration asks for.
#pragma once

#include <memory>
#include <string>

#include "emu/base/result.h"
#include "emu/config/config.h"
#include "emu/wire/frame.h"
#include "fabric/port/packets.h"
#include "fabric/port/port.h"

namespace fabric {

// Null for [attach] kind = "shm". The key file is made in the run directory if none is named.
// `objection`: a node is attached by another port, or its link is down. Before any shm node
// attaches.
emu::Result<std::unique_ptr<Port>> open_remote_port(const emu::AttachConfig& config,
                                                    const EdgeRules& rules,
                                                    const std::string& run_dir,
                                                    PacketMemory& memory, emu::Objection objection);

}  // namespace fabric

// DPDK's environment, started so that it needs no root, no hugepages, no PCI and leaves no file:
// memory from the process's own heap, one lcore that floats over all cores this process may use.
#pragma once

#include <cstdint>
#include <string>

#include "emu/base/result.h"

namespace fabric {

struct EalOptions {
  std::string run_dir;   // scratch for EAL's runtime directory, removed again
  std::string log_path;  // empty: EAL's messages are dropped
  std::uint32_t memory_mb = 128;
};

// Once per process; ends with the process or by stop_eal().
emu::Result<void> start_eal(const EalOptions& options);
void stop_eal();

}  // namespace fabric

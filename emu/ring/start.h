// How a daemon starts: what stops it, where it lives.
#pragma once

#include <atomic>
#include <span>
#include <string>

#include "emu/base/result.h"

namespace emu {

// SIGTERM and SIGINT set the flag, a peer that hangs up is no signal, and naps are as short as they
// were asked for (the kernel's default adds 50 us to each). Once per process.
const std::atomic<bool>& prepare_process();

// As many descriptors as the administrator allows (RLIMIT_NOFILE): shells give a process 1024, for
// programs that put them into an fd_set. For those that hold some for every program of a node.
void raise_descriptor_limit();

// The folders of a run directory (itself, log, metrics, nodes and `more` below it), for this user
// only.
Result<void> make_run_directories(const std::string& run_dir, std::span<const std::string> more);

}  // namespace emu

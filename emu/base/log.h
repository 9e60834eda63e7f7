// The log of a daemon: a file in the run directory, one line a time, flushed. One per process;
// before open_log() lines go nowhere. spdlog stays in log.cc.
#pragma once

#include <string>
#include <string_view>

#include "emu/base/result.h"

namespace emu {

Result<void> open_log(const std::string& path, const std::string& process);
void log_info(std::string_view line);
void log_warning(std::string_view line);
void log_error(std::string_view line);

}  // namespace emu

// The log of a daemon: a file in the run directory, one line a time, flushed. A process that has
// several daemons (tools/together) has a log for each and says whose turn it is. Before open_log()
// lines go nowhere. spdlog stays in log.cc.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "emu/base/result.h"

namespace emu {

using Log = std::size_t;  // in the order of open_log()

// Lines go there from now on.
Result<void> open_log(const std::string& path, const std::string& process);
Log current_log();
void log_to(Log log);
void log_info(std::string_view line);
void log_warning(std::string_view line);
void log_error(std::string_view line);

}  // namespace emu

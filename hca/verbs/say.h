// The library lives in somebody else's process: it says at most one line on that process's stderr
// when it must refuse, and never stops it.
#pragma once

#include <fmt/core.h>
#include <unistd.h>

#include <string>
#include <utility>

namespace hca {

template <class... Args>
void say(fmt::format_string<Args...> format, Args&&... args) {
  const std::string line = "flitnet: " + fmt::format(format, std::forward<Args>(args)...) + "\n";
  // One write, so that lines of several processes do not mix.
  (void)!::write(STDERR_FILENO, line.data(), line.size());
}

}  // namespace hca

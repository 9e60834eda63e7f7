#include "emu/base/complain.h"

#include <cstdio>

#include <fmt/core.h>

namespace emu {

int complain(std::string_view process, std::string_view message, int code) {
  (void)std::fputs(fmt::format("{}: {}\n", process, message).c_str(), stderr);
  return code;
}

int write_out(std::string_view process, std::string_view text) {
  const bool whole = std::fwrite(text.data(), 1, text.size(), stdout) == text.size();
  return std::fflush(stdout) == 0 && whole ? 0 : complain(process, "cannot write", 1);
}

}  // namespace emu

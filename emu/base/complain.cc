#include "emu/base/complain.h"

#include <cstdio>

#include <fmt/core.h>

namespace emu {

int complain(std::string_view process, std::string_view message, int code) {
  (void)std::fputs(fmt::format("{}: {}\n", process, message).c_str(), stderr);
  return code;
}

}  // namespace emu

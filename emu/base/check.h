// CHECK: a bug stops the process, always, also in release builds (STYLE rule 6).
#pragma once

namespace emu {
[[noreturn, gnu::cold]] void check_failed(const char* what, const char* file, int line) noexcept;
}

#define CHECK(condition)                                   \
  do {                                                     \
    if (!(condition)) [[unlikely]]                         \
      ::emu::check_failed(#condition, __FILE__, __LINE__); \
  } while (false)

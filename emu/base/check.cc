#include "emu/base/check.h"

#include <cstdio>
#include <cstdlib>

namespace emu {

void check_failed(const char* what, const char* file, int line) noexcept {
  std::fprintf(stderr, "flitnet: bug: CHECK(%s) failed at %s:%d\n", what, file, line);
  std::fflush(stderr);
  std::abort();
}

}  // namespace emu

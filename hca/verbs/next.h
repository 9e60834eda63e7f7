// The next definition of a function behind ours: the C library's, or another preloaded library's.
#pragma once

#include <dlfcn.h>

namespace hca {

template <class Function>
Function next(const char* name) {
  return reinterpret_cast<Function>(::dlsym(RTLD_NEXT, name));
}

}  // namespace hca

// The next definition of a function behind ours: the C library's, or another preloaded library's.
#pragma once

#include <dlfcn.h>

namespace hca {

template <class Function>
Function next(const char* name) {
  return reinterpret_cast<Function>(::dlsym(RTLD_NEXT, name));
}

}  // namespace hca

// Defines the function `name` in front of the next one, which gets `arguments` after `first` was
// done. By its name for the linker: headers rename some where files may be large.
#define FLITNET_IN_FRONT(result, name, parameters, arguments, first)   \
  extern "C" result flitnet_##name parameters __asm__(#name);          \
  extern "C" result flitnet_##name parameters {                        \
    static const auto real = ::hca::next<result(*) parameters>(#name); \
    first;                                                             \
    return real arguments;                                             \
  }

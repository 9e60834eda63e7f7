// Cache lines that another core wrote, fetched while there is something else to do: a miss between
// cores takes as long as hundreds of instructions, and several at once no longer than one.
#pragma once

#include <cstddef>

namespace emu {

inline constexpr std::size_t kCacheLine = 64;  // bytes

// To be read soon.
inline void prefetch(const void* at) { __builtin_prefetch(at); }

// To be written soon: the line is taken from the other core at once, not shared with it first.
inline void prefetch_to_write(const void* at) {
#if defined(__x86_64__)
  // The builtin fetches to read where -mprfchw is not given. A processor that does not know the
  // instruction passes over it.
  asm volatile("prefetchw %0" : : "m"(*static_cast<const char*>(at)));
#else
  __builtin_prefetch(at, 1);
#endif
}

}  // namespace emu

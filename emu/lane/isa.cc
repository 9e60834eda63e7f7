#include "emu/lane/isa.h"

#include <algorithm>

namespace emu {

Isa best_isa(Isa most) {
#if defined(__x86_64__)
  __builtin_cpu_init();
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi2");
  const bool avx512 = avx2 && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  return std::min(most, avx512 ? Isa::avx512 : avx2 ? Isa::avx2 : Isa::base);
#else
  return std::min(most, Isa::base);
#endif
}

}  // namespace emu

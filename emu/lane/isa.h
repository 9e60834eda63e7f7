// Which instructions the hot loops use, chosen at run time. The step of an engine exists once for
// each and everything it calls is compiled into it; results are the same.
#pragma once

#include <cstdint>

namespace emu {

enum class Isa : std::uint8_t { base, avx2, avx512 };

// The best that this machine has, at most `most`.
Isa best_isa(Isa most);

// Everything that a step calls is compiled into it, but not together with what a sanitizer adds:
// that takes minutes for each engine and finds no more. Nor does a third variant of each, nor a
// second one for small buffers.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define FLITNET_WHOLE_STEP
inline constexpr bool kStepsByAvx2 = false;
#else
#define FLITNET_WHOLE_STEP [[gnu::flatten]]
inline constexpr bool kStepsByAvx2 = true;
#endif

#if defined(__x86_64__)
#define FLITNET_AVX2 [[gnu::target("avx2,bmi,bmi2,lzcnt,popcnt")]]
#define FLITNET_AVX512 \
  [[gnu::target("avx2,bmi,bmi2,lzcnt,popcnt,avx512f,avx512bw,avx512cd,avx512dq,avx512vl")]]
#endif

// Rare work of a step, compiled apart from it: the step is smaller and has its registers for
// itself (measured: 2.5 % of the time of one router under load).
#if defined(__x86_64__)
template <class Work>
[[gnu::noinline]] FLITNET_AVX2 FLITNET_WHOLE_STEP void apart_avx2(const Work& work) {
  work();
}
template <class Work>
[[gnu::noinline]] FLITNET_AVX512 FLITNET_WHOLE_STEP void apart_avx512(const Work& work) {
  work();
}
#endif
template <Isa kIsa, class Work>
void apart(const Work& work) {
#if defined(__x86_64__)
  if constexpr (kIsa == Isa::avx512) return apart_avx512(work);
  if constexpr (kIsa == Isa::avx2) return apart_avx2(work);
#endif
  work();
}

}  // namespace emu

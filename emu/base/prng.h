// A small, fast, reproducible generator: xoshiro256++ seeded by splitmix64. Every random choice of
// a run comes from one of these, so a run is its seed.
#pragma once

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>

namespace emu {

class Prng {
 public:
  using result_type = std::uint64_t;
  explicit Prng(std::uint64_t seed) {
    for (auto& word : state_) {
      seed += 0x9e3779b97f4a7c15ULL;
      std::uint64_t z = seed;
      z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
      z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
      word = z ^ (z >> 31);
    }
  }
  static constexpr result_type min() { return 0; }
  static constexpr result_type max() { return ~result_type{0}; }

  result_type operator()() {
    const std::uint64_t result = std::rotl(state_[0] + state_[3], 23) + state_[0];
    const std::uint64_t t = state_[1] << 17;
    state_[2] ^= state_[0];
    state_[3] ^= state_[1];
    state_[1] ^= state_[2];
    state_[0] ^= state_[3];
    state_[2] ^= t;
    state_[3] = std::rotl(state_[3], 45);
    return result;
  }
  // Uniform in [0, bound); bound > 0. The bias of the multiply method is below 2^-32 here.
  std::uint32_t below(std::uint32_t bound) {
    return static_cast<std::uint32_t>(((*this)() >> 32) * bound >> 32);
  }
  // Uniform in [0, 1).
  double uniform() { return static_cast<double>((*this)() >> 11) * 0x1.0p-53; }
  // Exponential with the given mean. The difference is exact, and log() sooner done than log1p().
  double exponential(double mean) { return -mean * std::log(1 - uniform()); }

 private:
  std::array<std::uint64_t, 4> state_{};
};

}  // namespace emu

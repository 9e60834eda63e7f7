// The seed of a random test: fresh each time and printed, or FLITNET_SEED to repeat a failure.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "emu/wire/key.h"

namespace emu {

inline std::uint64_t test_seed() {
  std::uint64_t seed = 0;
  if (const char* given = std::getenv("FLITNET_SEED"); given != nullptr) {
    seed = std::strtoull(given, nullptr, 0);
  } else {
    const Key random = random_key();
    std::memcpy(&seed, random.data(), sizeof(std::uint32_t));
  }
  std::printf("FLITNET_SEED=%llu\n", static_cast<unsigned long long>(seed));
  return seed;
}

}  // namespace emu

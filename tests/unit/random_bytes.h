// Random bytes, a word at a time: tests are not optimised, and byte by byte these took half the
// time of some.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "emu/base/prng.h"

namespace test {

inline void fill_at_random(emu::Prng& prng, std::span<std::byte> bytes) {
  for (std::size_t at = 0; at < bytes.size(); at += sizeof(std::uint64_t)) {
    const std::uint64_t word = prng();
    std::memcpy(bytes.data() + at, &word, std::min(sizeof word, bytes.size() - at));
  }
}

}  // namespace test

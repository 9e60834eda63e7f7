// Which input port wins a tie in stage 4, for any radix: rank.h's permutations for up to eight
// ports, those of the field with 64 elements for more. Of any two ports each goes first equally
// often.
#pragma once

#include <array>
#include <cstdint>

#include "fabric/router/rank.h"

namespace fabric::general {

// Powers of x modulo x^6 + x + 1, and their logarithms.
struct Field64 {
  std::array<std::uint8_t, 63> power{};
  std::array<std::uint8_t, 64> log{};
  constexpr Field64() {
    unsigned a = 1;
    for (unsigned i = 0; i < 63; ++i) {
      power[i] = static_cast<std::uint8_t>(a);
      log[a] = static_cast<std::uint8_t>(i);
      a <<= 1;
      if ((a & 64U) != 0) a ^= 0b1000011U;
    }
  }
};
inline constexpr Field64 kField64;

// x -> factor * x + offset: all 63 * 64 of them in turn.
constexpr unsigned rank_of_64(unsigned port, emu::Cycle now) {
  const auto turn = static_cast<unsigned>(now % (63 * 64));
  const unsigned factor = turn % 63;  // its logarithm
  const unsigned offset = turn / 63;
  const unsigned product = port == 0 ? 0U : kField64.power[(kField64.log[port] + factor) % 63];
  return product ^ offset;
}

constexpr unsigned rank_of(unsigned port, std::size_t ports, emu::Cycle now) {
  return ports <= 8 ? kPortRanks.of[now % 64][port] : rank_of_64(port, now);
}

}  // namespace fabric::general

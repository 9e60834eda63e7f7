// Which input port wins a tie in stage 4. The ranks of the ports change every cycle through the 56
// maps x -> a * x + b of the field with eight elements, and eight of them once more: of any two
// ports each goes first in exactly half of the 64 cycles, whichever other ports are silent. (A
// rotating start would give the port behind a silent one its turns as well.)
#pragma once

#include <array>
#include <cstdint>

#include "emu/base/units.h"

namespace fabric {

// Product in GF(8), modulus x^3 + x + 1.
constexpr unsigned gf8_times(unsigned a, unsigned b) {
  unsigned product = 0;
  for (unsigned i = 0; i < 3; ++i)
    if ((b >> i) & 1U) product ^= a << i;
  for (unsigned i = 4; i >= 3; --i)
    if ((product >> i) & 1U) product ^= 0b1011U << (i - 3);
  return product;
}

struct PortRanks {
  std::array<std::array<std::uint8_t, 8>, 64> of;
  constexpr PortRanks() : of{} {
    for (unsigned i = 0; i < 64; ++i) {
      const unsigned a = i < 56 ? 1 + i % 7 : 1;
      const unsigned b = i < 56 ? i / 7 : i - 56;
      for (unsigned port = 0; port < 8; ++port)
        of[i][port] = static_cast<std::uint8_t>(gf8_times(a, port) ^ b);
    }
  }
};
inline constexpr PortRanks kPortRanks;

}  // namespace fabric

// How components of records are asked for: by their bit in the mask, and MTUs, rates and lifetimes
// as greater or less than a value or exactly so (IBA 15.2.5.16). Private to this room.
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>

namespace fabric {

constexpr bool has(std::uint64_t mask, unsigned bit) { return (mask >> bit & 1) != 0; }

// Two bits before the six of the value.
enum class Selector : std::uint8_t { greater, less, exactly, best };
inline constexpr std::uint8_t kExactValue = static_cast<std::uint8_t>(Selector::exactly) << 6;

struct Asked {
  Selector selector = Selector::best;  // not asked for: whatever there is
  unsigned value = 0;
};
// The value's bit is the one behind the selector's.
constexpr Asked asked_for(const std::uint8_t* component, std::uint64_t mask,
                          unsigned selector_bit) {
  if (!has(mask, selector_bit) || !has(mask, selector_bit + 1)) return {};
  return {static_cast<Selector>(*component >> 6), *component & 0x3fU};
}

constexpr bool fits(unsigned value, Selector selector, unsigned asked) {
  return selector == Selector::best || (selector == Selector::greater && value > asked) ||
         (selector == Selector::less && value < asked) ||
         (selector == Selector::exactly && value == asked);
}

// Codes of MTUs are in their order, and a path carries shorter ones too: a subnet manager says the
// longest that is asked for. 0: there is none.
constexpr unsigned mtu_for(unsigned longest, const Asked& asked) {
  unsigned mtu = longest;
  if (asked.selector == Selector::less && asked.value > 0) mtu = std::min(mtu, asked.value - 1);
  if (asked.selector == Selector::exactly) mtu = std::min(mtu, asked.value);
  return fits(mtu, asked.selector, asked.value) ? mtu : 0;
}

// Codes of rates are in the order in which they came up.
inline constexpr unsigned kRateCodes = 25;
// In units of 100 Mb/s. 0: no code.
constexpr unsigned rate_of(unsigned code) {
  constexpr std::uint16_t kRates[kRateCodes] = {0,    0,    25,  100,  300,  50,   200,  400,  600,
                                                800,  1200, 140, 560,  1120, 1680, 250,  1000, 2000,
                                                3000, 280,  500, 4000, 6000, 8000, 12000};
  return code < kRateCodes ? kRates[code] : 0;
}
// Whether the rate of that code is as it was asked for.
constexpr bool rate_fits(unsigned code, const Asked& asked) {
  if (asked.selector == Selector::best) return true;
  return rate_of(asked.value) != 0 && fits(rate_of(code), asked.selector, rate_of(asked.value));
}

}  // namespace fabric

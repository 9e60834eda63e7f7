// What waking costs: the floor of a message's latency when all its parties sleep.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace bench {

// On a message's way: hcad, fabricd, the other hcad, the other program.
inline constexpr std::size_t kWakeupsOfAWay = 4;

// In ns: so many wake-ups one after another, each by the process that was woken last, after 3 ms of
// silence; half of twice as many, as latency is half a round trip.
std::vector<std::uint64_t> measure_wakeups(std::size_t count);

}  // namespace bench

// A ping-pong through shared memory and nothing else: the floor of a message's latency when all its
// parties are awake.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace bench {

// The parties of a message's way: program, hcad, fabricd, the other hcad, the other program.
inline constexpr std::size_t kPartiesOfAWay = 5;

// In ns, half of each of `count` round trips of a word from the first of so many processes through
// all others to the last and back. Two spin; more would be more than the cores of small machines,
// so each gives its core away between looks, as all parties of a cluster do.
std::vector<std::uint64_t> measure_chain(std::size_t parties, std::size_t count);

}  // namespace bench

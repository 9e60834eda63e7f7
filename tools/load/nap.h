// How long a generator naps between two turns: in comes how much of its queues the last one found
// used, out goes the next nap. Pure.
#pragma once

#include <algorithm>
#include <chrono>

namespace tools {

// What was posted leaves and what comes finds buffers only as long as a nap does not use up a
// queue; beyond that the backlog would be the generator's own and be told as latency. So a turn
// that finds more than half used is followed by much shorter naps, at once since a burst is short.
// They grow again only when a nap of twice the length would still use less than a quarter: then a
// queue that is full but leaves slowly, as that of a network beyond its saturation, wakes nobody.
inline std::chrono::microseconds next_nap(std::chrono::microseconds nap,
                                          std::chrono::microseconds tick, double used) {
  constexpr std::chrono::microseconds kShortest(500);
  if (used > 0.5) nap /= 8;
  if (used < 0.125) nap *= 2;
  return std::clamp(nap, std::min(kShortest, tick), tick);
}

}  // namespace tools

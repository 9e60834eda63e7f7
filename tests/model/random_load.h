// One random run: the same packets and settings go to the fast engine and to the plain model, and
// every event of both must be equal, in the same cycle. A run is its seed.
#pragma once

#include <cstdint>

#include "fabric/router/network.h"

namespace model {

struct RunOptions {
  fabric::NetworkSpec spec;
  std::uint64_t seed = 1;
  emu::Cycle cycles = 4000;   // with traffic; then the network drains
  double load = 0.5;          // of each HCA's link
  int flits_max = 60;         // of a packet
  int lanes = emu::kVlCount;  // lanes used; few lanes make heads wait for each other
  bool hot_spot = false;      // three of four packets go to node 0
  bool shuffle_routers = false;
  bool recovers = false;    // somebody must have had the token
  bool links_fail = false;  // and come back, at random
  bool jump_idle = false;   // the fast engine jumps over idle time, the plain one does not
};

// Fails the current test, naming the seed, at the first difference. Isa, strict classes, rounds of
// the allocator and threads follow from the seed.
void compare_engines(const RunOptions& options);
// The same, exactly as asked for.
void compare_run(const RunOptions& options);

}  // namespace model

// What the tests of routes and of deadlocks build on.
#pragma once

#include <utility>
#include <vector>

#include "fabric/route/routing.h"
#include "fabric/topo/shape.h"

namespace fabric {

inline constexpr ClassLanes kLanes = {0xc000, 0x3ff0, 0x000f};

inline Graph torus(std::vector<int> sides) {
  return make_grid({.sides = std::move(sides), .wraps = true}).value();
}

}  // namespace fabric

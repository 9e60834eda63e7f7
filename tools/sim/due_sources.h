// Sources of a workload by the cycle before which nothing comes of them. Asked by FlitRun every few
// cycles, for one source of a thousand has something then.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <queue>
#include <utility>
#include <vector>

#include "emu/base/units.h"

namespace tools {

class DueSources {
 public:
  void begin(std::size_t sources) {
    for (std::uint32_t i = 0; i < sources; ++i) put_back(i, 0);
  }
  // Takes out those that are due before the horizon, in the order of their numbers.
  const std::vector<std::uint32_t>& take(emu::Cycle horizon) {
    taken_.clear();
    for (; !due_.empty() && due_.top().first < horizon; due_.pop())
      taken_.push_back(due_.top().second);
    std::sort(taken_.begin(), taken_.end());
    return taken_;
  }
  void put_back(std::uint32_t source, emu::Cycle due) { due_.emplace(due, source); }

 private:
  using Due = std::pair<emu::Cycle, std::uint32_t>;
  std::priority_queue<Due, std::vector<Due>, std::greater<>> due_;
  std::vector<std::uint32_t> taken_;
};

}  // namespace tools

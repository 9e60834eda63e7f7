// Links that go out of service during a run and come back. In: "router:port from until", times as
// parts of the run. Out: which links are down from which cycle on.
#pragma once

#include <string_view>
#include <vector>

#include "emu/base/json_line.h"
#include "emu/base/result.h"
#include "fabric/router/network.h"

namespace tools {

struct FailureSpec {
  fabric::LinkEnd link;  // by one of its ends
  double from = 0;       // 0 ... 1
  double until = 1;      // 1: it does not come back
};

emu::Result<FailureSpec> parse_failure(std::string_view text);

class Failures {
 public:
  Failures(const std::vector<FailureSpec>& specs, emu::Cycle end);

  // Before the run: whether the network has ways round every set of links that will be down
  // together, free of deadlocks. It knows them from now on, so that nothing is refused later.
  emu::Result<void> check(fabric::Network& network) const;
  // The next change; kNever: none.
  emu::Cycle next() const;
  // At that cycle.
  void apply(fabric::Network& network);
  // How many links were down for some of each batch, as an array.
  void write(emu::JsonWriter& json, emu::Cycle batch_cycles, std::size_t batches) const;

 private:
  struct Change {
    emu::Cycle cycle;
    std::vector<fabric::LinkEnd> down;
  };
  std::vector<Change> changes_;
  std::size_t done_ = 0;
};

}  // namespace tools

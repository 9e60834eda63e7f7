// Streams ask for admission in the order of the plan, whichever process sends them. Were every
// process to ask when it is ready, the first one would fill its link and some outputs before the
// others come, and the same plan would admit other streams in every run. The turn goes from process
// to process; one that does not pass it on holds nobody up for ever.
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "tools/replay/plan.h"
#include "tools/replay/rendezvous.h"

namespace tools {

class Turns {
 public:
  // The process that sends the first stream has the turn at the beginning.
  Turns(std::vector<StreamPlan> streams, const std::string& node);

  // The stream whose turn it is, if the turn is here.
  const StreamPlan* now() const { return at_ ? &streams_[*at_] : nullptr; }
  // That stream has asked, or never will.
  void next();
  void give_away() { at_.reset(); }
  // The turn came; a stream that the plan does not have is nobody's turn.
  void take(const std::string& stream);

  // Something moved: whoever waits has reason to.
  void moved() { moved_at_ = std::chrono::steady_clock::now(); }
  // Nothing has moved here for so long that the turn must be with a process that died or that has
  // streams of its own to wait for.
  bool stuck() const { return std::chrono::steady_clock::now() - moved_at_ > kPatience; }

 private:
  static constexpr std::chrono::seconds kPatience{2};

  std::vector<StreamPlan> streams_;
  std::optional<std::size_t> at_;
  WallTime moved_at_ = std::chrono::steady_clock::now();
};

}  // namespace tools

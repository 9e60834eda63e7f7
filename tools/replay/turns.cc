#include "tools/replay/turns.h"

#include <algorithm>
#include <utility>

namespace tools {

Turns::Turns(std::vector<StreamPlan> streams, const std::string& node)
    : streams_(std::move(streams)) {
  if (!streams_.empty() && streams_.front().from == node) at_ = 0;
}

void Turns::next() {
  if (at_ && ++*at_ == streams_.size()) at_.reset();
  moved();
}

void Turns::take(const std::string& stream) {
  const auto found = std::ranges::find(streams_, stream, &StreamPlan::name);
  if (found == streams_.end()) return;
  at_ = static_cast<std::size_t>(found - streams_.begin());
  moved();
}

}  // namespace tools

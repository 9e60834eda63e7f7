#include "hca/wire/events.h"

#include <algorithm>

namespace hca {

namespace {

// `of` gives the vector of one Events. Each part's is in the order of cycles.
template <class Of, class CycleOf>
void merge(Events& all, std::span<Events> parts, Of of, CycleOf cycle_of) {
  constexpr std::size_t kPartsMax = 64;
  std::size_t taken[kPartsMax] = {};
  while (true) {
    std::size_t first = parts.size();
    for (std::size_t p = 0; p < parts.size(); ++p) {
      if (taken[p] == of(parts[p]).size()) continue;
      if (first == parts.size() ||
          cycle_of(of(parts[p])[taken[p]]) < cycle_of(of(parts[first])[taken[first]]))
        first = p;
    }
    if (first == parts.size()) break;
    of(all).push_back(of(parts[first])[taken[first]++]);
  }
  for (Events& part : parts) of(part).clear();
}

}  // namespace

void Events::take(std::span<Events> parts) {
  merge(
      *this, parts, [](Events& e) -> auto& { return e.injected; },
      [](const InjectedEvent& event) { return event.tail_cycle; });
  merge(
      *this, parts, [](Events& e) -> auto& { return e.delivered; },
      [](const DeliveredEvent& event) { return event.tail_cycle; });
  merge(
      *this, parts, [](Events& e) -> auto& { return e.answers; },
      [](const AnswerEvent& event) { return event.cycle; });
  for (Events& part : parts) {
    done.insert(done.end(), part.done.begin(), part.done.end());
    part.done.clear();
    digest += part.digest;
    live += part.live;
    last_done = std::max(last_done, part.last_done);
    part.digest = 0;
    part.live = 0;
  }
}

}  // namespace hca

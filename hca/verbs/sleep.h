// The little sleep of a thread whose polls find nothing.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "emu/ring/region.h"
#include "hca/verbs/objects.h"

namespace hca {

// The rings that a thread polls in turn, as who has a CQ for what it sends and one for what it
// receives: it sleeps on all of them. Pure state, one a thread.
class PolledInTurn {
 public:
  static constexpr std::size_t kMost = 8;
  using Ring = std::shared_ptr<emu::Region>;

  // `ring` was polled in vain now. Into `rings` come it and, behind it, those that were since it
  // was last: how many. One that nobody polls any more may hold completions for ever.
  std::size_t polled(const Ring& ring, std::array<Ring, kMost>& rings) {
    Entry* mine = &entries_[0];
    for (Entry& entry : entries_) {
      if (entry.is(ring)) {
        mine = &entry;
        break;
      }
      if (entry.turn < mine->turn) mine = &entry;
    }
    const std::uint64_t last = mine->is(ring) ? mine->turn : turn_;
    std::size_t count = 0;
    rings[count++] = ring;
    for (const Entry& entry : entries_) {
      if (entry.turn <= last) continue;
      if (Ring other = entry.ring.lock()) rings[count++] = std::move(other);
    }
    *mine = {ring, ++turn_};
    return count;
  }

 private:
  struct Entry {
    std::weak_ptr<emu::Region> ring;  // a CQ may go, or be resized
    std::uint64_t turn = 0;
    bool is(const Ring& other) const {
      return !ring.owner_before(other) && !other.owner_before(ring);
    }
  };
  std::array<Entry, kMost> entries_;
  std::uint64_t turn_ = 0;
};

// Returns when there is a completion in this CQ or in one that this thread polls in turn with it,
// when hcad has woken us, or a little later. Call without the CQ's lock.
void sleep_on(Cq& cq);

}  // namespace hca

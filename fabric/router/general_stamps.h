// The stamps of what the queues of a port, or the lanes of an HCA, would send next. Those of 16-bit
// counters are kept in that form, too: as words, of which emu/lane/least.h finds the least at once.
#pragma once

#include <array>

#include "emu/lane/least.h"
#include "fabric/router/general_clock.h"

namespace fabric::general {

class NextStamps {
 public:
  void configure(const PortClock& clock, emu::Cycle start) {
    by_words_ = clock.by_epoch();
    base_ = oldest_stamp(start) - 1;
  }
  // The epoch of `now` begins: whatever counts has to be set again.
  void age(emu::Cycle now) { base_ = oldest_stamp(now) - 1; }
  void set(unsigned queue, Stamp stamp) {
    stamp_[queue] = stamp;
    word_[queue] = static_cast<std::uint16_t>(stamp - base_);
  }
  Stamp of(unsigned queue) const { return stamp_[queue]; }
  // least() knows, and stamps are urgencies: comparable between ports.
  bool by_words() const { return by_words_; }
  // The lane of the smallest stamp, of equal ones the lowest: of these queues, not none, no two of
  // one lane.
  template <unsigned kLevels>
  unsigned least(QueueBits queues) const {
    std::array<emu::LaneMask, kLevels> lanes;
    for (unsigned level = 0; level < kLevels; ++level)
      lanes[level] = static_cast<emu::LaneMask>(queues >> (level * emu::kVlCount));
    return emu::least_of_rows(word_.data(), lanes);
  }
  bool holds(unsigned queue, Stamp stamp) const {
    return stamp_[queue] == stamp &&
           (!by_words_ || word_[queue] == static_cast<std::uint16_t>(stamp - base_));
  }

 private:
  // Counted from here a stamp is 1 ... 65534 (emu/lane/stamp.h).
  Stamp base_ = 0;
  bool by_words_ = false;
  std::array<Stamp, kQueuesMax> stamp_{};
  alignas(16) std::array<std::uint16_t, kQueuesMax> word_{};
};

}  // namespace fabric::general

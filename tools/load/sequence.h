// What arrived of a numbered flow that may be overtaken but must not be lost or doubled. In come
// sequence numbers, out go counts. Pure.
#pragma once

#include <bitset>
#include <cstdint>

namespace tools {

class SequenceTracker {
 public:
  // Best-effort messages of one pair may overtake one another on different lanes; more than this
  // many would take half a second. A number that is older than the window is counted as duplicated.
  static constexpr std::uint64_t kWindow = 4096;

  // True if `number` is new.
  bool take(std::uint64_t number) {
    if (number >= next_) {
      const std::uint64_t step = number - next_ + 1;
      if (step >= kWindow) {
        seen_.reset();
      } else {
        for (std::uint64_t n = next_; n < number; ++n) seen_.reset(n % kWindow);
      }
      next_ = number + 1;
    } else if (number + kWindow < next_ || seen_.test(number % kWindow)) {
      ++duplicated_;
      return false;
    }
    seen_.set(number % kWindow);
    ++unique_;
    return true;
  }

  std::uint64_t unique() const { return unique_; }
  std::uint64_t duplicated() const { return duplicated_; }
  // Numbers below the highest that are not here (yet).
  std::uint64_t missing() const { return next_ - unique_; }
  std::uint64_t lost(std::uint64_t sent) const { return sent > unique_ ? sent - unique_ : 0; }

 private:
  std::uint64_t next_ = 0;  // one past the highest seen
  std::uint64_t unique_ = 0;
  std::uint64_t duplicated_ = 0;
  std::bitset<kWindow> seen_;  // bit = number mod kWindow, of the last kWindow numbers
};

}  // namespace tools

// How often something may be said in the log, whatever a hostile peer does: a few lines at once,
// then one each interval; what was left out is counted and told with the next line. In: host time.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>

namespace emu {

class LogLimit {
 public:
  constexpr LogLimit(std::uint32_t at_once, std::uint64_t interval_ns)
      : interval_ns_(interval_ns), lines_(at_once), lines_max_(at_once) {}

  // May this line be written? Then how many were left out since the last one.
  std::optional<std::uint64_t> allow(std::uint64_t host_ns) {
    const std::uint64_t grown = (host_ns - grown_at_ns_) / interval_ns_;
    grown_at_ns_ += grown * interval_ns_;
    lines_ = grown < lines_max_ - lines_ ? lines_ + static_cast<std::uint32_t>(grown) : lines_max_;
    if (lines_ == 0) {
      ++left_out_;
      return std::nullopt;
    }
    --lines_;
    return std::exchange(left_out_, 0);
  }

 private:
  std::uint64_t interval_ns_;
  std::uint64_t grown_at_ns_ = 0;
  std::uint64_t left_out_ = 0;
  std::uint32_t lines_;
  std::uint32_t lines_max_;
};

}  // namespace emu

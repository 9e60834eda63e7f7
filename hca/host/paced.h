// Congestion control that paces each destination by itself: a flow a destination, whose `next` is
// the cycle before which its next packet may not leave. For schemes that learn from marked packets.
#pragma once

#include <algorithm>
#include <vector>

#include "hca/host/congestion.h"

namespace hca {

// Flow has a member `next`, 0 at first.
template <class Flow>
class PacedByDestination : public CongestionControl {
 public:
  explicit PacedByDestination(const CongestionOptions& options)
      : flows_(std::max<std::size_t>(1, options.quadrant_of.size())) {}

  bool may_send(emu::NodeId dest, emu::Cycle now) override {
    return dest >= flows_.size() || now >= flows_[dest].next;
  }
  emu::Cycle ready_at() const override { return std::ranges::min(flows_, {}, &Flow::next).next; }
  std::uint16_t group(emu::NodeId dest) const override {
    return dest < flows_.size() ? dest : std::uint16_t{0};
  }
  std::uint16_t groups() const override { return static_cast<std::uint16_t>(flows_.size()); }
  Signal needs() const override { return Signal::marks; }

 protected:
  std::vector<Flow> flows_;  // by destination
};

}  // namespace hca

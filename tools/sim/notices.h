// Where routers see congestion: what they tell HCAs, and how. They detect and blame a source (VCT,
// fabric/router/detect.h), or mark packets whose destination tells the source
// (fabric/router/mark.h). At once, as the VCT paper has it, or as control messages that cross the
// network on a lane of control, its future work. In: what the network's heads do, deliveries. Out:
// notices, or the messages that carry them; a router has no port of its own, so its first HCA sends
// for it.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "emu/base/result.h"
#include "emu/config/config.h"
#include "fabric/router/detect.h"
#include "fabric/router/mark.h"
#include "fabric/router/network.h"
#include "tools/sim/workload.h"

namespace tools {

class Notices {
 public:
  // Fails where a router that detects has no HCA, or control no lane. The network tells it of heads
  // from now on; it must not outlive it.
  static emu::Result<std::unique_ptr<Notices>> make(
      const emu::Config& config, const std::array<emu::LaneMask, emu::kClassCount>& lanes,
      fabric::Network& network);

  // Takes over what routers saw since the last call; `base`: cycle of the network at the run's 0.
  void look(emu::Cycle base);
  // A message arrived, in cycle `now` of the run.
  void arrived(const FlitMessage& message, std::uint32_t handle, emu::Cycle now);

  // Since heard() was called; in cycles of the run.
  std::span<const emu::Notice> news() const { return news_; }
  // The message that takes it to its source; none: it is known there at once.
  std::optional<FlitMessage> carrier(const emu::Notice& notice, emu::Cycle now) const;
  void heard();

  std::uint64_t congestion() const { return congestion_; }
  std::uint64_t relief() const { return relief_; }
  std::uint64_t marked() const { return marked_count_; }

 private:
  Notices() = default;
  bool may_tell(const FlitMessage& message, emu::Cycle now);

  std::unique_ptr<fabric::Detector> detector_;  // one of the two
  std::unique_ptr<fabric::Marker> marker_;
  std::vector<emu::Notice> news_;
  std::vector<bool> marked_;  // by handle: messages under way
  bool by_message_ = false;
  emu::Vl lane_ = emu::kControlVl;
  std::uint16_t flits_ = 1;
  std::vector<emu::NodeId> sender_;       // by router
  std::vector<emu::RouterId> router_of_;  // by node
  emu::Cycle rest_cycles_ = 0;            // between two notices about one flow
  std::vector<emu::Cycle> told_at_;       // by source and destination: the next may be told then
  std::uint64_t congestion_ = 0;
  std::uint64_t relief_ = 0;
  std::uint64_t marked_count_ = 0;
};

}  // namespace tools

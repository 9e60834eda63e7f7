// Self-Tuned's count of full buffers without a side band (`controls.notice = "message"`): as
// control messages through the network that it is to keep from saturating. Each round one HCA of
// every router sends what it knows, its router's full buffers and what its own HCAs were delivered,
// to the collector, HCA 0; when all have come that sends the sums to every HCA. A round takes as
// long as the collector's link needs for it, at least 32 cycles. In: looks, deliveries. Out:
// messages, and the sums where they arrive.
#pragma once

#include <vector>

#include "emu/base/result.h"
#include "emu/config/config.h"
#include "fabric/router/network.h"
#include "tools/sim/workload.h"

namespace tools {

class InBand {
 public:
  static emu::Result<InBand> make(const emu::Config& config,
                                  const std::array<emu::LaneMask, emu::kClassCount>& lanes,
                                  const fabric::Network& network);

  // Begins a round if one is due; messages of the HCAs are appended to `out`.
  void look(const fabric::Network& network, emu::Cycle now, std::vector<FlitMessage>& out);
  // A message of any kind arrived at its HCA; sums go out when the last report has come. True: it
  // brought the sums.
  bool arrived(const FlitMessage& message, emu::Cycle now, std::vector<FlitMessage>& out);
  std::uint32_t buffers() const { return buffers_; }
  std::uint64_t rounds() const { return complete_; }

 private:
  FlitMessage message(emu::NodeId from, emu::NodeId to, emu::Cycle now) const;
  void add(const StateReport& report, emu::Cycle now, std::vector<FlitMessage>& out);

  emu::Vl lane_ = emu::kControlVl;
  std::uint16_t flits_ = 1;
  int vc_buf_size_ = 1;
  emu::Cycle period_ = 32;
  emu::Cycle next_ = 0;
  std::uint32_t buffers_ = 0;             // input lanes of all routers
  std::vector<emu::NodeId> reporter_;     // by router
  std::vector<emu::RouterId> router_of_;  // by node
  std::vector<std::uint64_t> delivered_;  // flits, by router
  // The running round, at the collector.
  StateReport sum_;
  std::size_t missing_ = 0;
  std::uint64_t complete_ = 0;
};

}  // namespace tools

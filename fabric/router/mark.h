// Routers that mark packets where many want one output: the FECN of InfiniBand's congestion control
// (IBA A10.2) and the ECN of DCQCN (Zhu and others, SIGCOMM 2015). In: heads as the engine sees
// them. Out: the handles of the packets that are marked; who looks at marks is the destination's
// HCA.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "emu/base/prng.h"
#include "fabric/router/head_watcher.h"

namespace fabric {

struct MarkOptions {
  // Packets with a way to the output, this one included: up to `from` none is marked, beyond `all`
  // every one; between them a part that grows in proportion. all == from: no such part (FECN).
  std::uint32_t from = 4;
  std::uint32_t all = 4;
  std::uint64_t seed = 1;
};

class Marker final : public HeadWatcher {
 public:
  Marker(std::span<const int> ports_of_router, const MarkOptions& options);

  void came(const HeadAt&) override {}
  void routed(const HeadAt& head, emu::PortId out_port) override;
  void left(emu::RouterId router, emu::PortId in_port, emu::Vl lane, emu::PortId out_port) override;

  // Since the last clear(); a handle once for each router that marked it.
  std::span<const std::uint32_t> marked() const { return marked_; }
  void clear() { marked_.clear(); }
  std::uint32_t queued(emu::RouterId router, emu::PortId out_port) const {
    return queued_[first_[router] + out_port];
  }

 private:
  // Outputs of the messages of a lane that were routed and have not left: one for each class, as
  // many as a lane of router P has under way at once, kNoPort where there is none.
  std::span<emu::PortId> open_in(emu::RouterId router, emu::PortId in_port, emu::Vl lane);

  static constexpr emu::PortId kNoPort = 0xff;

  MarkOptions options_;
  emu::Prng prng_;
  std::vector<std::size_t> first_;     // of a router's ports, in queued_
  std::vector<std::uint32_t> queued_;  // packets with a way to this output
  std::vector<emu::PortId> open_;
  std::vector<std::uint32_t> marked_;
};

}  // namespace fabric

// Admission of a run's streams before it starts (ACP 4.1): the HCA's own check, a probe through the
// real network, books at the routers, NACK and release. In: streams in the order in which they ask.
// Out: which were granted. Arbiters follow the books (fabric/daemon/arbitration.h).
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "emu/config/config.h"
#include "fabric/admit/admission.h"
#include "fabric/daemon/arbitration.h"
#include "fabric/router/control_hook.h"
#include "fabric/router/network.h"
#include "tools/sim/workload.h"

namespace tools {

class Bookings : public fabric::ControlHook {
 public:
  explicit Bookings(const emu::Config& config) : config_(config) {}
  // The network asks this hook; it must be told of the network before the first probe.
  void attach(fabric::Network& network);

  // Steps the network until the answer is there.
  bool ask(fabric::Network& network, const StreamDemand& demand);
  const fabric::Admission& admission() const { return *admission_; }
  std::uint64_t asked() const { return asked_; }
  std::uint64_t granted() const { return granted_; }
  // From asking to the answer, cycles, of all that were sent as probes.
  std::uint64_t set_up_cycles() const { return set_up_cycles_; }

 private:
  bool at_route(const fabric::ControlHead& head) override;
  void send(fabric::Network& network, const StreamDemand& demand, emu::PacketKind kind);

  const emu::Config& config_;
  std::unique_ptr<fabric::Admission> admission_;
  std::unique_ptr<fabric::Arbitration> arbitration_;
  fabric::ProbeState probe_;            // of the one that is asking
  std::vector<std::uint64_t> own_bps_;  // booked on the link of each HCA
  std::uint64_t asked_ = 0;
  std::uint64_t granted_ = 0;
  std::uint64_t set_up_cycles_ = 0;
};

}  // namespace tools

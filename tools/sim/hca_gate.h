// The HCA in front of a wire half, as far as the papers' controls need it: consumers hand messages
// to the HCA, the HCA hands them to its lanes. Best effort is held back by a scheme of
// hca/host/congestion.h (the code that a live HCA runs): credit at the consumer, before the HCA;
// the others inside it, as their papers have it; and by peak power inside it. Other classes need
// room in the HCA's buffer, which they share with best effort and get first (ACP 3.2, 4.2).
// In: messages as they are created, injections. Out: messages for the lanes, with the cycle at
// which the HCA took them.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <string_view>
#include <vector>

#include "emu/config/config.h"
#include "fabric/router/network.h"
#include "hca/host/congestion.h"
#include "hca/host/power.h"
#include "tools/sim/workload.h"

namespace tools {

class HcaGate {
 public:
  using Out = std::function<void(const FlitMessage&)>;
  HcaGate(const emu::Config& config, emu::NodeId node, const fabric::Network& network,
          const std::array<emu::LaneMask, emu::kClassCount>& lanes);

  void offer(const FlitMessage& message);
  // Of control or real time: true if the HCA takes it at once, else it waits for room.
  bool take(const FlitMessage& message);
  // Hands on what may go; messages created up to `horizon` are there. `now` is the cycle at which
  // the network stands.
  void release(emu::Cycle now, const Out& out);
  // The tail of a message that was handed on left the HCA.
  void injected(const FlitMessage& message, emu::Cycle now);
  // A router says so of this HCA's traffic.
  void notice(const emu::Notice& notice, emu::Cycle now) {
    control_->notice(notice.kind, notice.dest, now);
  }
  // Looks at the network, if the scheme wants to know of it.
  void look(const fabric::Network& network, std::uint32_t full_buffers, std::uint32_t buffers,
            std::uint64_t delivered_flits);
  // The same from whoever told it: `buffers` input lanes, `full` of them without room.
  void told(std::uint32_t full, std::uint32_t buffers, std::uint64_t delivered, emu::Cycle now) {
    control_->fabric_state(
        {.free_lanes = {}, .full_buffers = full, .buffers = buffers, .delivered_flits = delivered},
        now);
  }
  // What a message costs is a matter of its way, and which ports are useful.
  void links_changed(const fabric::Network& network);
  hca::Signal needs() const { return control_->needs(); }
  // Messages before the HCA, and best effort in it.
  std::uint64_t waiting() const;

 private:
  void choose_congestion(const fabric::Network& network);
  void take_first(emu::Cycle now, const Out& out);
  void take_in(emu::Cycle now);
  bool take_one(std::size_t group, emu::Cycle now);
  void hand_on(emu::Cycle now, std::deque<FlitMessage>& queue, const Out& out);
  void meter(double power_pj_per_cycle, double phase);
  bool power_allows(const FlitMessage& message, emu::Cycle now);

  emu::NodeId node_;
  fabric::Network::Peer place_;
  emu::LaneMask lanes_;
  std::string_view scheme_;
  hca::CongestionOptions congestion_;
  std::unique_ptr<hca::CongestionControl> control_;
  bool at_consumer_;                              // where the scheme holds back
  std::array<std::deque<FlitMessage>, 2> first_;  // control, real time: with the consumers
  std::vector<std::deque<FlitMessage>> outer_;    // by group: with the consumers
  std::vector<std::deque<FlitMessage>> inner_;    // in the HCA, not yet in a lane
  std::size_t take_turn_ = 0;                     // group from which the HCA takes next
  std::size_t turn_ = 0;                          // group that is served first
  std::uint32_t held_ = 0;                        // messages in the HCA, lanes included
  std::uint32_t buffer_;                          // M
  // Peak power (ACP section 5); no calendar: no cap.
  std::unique_ptr<hca::EnergyCalendar> calendar_;
  bool powerless_ = false;       // best effort has no power at all: it stays
  emu::Cycle power_cycles_ = 1;  // in which the HCA's power pays its budget
  double budget_pj_ = 0;
  emu::Cycle paid_at_ = 0;  // until then a message is paid for that took more than the budget
  emu::EnergyTable energy_;
  std::vector<std::uint8_t> hops_to_;
  std::vector<std::uint16_t> free_lanes_;
};

}  // namespace tools

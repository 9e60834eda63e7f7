// Arbiters follow the books (ACP 4.1): after an admission or a release the schedulers of the
// routers concerned, and those of the HCAs in front of them, get weights, the limit of high
// priority and Vticks from what is booked on their link: the incoming one for the scheduler at the
// input of a multiplexed crossbar, the outgoing one for that at the output of a full one. Called by
// fabricd's loop and by the cluster test after each turn of the engine; without changes it costs a
// comparison a router.
#pragma once

#include <cstdint>
#include <vector>

#include "emu/config/config.h"
#include "emu/lane/policy.h"
#include "fabric/admit/admission.h"
#include "fabric/router/network.h"

namespace fabric {

class Arbitration {
 public:
  Arbitration(const emu::Config& config, const Network& network);

  // Takes effect from the network's next cycle on.
  void follow(const Admission& admission, Network& network);

  // What the tables of a scheduler are when this is booked on its link. Those that the
  // configuration gives stay (`qos_vlarb_high`, `qos_vlarb_low`).
  emu::VlWeights weights(const LaneRates& rates) const;
  // VirtualClock: cycles between the flits of a lane at its booked rate; the default of a lane on
  // which nothing is booked.
  emu::Vtick vtick(const LaneRates& rates, emu::Vl vl) const;

 private:
  bool books_nothing(const LaneRates& rates) const;
  void apply(const Book& book, emu::RouterId router, emu::PortId port, Network& network) const;

  emu::VlWeights initial_;
  std::array<emu::Vtick, emu::kVlCount> vticks_;
  emu::LaneMask real_time_;
  bool large_frame_;
  bool tables_given_;
  struct Follows {
    bool weighted;
    bool clocked;
  };
  Follows routers_;
  Follows hcas_;
  bool at_outputs_;
  std::uint64_t link_bps_;
  std::vector<std::uint64_t> seen_;  // changes of each router that are applied
};

}  // namespace fabric

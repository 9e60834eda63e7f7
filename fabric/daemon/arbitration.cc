#include "fabric/daemon/arbitration.h"

#include "fabric/admit/weights.h"
#include "fabric/daemon/spec.h"

namespace fabric {

Arbitration::Arbitration(const emu::Config& config, const Network& network)
    : large_frame_(config.qos.frame == emu::Frame::large),
      tables_given_(!config.qos.qos_vlarb_high.empty()),
      link_bps_(config.network.link_bps()),
      seen_(static_cast<std::size_t>(network.routers())) {
  const NetworkSpec spec = network_spec(config, 0);
  initial_ = spec.weights;
  vticks_ = spec.lane_vtick;
  real_time_ = spec.lanes_of_class[static_cast<std::size_t>(emu::TrafficClass::real_time)];
  const auto follows = [](emu::SchedulerKind kind) {
    return Follows{kind == emu::SchedulerKind::wrr || kind == emu::SchedulerKind::two_level,
                   emu::has_lane_vticks(kind)};
  };
  routers_ = follows(spec.router_scheduler());
  hcas_ = follows(spec.wire_scheduler());
  at_outputs_ = spec.crossbar == CrossbarKind::full;
}

void Arbitration::follow(const Admission& admission, Network& network) {
  if (!routers_.weighted && !routers_.clocked && !hcas_.weighted && !hcas_.clocked) return;
  for (std::size_t r = 0; r < seen_.size(); ++r) {
    const auto router = static_cast<emu::RouterId>(r);
    if (seen_[r] == admission.changes(router)) continue;
    seen_[r] = admission.changes(router);
    for (int p = 0; p < network.ports(router); ++p) {
      const auto port = static_cast<emu::PortId>(p);
      apply(admission.book(router), router, port, network);
    }
  }
}

// A link on which nobody has booked, or no more, is as one of a router that never heard of
// bookings.
bool Arbitration::books_nothing(const LaneRates& rates) const {
  for (unsigned v = 0; v < emu::kVlCount; ++v)
    if (((real_time_ >> v) & 1U) != 0 && rates.rate_bps[v] != 0) return false;
  return true;
}

emu::VlWeights Arbitration::weights(const LaneRates& rates) const {
  emu::VlWeights weights = initial_;
  if (tables_given_ || books_nothing(rates)) return weights;
  const FrameWeights booked = large_frame_ ? large_frame_weights(rates, real_time_)
                                           : small_frame_weights(rates, real_time_);
  weights.high = booked.weight;
  weights.high_limit = booked.high_limit == kLimitNone ? emu::kLimitUnbounded : booked.high_limit;
  weights.whole_packets = false;  // L = B / (B - B_p): what real time leaves of the link, in flits
  return weights;
}

emu::Vtick Arbitration::vtick(const LaneRates& rates, emu::Vl vl) const {
  const std::uint64_t booked_bps = rates.rate_bps[vl];
  return booked_bps == 0 ? vticks_[vl] : emu::vtick_of(link_bps_, booked_bps);
}

void Arbitration::apply(const Book& book, emu::RouterId router, emu::PortId port,
                        Network& network) const {
  LaneRates in = book.in_rates(port);
  LaneRates here = at_outputs_ ? book.out_rates(port) : in;
  in.link_bps = here.link_bps = link_bps_;  // the limit goes by the link, not by what may be booked
  const emu::NodeId node = network.node_at(router, port);
  const bool hca = node != kNoNode;
  if (routers_.weighted) network.set_weights(router, port, weights(here));
  if (hca && hcas_.weighted) network.set_wire_weights(node, weights(in));
  for (unsigned v = 0; v < emu::kVlCount; ++v) {
    if (((real_time_ >> v) & 1U) == 0) continue;
    const auto vl = static_cast<emu::Vl>(v);
    if (routers_.clocked) network.set_lane_vtick(router, port, vl, vtick(here, vl));
    if (hca && hcas_.clocked) network.set_wire_vtick(node, vl, vtick(in, vl));
  }
}

}  // namespace fabric

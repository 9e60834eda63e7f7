#include "tools/sim/hca_gate.h"

#include <algorithm>

#include "emu/base/check.h"
#include "fabric/daemon/look.h"
#include "hca/daemon/options.h"

namespace tools {

namespace {

constexpr emu::Cycle kPowerHorizon = 8192;  // longer than most packets hold their energy
// A calendar takes half a byte a cycle, one for each HCA. Power that needs longer to pay for three
// packets is none.
constexpr emu::Cycle kPowerCyclesMax = 1 << 22;

}  // namespace

HcaGate::HcaGate(const emu::Config& config, emu::NodeId node, const fabric::Network& network,
                 const std::array<emu::LaneMask, emu::kClassCount>& lanes)
    : node_(node),
      place_{network.router_of(node), network.port_of(node)},
      lanes_(lanes[static_cast<std::size_t>(emu::TrafficClass::best_effort)]),
      energy_(config.energy) {
  const hca::HostOptions options = hca::host_options(config, node);
  const auto nodes = static_cast<std::size_t>(network.nodes());
  CHECK(options.nodes == nodes);
  scheme_ = config.controls.congestion_control ? options.congestion : "none";
  congestion_ = hca::congestion_options(options);
  choose_congestion(network);
  at_consumer_ = scheme_ == "credit";
  outer_.resize(control_->groups());
  inner_.resize(control_->groups());
  buffer_ = options.hca_buffer_packets;
  hops_to_.assign(options.hops_to.begin(), options.hops_to.begin() + nodes);
  // P_BE is split over the HCAs; real time has booked its part hop by hop.
  const double power_pj_per_cycle = config.best_effort_power_w() / static_cast<double>(nodes) *
                                    static_cast<double>(options.cycle_time.cycle_ps);
  budget_pj_ = hca::best_effort_budget_pj(options.packet_to_farthest_pj(),
                                          options.power_window_packets, power_pj_per_cycle);
  if (config.power_scheme() && budget_pj_ > 0)
    meter(power_pj_per_cycle, static_cast<double>(node) / static_cast<double>(nodes));
}

void HcaGate::choose_congestion(const fabric::Network& network) {
  congestion_.useful_ports.clear();
  for (int dest = 0; dest < network.nodes(); ++dest)
    congestion_.useful_ports.push_back(
        fabric::useful_ports(network, node_, static_cast<emu::NodeId>(dest)));
  control_ = hca::make_congestion(scheme_, congestion_);
  CHECK(control_ != nullptr);
}

// Each packet holds its energy until it is paid for, so the calendar reaches as far. HCAs that all
// begin with a full purse would all spend it in one window: each gets its first power at a time of
// its own.
void HcaGate::meter(double power_pj_per_cycle, double phase) {
  powerless_ = budget_pj_ >= power_pj_per_cycle * static_cast<double>(kPowerCyclesMax);
  if (powerless_) return;
  power_cycles_ = static_cast<emu::Cycle>(budget_pj_ / power_pj_per_cycle) + 1;
  calendar_ =
      std::make_unique<hca::EnergyCalendar>(budget_pj_, std::max(kPowerHorizon, power_cycles_));
  const auto first = static_cast<emu::Cycle>(static_cast<double>(power_cycles_) * phase);
  if (first > 0) calendar_->hold(0, budget_pj_, first);
}

void HcaGate::offer(const FlitMessage& message) {
  outer_[message.traffic_class == emu::TrafficClass::best_effort ? control_->group(message.dest)
                                                                 : 0]
      .push_back(message);
}

bool HcaGate::take(const FlitMessage& message) {
  auto& queue = first_[static_cast<std::size_t>(message.traffic_class)];
  if (queue.empty() && held_ < buffer_) {
    ++held_;
    return true;
  }
  queue.push_back(message);
  return false;
}

std::uint64_t HcaGate::waiting() const {
  std::uint64_t count = first_[0].size() + first_[1].size();
  for (const auto& queue : outer_) count += queue.size();
  for (const auto& queue : inner_) count += queue.size();
  return count;
}

// Control, then real time, as the HCA gets room.
void HcaGate::take_first(emu::Cycle now, const Out& out) {
  for (auto& queue : first_) {
    for (; !queue.empty() && held_ < buffer_; queue.pop_front(), ++held_) {
      FlitMessage& message = queue.front();
      message.accepted = message.launch = std::max(message.created, now);
      out(message);
    }
  }
}

// Consumers to HCA: as long as it has room, and with credit at the consumer as long as there is
// one. Groups take turns, and whose turn it is stays when the HCA is full: else a place that gets
// free would always go to the same group.
void HcaGate::take_in(emu::Cycle now) {
  const std::size_t groups = outer_.size();
  for (std::size_t without = 0; without < groups && held_ < buffer_;) {
    without = take_one(take_turn_, now) ? 0 : without + 1;
    take_turn_ = (take_turn_ + 1) % groups;
  }
}

// False: the group has none that may go.
bool HcaGate::take_one(std::size_t group, emu::Cycle now) {
  auto& queue = outer_[group];
  if (queue.empty()) return false;
  FlitMessage& message = queue.front();
  if (at_consumer_) {
    if (!control_->may_send(message.dest, now)) return false;
    message.tag = control_->handed_on(message.dest, message.flits, now);
  }
  message.accepted = std::max(message.created, now);
  inner_[group].push_back(message);
  queue.pop_front();
  ++held_;
  return true;
}

void HcaGate::links_changed(const fabric::Network& network) {
  for (std::size_t n = 0; n < hops_to_.size(); ++n)
    hops_to_[n] = static_cast<std::uint8_t>(network.hops(node_, static_cast<emu::NodeId>(n)) - 1);
  // As in a live HCA (Host::set_ways): who looks at routers begins anew, with the ways of now.
  if (control_->needs() == hca::Signal::state) choose_congestion(network);
}

bool HcaGate::power_allows(const FlitMessage& message, emu::Cycle now) {
  if (powerless_) return false;
  if (calendar_ == nullptr) return true;
  const double energy_pj = energy_.packet_pj(hops_to_[message.dest], message.flits);
  const double held_pj = std::min(budget_pj_, energy_pj);
  const emu::Cycle at = std::max(now, message.created);
  if (at < paid_at_) return false;
  if (calendar_->earliest(at, held_pj, power_cycles_, at) == emu::kNever) return false;
  calendar_->hold(at, held_pj, power_cycles_);
  // A message that is longer than a packet, or round links that are down farther from its
  // destination than any node was, takes all there is and owes the rest.
  if (energy_pj > held_pj)
    paid_at_ =
        at + static_cast<emu::Cycle>(static_cast<double>(power_cycles_) * energy_pj / held_pj);
  return true;
}

// HCA to its lanes.
void HcaGate::hand_on(emu::Cycle now, std::deque<FlitMessage>& queue, const Out& out) {
  while (!queue.empty()) {
    FlitMessage& message = queue.front();
    if (!at_consumer_ && !control_->may_send(message.dest, now)) return;
    if (!power_allows(message, now)) return;
    if (!at_consumer_) message.tag = control_->handed_on(message.dest, message.flits, now);
    message.launch = std::max(now, message.created);
    out(message);
    queue.pop_front();
  }
}

void HcaGate::release(emu::Cycle now, const Out& out) {
  if (calendar_ != nullptr) calendar_->advance(now);
  take_first(now, out);
  take_in(now);
  for (std::size_t i = 0; i < inner_.size(); ++i) {
    hand_on(now, inner_[(turn_ + i) % inner_.size()], out);
  }
  turn_ = (turn_ + 1) % inner_.size();
}

void HcaGate::injected(const FlitMessage& message, emu::Cycle now) {
  --held_;
  if (message.traffic_class == emu::TrafficClass::best_effort) {
    control_->came_back(message.tag, now);
  }
}

void HcaGate::look(const fabric::Network& network, std::uint32_t full_buffers,
                   std::uint32_t buffers, std::uint64_t delivered_flits) {
  free_lanes_.assign(static_cast<std::size_t>(network.ports(place_.router)), 0);
  for (std::size_t p = 0; p < free_lanes_.size(); ++p)
    free_lanes_[p] = fabric::free_lanes(network, place_.router, static_cast<emu::PortId>(p));
  control_->fabric_state({.free_lanes = free_lanes_,
                          .lanes = lanes_,
                          .full_buffers = full_buffers,
                          .buffers = buffers,
                          .delivered_flits = delivered_flits},
                         network.now());
}

}  // namespace tools

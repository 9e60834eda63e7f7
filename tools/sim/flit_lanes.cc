// The lanes of a FlitRun: messages wait in an endless queue each, and go to the wire half as this
// has room. In: messages of sources, cards and HCAs. Out: packets submitted to the network.
#include <algorithm>
#include <bit>

#include "tools/sim/flit_run.h"

namespace tools {

// Of the engine's table half is shared out among the lanes: a class in overload, with messages that
// nothing takes out of the network, leaves the others what is theirs.
void FlitRun::begin_lanes(std::uint32_t packets_per_node) {
  const auto nodes = static_cast<std::size_t>(setting_.nodes);
  lane_share_ = packets_per_node / (2 * emu::kVlCount);
  at_wire_most_ = std::min(kAtWireMost, lane_share_);
  queues_.resize(nodes * emu::kVlCount);
  at_wire_.resize(queues_.size());
  in_table_.resize(queues_.size());
  lanes_queued_.resize(nodes);
  kept_.assign(nodes, lane_share_ * emu::kVlCount);
}

void FlitRun::to_lane(const FlitMessage& message) {
  queues_[message.source * std::size_t{emu::kVlCount} + message.vl_in].push_back(message);
  lanes_queued_[message.source] |= static_cast<emu::LaneMask>(1U << message.vl_in);
  ++queued_;
}

void FlitRun::push(std::size_t node, std::size_t lane) {
  const auto source = static_cast<emu::NodeId>(node);
  const std::size_t index = node * emu::kVlCount + lane;
  std::deque<FlitMessage>& queue = queues_[index];
  while (!queue.empty() && at_wire_[index] < at_wire_most_) {
    const FlitMessage& message = queue.front();
    const bool of_its_share = in_table_[index] < lane_share_;
    if (!of_its_share && network_->room(source) <= static_cast<int>(kept_[node])) return;
    if (free_flights_.empty()) {
      free_flights_.push_back(static_cast<std::uint32_t>(flights_.size()));
      flights_.emplace_back();
    }
    hca::SendPacket packet;
    packet.handle = free_flights_.back();
    packet.launch = base_ + message.launch;
    packet.flits = message.flits;
    packet.dest = message.dest;
    packet.vl_in = message.vl_in;
    packet.vl_out = message.vl_out;
    packet.traffic_class = message.traffic_class;
    packet.vtick = message.vtick;
    if (circuits_ != nullptr && message.stream != kNoStream) {
      packet.stream = circuits_->of_stream()[message.stream];
    }
    if (!network_->submit(source, packet)) return;
    flights_[packet.handle] = message;
    free_flights_.pop_back();
    ++at_wire_[index];
    ++in_table_[index];
    if (of_its_share) --kept_[node];
    --queued_;
    queue.pop_front();
  }
  if (queue.empty()) lanes_queued_[node] &= static_cast<emu::LaneMask>(~(1U << lane));
}

// Delivered: the network's table has its place again.
void FlitRun::leave_table(std::uint32_t handle) {
  const FlitMessage& message = flights_[handle];
  const std::size_t index = message.source * std::size_t{emu::kVlCount} + message.vl_in;
  if (--in_table_[index] < lane_share_) ++kept_[message.source];
  free_flights_.push_back(handle);
}

void FlitRun::refill() {
  for (std::size_t node = 0; queued_ > 0 && node < lanes_queued_.size(); ++node) {
    for (unsigned lanes = lanes_queued_[node]; lanes != 0; lanes &= lanes - 1)
      push(node, static_cast<std::size_t>(std::countr_zero(lanes)));
  }
}

// A wire half sends at most a message a cycle: refilled that often, no lane that has messages here
// runs dry there, and how often sources are looked at does not matter.
void FlitRun::advance(emu::Cycle horizon) {
  while (now() < horizon) {
    refill();
    const emu::Cycle next = queued_ > 0 ? now() + at_wire_most_ : horizon;
    network_->run_until(base_ + std::min(horizon, next));
    drain();
  }
}

}  // namespace tools

#include "tools/sim/nic.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace tools {

Nic::Nic(const NicOptions& options) : options_(options) {}

void Nic::ring(const FlitMessage& message) {
  const bool one_queue = options_.kind == NicKind::traditional;
  Doorbells& queues = doorbells_[one_queue ? 0 : static_cast<std::size_t>(message.traffic_class)];
  const std::size_t lane = one_queue ? 0 : message.vl_in;
  queues.of[lane].push_back({message, rung_++});
  queues.waiting |= 1U << lane;
}

std::uint64_t Nic::waiting() const {
  std::uint64_t count = ready_.size();
  for (const Doorbells& queues : doorbells_)
    for (const auto& queue : queues.of) count += queue.size();
  return count;
}

// The lane whose front was rung first, of queues of which some wait.
std::size_t Nic::first_of(const Doorbells& queues) {
  std::size_t first = kNowhere;
  for (unsigned lanes = queues.waiting; lanes != 0; lanes &= lanes - 1) {
    const auto lane = static_cast<std::size_t>(std::countr_zero(lanes));
    if (first == kNowhere || queues.of[lane].front().rung < queues.of[first].front().rung)
      first = lane;
  }
  return first;
}

// The first doorbell that was rung by `at`, of the highest class; a full lane is passed over, but
// by a traditional card.
Nic::Place Nic::next_doorbell(emu::Cycle at) const {
  for (std::size_t of_class = 0; of_class < doorbells_.size(); ++of_class) {
    const Doorbells& queues = doorbells_[of_class];
    std::size_t first = kNowhere;
    for (unsigned lanes = queues.waiting; lanes != 0; lanes &= lanes - 1) {
      const auto lane = static_cast<std::size_t>(std::countr_zero(lanes));
      const Doorbell& bell = queues.of[lane].front();
      if (bell.message.launch > at) continue;
      if (held_[bell.message.vl_in] + bell.message.flits > options_.lane_flits) continue;
      if (first == kNowhere || bell.rung < queues.of[first].front().rung) first = lane;
    }
    if (first != kNowhere) return {of_class, first};
  }
  return {0, kNowhere};
}

// One message from the host into local memory; false: none before `horizon`.
bool Nic::fetch(emu::Cycle horizon, const Out& out) {
  emu::Cycle first = emu::kNever;
  for (const Doorbells& queues : doorbells_)
    if (queues.waiting != 0)
      first = std::min(first, queues.of[first_of(queues)].front().message.launch);
  const double begin = std::max(host_free_, static_cast<double>(first));
  if (first == emu::kNever || begin >= static_cast<double>(horizon)) return false;
  const Place place = next_doorbell(static_cast<emu::Cycle>(begin));
  if (place.lane == kNowhere) {
    // Full lanes: looked at again when the next injection can have made room.
    host_free_ = static_cast<double>(horizon);
    return false;
  }
  Doorbells& queues = doorbells_[place.of_class];
  std::deque<Doorbell>& queue = queues.of[place.lane];
  FlitMessage message = queue.front().message;
  queue.pop_front();
  if (queue.empty()) queues.waiting &= ~(1U << place.lane);
  const double descriptor =
      options_.kind == NicKind::iba
          ? 0
          : options_.setup_cycles + options_.descriptor_flits * options_.flit_cycles;
  host_free_ = begin + descriptor + options_.setup_cycles + message.flits * options_.flit_cycles;
  message.launch = static_cast<emu::Cycle>(std::ceil(host_free_));
  held_[message.vl_in] += message.flits;
  if (!one_by_one()) {
    out(message);
    return true;
  }
  std::uint64_t& clock = clock_[message.vl_in];
  clock =
      std::max<std::uint64_t>(clock, message.launch) + std::uint64_t{message.vtick} * message.flits;
  ready_.push_back({message, message.launch, clock});
  return true;
}

// Of what is in local memory at `at`; ready_.size(): nothing.
std::size_t Nic::next_ready(emu::Cycle at) const {
  std::size_t best = ready_.size();
  const auto urgency = [&](const Ready& r) {
    return std::pair(static_cast<int>(r.message.traffic_class), r.stamp);
  };
  for (std::size_t i = 0; i < ready_.size(); ++i) {
    if (ready_[i].at > at) continue;
    if (options_.kind == NicKind::traditional) return i;
    if (best == ready_.size() || urgency(ready_[i]) < urgency(ready_[best])) best = i;
  }
  return best;
}

// The next message, if the wire is free: its DMA is set up, then it leaves flit by flit.
void Nic::to_wire(emu::Cycle horizon, const Out& out) {
  if (wire_busy_ || ready_.empty()) return;
  emu::Cycle earliest = emu::kNever;
  for (const Ready& r : ready_) earliest = std::min(earliest, r.at);
  const emu::Cycle begin = std::max(wire_free_, earliest);
  if (begin >= horizon) return;
  const std::size_t chosen = next_ready(begin);
  FlitMessage message = ready_[chosen].message;
  ready_.erase(ready_.begin() + static_cast<std::ptrdiff_t>(chosen));
  message.launch = begin + static_cast<emu::Cycle>(std::ceil(options_.setup_cycles));
  wire_busy_ = true;
  out(message);
}

void Nic::release(emu::Cycle horizon, const Out& out) {
  while (fetch(horizon, out)) {
  }
  if (one_by_one()) to_wire(horizon, out);
}

void Nic::injected(const FlitMessage& message, emu::Cycle cycle) {
  held_[message.vl_in] -= message.flits;
  if (!one_by_one()) return;
  wire_busy_ = false;
  wire_free_ = cycle + 1;
}

}  // namespace tools

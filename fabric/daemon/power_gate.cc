#include "fabric/daemon/power_gate.h"

#include <algorithm>
#include <cmath>

#include "emu/packet/build.h"

namespace fabric {

namespace {

// As the HCAs book (hca/daemon/options.cc, hca/host/options.h, hca/host/request.cc): a test holds
// the first three together.
constexpr double kPowerMargin = 0.98;
constexpr double kBestEffortShare = 0.6;
constexpr std::uint32_t kBudgetPackets = 3;  // full, to the farthest node
constexpr emu::EmuNs kRealTimeShiftNs = 300'000;
// What comes late leaves with so much of the power. Where many catch up at once they meet in the
// routers, which hold flits back and let them go in bunches: with all of it some windows were 3 %
// above the cap when every node of a cluster was late, with this the worst is 4 % below.
constexpr double kLateShare = 0.85;

// Energy is counted in whole thousandths of a picojoule, so that three packets are three thirds.
std::uint64_t units_of(double pj) { return static_cast<std::uint64_t>(std::ceil(pj * 1000)); }

bool is_best_effort(const hca::SendPacket& packet) {
  return packet.traffic_class == emu::TrafficClass::best_effort;
}

}  // namespace

PowerGateOptions power_gate_options(const emu::Config& config) {
  PowerGateOptions options;
  const std::size_t nodes = config.nodes.size();
  const double power_w = kPowerMargin * config.power_cap_w() / static_cast<double>(nodes);
  options.on = config.power_scheme() && power_w > 0 && !config.network.pass_through;
  if (!options.on) return options;
  for (std::uint32_t hops = 0; hops < options.flit_energy.size(); ++hops) {
    options.flit_energy[hops] = units_of(config.energy.packet_pj(hops, 1));
  }
  options.shift_cycles = config.network.cycle_time().cycle_at(kRealTimeShiftNs);
  options.answer_flits =
      emu::flits_of(emu::packet_bytes(emu::Opcode::rc_ack, true, 0), config.network.flit_bits);
  const auto cycle_ps = static_cast<double>(config.network.cycle_time().cycle_ps);
  const std::uint32_t flits = kBudgetPackets * config.network.packet_size;
  for (std::size_t from = 0; from < nodes; ++from) {
    std::uint8_t farthest = 0;
    for (std::size_t to = 0; to < nodes; ++to) {
      options.hops.push_back(static_cast<std::uint8_t>(config.links_between(from, to)));
      farthest = std::max(farthest, options.hops.back());
    }
    const double cycles = config.energy.packet_pj(farthest, flits) / (power_w * cycle_ps);
    const auto whole = [](double x) { return static_cast<emu::Cycle>(x) + 1; };
    options.budgets.push_back({.energy = flits * options.flit_energy[farthest],
                               .cycles = whole(cycles),
                               .best_effort_cycles = whole(cycles / kBestEffortShare),
                               .late_cycles = whole(cycles / kLateShare - cycles)});
  }
  return options;
}

PowerGate::PowerGate(const PowerGateOptions& options)
    : options_(options), nodes_(options.on ? options.budgets.size() : 0) {
  for (std::size_t n = 0; n < nodes_.size(); ++n) nodes_[n].budget = options.budgets[n];
}

std::uint64_t PowerGate::energy_of(emu::NodeId source, const hca::SendPacket& packet) const {
  const std::uint8_t hops = options_.hops[source * nodes_.size() + packet.dest];
  // A packet larger than the budget leaves when nothing else holds any.
  return std::min(options_.flit_energy[hops] * packet.flits, nodes_[source].budget.energy);
}

void PowerGate::take(emu::NodeId source, const hca::SendPacket& packet, emu::Cycle now) {
  if (free_ == kNoSlot) {
    free_ = static_cast<std::uint32_t>(slots_.size());
    slots_.push_back({});
    slots_.back().next = kNoSlot;
  }
  const std::uint32_t slot = free_;
  free_ = slots_[slot].next;
  const bool in_time =
      packet.launch >= now || (packet.launch == 0 && packet.flits <= options_.answer_flits);
  const Rank rank = is_best_effort(packet) ? Rank::best_effort
                    : in_time              ? Rank::in_time
                                           : Rank::late;
  Lane& lane = nodes_[source].lanes[packet.vl_in];
  emu::Cycle due = std::max(packet.launch, now);
  // Of a row of late packets the HCA moved the first by a little and found no place for the rest,
  // which must not overtake them.
  if (rank == Rank::late && lane.taken_due <= now + options_.shift_cycles) {
    due = std::max(due, lane.taken_due);
  }
  if (due <= now + options_.shift_cycles) lane.taken_due = due;
  slots_[slot] = {packet, due, kNoSlot, rank};
  auto& future = nodes_[source].future;
  future.push_back({slots_[slot].due, order_++, slot});
  std::push_heap(future.begin(), future.end());
}

void PowerGate::left(const hca::InjectedEvent& event) {
  if (!options_.on || event.kind != emu::PacketKind::data ||
      event.traffic_class == emu::TrafficClass::control)
    return;
  Node& node = nodes_[event.node];
  for (Holding& holding : node.holding) {
    if (holding.handle != event.handle || holding.gone) continue;
    holding.gone = true;
    holding.overdue = false;
    if (event.tail_cycle > holding.from + node.budget.cycles) {
      holding.from = event.head_cycle + node.budget.late_cycles;
    }
    return;
  }
}

emu::Cycle PowerGate::pass(emu::Cycle now, emu::Cycle until, std::vector<Passed>& out) {
  // While packets of an HCA are held up in it, energy comes back only when they have left. Then it
  // is asked often: with the energy of the whole stretch some hundred flits more could join them.
  for (Node& node : nodes_) {
    if (look(node, now)) until = std::min(until, now + node.budget.cycles / 2 + 1);
  }
  for (std::size_t n = 0; n < nodes_.size(); ++n) {
    play(static_cast<emu::NodeId>(n), now, until, out);
  }
  return until;
}

bool PowerGate::look(Node& node, emu::Cycle now) {
  bool overdue = false;
  std::erase_if(node.holding, [&](const Holding& h) {
    const PowerBudget& budget = node.budget;
    const emu::Cycle cycles = h.best_effort ? budget.best_effort_cycles : budget.cycles;
    return h.gone && h.from + cycles <= now;
  });
  for (Holding& holding : node.holding) {
    holding.overdue = !holding.gone && holding.from + node.budget.cycles <= now;
    overdue |= holding.overdue;
  }
  return overdue;
}

void PowerGate::play(emu::NodeId source, emu::Cycle now, emu::Cycle until,
                     std::vector<Passed>& out) {
  Node& node = nodes_[source];
  emu::Cycle at = now;
  while (true) {
    become_due(node, at);
    const emu::Cycle next_due = node.future.empty() ? emu::kNever : node.future.front().at;
    if (!node.waits()) {
      if (next_due >= until) return;
      at = next_due;
      continue;
    }
    // Who comes first keeps its place while it waits.
    const unsigned lane = next_lane(node);
    const std::uint32_t slot = node.lanes[lane].first;
    const emu::Cycle leaves = may_leave(source, slots_[slot], at);
    if (next_due < std::min(leaves, until)) {
      at = next_due;
      continue;
    }
    if (leaves >= until) return;
    at = leaves;
    node.lanes[lane].first = slots_[slot].next;
    node.turn = lane + 1;
    front_changed(node, lane);
    leave(source, slot, at, out);
  }
}

void PowerGate::become_due(Node& node, emu::Cycle now) {
  while (!node.future.empty() && node.future.front().at <= now) {
    const std::uint32_t slot = node.future.front().slot;
    std::pop_heap(node.future.begin(), node.future.end());
    node.future.pop_back();
    const unsigned number = slots_[slot].packet.vl_in;
    Lane& lane = node.lanes[number];
    const bool crowded = lane.due_before == slots_[slot].due;
    const bool behind_late = lane.first != kNoSlot && slots_[lane.last].rank == Rank::late;
    lane.due_before = slots_[slot].due;
    if (slots_[slot].rank == Rank::in_time && (crowded || behind_late)) {
      slots_[slot].rank = Rank::late;
    }
    if (lane.first == kNoSlot) {
      lane.first = lane.last = slot;
      front_changed(node, number);
    } else {
      slots_[lane.last].next = slot;
      lane.last = slot;
    }
  }
}

// Real time that came in time waits no longer than what was there before it holds energy: what is
// still there then is real time too, and its HCA spread that as well as it could.
emu::Cycle PowerGate::may_leave(emu::NodeId source, const Slot& slot, emu::Cycle at) const {
  const Node& node = nodes_[source];
  const emu::Cycle fits =
      first_fit(node, energy_of(source, slot.packet), is_best_effort(slot.packet), at);
  if (slot.rank != Rank::in_time) return fits;
  return std::min(fits, std::max(at, slot.due + node.budget.cycles));
}

void PowerGate::leave(emu::NodeId source, std::uint32_t number, emu::Cycle at,
                      std::vector<Passed>& out) {
  Slot& slot = slots_[number];
  Node& node = nodes_[source];
  const emu::Cycle wish = slot.packet.launch != 0 ? slot.packet.launch : slot.due;
  const bool late = slot.rank != Rank::in_time && at > wish + node.budget.cycles;
  node.holding.push_back({.energy = energy_of(source, slot.packet),
                          .from = at + (late ? node.budget.late_cycles : 0),
                          .handle = slot.packet.handle,
                          .best_effort = is_best_effort(slot.packet)});
  held_back_ += at > slot.due ? 1 : 0;
  held_back_cycles_ += at - slot.due;
  slot.packet.launch = at;
  out.push_back({source, slot.packet});
  slot.next = free_;
  free_ = number;
}

void PowerGate::front_changed(Node& node, unsigned lane) {
  const std::uint32_t bit = 1U << lane;
  for (std::uint32_t& lanes : node.waiting) lanes &= ~bit;
  const std::uint32_t front = node.lanes[lane].first;
  if (front != kNoSlot) node.waiting[static_cast<std::size_t>(slots_[front].rank)] |= bit;
}

// Lanes take turns, so that what is late on one delays others little.
unsigned PowerGate::next_lane(const Node& node) {
  const std::uint32_t lanes = *std::ranges::find_if(node.waiting, [](auto l) { return l != 0; });
  const std::uint32_t behind = lanes >> node.turn << node.turn;
  return static_cast<unsigned>(std::countr_zero(behind != 0 ? behind : lanes));
}

emu::Cycle PowerGate::first_fit(const Node& node, std::uint64_t energy, bool best_effort,
                                emu::Cycle at) {
  const PowerBudget& budget = node.budget;
  while (true) {
    std::uint64_t held = 0;
    std::uint64_t held_by_class = 0;
    emu::Cycle next = emu::kNever;  // when something of it is given back
    for (const Holding& h : node.holding) {
      const emu::Cycle until = h.overdue ? emu::kNever : h.from + budget.cycles;
      if (until > at) {
        held += h.energy;
        next = std::min(next, until);
      }
      if (!best_effort || !h.best_effort) continue;
      const emu::Cycle class_until = h.overdue ? emu::kNever : h.from + budget.best_effort_cycles;
      if (class_until > at) {
        held_by_class += h.energy;
        next = std::min(next, class_until);
      }
    }
    if (held + energy <= budget.energy && held_by_class + energy <= budget.energy) return at;
    if (next == emu::kNever) return next;
    at = next;
  }
}

emu::Cycle PowerGate::next() const {
  emu::Cycle at = emu::kNever;
  for (const Node& node : nodes_) {
    if (node.waits()) return 0;
    if (!node.future.empty()) at = std::min(at, node.future.front().at);
  }
  return at;
}

}  // namespace fabric

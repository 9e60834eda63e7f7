// The engine for one pair of schedulers: InputScheduler at the crossbar inputs, SourceScheduler at
// the HCAs. Instantiated by engine_*.cc; seen by others as Network::Impl.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "emu/lane/stamp.h"
#include "fabric/router/impl.h"
#include "fabric/router/pipeline.h"
#include "hca/wire/group.h"

namespace fabric {

template <class InputScheduler, class SourceScheduler>
class Engine final : public Network::Impl {
 public:
  Engine(const NetworkSpec& network_spec, Graph network_graph, ControlHook* control_hook)
      : Impl(network_spec, std::move(network_graph), control_hook),
        control_(emu::spread(spec.lanes_of_class[0])),
        routers_(graph.routers.size()) {
    for (std::size_t r = 0; r < routers_.size(); ++r) set_up(r);
    for (int g = 0; g < wiring.groups; ++g) {
      const auto first = static_cast<unsigned>(g * emu::kPortsMax);
      const auto count =
          std::min<unsigned>(emu::kPortsMax, static_cast<unsigned>(graph.nodes.size()) - first);
      groups_.push_back(
          std::make_unique<Group>(first, count, static_cast<unsigned>(spec.vc_buf_size),
                                  spec.answer_flits, spec.lanes_of_class[0], messages, events));
      configure(groups_.back()->scheduler());
    }
  }

  void step(emu::Cycle cycles) override {
#if defined(__x86_64__)
    if (has_v3_ && !spec.portable) return step_v3(cycles);
#endif
    run(cycles);
  }
  void ready(hca::MessageId id) override {
    ++events.live;
    groups_[messages[id].src / emu::kPortsMax]->ready(id, now);
  }
  void age(std::uint64_t moved) override {
    for (auto& router : routers_) {
      router.scheduler.age(moved);
      RouterState& r = router.state;
      for (unsigned p = 0; p < emu::kPortsMax; ++p) r.wait_cycles[p] += r.recent_wait[p];
      r.recent_wait = emu::kNoLanes8;
    }
    for (auto& group : groups_) {
      group->age(moved);
      group->flush_counters();
    }
  }

  void close_window() override {
    const auto length = static_cast<emu::Cycle>(spec.energy_window);
    for (auto& router : routers_) {
      RouterState& r = router.state;
      if ((r.arrived | r.crossed | r.sent | r.heads) == 0) continue;
      const std::size_t most = Network::kActivityWindowsMax * routers_.size();
      if (windows.size() >= most) windows.erase(windows.begin());
      windows.push_back({next_window - length, r.id, r.arrived, r.crossed, r.sent, r.heads});
      r.arrived = r.crossed = r.sent = r.heads = 0;
    }
    next_window += length;
  }

  void set_weights(emu::RouterId router, emu::PortId port, const emu::VlWeights& w) override {
    routers_[router].scheduler.set_weights(port, w);
  }
  void set_wire_weights(emu::NodeId node, const emu::VlWeights& w) override {
    group(node).scheduler().set_weights(node % emu::kPortsMax, w);
  }
  void set_vtick(emu::RouterId router, emu::PortId port, emu::Vl vl, emu::Vtick vtick) override {
    routers_[router].scheduler.set_vtick(port, vl, vtick);
  }
  void set_wire_vtick(emu::NodeId node, emu::Vl vl, emu::Vtick vtick) override {
    group(node).scheduler().set_vtick(node % emu::kPortsMax, vl, vtick);
  }

  PortCounters router_counters(emu::RouterId router, emu::PortId port) const override {
    const RouterState& r = routers_[router].state;
    PortCounters counters;
    for (unsigned v = 0; v < emu::kVlCount; ++v) {
      const LaneTraffic& in = r.traffic_in[lane_slot(port, v)];
      const LaneTraffic& out = r.traffic_out[lane_slot(port, v)];
      counters.received[v] = {in.flits, in.packets};
      counters.sent[v] = {out.flits, out.packets};
    }
    counters.wait_cycles = r.wait_cycles[port] + r.recent_wait[port];
    return counters;
  }
  PortCounters wire_counters(emu::NodeId node) const override {
    const Group& g = *groups_[node / emu::kPortsMax];
    const unsigned n = node % emu::kPortsMax;
    PortCounters counters;
    for (unsigned v = 0; v < emu::kVlCount; ++v) {
      counters.sent[v] = {g.sent(n, v).flits, g.sent(n, v).packets};
      counters.received[v] = {g.received(n, v).flits, g.received(n, v).packets};
    }
    counters.wait_cycles = g.wait_cycles(n);
    return counters;
  }
  Network::Occupancy occupancy(emu::RouterId router, emu::PortId port) const override {
    const RouterState& r = routers_[router].state;
    Network::Occupancy occupancy;
    for (unsigned v = 0; v < emu::kVlCount; ++v) {
      occupancy.input[v] = static_cast<std::uint8_t>(r.in_count.get(port, v));
      occupancy.output[v] = static_cast<std::uint8_t>(r.out_count.get(port, v));
    }
    return occupancy;
  }
  int wire_backlog(emu::NodeId node) const override {
    return groups_[node / emu::kPortsMax]->backlog(node % emu::kPortsMax);
  }
  std::string audit() const override;
  std::uint64_t position() const override;
  std::vector<Wait> waits() const override;

 private:
  using Group = hca::WireGroup<SourceScheduler>;

  Group& group(emu::NodeId node) { return *groups_[node / emu::kPortsMax]; }

  template <class Scheduler>
  void configure(Scheduler& scheduler) {
    scheduler.configure(spec.scheduler, spec.lane_vtick, spec.lanes_of_class[0]);
    for (unsigned p = 0; p < emu::kPortsMax; ++p) scheduler.set_weights(p, spec.weights);
  }
  void set_up(std::size_t index) {
    RouterState& r = routers_[index].state;
    r.id = static_cast<emu::RouterId>(index);
    r.ways = {&routes, r.id, spec.fixed_classes};
    r.is_full = emu::CountIs(static_cast<unsigned>(spec.vc_buf_size));
    r.owner.fill(kNoLane);
    r.wait_first.fill(kNoLane);
    for (unsigned i = 0; i < emu::kLaneSlots; ++i)
      if (vl_of_lane(i) < emu::kVlCount)
        r.credits.set(port_of_lane(i), vl_of_lane(i), static_cast<unsigned>(spec.vc_buf_size));
    configure(routers_[index].scheduler);
  }

  // The same code twice: BMI and three-operand instructions are worth a fifth, and every machine of
  // the last ten years has them, but a build must run on the others too.
#if defined(__x86_64__)
  [[gnu::target("avx2,bmi,bmi2,lzcnt,popcnt"), gnu::flatten]] void step_v3(emu::Cycle cycles) {
    run(cycles);
  }
  bool has_v3_ = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi2");
#endif

  void run(emu::Cycle cycles) {
    for (const emu::Cycle end = now + cycles; now != end;) {
      while (launches.next() <= now) ready(launches.pop());
      cycle();
      ++now;
      if (now == next_window) close_window();
      if (now % emu::kStampPeriod == 0) age(emu::kStampPeriod);
    }
  }

  void cycle() {
    emu::Box* here = wheel.row(now);
    emu::Box* there = wheel.row(now + static_cast<emu::Cycle>(wheel.delay()));
    const Surroundings world = {messages, hook};
    const std::size_t first_group = routers_.size();
    // Nothing arrives and nothing is inside: nothing can change. Most of a mesh at low load is so.
    for (std::size_t g = 0; g < groups_.size(); ++g) {
      emu::Box& box = here[first_group + g];
      if (emu::quiet(box) && groups_[g]->quiet()) continue;
      groups_[g]->step(box, there, wiring.outlets[first_group + g], now);
    }
    for (const emu::RouterId r : order) {
      if (emu::quiet(here[r]) && routers_[r].state.inside == 0) continue;
      step_router(routers_[r], here[r], there, wiring.outlets[r], control_, world, now);
    }
  }

  unsigned buffered(const emu::Outlet& outlet, unsigned port, unsigned vl) const;

  emu::Lanes8 control_;
  std::vector<Router<InputScheduler>> routers_;
  std::vector<std::unique_ptr<Group>> groups_;
};

// Flits and credits of one link lane that are not at the sender: in the wheel, in the receiver's
// buffer.
template <class I, class S>
unsigned Engine<I, S>::buffered(const emu::Outlet& outlet, unsigned port, unsigned vl) const {
  const unsigned peer = outlet.unit[port];
  const unsigned peer_port = outlet.port[port];
  unsigned flits = 0;
  if (peer < routers_.size()) flits += routers_[peer].state.in_count.get(peer_port, vl);
  for (int d = 0; d < wheel.delay(); ++d)
    flits += (wheel.row(now + static_cast<emu::Cycle>(d))[peer].flits[peer_port] >> vl) & 1U;
  return flits;
}

template <class I, class S>
std::string Engine<I, S>::audit() const {
  const auto buffer = static_cast<unsigned>(spec.vc_buf_size);
  for (unsigned u = 0; u < static_cast<unsigned>(wiring.units()); ++u) {
    const emu::Outlet& outlet = wiring.outlets[u];
    for (unsigned i = 0; i < emu::kLaneSlots; ++i) {
      const unsigned p = port_of_lane(i);
      const unsigned v = vl_of_lane(i);
      if (((outlet.connected >> p) & 1U) == 0 || v >= emu::kVlCount) continue;
      unsigned sum = buffered(outlet, p, v);
      sum += u < routers_.size() ? routers_[u].state.credits.get(p, v)
                                 : groups_[u - routers_.size()]->credits(p, v);
      for (int d = 0; d < wheel.delay(); ++d)
        sum += (wheel.row(now + static_cast<emu::Cycle>(d))[u].credits[p] >> v) & 1U;
      if (sum != buffer)
        return fmt::format("unit {} port {} lane {}: flits and credits are {}, not {}", u, p, v,
                           sum, buffer);
    }
  }
  for (const auto& router : routers_) {
    const RouterState& r = router.state;
    unsigned owners = 0;
    unsigned active = 0;
    for (unsigned i = 0; i < emu::kLaneSlots; ++i) {
      if (vl_of_lane(i) >= emu::kVlCount) continue;
      active += (r.active[port_of_lane(i)] & vl_bit(i)) != 0;
      if (r.out_count.get(port_of_lane(i), vl_of_lane(i)) > buffer)
        return fmt::format("router {}: output lane {} holds too much", r.id, i);
      if (r.owner[i] == kNoLane) continue;
      ++owners;
      if (r.target[r.owner[i]] != i ||
          (r.active[port_of_lane(r.owner[i])] & vl_bit(r.owner[i])) == 0)
        return fmt::format("router {}: output lane {} has an owner that is elsewhere", r.id, i);
    }
    if (owners != active)
      return fmt::format("router {}: {} lanes owned by {} messages", r.id, owners, active);
  }
  return {};
}

template <class I, class S>
std::uint64_t Engine<I, S>::position() const {
  std::uint64_t hash = events.digest;
  const auto mix = [&](std::uint64_t value) { hash = (hash ^ value) * 0x100000001b3; };
  for (const auto& router : routers_) {
    for (unsigned i = 0; i < emu::kLaneSlots; ++i) {
      if (vl_of_lane(i) >= emu::kVlCount) continue;
      mix(router.state.in_count.get(port_of_lane(i), vl_of_lane(i)) * 256 +
          router.state.out_count.get(port_of_lane(i), vl_of_lane(i)));
    }
  }
  for (std::size_t n = 0; n < graph.nodes.size(); ++n)
    mix(static_cast<std::uint64_t>(wire_backlog(static_cast<emu::NodeId>(n))));
  return hash;
}

template <class I, class S>
std::vector<Wait> Engine<I, S>::waits() const {
  std::vector<Wait> found;
  for (const auto& router : routers_) {
    const RouterState& r = router.state;
    const auto add = [&](unsigned in_lane, unsigned out_lane, bool owns) {
      found.push_back({r.id, static_cast<emu::PortId>(port_of_lane(in_lane)),
                       static_cast<emu::Vl>(vl_of_lane(in_lane)),
                       static_cast<emu::PortId>(port_of_lane(out_lane)),
                       static_cast<emu::Vl>(vl_of_lane(out_lane)), owns});
    };
    for (unsigned o = 0; o < emu::kLaneSlots; ++o) {
      if (vl_of_lane(o) >= emu::kVlCount || r.owner[o] == kNoLane) continue;
      if ((r.out_full[port_of_lane(o)] & vl_bit(o)) != 0) add(r.owner[o], o, true);
      for (unsigned i = r.wait_first[o]; i != kNoLane; i = r.wait_next[i]) add(i, o, false);
    }
  }
  return found;
}

}  // namespace fabric

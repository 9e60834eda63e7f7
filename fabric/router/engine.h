// The engine for one set of schedulers, InputScheduler at the crossbar inputs, SourceScheduler at
// the HCAs, Multiplexer at the outputs (s5_output.h), for buffers of less than 2^kPlanes flits.
// Instantiated by engine_*.cc; seen by others as Network::Impl.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "fabric/link/wiring.h"
#include "fabric/router/impl.h"
#include "fabric/router/parts.h"
#include "fabric/router/pipeline.h"
#include "hca/wire/group.h"

namespace fabric {

template <int kPlanes, class InputScheduler, class SourceScheduler, class Multiplexer = InTurn>
class Engine final : public Network::Impl {
 public:
  // Of a step for large buffers there is none: it takes as long as by AVX2 and twice the compiler.
  static constexpr bool kStepsByAvx512 = kPlanes == emu::kPlanesSmall || !emu::kStepsByAvx2;

  Engine(const NetworkSpec& network_spec, Graph network_graph, ControlHook* control_hook)
      : Impl(network_spec, std::move(network_graph), control_hook),
        wiring_(make_wiring(graph)),
        parts_(*this, graph.routers.size(), emu::kPortsMax,
               [this](std::size_t part, emu::Cycle from, emu::Cycle end) {
                 step_part(*this, isa_, part, from, end);
               }),
        wheel_(wiring_.units(), spec.link_delay, parts_.ahead(), static_cast<int>(parts_.count())),
        control_(emu::spread(spec.first_lanes())),
        routers_(graph.routers.size()),
        busy_(graph.routers.size(), 0),
        order_of_part_(parts_.count()) {
    for (std::size_t r = 0; r < routers_.size(); ++r) set_up(r);
    groups_.reserve(static_cast<std::size_t>(wiring_.groups));
    for (std::size_t part = 0; part < parts_.count(); ++part) set_up_part(part);
    order_changed();
  }

  void step(emu::Cycle cycles) override { parts_.step(cycles); }
  // Cycles of one part; called by step_part().
  template <emu::Isa kIsa>
  void run(std::size_t part, emu::Cycle begin, emu::Cycle stretch_end) {
    parts_.run(
        part, begin, stretch_end,
        [this](hca::MessageId id, emu::Cycle cycle) {
          groups_[messages[id].src / emu::kPortsMax].ready(id, cycle);
        },
        [&](emu::Cycle from, emu::Cycle end) { cycles_until<kIsa>(part, from, end); });
  }
  void ready(hca::MessageId id) override {
    ++events.live;
    groups_[messages[id].src / emu::kPortsMax].ready(id, now);
  }
  void order_changed() override {
    for (std::size_t part = 0; part < parts_.count(); ++part) {
      const Parts::Range range = parts_.routers_of(part);
      order_of_part_[part].clear();
      for (const emu::RouterId r : order)
        if (r >= range.first && r < range.end) order_of_part_[part].push_back(r);
    }
  }
  void age(std::uint64_t moved) override {
    for (auto& router : routers_) {
      router.scheduler.age(router.state.bids, moved);
      router.multiplexer.age(moved);
      State& r = router.state;
      for (unsigned p = 0; p < emu::kPortsMax; ++p) r.wait_cycles[p] += r.recent_wait[p];
      r.recent_wait = emu::kNoLanes8;
    }
    for (auto& group : groups_) {
      group.age(moved);
      group.flush_counters();
    }
  }

  void close_window() override {
    const auto length = static_cast<emu::Cycle>(spec.energy_window);
    for (auto& router : routers_) {
      State& r = router.state;
      if ((r.arrived | r.heads | r.in_held | r.out_held) == 0) continue;
      const ActivityWindow window = activity_of(r, next_window - length);
      if (window.arrived + window.crossed + window.sent + window.heads == 0) continue;
      const std::size_t most = Network::kActivityWindowsMax * routers_.size();
      if (windows.size() >= most) windows.erase(windows.begin());
      windows.push_back(window);
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
    const State& r = routers_[router].state;
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
  LinkFlits link_flits(emu::RouterId router, emu::PortId port) const override;
  PortCounters wire_counters(emu::NodeId node) const override {
    const Group& g = groups_[node / emu::kPortsMax];
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
    const State& r = routers_[router].state;
    Network::Occupancy occupancy;
    for (unsigned v = 0; v < emu::kVlCount; ++v) {
      occupancy.input[v] = static_cast<std::uint8_t>(r.in_count.get(port, v));
      occupancy.output[v] = static_cast<std::uint8_t>(r.out_count.get(port, v));
    }
    return occupancy;
  }
  int wire_backlog(emu::NodeId node) const override {
    return groups_[node / emu::kPortsMax].backlog(node % emu::kPortsMax);
  }
  std::string audit() const override;
  std::vector<Wait> waits() const override;

 private:
  using Group = hca::WireGroup<kPlanes, SourceScheduler>;
  using State = RouterState<kPlanes>;

  Group& group(emu::NodeId node) { return groups_[node / emu::kPortsMax]; }

  template <class Scheduler>
  void configure(Scheduler& scheduler, emu::SchedulerKind kind) {
    scheduler.configure(kind, spec.lane_vtick, spec.first_lanes());
    for (unsigned p = 0; p < emu::kPortsMax; ++p) scheduler.set_weights(p, spec.weights);
  }
  void set_up(std::size_t index) {
    State& r = routers_[index].state;
    r.id = static_cast<emu::RouterId>(index);
    r.ways = {&routes, r.id, spec.fixed_classes, static_cast<unsigned>(spec.vc_buf_size)};
    r.is_full = emu::CountIs<kPlanes>(static_cast<unsigned>(spec.vc_buf_size));
    r.owner.fill(kNoLane);
    r.wait_first.fill(kNoLane);
    r.target.fill(static_cast<LaneIndex>(lane_slot(0, emu::kVlCount)));  // dummies lead nowhere
    for (unsigned i = 0; i < emu::kPortsMax * emu::kVlCount; ++i)
      r.credits.set(port_of_slot(i), vl_of_slot(i), static_cast<unsigned>(spec.vc_buf_size));
    configure(routers_[index].scheduler, spec.router_scheduler());
  }

  void set_up_part(std::size_t part) {
    const auto nowhere = static_cast<int>(part);
    const Parts::Range range = parts_.routers_of(part);
    for (std::size_t r = range.first; r < range.end; ++r)
      lead_nowhere(wiring_, static_cast<int>(r), nowhere);
    const Parts::Range groups = parts_.hcas_of(part);
    for (std::size_t g = groups.first; g < groups.end; ++g) {
      lead_nowhere(wiring_, wiring_.routers + static_cast<int>(g), nowhere);
      const auto first = static_cast<unsigned>(g * emu::kPortsMax);
      const auto count =
          std::min<unsigned>(emu::kPortsMax, static_cast<unsigned>(graph.nodes.size()) - first);
      groups_.emplace_back(first, count, static_cast<unsigned>(spec.vc_buf_size), spec.answer_flits,
                           yields_, messages, parts_.events_of(part));
      configure(groups_.back().scheduler(), spec.wire_scheduler());
    }
  }

  // What happened in the window that began in `begin`; the next one begins. Only arrivals are
  // counted flit by flit: what has gone on is what is no longer there.
  ActivityWindow activity_of(State& r, emu::Cycle begin) const {
    const std::uint32_t in_now = r.in_count.sum();
    const std::uint32_t out_now = r.out_count.sum();
    const std::uint32_t crossed = r.in_held + r.arrived - in_now;
    const std::uint32_t sent = r.out_held + crossed - out_now;
    ActivityWindow window = {begin, r.id, r.arrived, crossed, sent, r.heads, 0, r.arrived + sent};
    if (routers_.size() != 1) look_at_links(r, window);
    r.in_held = in_now;
    r.out_held = out_now;
    r.arrived = r.heads = 0;
    return window;
  }

  // Which of the flits came from and went to HCAs, which to other routers.
  void look_at_links(State& r, ActivityWindow& window) const;

  // What a cycle needs, in one place: stores through vectors make the compiler reload members.
  struct Units {
    Router<kPlanes, InputScheduler, Multiplexer>* routers;
    Group* groups;
    std::uint8_t* busy;
    const emu::RouterId* order;
    const emu::Outlet* outlets;
    std::size_t router_count;  // to step
    std::size_t first_group;
    std::size_t end_group;
    std::size_t group_units;  // number of the first group among the units
  };

  template <emu::Isa kIsa>
  void cycles_until(std::size_t part, emu::Cycle cycle, emu::Cycle end) {
    const std::vector<emu::RouterId>& mine = order_of_part_[part];
    const Parts::Range groups = parts_.hcas_of(part);
    const Units units = {routers_.data(),        groups_.data(), busy_.data(), mine.data(),
                         wiring_.outlets.data(), mine.size(),    groups.first, groups.end,
                         routers_.size()};
    const Surroundings world = {messages, hook, spec.alloc_iters, !routes.table.has_choices(),
                                yields_};
    const emu::Lanes8 control = control_;
    const auto delay = static_cast<emu::Cycle>(wheel_.delay());
    do {
      emu::Box* here = wheel_.row(cycle);
      emu::Box* there = wheel_.row(cycle + delay);
      if (units.router_count == 1 && units.end_group - units.first_group == 1) {
        step_both<kIsa>(units, here, there, control, world, cycle);
      } else {
        step_groups<kIsa>(units, here, there, cycle);
        step_routers<kIsa>(units, here, there, control, world, cycle);
      }
    } while (++cycle != end);
  }

  // One router and its HCAs, which are stepped while the router's allocator works: a chain of steps
  // that wait for each other. One that takes turns is done before the HCAs have heard of heads and
  // tails.
  template <emu::Isa kIsa>
  void step_both(const Units& units, emu::Box* here, emu::Box* there, emu::Lanes8 control,
                 const Surroundings& world, emu::Cycle cycle) {
    const emu::RouterId r = units.order[0];
    const std::size_t unit = units.group_units + units.first_group;
    Group& group = units.groups[units.first_group];
    const bool group_acts = !emu::quiet(here[unit]) || !group.quiet();
    const bool router_acts = units.busy[r] != 0 || !emu::quiet(here[r]);
    if (!group_acts || !router_acts) {
      step_groups<kIsa>(units, here, there, cycle);
      step_routers<kIsa>(units, here, there, control, world, cycle);
      return;
    }
    const emu::Outlet& outlet = units.outlets[r];
    Moves moves;
    if constexpr (InputScheduler::kTakesTurns) {
      typename Group::Leaving leaving;
      moves = move_flits<kIsa>(
          units.routers[r], here[r].credits, outlet, control, world, cycle,
          [&] { leaving = group.template choose<kIsa>(here[unit].credits, cycle); });
      group.template finish<kIsa>(leaving, here[unit], there, units.outlets[unit], cycle);
    } else {
      moves = move_flits<kIsa>(
          units.routers[r], here[r].credits, outlet, control, world, cycle,
          [&] { group.template step<kIsa>(here[unit], there, units.outlets[unit], cycle); });
    }
    units.busy[r] =
        finish_cycle<kIsa>(units.routers[r], moves, here[r], there, outlet, world, cycle);
  }

  // Nothing arrives and nothing is inside: nothing can change. Most of a mesh at low load is so.
  template <emu::Isa kIsa>
  void step_groups(const Units& units, emu::Box* here, emu::Box* there, emu::Cycle cycle) {
    for (std::size_t g = units.first_group; g < units.end_group; ++g) {
      const std::size_t unit = units.group_units + g;
      if (emu::quiet(here[unit]) && units.groups[g].quiet()) continue;
      units.groups[g].template step<kIsa>(here[unit], there, units.outlets[unit], cycle);
    }
  }
  template <emu::Isa kIsa>
  void step_routers(const Units& units, emu::Box* here, emu::Box* there, emu::Lanes8 control,
                    const Surroundings& world, emu::Cycle cycle) {
    if (units.router_count == 1) {
      const emu::RouterId r = units.order[0];
      if (units.busy[r] == 0 && emu::quiet(here[r])) return;
      units.busy[r] = step_router<kIsa>(units.routers[r], here[r], there, units.outlets[r], control,
                                        world, cycle);
      return;
    }
    for (std::size_t first = 0; first < units.router_count; first += kBitsOfWord) {
      const std::size_t end = std::min(units.router_count, first + kBitsOfWord);
      std::uint64_t active = 0;  // first which, then one by one: each branch would be missed
      for (std::size_t i = first; i < end; ++i) {
        const emu::RouterId r = units.order[i];
        const bool acts = units.busy[r] | !emu::quiet(here[r]);
        active |= std::uint64_t{acts} << (i - first);
      }
      for (; active != 0; active &= active - 1) {
        const auto r = units.order[first + static_cast<std::size_t>(std::countr_zero(active))];
        units.busy[r] = step_router<kIsa>(units.routers[r], here[r], there, units.outlets[r],
                                          control, world, cycle);
      }
    }
  }

  unsigned buffered(const emu::Outlet& outlet, unsigned port, unsigned vl) const;

  static constexpr std::size_t kBitsOfWord = 64;
  Wiring wiring_;
  Parts parts_;
  BoxWheel wheel_;
  emu::Lanes8 control_;
  emu::Lanes8 yields_ = emu::spread(spec.strict_classes ? unsigned{spec.lanes_of_class[2]} : 0U);
  emu::Isa isa_ = best_isa(spec.isa_max);
  std::vector<Router<kPlanes, InputScheduler, Multiplexer>> routers_;
  std::vector<std::uint8_t> busy_;  // [router] a flit is in its buffers
  std::vector<Group> groups_;
  std::vector<std::vector<emu::RouterId>> order_of_part_;
};

}  // namespace fabric

#include "fabric/router/engine_look.h"

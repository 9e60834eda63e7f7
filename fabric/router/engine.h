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
    const Surroundings world = surroundings();
    if (alone_) {
      const Alone alone = {.router = routers_[0],
                           .group = groups_[0],
                           .outlet = wiring_.outlets[0],
                           .world = world,
                           .control = control_};
      parts_.run(
          part, begin, stretch_end,
          [this](hca::MessageId id, emu::Cycle cycle) {
            emu::apart<kIsa>([this, id, cycle] { groups_[0].ready(id, cycle); });
          },
          [&](emu::Cycle from, emu::Cycle end) { cycles_alone<kIsa>(alone, from, end); });
      return tails_arrive(stretch_end);
    }
    const Units units = units_of(part);
    parts_.run(
        part, begin, stretch_end,
        [this](hca::MessageId id, emu::Cycle cycle) { group(messages[id].src).ready(id, cycle); },
        [&](emu::Cycle from, emu::Cycle end) { cycles_among<kIsa>(units, world, from, end); });
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
    std::uint32_t early = 0;  // heads that take their output lane in the next window
    for (const emu::Lanes8 lanes : r.soon) early += lanes_set(lanes);
    const std::uint32_t in_now = r.in_count.sum();
    const std::uint32_t out_now = r.out_count.sum();
    const std::uint32_t crossed = r.in_held + r.arrived - in_now;
    const std::uint32_t sent = r.out_held + crossed - out_now;
    ActivityWindow window = {begin,           r.id, r.arrived,       crossed, sent,
                             r.heads - early, 0,    r.arrived + sent};
    if (routers_.size() != 1) look_at_links(r, window);
    r.in_held = in_now;
    r.out_held = out_now;
    r.arrived = 0;
    r.heads = early;
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

  Units units_of(std::size_t part) {
    const std::vector<emu::RouterId>& mine = order_of_part_[part];
    const Parts::Range groups = parts_.hcas_of(part);
    return {routers_.data(), groups_.data(), busy_.data(), mine.data(),    wiring_.outlets.data(),
            mine.size(),     groups.first,   groups.end,   routers_.size()};
  }
  Surroundings surroundings() {
    return {.messages = messages,
            .hook = hook,
            .alloc_iters = spec.alloc_iters,
            .fixed_ways = !routes.table.has_choices(),
            .tails = alone_ ? &tails_ : nullptr,
            .head_delay = alone_ ? static_cast<emu::Cycle>(wheel_.delay()) : 0,
            .metered = !alone_ || !spec.credits_in_time(),
            .yields = yields_,
            .yield = emu::any(yields_)};
  }

  template <emu::Isa kIsa>
  void cycles_among(const Units& units, const Surroundings& world, emu::Cycle cycle,
                    emu::Cycle end) {
    const auto delay = static_cast<emu::Cycle>(wheel_.delay());
    const emu::Lanes8 control = control_;
    do {
      emu::Box* here = wheel_.row(cycle);
      emu::Box* there = wheel_.row(cycle + delay);
      step_groups<kIsa>(units, here, there, cycle);
      step_routers<kIsa>(units, here, there, control, world, cycle);
    } while (++cycle != end);
  }

  // One router and its HCAs, node n at port n: nothing else hears what they say to each other, so
  // heads and tails need not go by the links. A router is told of heads when they leave; tails
  // arrive when the step ends, but for those of probes, which turn round then and there.
  struct Alone {
    Router<kPlanes, InputScheduler, Multiplexer>& router;
    Group& group;
    const emu::Outlet& outlet;
    const Surroundings& world;
    emu::Lanes8 control;
  };
  template <emu::Isa kIsa>
  void cycles_alone(const Alone& alone, emu::Cycle cycle, emu::Cycle end) {
    while (cycle != end) {
      const emu::Cycle look = std::min(end, cycle - cycle % kLook + kLook);
      busy_[0] = cycles_between_looks<kIsa>(alone, wheel_, cycle, look, busy_[0] != 0);
      if (look % kLook == 0) emu::apart<kIsa>([this, look] { tails_arrive(look); });
      cycle = look;
    }
  }
  // Stores through vectors make the compiler reload members, so that there are none here.
  template <emu::Isa kIsa>
  static bool cycles_between_looks(const Alone& alone, BoxWheel& wheel, emu::Cycle cycle,
                                   emu::Cycle end, bool busy) {
    const BoxWheel::Rows rows = wheel.rows();
    do {
      emu::Box* here = rows.of(cycle);
      emu::Box* there = rows.of(cycle + alone.world.head_delay);
      const bool group_acts = !emu::quiet(here[1]) || !alone.group.quiet();
      emu::Lanes8 sent{};
      if (busy || !emu::quiet(here[0])) {
        // The HCAs are stepped while the router's allocator works: a chain of steps that wait for
        // each other. One that takes turns is done before they tell of heads and tails.
        typename Group::Leaving later;
        const Moves moves = move_flits<kIsa, Site::alone>(
            alone.router, here[0], alone.outlet, alone.control, alone.world, cycle, [&] {
              if (!group_acts) return;
              const auto leaving = alone.group.template choose<kIsa>(here[1].credits, cycle);
              if constexpr (InputScheduler::kTakesTurns)
                later = leaving;
              else
                group_leaves<kIsa>(alone, leaving, here, there, cycle);
            });
        if constexpr (InputScheduler::kTakesTurns)
          if (group_acts) group_leaves<kIsa>(alone, later, here, there, cycle);
        sent = moves.output.flits;
        alone.world.tails->sent(cycle, sent);
        busy = finish_cycle<kIsa, Site::alone>(alone.router, moves, here[0], alone.world, cycle);
        there[1].credits = moves.crossed.flits;
        if (alone.world.metered) there[1].flits = sent;
      } else if (group_acts) {
        const auto leaving = alone.group.template choose<kIsa>(here[1].credits, cycle);
        group_leaves<kIsa>(alone, leaving, here, there, cycle);
      }
      if (alone.world.tails->has_probes()) [[unlikely]] {
        emu::apart<kIsa>([&alone, cycle, sent] {
          alone.world.tails->follow_probes(
              cycle, sent, alone.world.head_delay,
              [&](unsigned lane, hca::MessageId id) { alone.group.tail_arrived(lane, id, cycle); });
        });
      }
    } while (++cycle != end);
    return busy;
  }
  template <emu::Isa kIsa>
  static void group_leaves(const Alone& alone, const typename Group::Leaving& leaving,
                           emu::Box* here, emu::Box* there, emu::Cycle cycle) {
    alone.group.template tell<kIsa>(
        leaving, cycle, [&alone, there, cycle](unsigned node, unsigned lane, hca::MessageId id) {
          if (alone.router.scheduler.per_message()) there[0].name[node] = id + 1;
          head_comes(alone.router.state, lane_slot(node, lane), id, cycle + alone.world.head_delay,
                     cycle, alone.world);
        });
    there[0].flits = leaving.flits;
    here[1].credits = emu::kNoLanes8;
    if (!alone.world.metered) return;
    there[0].credits = here[1].flits;
    here[1].flits = emu::kNoLanes8;
  }
  // Those that have come before `end`.
  void tails_arrive(emu::Cycle end) {
    const auto delay = static_cast<emu::Cycle>(spec.link_delay);
    if (end < delay) return;
    tails_.look(end - delay, [&](emu::Cycle cycle, unsigned lane, hca::MessageId id) {
      groups_[0].tail_arrived(lane, id, cycle + delay);
    });
  }
  bool is_alone() const {
    if (graph.routers.size() != 1 || graph.nodes.size() > emu::kPortsMax) return false;
    for (std::size_t n = 0; n < graph.nodes.size(); ++n)
      if (graph.nodes[n].port != n) return false;
    return true;
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
  static constexpr emu::Cycle kLook = TailLog::kCyclesMax / 2;
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
  bool alone_ = is_alone();
  TailLog tails_{alone_ ? messages.size() : 0};
};

}  // namespace fabric

#include "fabric/router/engine_look.h"

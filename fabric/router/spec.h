// What a network is built from: plain values, no dependence on the configuration file. Filled in by
// fabricd, the simulation, the benchmark and the tests.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "emu/base/units.h"
#include "emu/lane/isa.h"
#include "emu/lane/policy.h"
#include "fabric/route/routing.h"
#include "fabric/router/design.h"
#include "fabric/router/power_herd.h"
#include "fabric/topo/shape.h"

namespace fabric {

inline constexpr int kThreadsMax = 64;

struct NetworkSpec {
  TopologyKind topology = TopologyKind::single;
  int nodes = 8;             // single: 1 ... 8, node n sits at port n; else ignored
  int mesh_k = 2;            // grids without sides are k x k
  int nodes_per_router = 1;  // grids: HCAs at the first ports; node n sits at router n / this
  std::vector<int> sides;    // grids: routers along each dimension; empty: mesh_k x mesh_k
  int links = 2;             // fat_mesh: between two neighbours
  int arity = 4;             // ary_tree
  int levels = 3;            // ary_tree
  std::string graph_text;    // file: its content
  std::string graph_source;  // file: its name

  RoutingKind routing = RoutingKind::automatic;
  // Classes, a bit each, whose messages take the fixed way although others choose by load: what
  // admission booked for them is on that way. Probes and releases always do.
  unsigned fixed_classes = 0;
  // recovery: cycles that a head waits for a free lane before it may take the token.
  int recovery_cycles = 32;
  // Off only to see the watchdog at work: a network that may deadlock is refused otherwise.
  bool check_deadlock = true;
  // Cycles without any flit moving, or without any message delivered times sixteen, while messages
  // are under way, after which stuck() says who waits; at least twice receive_cycles; 0: never.
  emu::Cycle watchdog_cycles = 100'000;

  RouterKind router = RouterKind::non_preemptive;
  CrossbarKind crossbar = CrossbarKind::multiplexed;
  CounterKind counters = CounterKind::epoch;
  FlowKind flow = FlowKind::stream;  // cell
  int quench_flits = 8;  // cell, stream: a longer queue of a connection stops its source
  // cell: cycles between the ends of two messages that a node takes, at least; what comes meanwhile
  // stays in its card, without credit. 0: as fast as its link.
  int receive_cycles = 0;
  int circuits = 16;  // circuit: lanes of a link, one circuit each: 1 ... 32
  // preemptive: flits that are in a higher class's way get the smallest stamp (RN 3.2.2).
  bool accelerate = true;
  // Flits that a lane may send once its scheduler has chosen it: 1 ... 64.
  int block_flits = 1;
  // A block keeps its port for block_flits cycles, also while its lane has nothing to send: the
  // scheduler decides once a block. Else others go meanwhile.
  bool block_waits = false;
  // The general engine also where the fast one could do it: they must agree.
  bool general_engine = false;

  // Flits of an input lane and of an output lane: 1 ... 127, in the general engine ... 4095.
  int vc_buf_size = 10;
  int link_delay = 1;  // cycles on every link, flits and credits alike: 1 ... 15
  // An HCA takes a flit as it comes, so that its credit is there 2 * link_delay cycles after the
  // flit has left: where a buffer has room for those that leave meanwhile, none ever waits for one.
  bool credits_in_time() const { return vc_buf_size >= 2 * link_delay; }

  // Rounds of the separable allocator of stage 4: 1 ... 8, more than 8 ports cannot use.
  int alloc_iters = 2;

  emu::SchedulerKind scheduler = emu::SchedulerKind::virtual_clock;
  // A traditional router has no other.
  emu::SchedulerKind router_scheduler() const {
    return router == RouterKind::traditional ? emu::SchedulerKind::fcfs : scheduler;
  }
  // Of the HCAs onto their links, where it is not the routers'. The fast engine does another one
  // where both go by stamps.
  std::optional<emu::SchedulerKind> hca_scheduler;
  emu::SchedulerKind wire_scheduler() const { return hca_scheduler.value_or(router_scheduler()); }
  emu::VlWeights weights{};  // wrr, two_level: of every port until set_weights
  // virtual_clock: Vtick of each lane at every port until set_lane_vtick. default_lane_vticks().
  std::array<emu::Vtick, emu::kVlCount> lane_vtick{};

  // Strict class priority above the scheduler: a lane of best effort goes only where no other lane
  // of that input or of that output's proposals can.
  bool strict_classes = false;

  // Lanes of control, real-time, best-effort.
  std::array<emu::LaneMask, emu::kClassCount> lanes_of_class = {0x8000, 0x7ff0, 0x000f};
  // Lanes of control go strictly before all others, as VL15 does; off: the scheduler has them like
  // the rest. In a preemptive router control goes first by its level all the same.
  bool control_first = true;
  emu::LaneMask first_lanes() const {
    const bool first = control_first && router != RouterKind::traditional;
    return first ? lanes_of_class[0] : emu::LaneMask{0};
  }

  int packets_per_node = 4096;  // packets of one sender from submit until drained at the receiver
  std::uint16_t answer_flits = 10;  // length of an answer to a probe
  emu::Cycle start = 0;             // first cycle
  // For tests: without the instructions that only newer processors have. Results are the same.
  emu::Isa isa_max = emu::Isa::avx512;
  int energy_window = 500;  // cycles of an ActivityWindow
  HerdOptions herd;         // general engine: routers keep to a power cap, window by window
  // That step the routers, the caller's among them: 1 ... 64, but at most one a router, or a block
  // of eight where routers are not traditional. Results are the same. Only of the fast engine.
  int threads = 1;
};

Shape shape_of(const NetworkSpec& spec);

// Each real-time lane an equal share of a link, best effort the largest Vtick.
std::array<emu::Vtick, emu::kVlCount> default_lane_vticks(
    const std::array<emu::LaneMask, emu::kClassCount>& lanes_of_class);

}  // namespace fabric

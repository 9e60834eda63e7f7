// What a network is built from: plain values, no dependence on the configuration file. Filled in by
// fabricd, the simulation, the benchmark and the tests.
#pragma once

#include <array>
#include <cstdint>

#include "emu/base/units.h"
#include "emu/lane/policy.h"
#include "fabric/topo/shape.h"

namespace fabric {

struct NetworkSpec {
  TopologyKind topology = TopologyKind::single;
  int nodes = 8;             // single: 1 ... 8, node n sits at port n; mesh: ignored
  int mesh_k = 2;            // mesh: k x k routers, XY routing, router (x, y) is y * k + x
  int nodes_per_router = 1;  // mesh: 1 or 2 HCAs at ports 0 (and 1); node n sits at router n / this

  int vc_buf_size = 10;  // flits of an input lane and of an output lane: 1 ... 15
  int link_delay = 1;    // cycles on every link, flits and credits alike: 1 ... 15

  emu::SchedulerKind scheduler = emu::SchedulerKind::virtual_clock;
  emu::VlWeights weights{};  // wrr, two_level: of every port until set_weights
  // virtual_clock: Vtick of each lane at every port until set_lane_vtick. default_lane_vticks().
  std::array<emu::Vtick, emu::kVlCount> lane_vtick{};

  // Lanes of control, real-time, best-effort. Lanes of control go strictly before all others.
  std::array<emu::LaneMask, emu::kClassCount> lanes_of_class = {0x8000, 0x7ff0, 0x000f};

  int packets_per_node = 4096;  // packets of one sender from submit until drained at the receiver
  std::uint16_t answer_flits = 10;  // length of an answer to a probe
  emu::Cycle start = 0;             // first cycle
  // For tests: without the instructions that only newer processors have. Results are the same.
  bool portable = false;
  int energy_window = 500;  // cycles of an ActivityWindow
};

// Each real-time lane an equal share of a link, best effort the largest Vtick.
std::array<emu::Vtick, emu::kVlCount> default_lane_vticks(
    const std::array<emu::LaneMask, emu::kClassCount>& lanes_of_class);

}  // namespace fabric

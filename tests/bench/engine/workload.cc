#include "tests/bench/engine/workload.h"

#include <fmt/format.h>

#include <bit>

namespace bench {

namespace {

constexpr unsigned kBestEffortLanes = 4;

fabric::NetworkSpec spec_of(emu::SchedulerKind scheduler) {
  fabric::NetworkSpec spec;
  spec.scheduler = scheduler;
  spec.lane_vtick = fabric::default_lane_vticks(spec.lanes_of_class);
  for (unsigned v = 0; v < emu::kVlCount; ++v) {
    spec.weights.high[v] = v >= kBestEffortLanes ? 4 : 0;
    spec.weights.low[v] = v < kBestEffortLanes ? 4 : 0;
  }
  spec.weights.high_limit = 5;
  return spec;
}

}  // namespace

std::vector<Case> all_cases() {
  struct Kind {
    const char* name;
    emu::SchedulerKind kind;
  };
  constexpr Kind kKinds[] = {{"vclk", emu::SchedulerKind::virtual_clock},
                             {"fgvc", emu::SchedulerKind::fgvc},
                             {"fcfs", emu::SchedulerKind::fcfs},
                             {"rr", emu::SchedulerKind::round_robin},
                             {"two_level", emu::SchedulerKind::two_level}};
  std::vector<Case> cases;
  for (const Kind& kind : kKinds)
    cases.push_back({fmt::format("single8/{}/0.8", kind.name), spec_of(kind.kind), 0.8});
  for (const double load : {0.02, 0.5})
    cases.push_back({fmt::format("single8/vclk/{}", load), spec_of(kKinds[0].kind), load});
  for (const double load : {0.02, 0.2, 0.4}) {
    Case mesh = {fmt::format("mesh4x4/vclk/{}", load), spec_of(kKinds[0].kind), load};
    mesh.spec.topology = fabric::TopologyKind::mesh;
    mesh.spec.mesh_k = 4;
    cases.push_back(mesh);
  }
  using fabric::TopologyKind;
  struct Shape {
    const char* name;
    TopologyKind kind;
    std::vector<int> sides;
    double load;
    unsigned scale;
  };
  const Shape shapes[] = {{"fattree64", TopologyKind::fat_tree, {}, 0.5, 10},
                          {"torus8x8x8", TopologyKind::torus, {8, 8, 8}, 0.3, 100},
                          {"torus16x16x16", TopologyKind::torus, {16, 16, 16}, 0.1, 500}};
  for (const Shape& shape : shapes) {
    Case large = {fmt::format("{}/vclk/{}", shape.name, shape.load), spec_of(kKinds[0].kind),
                  shape.load, shape.scale};
    large.spec.topology = shape.kind;
    large.spec.sides = shape.sides;
    // Datelines need two lanes of control; a node has few packets under way.
    if (shape.kind == TopologyKind::torus) large.spec.lanes_of_class = {0xc000, 0x3ff0, 0x000f};
    large.spec.lane_vtick = fabric::default_lane_vticks(large.spec.lanes_of_class);
    large.spec.packets_per_node = 256;
    cases.push_back(large);
  }
  return cases;
}

Workload::Workload(const Case& which, int nodes, std::uint64_t seed)
    : random_(seed),
      gap_(kPacketFlits / which.load),
      real_time_lanes_(static_cast<unsigned>(std::popcount(which.spec.lanes_of_class[1]))),
      next_(static_cast<std::size_t>(nodes)) {
  for (double& first : next_) first = random_.exponential(gap_);
}

hca::SendPacket Workload::packet(emu::NodeId src) {
  const auto nodes = static_cast<std::uint32_t>(next_.size());
  const std::uint64_t draw = random_();
  const auto other = static_cast<std::uint32_t>((draw & 0xffffffff) * (nodes - 1) >> 32);
  const auto percent = static_cast<unsigned>((draw >> 32 & 0xffff) * 100 >> 16);
  const auto lane_in = static_cast<unsigned>(draw >> 48 & 0xff);
  const auto lane_out = static_cast<unsigned>(draw >> 56);
  const bool real_time = percent < 80;
  const auto lane = [&](unsigned byte) {
    return static_cast<emu::Vl>(real_time ? kBestEffortLanes + byte * real_time_lanes_ / 256
                                          : byte * kBestEffortLanes / 256);
  };
  hca::SendPacket packet;
  packet.launch = static_cast<emu::Cycle>(next_[src]);
  packet.flits = kPacketFlits;
  packet.dest = static_cast<emu::NodeId>(other + (other >= src));
  packet.vl_in = lane(lane_in);
  packet.vl_out = lane(lane_out);
  packet.traffic_class = real_time ? emu::TrafficClass::real_time : emu::TrafficClass::best_effort;
  packet.vtick = real_time ? static_cast<emu::Vtick>(real_time_lanes_) : emu::kVtickMax;
  return packet;
}

}  // namespace bench

#include "tests/bench/engine/workload.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

namespace bench {

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

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

namespace {

struct Shape {
  const char* name;
  fabric::TopologyKind kind;
  std::vector<int> sides;
  unsigned scale;
};
const Shape kSingle = {"single8", fabric::TopologyKind::single, {}, 1};
const Shape kMesh16 = {"mesh4x4", fabric::TopologyKind::mesh, {4, 4}, 1};
const Shape kMesh64 = {"mesh8x8", fabric::TopologyKind::mesh, {8, 8}, 10};
const Shape kFatTree = {"fattree64", fabric::TopologyKind::fat_tree, {}, 10};
const Shape kTorus512 = {"torus8x8x8", fabric::TopologyKind::torus, {8, 8, 8}, 100};
const Shape kTorus4096 = {"torus16x16x16", fabric::TopologyKind::torus, {16, 16, 16}, 500};

Case case_of(const Shape& shape, double load, const char* scheduler = "vclk",
             emu::SchedulerKind kind = emu::SchedulerKind::virtual_clock) {
  Case made = {fmt::format("{}/{}/{}", shape.name, scheduler, load), spec_of(kind), load,
               shape.scale};
  made.spec.topology = shape.kind;
  made.spec.sides = shape.sides;
  // Datelines need two lanes of control.
  if (shape.kind == fabric::TopologyKind::torus)
    made.spec.lanes_of_class = {0xc000, 0x3ff0, 0x000f};
  made.spec.lane_vtick = fabric::default_lane_vticks(made.spec.lanes_of_class);
  if (shape.scale > 1) made.spec.packets_per_node = 256;  // a node has few under way
  return made;
}

// A design of the general engine on the single switch, at half load.
Case design_case(const char* name, fabric::RouterKind router, double load = 0.5) {
  Case made = case_of(kSingle, load, name, emu::SchedulerKind::fgvc);
  made.spec.router = router;
  made.spec.general_engine = true;
  made.counted = false;
  // Whole packets (vct), all cells of a link on their way (cell).
  if (router == fabric::RouterKind::cut_through || router == fabric::RouterKind::cell)
    made.spec.vc_buf_size = 40;
  return made;
}

std::vector<Case> design_cases() {
  using fabric::RouterKind;
  std::vector<Case> cases = {
      design_case("np", RouterKind::non_preemptive),  design_case("tr", RouterKind::traditional),
      design_case("p", RouterKind::preemptive),       design_case("pcs", RouterKind::circuit, 0.3),
      design_case("vct", RouterKind::cut_through),    design_case("cell", RouterKind::cell),
      design_case("full", RouterKind::non_preemptive)};
  cases.back().spec.crossbar = fabric::CrossbarKind::full;
  return cases;
}

}  // namespace

std::vector<Case> all_cases() {
  std::vector<Case> cases = {case_of(kSingle, 0.8),
                             case_of(kSingle, 0.8, "fgvc", emu::SchedulerKind::fgvc),
                             case_of(kSingle, 0.8, "fcfs", emu::SchedulerKind::fcfs),
                             case_of(kSingle, 0.8, "rr", emu::SchedulerKind::round_robin),
                             case_of(kSingle, 0.8, "two_level", emu::SchedulerKind::two_level),
                             case_of(kSingle, 0.02),
                             case_of(kSingle, 0.5)};
  cases.push_back(case_of(kSingle, 0.8, "tr", emu::SchedulerKind::fcfs));
  cases.back().spec.router = fabric::RouterKind::traditional;
  for (const double load : {0.02, 0.1, 0.2, 0.4, 0.5, 0.8}) cases.push_back(case_of(kMesh16, load));
  cases.push_back(case_of(kMesh16, 0.4, "two_level", emu::SchedulerKind::two_level));
  for (const double load : {0.4, 0.5}) cases.push_back(case_of(kFatTree, load));
  for (const double load : {0.3, 0.4}) cases.push_back(case_of(kTorus512, load));
  cases.push_back(case_of(kTorus4096, 0.1));
  for (Case& design : design_cases()) cases.push_back(std::move(design));
  return cases;
}

std::vector<Case> sweep_cases() {
  std::vector<Case> cases;
  for (const double load : {0.02, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9})
    cases.push_back(case_of(kSingle, load));
  for (const Shape* shape : {&kMesh16, &kMesh64, &kTorus512, &kTorus4096})
    cases.push_back(case_of(*shape, 0.1));
  return cases;
}

namespace {

Share real_time_share(const fabric::NetworkSpec& spec) {
  const auto lanes = static_cast<unsigned>(std::popcount(spec.lanes_of_class[1]));
  return {kBestEffortLanes, lanes, emu::TrafficClass::real_time, static_cast<emu::Vtick>(lanes)};
}

}  // namespace

fabric::NetworkSpec idle_spec() { return case_of(kTorus512, 0).spec; }

Workload::Workload(const Case& which, int nodes, std::uint64_t seed)
    : random_(seed),
      gap_(kPacketFlits / which.load),
      shares_{Share{0, kBestEffortLanes, emu::TrafficClass::best_effort, emu::kVtickMax},
              real_time_share(which.spec)},
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
  // By a table: which class it is cannot be predicted.
  const Share& share = shares_[percent < 80 ? 1 : 0];
  const auto lane = [&](unsigned byte) {
    return static_cast<emu::Vl>(share.first_lane + byte * share.lanes / 256);
  };
  hca::SendPacket packet;
  packet.launch = static_cast<emu::Cycle>(next_[src]);
  packet.flits = kPacketFlits;
  packet.dest = static_cast<emu::NodeId>(other + (other >= src));
  packet.vl_in = lane(lane_in);
  packet.vl_out = lane(lane_out);
  packet.traffic_class = share.traffic_class;
  packet.vtick = share.vtick;
  return packet;
}

}  // namespace bench

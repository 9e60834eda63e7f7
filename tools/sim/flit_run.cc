#include "tools/sim/flit_run.h"

#include <algorithm>

#include "emu/base/check.h"
#include "fabric/daemon/spec.h"

namespace tools {

namespace {

// Cycles between two looks at sources and events. Results do not depend on it as long as lanes do
// not run dry within one: kAtWire messages of a lane are more than that.
constexpr emu::Cycle kQuantum = 512;
// Messages of a lane that the wire half holds; the rest waits here, so that a class in overload
// does not use up the engine's table.
constexpr std::uint32_t kAtWire = 256;
constexpr int kPacketsPerNode = 8192;  // 16 lanes of kAtWire, and as many on their way

// The cookie says when a message was created and on which lane it waits.
constexpr unsigned kLaneBits = 8;
std::uint64_t cookie_of(const FlitMessage& message) {
  return message.created << kLaneBits | message.vl_in;
}
// The handle: stream and frame.
std::uint32_t handle_of(const FlitMessage& message) {
  return message.stream << 16 | (message.frame & 0xffffU);
}

// Whoever sends needs a lane.
emu::Result<void> check_lanes(const Setting& setting) {
  const WorkloadSpec& spec = setting.spec;
  const bool sends[emu::kClassCount] = {spec.control_per_frame > 0, has_streams(spec),
                                        has_best_effort(spec)};
  for (std::size_t c = 0; c < emu::kClassCount; ++c) {
    if (sends[c] && setting.lanes[c] == 0) {
      return emu::fail("run.lanes: {} has no lane", emu::kClassNames[c]);
    }
  }
  return {};
}

}  // namespace

emu::Result<std::unique_ptr<FlitRun>> FlitRun::make(const Point& point) {
  std::unique_ptr<FlitRun> run(new FlitRun(point));
  if (auto built = run->build(); !built) return std::unexpected(built.error());
  return run;
}

emu::Result<void> FlitRun::build() {
  const emu::Config& config = point_.cluster;
  fabric::NetworkSpec spec = fabric::network_spec(config, 0);
  if (point_.run.lanes_given) {
    spec.lanes_of_class = point_.run.lanes;
    spec.lane_vtick = fabric::default_lane_vticks(spec.lanes_of_class);
  }
  spec.packets_per_node = kPacketsPerNode;
  auto network = fabric::Network::make(spec);
  if (!network) return std::unexpected(network.error());
  network_ = std::move(*network);

  setting_.spec = point_.workload;
  setting_.time = config.network.cycle_time();
  setting_.flits_per_cycle_mbps = config.network.link_mbps;
  setting_.flit_bits = config.network.flit_bits;
  setting_.nodes = network_->nodes();
  setting_.lanes = spec.lanes_of_class;
  setting_.end = point_.run.batch_cycles * point_.run.batches;
  if (auto lanes = check_lanes(setting_); !lanes) return lanes;
  measure_ = std::make_unique<Measure>(setting_.time, point_.run.batch_cycles, point_.run.batches,
                                       0, point_.workload.frame_ms);
  auto workload = make_workload(setting_, *measure_, point_.run.seed);
  if (!workload) return std::unexpected(workload.error());
  workload_ = std::move(*workload);
  const std::size_t lanes = static_cast<std::size_t>(setting_.nodes) * emu::kVlCount;
  queues_.resize(lanes);
  at_wire_.resize(lanes);
  return {};
}

void FlitRun::enqueue(const FlitMessage& message) {
  measure_->offered(message);
  queues_[message.source * std::size_t{emu::kVlCount} + message.vl_in].push_back(message);
  ++waiting_;
}

void FlitRun::push(std::size_t node, std::size_t lane) {
  const std::size_t index = node * emu::kVlCount + lane;
  std::deque<FlitMessage>& queue = queues_[index];
  while (!queue.empty() && at_wire_[index] < kAtWire) {
    const FlitMessage& message = queue.front();
    hca::SendPacket packet;
    packet.cookie = cookie_of(message);
    packet.launch = message.created;
    packet.handle = handle_of(message);
    packet.flits = message.flits;
    packet.dest = message.dest;
    packet.vl_in = message.vl_in;
    packet.vl_out = message.vl_out;
    packet.traffic_class = message.traffic_class;
    packet.vtick = message.vtick;
    if (!network_->submit(static_cast<emu::NodeId>(node), packet)) return;
    ++at_wire_[index];
    --waiting_;
    queue.pop_front();
  }
}

void FlitRun::drain() {
  for (const hca::InjectedEvent& event : network_->injected()) {
    --at_wire_[event.node * std::size_t{emu::kVlCount} + (event.cookie & ((1U << kLaneBits) - 1))];
  }
  for (const hca::DeliveredEvent& event : network_->delivered()) {
    const emu::Cycle created = event.cookie >> kLaneBits;
    measure_->delivered(event.traffic_class, event.flits, created, event.head_cycle,
                        event.tail_cycle);
    const std::uint32_t stream = event.handle >> 16;
    if (stream != kNoStream) {
      measure_->frame_message(stream, static_cast<std::uint16_t>(event.handle), event.tail_cycle);
    }
  }
  const emu::EnergyTable& energy = point_.cluster.energy;
  for (const fabric::ActivityWindow& window : network_->activity()) {
    const double router_pj = window.arrived * energy.buffer_write_pj +
                             window.sent * energy.buffer_read_pj +
                             window.crossed * (energy.buffer_read_pj + energy.buffer_write_pj +
                                               energy.crossbar_pj + energy.arbitration_pj);
    measure_->energy(window.begin, router_pj);
  }
  network_->clear_events();
}

void FlitRun::play() {
  while (network_->now() < setting_.end) {
    const emu::Cycle horizon = std::min(network_->now() + kQuantum, setting_.end);
    created_.clear();
    for (auto& source : workload_.sources) source->feed(horizon, created_);
    // By creation, then by source: the order of submission is the order in the lanes.
    std::stable_sort(
        created_.begin(), created_.end(),
        [](const FlitMessage& a, const FlitMessage& b) { return a.created < b.created; });
    for (const FlitMessage& message : created_) enqueue(message);
    for (std::size_t node = 0; node < static_cast<std::size_t>(setting_.nodes); ++node) {
      for (std::size_t lane = 0; lane < emu::kVlCount; ++lane) push(node, lane);
    }
    network_->run_until(horizon);
    drain();
  }
}

std::string FlitRun::json() const {
  emu::JsonWriter json;
  json.open();
  json.field("nodes", network_->nodes());
  json.field("cycle_ps", setting_.time.cycle_ps);
  json.field("batch_cycles", point_.run.batch_cycles);
  json.field("streams", workload_.streams);
  json.field("stream_load", workload_.stream_load);
  json.field("waiting", waiting_);
  json.field("frames_under_way", measure_->frames_under_way());
  json.field("digest", fmt::format("{:016x}", network_->digest()));
  json.field("stuck", network_->stuck());
  measure_->write(json);
  json.close();
  return json.text();
}

}  // namespace tools

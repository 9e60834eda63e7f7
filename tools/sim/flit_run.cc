#include "tools/sim/flit_run.h"

#include <algorithm>
#include <utility>

#include "emu/base/check.h"
#include "emu/energy/meter.h"
#include "fabric/daemon/look.h"
#include "fabric/daemon/power.h"
#include "fabric/daemon/spec.h"

namespace tools {

namespace {

// Cycles between two looks at sources and events. Without HCAs nothing looks back, and results do
// not depend on it (flit_lanes.cc), but for one thing: where messages of a flit or two overload a
// link, schedulers stamp them from when the wire half had room for them. With HCAs it is how late a
// credit comes: the time of a CQE's DMA.
constexpr emu::Cycle kQuantum = emu::kPowerWindowCycles;
constexpr emu::Cycle kHcaQuantum = 16;
constexpr emu::Cycle kNoticeQuantum = 1;
constexpr int kPacketsPerNode = 8192;  // twice what 16 lanes of kAtWireMost hold
constexpr int kPacketsMax = 1 << 20;   // of all nodes, 64 MiB: they have fewer where they are many
static_assert(kPacketsPerNode == 2 * emu::kVlCount * FlitRun::kAtWireMost);
static_assert(kPacketsMax / emu::kNodesVirtualMax >= 2 * emu::kVlCount, "a lane's own part");

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

// The longest message that anybody sends.
std::uint32_t longest_message(const WorkloadSpec& spec) {
  std::uint32_t flits = spec.message_flits;
  if (spec.control_per_frame > 0) flits = std::max(flits, spec.control_flits);
  for (const FlowSpec& flow : spec.flows)
    flits = std::max(flits, std::uint32_t{flow.message_flits});
  return flits;
}

// What each table of a point allows, but not together.
emu::Result<void> check_together(const Point& point) {
  const emu::NetworkConfig& network = point.cluster.network;
  const WorkloadSpec& workload = point.workload;
  if (network.pass_through) return emu::fail("network.pass_through: on a live cluster alone");
  const std::uint32_t longest = longest_message(workload);
  if (network.router == emu::Router::vct && longest > network.vc_buf_size) {
    return emu::fail("workload: messages of {} flits, network.vc_buf_size is {}: whole packets",
                     longest, network.vc_buf_size);
  }
  if (workload.circuit_attempts > 0 && network.router != emu::Router::pcs)
    return emu::fail("workload.circuit_attempts: with network.router = \"pcs\" alone");
  if (workload.circuit_attempts > 0 && !workload.phases.empty()) {
    return emu::fail(
        "workload.phases: not with circuit_attempts: circuits stand for the whole run");
  }
  const bool books = point.run.hca && point.cluster.controls.admission;
  if (books && has_streams(workload) && !std::ranges::is_sorted(workload.phases)) {
    return emu::fail(
        "workload.phases: with controls.admission shares cannot fall: streams book "
        "for the whole run");
  }
  return {};
}

}  // namespace

emu::Result<std::unique_ptr<FlitRun>> FlitRun::make(const Point& point) {
  std::unique_ptr<FlitRun> run(new FlitRun(point));
  if (auto built = run->build(); !built) return std::unexpected(built.error());
  return run;
}

fabric::NetworkSpec FlitRun::network_spec() const {
  fabric::NetworkSpec spec = fabric::network_spec(point_.cluster, 0);
  const double cycle_us = static_cast<double>(point_.cluster.network.cycle_time().cycle_ps) * 1e-6;
  spec.receive_cycles = static_cast<int>(point_.run.receive_us / cycle_us + 0.5);
  const int nodes = static_cast<int>(point_.cluster.nodes.size());
  spec.packets_per_node = std::min(kPacketsPerNode, kPacketsMax / nodes);
  return spec;
}

emu::Result<void> FlitRun::build() {
  if (auto fits = check_together(point_); !fits) return fits;
  // From here on it is as if the cluster file said so: weights, books and reports follow.
  if (point_.run.lanes_given) point_.cluster.qos.class_vls = point_.run.lanes;
  // What routers draw too: replications share a cluster file, they differ by the run's seed.
  point_.cluster.network.seed += point_.run.seed * 31 + 6;
  fabric::tell_links(point_.cluster, network_spec());
  // What the cap means is a sum over all pairs of nodes: once, not for every HCA.
  if (point_.run.hca) point_.cluster.controls.power_cap_w = point_.cluster.power_cap_w();
  const emu::Config& config = point_.cluster;
  const fabric::NetworkSpec spec = network_spec();
  if (point_.run.hca) bookings_ = std::make_unique<Bookings>(point_.cluster);
  const bool circuits = config.network.router == emu::Router::pcs;
  if (circuits) {
    circuits_ = std::make_unique<Circuits>(config.network.circuits, point_.run.seed * 31 + 5);
  }
  fabric::ControlHook* hook = bookings_.get();
  auto network = fabric::Network::make(spec, circuits ? circuits_.get() : hook);
  if (!network) return std::unexpected(network.error());
  network_ = std::move(*network);
  if (network_->nodes() != static_cast<int>(config.nodes.size())) {
    return emu::fail("the configuration names {} nodes, its topology has {}", config.nodes.size(),
                     network_->nodes());
  }
  if (!point_.run.failures.empty()) {
    const emu::Cycle end = point_.run.batch_cycles * point_.run.batches;
    failures_ = std::make_unique<Failures>(point_.run.failures, end);
    if (auto ways = failures_->check(*network_); !ways) return ways;
  }

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
  if (point_.transient()) measure_->tails_of_all();
  measure_->host_takes(static_cast<emu::Cycle>(spec.receive_cycles));
  flows_ = std::make_unique<FlowMeter>(point_.workload.flows, point_.run.batch_cycles,
                                       point_.run.batches);
  auto workload = make_workload(setting_, *measure_, point_.run.seed);
  if (!workload) return std::unexpected(workload.error());
  workload_ = std::move(*workload);
  const auto nodes = static_cast<std::size_t>(setting_.nodes);
  begin_lanes(static_cast<std::uint32_t>(spec.packets_per_node));
  quantum_ = kQuantum;
  if (point_.run.hca) {
    if (auto hcas = build_hcas(); !hcas) return hcas;
  }
  if (point_.run.look_cycles != 0) quantum_ = point_.run.look_cycles;
  // Cards look as often as they must all the same.
  if (point_.run.nic != NicKind::none) build_nics();
  router_pj_.resize(static_cast<std::size_t>(network_->routers()));
  passed_.resize(nodes);
  if (circuits) open_circuits();
  if (bookings_ != nullptr && !circuits) admit();
  return {};
}

emu::Result<void> FlitRun::build_hcas() {
  quantum_ = kHcaQuantum;
  for (int n = 0; n < setting_.nodes; ++n) {
    gates_.emplace_back(point_.cluster, static_cast<emu::NodeId>(n), *network_, setting_.lanes);
  }
  const hca::Signal needs = gates_.front().needs();
  const emu::ControlsConfig& controls = point_.cluster.controls;
  if (controls.congestion == emu::Congestion::self_tuned && needs == hca::Signal::state &&
      controls.notice == emu::NoticeWay::message) {
    auto in_band = InBand::make(point_.cluster, setting_.lanes, *network_);
    if (!in_band) return std::unexpected(in_band.error());
    in_band_ = std::move(*in_band);
  }
  if (needs != hca::Signal::blame && needs != hca::Signal::marks) return {};
  quantum_ = kNoticeQuantum;
  auto notices = fabric::Notices::make(point_.cluster, controls.congestion, *network_);
  if (!notices) return std::unexpected(notices.error());
  notices_ = std::move(*notices);
  auto way = NoticeWay::make(point_.cluster, setting_.lanes, *notices_);
  if (!way) return std::unexpected(way.error());
  notice_way_ = *way;
  return {};
}

// A card looks at least as often as it sets up a DMA: then it knows of an injection before the next
// message can leave, and how often it looks does not matter.
void FlitRun::build_nics() {
  const double cycle_us = static_cast<double>(setting_.time.cycle_ps) * 1e-6;
  NicOptions options;
  options.kind = point_.run.nic;
  options.setup_cycles = point_.run.dma_setup_us / cycle_us;
  options.flit_cycles = setting_.flit_bits / point_.run.dma_mbps / cycle_us;
  options.descriptor_flits = (512 + setting_.flit_bits - 1) / setting_.flit_bits;
  const double flits = point_.run.nic_memory_kb * 8192 / setting_.flit_bits;
  options.lane_flits =
      std::max(longest_message(point_.workload), static_cast<std::uint32_t>(flits / emu::kVlCount));
  const double longest = std::clamp(options.setup_cycles, 1.0, 16.0);
  quantum_ = std::min(quantum_, static_cast<emu::Cycle>(longest));
  nics_.assign(static_cast<std::size_t>(setting_.nodes), Nic(options));
}

std::uint64_t FlitRun::waiting() const {
  std::uint64_t count = queued_;
  for (const HcaGate& gate : gates_) count += gate.waiting();
  for (const Nic& nic : nics_) count += nic.waiting();
  return count;
}

void FlitRun::hand_on(const FlitMessage& message) {
  if (nics_.empty()) {
    to_lane(message);
  } else {
    nics_[message.source].ring(message);
  }
}

void FlitRun::offer(FlitMessage& message) {
  measure_->offered(message);
  message.accepted = message.launch = message.created;
  if (!gates_.empty() && message.traffic_class == emu::TrafficClass::best_effort) {
    gates_[message.source].offer(message);
  } else if (gates_.empty() || gates_[message.source].take(message)) {
    hand_on(message);
  }
}

void FlitRun::arrived(const hca::DeliveredEvent& event) {
  const FlitMessage& message = flights_[event.handle];
  const emu::Cycle tail = event.tail_cycle - base_;
  measure_->delivered(message, event.head_cycle - base_, tail);
  if (message.notice) gates_[message.dest].notice(*message.notice, tail);
  if (notices_ != nullptr)
    notices_->arrived(event.handle, message.source, message.dest, event.tail_cycle);
  if (in_band_ && in_band_->arrived(message, tail, of_hcas_)) {
    const StateReport& sum = *message.report;
    gates_[message.dest].told(sum.full, in_band_->buffers(), sum.delivered, tail);
  }
}

// What HCAs send for themselves meets neither card nor scheme.
void FlitRun::send_own() {
  for (FlitMessage& message : of_hcas_) {
    message.created = message.accepted = message.launch = now();
    measure_->offered(message);
    to_lane(message);
  }
  of_hcas_.clear();
}

void FlitRun::drain() {
  if (notices_ != nullptr) notices_->look();
  for (const hca::InjectedEvent& event : network_->injected()) {
    if (event.kind != emu::PacketKind::data) continue;  // admission's
    const FlitMessage& message = flights_[event.handle];
    --at_wire_[event.node * std::size_t{emu::kVlCount} + message.vl_in];
    if (!nics_.empty() && !message.of_hcas())
      nics_[event.node].injected(message, event.tail_cycle - base_);
    if (!gates_.empty() && !message.of_hcas()) {
      gates_[event.node].injected(message, event.tail_cycle - base_);
    }
  }
  for (const hca::DeliveredEvent& event : network_->delivered()) {
    if (event.kind != emu::PacketKind::data) continue;
    arrived(event);
    flows_->delivered(flights_[event.handle], event.tail_cycle - base_);
    delivered_flits_ += event.flits;
    leave_table(event.handle);
  }
  for (const fabric::ActivityWindow& window : network_->activity()) {
    emu::EnergyCounts counts = fabric::energy_counts(window);
    hca_flits_ += std::exchange(counts.hca_flits, 0);
    router_pj_[window.router] += emu::energy_pj(point_.cluster.energy, counts);
  }
  if (failures_ != nullptr && bookings_ != nullptr) {
    bookings_->look(*network_);
    let_go();
  }
  network_->clear_events();
}

// What routers have detected goes to the HCAs concerned, at once or as messages.
void FlitRun::listen() {
  if (notices_ == nullptr) return;
  for (emu::Notice notice : notices_->news()) {
    notice.cycle -= base_;
    const auto carrier = notice_way_.carrier(*notices_, notice, now());
    if (carrier) {
      of_hcas_.push_back(*carrier);
    } else {
      gates_[notice.source].notice(notice, notice.cycle);
    }
  }
  notices_->heard();
}

// What schemes may know of the network is looked up once for all HCAs.
void FlitRun::look() {
  if (gates_.empty() || gates_.front().needs() != hca::Signal::state) return;
  if (in_band_) return in_band_->look(*network_, now(), of_hcas_);
  const auto size = static_cast<int>(point_.cluster.network.vc_buf_size);
  const fabric::Fullness sum = fabric::fullness(*network_, size, point_.cluster.network.num_vcs);
  for (HcaGate& gate : gates_) gate.look(*network_, sum.full, sum.buffers, delivered_flits_);
}

// What is created before the horizon, by creation, then by source: the order of submission is the
// order in the lanes.
void FlitRun::feed(emu::Cycle horizon) {
  created_.clear();
  for (const std::uint32_t source : due_sources_.take(horizon)) {
    const std::size_t first = created_.size();
    due_sources_.put_back(source, workload_.sources[source]->feed(horizon, created_));
    if (!stream_of_source_.empty()) hold_back(source, first);
  }
  std::stable_sort(
      created_.begin(), created_.end(),
      [](const FlitMessage& a, const FlitMessage& b) { return a.created < b.created; });
}

void FlitRun::play() {
  due_sources_.begin(workload_.sources.size());
  emu::Cycle window_end = emu::kPowerWindowCycles;
  // Traffic goes on until a power window ends: the last batch has its part of that one too.
  const emu::Cycle end = (setting_.end + window_end - 1) / window_end * window_end;
  while (now() < end) {
    if (failures_ != nullptr && failures_->next() == now()) change_links();
    const emu::Cycle change = failures_ != nullptr ? failures_->next() : emu::kNever;
    const emu::Cycle horizon = std::min({now() + quantum_, window_end, change});
    feed(horizon);
    for (FlitMessage& message : created_) offer(message);
    look();
    send_own();
    for (HcaGate& gate : gates_) {
      gate.release(now(), [this](const FlitMessage& message) { hand_on(message); });
    }
    for (Nic& nic : nics_) {
      nic.release(horizon, [this](const FlitMessage& message) { to_lane(message); });
    }
    advance(horizon);
    listen();
    if (now() == window_end) {
      end_window();
      window_end += emu::kPowerWindowCycles;
    }
  }
  refill();  // waiting() counts what wire halves have no room for
}

std::string FlitRun::json() const {
  emu::JsonWriter json;
  json.open();
  json.field("nodes", network_->nodes());
  json.field("cycle_ps", setting_.time.cycle_ps);
  json.field("batch_cycles", point_.run.batch_cycles);
  const std::uint32_t payload = point_.workload.flit_payload_bytes;
  json.field("flit_payload_bytes", payload > 0 ? payload : point_.cluster.network.flit_bits / 8);
  json.field("streams", workload_.streams);
  json.field("stream_load", workload_.stream_load);
  std::uint64_t asked = bookings_ == nullptr ? 0 : bookings_->asked();
  std::uint64_t granted = bookings_ == nullptr ? 0 : bookings_->granted();
  if (circuits_ != nullptr) {
    asked = circuits_->asked();
    granted = circuits_->granted();
  }
  json.field("asked", asked);
  json.field("granted", granted);
  json.field("set_up_cycles", bookings_ == nullptr ? std::uint64_t{0} : bookings_->set_up_cycles());
  if (notices_ != nullptr) {
    json.field("marked", notices_->marked());
    json.field("notices", notices_->congestion());
    json.field("notices_relief", notices_->relief());
  }
  if (in_band_) json.field("rounds", in_band_->rounds());
  if (failures_ != nullptr) {
    failures_->write(json, point_.run.batch_cycles, point_.run.batches);
    const Bookings::Again again = bookings_ == nullptr ? Bookings::Again{} : bookings_->again();
    json.field("asked_again", again.asked);
    json.field("granted_again", again.granted);
    json.field("asked_again_cycles", again.cycles);
    json.field("given_up", given_up_);
  }
  json.field("waiting", waiting());
  json.field("frames_under_way", measure_->frames_under_way());
  json.field("digest", fmt::format("{:016x}", network_->digest()));
  json.field("stuck", network_->stuck());
  json.field("quenches", network_->design_counters().quenches);
  json.field("recoveries", network_->design_counters().recoveries);
  flows_->write(json);
  measure_->write(json);
  json.close();
  return json.text();
}

}  // namespace tools

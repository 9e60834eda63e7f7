#include "tests/sim/cluster.h"

#include <algorithm>
#include <cstring>

#include "emu/base/check.h"
#include "fabric/daemon/spec.h"
#include "hca/daemon/options.h"

namespace sim {

namespace {

constexpr std::uint32_t kSlots = 4096;  // as fabricd gives a node
constexpr int kSlotBits = 16;           // handle: node << 16 | slot
static_assert(kSlots <= 1u << kSlotBits);

std::uint32_t handle_of(emu::NodeId node, std::uint32_t slot) {
  return static_cast<std::uint32_t>(node) << kSlotBits | slot;
}

}  // namespace

// Packet slots of one node; a slot returns when the packet has been read where it went.
struct Cluster::NodePort : hca::PacketPort {
  NodePort(Cluster& owner, emu::NodeId number) : cluster(owner), node(number) {
    bytes =
        std::make_unique_for_overwrite<std::uint8_t[]>(std::size_t{kSlots} * emu::kPacketBytesMax);
    lengths.resize(kSlots);
    controls.resize(kSlots);
    for (std::uint16_t slot = kSlots; slot-- > 0;) free.push_back(slot);
  }
  bool reserve(hca::PacketSlot& slot) override {
    if (free.empty()) return false;
    slot.buffer = free.back();
    slot.bytes = at(slot.buffer);
    free.pop_back();
    return true;
  }
  std::uint32_t slots() const override { return kSlots; }
  void cancel(std::uint16_t buffer) override { free.push_back(buffer); }
  void send(std::span<const emu::TxDesc> packets) override {
    for (const emu::TxDesc& desc : packets) cluster.send(node, desc);
  }
  std::uint8_t* at(std::uint32_t slot) const {
    return &bytes[std::size_t{slot} * emu::kPacketBytesMax];
  }

  Cluster& cluster;
  emu::NodeId node;
  std::unique_ptr<std::uint8_t[]> bytes;
  std::vector<std::uint16_t> lengths;
  std::vector<fabric::ProbeState> controls;  // by slot, for probes and releases
  std::vector<std::uint16_t> free;
};

Cluster::Cluster(const ClusterOptions& options)
    : options_(options), time_(options.config.network.cycle_time()), prng_(options.seed) {}
Cluster::~Cluster() = default;

emu::Result<std::unique_ptr<Cluster>> Cluster::make(const ClusterOptions& options) {
  std::unique_ptr<Cluster> cluster(new Cluster(options));
  if (auto built = cluster->build(); !built) return std::unexpected(built.error());
  return cluster;
}

emu::Result<void> Cluster::build() {
  const emu::Config& config = options_.config;
  fabric::tell_links(options_.config, fabric::network_spec(config, 0));
  const fabric::NetworkSpec spec = fabric::network_spec(config, 0);
  auto network = fabric::Network::make(spec, this);
  if (!network) return std::unexpected(network.error());
  network_ = std::move(*network);
  vticks_ = spec.lane_vtick;
  std::vector<int> router_ports;
  for (int r = 0; r < network_->routers(); ++r) {
    router_ports.push_back(network_->ports(static_cast<emu::RouterId>(r)));
  }
  admission_ = std::make_unique<fabric::Admission>(
      router_ports, fabric::book_limits(config, network_->routers()), config.controls.admission);
  for (int r = 0; r < network_->routers(); ++r) {
    const auto router = static_cast<emu::RouterId>(r);
    admission_->set_router_ports(router, fabric::router_ports(*network_, router));
  }
  arbitration_ = std::make_unique<fabric::Arbitration>(config, *network_);
  start_measuring();
  const auto nodes = static_cast<std::size_t>(network_->nodes());
  stalls_.resize(nodes);
  unread_.resize(nodes);
  arrivals_.resize(nodes);
  injected_.resize(nodes);
  for (std::size_t n = 0; n < nodes; ++n) {
    const auto node = static_cast<emu::NodeId>(n);
    hca::HostOptions host = hca::host_options(config, node);
    host.seed = options_.seed * 1000 + n;
    ports_.push_back(std::make_unique<NodePort>(*this, node));
    events_.push_back(std::make_unique<NodeEvents>());
    hosts_.push_back(std::make_unique<hca::Host>(host, memory_, *ports_.back(), *events_.back()));
  }
  return {};
}

void Cluster::start_measuring() {
  classes_ = {};
  power_ = std::make_unique<fabric::PowerWindows>(options_.config.energy, time_,
                                                  options_.config.power_cap_w(), network_->now(),
                                                  static_cast<std::size_t>(network_->routers()));
}

bool Cluster::at_route(const fabric::ControlHead& head) {
  fabric::ProbeState& state =
      ports_[head.handle >> kSlotBits]->controls[head.handle & (kSlots - 1)];
  if (head.kind == emu::PacketKind::release) {
    admission_->release(head.router, state.body);
    return true;
  }
  admission_->probe(head.router, head.in_port, head.out_port, state, lane_out(head, state.body.vl));
  return state.rejected_by == emu::kNoRouter;
}

void Cluster::send(emu::NodeId source, const emu::TxDesc& desc) {
  NodePort& port = *ports_[source];
  port.lengths[desc.buffer] = desc.length;
  if (desc.kind != emu::PacketKind::data) {
    fabric::ProbeState& state = port.controls[desc.buffer];
    state = {};
    std::memcpy(&state.body, port.at(desc.buffer), sizeof state.body);
  }
  hca::SendPacket packet;
  packet.cookie = desc.cookie;
  packet.launch = desc.launch_cycle;
  packet.handle = handle_of(source, desc.buffer);
  packet.flits = desc.flits;
  packet.dest = desc.dest;
  packet.vl_in = desc.vl_in;
  packet.vl_out = desc.vl_out;
  packet.traffic_class = desc.traffic_class;
  packet.kind = desc.kind;
  packet.vtick = desc.vtick != 0 ? desc.vtick : vticks_[desc.vl_in];
  // The engine has room for more packets than a node has slots.
  CHECK(network_->submit(source, packet));
}

void Cluster::deliver(const hca::DeliveredEvent& event) {
  if (event.kind != emu::PacketKind::data) return;
  if (event.tail_cycle >= event.head_cycle) {
    ClassMeter& meter = classes_[static_cast<std::size_t>(event.traffic_class)];
    ++meter.packets;
    meter.latency_ns.add(time_.ns(event.tail_cycle - event.head_cycle));
  }
  if (options_.drop > 0 && prng_.uniform() < options_.drop) {
    ++dropped_;
    return;
  }
  const std::uint32_t slot = event.handle & ((1u << kSlotBits) - 1);
  hca::Arrival arrival{};
  arrival.desc.head_cycle = event.head_cycle;
  arrival.desc.arrival_cycle = event.tail_cycle;
  arrival.desc.length = ports_[event.src]->lengths[slot];
  arrival.desc.flits = event.flits;
  arrival.desc.src = event.src;
  arrival.desc.vl = event.vl;
  arrival.desc.traffic_class = event.traffic_class;
  arrival.bytes = ports_[event.src]->at(slot);
  arrivals_[event.node].push_back(arrival);
}

void Cluster::give_back(std::uint32_t handle) {
  ports_[handle >> kSlotBits]->free.push_back(handle & (kSlots - 1));
}

void Cluster::stall(int node, emu::Cycle cycles) {
  stalls_[static_cast<std::size_t>(node)] = {cycles, network_->now()};
}
bool Cluster::acts(int node) const {
  const Stall& stall = stalls_[static_cast<std::size_t>(node)];
  return stall.cycles == 0 || (network_->now() - stall.since) % stall.cycles < options_.quantum;
}
emu::Cycle Cluster::believes(int node) const {
  const emu::Cycle behind = stalls_[static_cast<std::size_t>(node)].cycles;
  return network_->now() - std::min(network_->now(), behind);
}

void Cluster::hand_out() {
  for (const hca::InjectedEvent& event : network_->injected()) {
    injected_[event.node].push_back(
        {event.cookie, event.tail_cycle, event.flits, event.traffic_class, event.kind, 0});
  }
  for (const hca::DeliveredEvent& event : network_->delivered()) deliver(event);
  for (std::size_t n = 0; n < hosts_.size(); ++n) {
    const int node = static_cast<int>(n);
    if (!acts(node)) continue;
    if (!injected_[n].empty()) hosts_[n]->injected(injected_[n], believes(node));
    if (!arrivals_[n].empty()) hosts_[n]->receive(arrivals_[n], believes(node));
    for (const std::uint32_t handle : unread_[n]) give_back(handle);
    unread_[n].clear();
    injected_[n].clear();
    arrivals_[n].clear();
  }
  for (const hca::AnswerEvent& event : network_->answers()) {
    const std::uint32_t slot = event.handle & (kSlots - 1);
    fabric::ProbeState& state = ports_[event.handle >> kSlotBits]->controls[slot];
    emu::Answer answer = fabric::Admission::answer(state, event.cycle);
    hosts_[event.node]->answered({&answer, 1}, believes(event.node));
    give_back(event.handle);
  }
  for (const hca::DeliveredEvent& event : network_->delivered()) {
    const bool read = event.kind != emu::PacketKind::data || acts(event.node);
    if (read) give_back(event.handle);
    if (!read) unread_[event.node].push_back(event.handle);
  }
  power_->add(network_->activity());
  network_->clear_events();
}

void Cluster::turn() {
  for (int n = 0; n < nodes(); ++n) {
    if (acts(n)) host(n).advance(believes(n));
  }
  network_->run_until(network_->now() + options_.quantum);
  arbitration_->follow(*admission_, *network_);
  hand_out();
}

}  // namespace sim

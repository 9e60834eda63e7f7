#include "fabric/port/session_port.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "emu/base/bytes.h"
#include "emu/base/check.h"

namespace fabric {
namespace {

// Batches of datagrams taken in a turn: a flood of strangers must not stop the fabric.
constexpr int kTurnBatches = 64;
// A node that does not take what waits for it gets none of its packets taken meanwhile.
constexpr std::size_t kWaitingMax = 4096;
constexpr std::uint64_t kServiceEveryNs = 10'000'000;
// A port without a descriptor to wait for is looked at so often.
constexpr std::uint64_t kPollEveryNs = 50'000;
constexpr std::size_t kIpUdpBytes = 28;

emu::AcceptorOptions acceptor_options(const SessionPortOptions& options) {
  const std::size_t frame = std::clamp<std::size_t>(options.mtu, emu::kFrameBytesMin + kIpUdpBytes,
                                                    emu::kFrameBytesMax + kIpUdpBytes) -
                            kIpUdpBytes;
  emu::AcceptorOptions out;
  out.cluster_key = options.cluster_key;
  out.node_names = options.rules.node_names;
  out.entropy = emu::random_key();
  out.cycle_ps = options.rules.cycle_time.cycle_ps;
  out.settings = options.rules.agreed;
  out.limits = {.frame_bytes = frame, .heartbeat_ns = options.heartbeat_ns};
  out.timing.dead_ns = options.dead_ns;
  out.timing.silent_ns = options.dead_ns / 3;  // as hca/attach/udp has it
  out.objection = options.objection;
  return out;
}

}  // namespace

emu::Result<std::vector<std::uint16_t>> SessionPort::make_pools(const SessionPortOptions& options,
                                                                PacketMemory& memory) {
  std::vector<std::uint16_t> pools;
  for (std::size_t node = 0; node < options.rules.node_count; ++node) {
    auto pool = memory.create_pool(options.slots_per_node);
    if (!pool) return std::unexpected(pool.error());
    pools.push_back(*pool);
  }
  return pools;
}

SessionPort::SessionPort(const SessionPortOptions& options, PacketMemory& memory,
                         std::vector<std::uint16_t> pools, std::unique_ptr<Datagrams> datagrams)
    : options_(options),
      memory_(memory),
      datagrams_(std::move(datagrams)),
      acceptor_(acceptor_options(options)),
      peers_(options.rules.node_count) {
  CHECK(pools.size() == peers_.size());
  for (std::size_t node = 0; node < peers_.size(); ++node) peers_[node].pool = pools[node];
  batch_.reserve(Datagrams::kBatch);
}

SessionPort::~SessionPort() {
  for (std::size_t n = 0; n < peers_.size(); ++n) {
    const auto node = static_cast<emu::NodeId>(n);
    forget_waiting(peers_[n]);
    if (!acceptor_.attached(node)) continue;
    say_bye(node);
  }
  for (const Peer& peer : peers_) {
    // With packets still inside the engine the memory goes with the process.
    if (memory_.free_count(peer.pool) == memory_.slots(peer.pool)) memory_.destroy_pool(peer.pool);
  }
}

// --- packets in -------------------------------------------------------------------------------

bool SessionPort::on_datagram(const emu::UdpAddress& from, std::span<const std::byte> datagram) {
  const emu::Arrival arrival = acceptor_.receive(datagram, host_ns_);
  const bool authentic = arrival.node != emu::kNoNode;
  if (authentic) peers_[arrival.node].address = from;
  if (!arrival.reply.empty()) {
    const Datagrams::Outgoing reply{from, {arrival.reply, arrival.reply.size()}};
    datagrams_->send({&reply, 1});
  }
  return authentic;
}

void SessionPort::poll() {
  const auto sink = [this](const emu::UdpAddress& from, std::span<const std::byte> datagram) {
    return on_datagram(from, datagram);
  };
  for (int i = 0; i < kTurnBatches && datagrams_->receive(sink); ++i) {
  }
}

void SessionPort::receive(emu::Cycle now, Inbox& inbox) {
  poll();
  for (std::size_t n = 0; n < peers_.size(); ++n) {
    const auto node = static_cast<emu::NodeId>(n);
    follow(node, inbox);
    if (peers_[n].attached) take_records(node, now, inbox);
  }
}

void SessionPort::take_records(emu::NodeId node, emu::Cycle now, Inbox& inbox) {
  Peer& peer = peers_[node];
  emu::Channel& channel = acceptor_.channel(node);
  for (std::size_t taken = 0; taken < kTurnPackets; ++taken) {
    if (peer.waiting.size() > kWaitingMax) return;
    const auto record = channel.front();
    if (!record) return;
    const PacketHandle packet = memory_.allocate(peer.pool);
    if (packet == kNoPacket) return;
    if (const char* wrong = fill(packet, node, *record, now); wrong != nullptr) {
      memory_.free(packet);
      ++peer.counters.violations;
      acceptor_.close(node, fmt::format("sent a packet with a wrong {}", wrong));
      return;  // the loop hears of it at the next turn
    }
    channel.pop();
    ++peer.counters.packets_in;
    peer.counters.bytes_in += memory_.meta(packet).length;
    inbox.packets.push_back(packet);
  }
}

// Null, or what is wrong with the record.
const char* SessionPort::fill(PacketHandle packet, emu::NodeId node, const emu::Record& record,
                              emu::Cycle now) {
  if (record.kind != emu::RecordKind::tx) return "record kind";
  const auto tx = emu::parse_tx(record.body);
  if (!tx) return "descriptor";
  const emu::TxDesc& desc = tx->desc;
  if (const char* wrong = descriptor_fault(desc, options_.rules, now)) return wrong;
  std::memcpy(memory_.bytes(packet), tx->packet.data(), tx->packet.size());
  PacketMeta& meta = memory_.meta(packet);
  meta.cookie = desc.cookie;
  meta.launch_cycle = desc.launch_cycle;
  meta.length = desc.length;
  meta.flits = desc.flits;
  meta.source = node;
  meta.dest = desc.dest;
  meta.vl_in = desc.vl_in;
  meta.vl_out = desc.vl_out;
  meta.vtick = desc.vtick;
  meta.traffic_class = desc.traffic_class;
  meta.kind = desc.kind;
  return nullptr;
}

// --- deliveries and events out ----------------------------------------------------------------

bool SessionPort::put(emu::NodeId node, const Outbound& out) {
  emu::Channel& channel = acceptor_.channel(node);
  if (const auto* delivery = std::get_if<Delivery>(&out)) {
    const std::span packet(memory_.bytes(delivery->packet), delivery->desc.length);
    if (!channel.send(emu::RecordKind::rx, emu::bytes_of(delivery->desc), std::as_bytes(packet))) {
      return false;
    }
    memory_.release(delivery->packet);
    return true;
  }
  if (const auto* event = std::get_if<emu::Injected>(&out)) {
    return channel.send(emu::RecordKind::injected, emu::bytes_of(*event), {});
  }
  return channel.send(emu::RecordKind::answer, emu::bytes_of(std::get<emu::Answer>(out)), {});
}

void SessionPort::put_or_wait(emu::NodeId node, const Outbound& out) {
  Peer& peer = peers_[node];
  if (peer.waiting.empty() && put(node, out)) return;
  peer.waiting.push_back(out);
  peer.counters.backlog_max =
      std::max<std::uint64_t>(peer.counters.backlog_max, peer.waiting.size());
}

void SessionPort::deliver(emu::NodeId node, PacketHandle packet, const emu::RxDesc& desc) {
  Peer& peer = peers_[node];
  PacketMeta& meta = memory_.meta(packet);
  meta.state = SlotState::holder;
  meta.holder = node;
  ++peer.counters.packets_out;
  peer.counters.bytes_out += desc.length;
  emu::RxDesc out = desc;
  out.buffer = 0;
  put_or_wait(node, Delivery{packet, out});
}

void SessionPort::injected(emu::NodeId node, const emu::Injected& event) {
  put_or_wait(node, event);
}

void SessionPort::answer(emu::NodeId node, const emu::Answer& answer) { put_or_wait(node, answer); }

void SessionPort::say_bye(emu::NodeId node) {
  const Datagrams::Outgoing bye{peers_[node].address, acceptor_.channel(node).farewell(0)};
  datagrams_->send({&bye, 1});
}

void SessionPort::cut(emu::NodeId node, const std::string& reason) {
  if (!acceptor_.attached(node)) return;
  say_bye(node);
  acceptor_.close(node, reason);
}

void SessionPort::push_waiting(emu::NodeId node) {
  Peer& peer = peers_[node];
  bool went = false;
  while (!peer.waiting.empty() && put(node, peer.waiting.front())) {
    peer.waiting.pop_front();
    went = true;
  }
  if (peer.waiting.empty() || went) {
    peer.stalled_since_ns = 0;
  } else if (peer.stalled_since_ns == 0) {
    peer.stalled_since_ns = host_ns_;
  }
}

void SessionPort::send_batch() {
  if (batch_.empty()) return;
  datagrams_->send(batch_);
  batch_.clear();
}

// Rounds of at most one train per node, so that no train is overwritten before it is sent.
void SessionPort::flush(emu::Cycle now) {
  bool more = true;
  while (more) {
    more = false;
    for (std::size_t n = 0; n < peers_.size(); ++n) {
      const auto node = static_cast<emu::NodeId>(n);
      if (!peers_[n].attached || !acceptor_.attached(node)) continue;
      push_waiting(node);
      const emu::Train train = acceptor_.transmit(node, host_ns_, now);
      if (train.empty()) continue;
      batch_.push_back({peers_[n].address, train});
      if (batch_.size() == Datagrams::kBatch) send_batch();
      more = true;
    }
    send_batch();
  }
}

// --- who comes and goes -----------------------------------------------------------------------

void SessionPort::forget_waiting(Peer& peer) {
  for (const Outbound& out : peer.waiting) {
    if (const auto* delivery = std::get_if<Delivery>(&out)) memory_.release(delivery->packet);
  }
  peer.waiting.clear();
  peer.stalled_since_ns = 0;
}

// Tells the loop what became of a node's session since it last heard.
void SessionPort::follow(emu::NodeId node, Inbox& inbox) {
  Peer& peer = peers_[node];
  const bool open = acceptor_.attached(node);
  const std::uint64_t epoch = acceptor_.epoch(node).number;
  if (peer.attached && (!open || epoch != peer.epoch)) {
    peer.attached = false;
    forget_waiting(peer);
    const std::string& reason = acceptor_.reason(node);
    inbox.events.push_back({node, NodeEventKind::lost, reason.empty() ? "attached anew" : reason});
  }
  if (open && !peer.attached) {
    peer.attached = true;
    peer.epoch = epoch;
    inbox.events.push_back({node, NodeEventKind::attached, {}});
  }
}

void SessionPort::service(std::uint64_t host_ns, Inbox& inbox) {
  host_ns_ = host_ns;
  datagrams_->service(host_ns);
  poll();  // before silence is judged: what came while we were away counts
  acceptor_.service(host_ns);
  for (std::size_t n = 0; n < peers_.size(); ++n) {
    const auto node = static_cast<emu::NodeId>(n);
    Peer& peer = peers_[n];
    peer.counters.frames = acceptor_.channel(node).counters();
    if (peer.stalled_since_ns != 0 && host_ns - peer.stalled_since_ns > kStalledNs) {
      acceptor_.close(node, "does not take its packets");
    }
    follow(node, inbox);
  }
}

bool SessionPort::prepare_sleep() {
  if (datagrams_->fd() < 0) return true;  // next_service_ns() keeps the sleep short
  for (std::size_t n = 0; n < peers_.size(); ++n) {
    const auto node = static_cast<emu::NodeId>(n);
    if (!peers_[n].attached || memory_.free_count(peers_[n].pool) == 0) continue;
    if (acceptor_.attached(node) && acceptor_.channel(node).front()) return false;
  }
  return true;
}

std::vector<int> SessionPort::wait_fds() const {
  if (datagrams_->fd() < 0) return {};
  return {datagrams_->fd()};
}

std::uint64_t SessionPort::next_service_ns() const {
  if (datagrams_->fd() < 0) return host_ns_ + kPollEveryNs;
  return std::min(acceptor_.next_transmit_ns(), host_ns_ + kServiceEveryNs);
}

}  // namespace fabric

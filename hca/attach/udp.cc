#include "hca/attach/udp.h"

#include <sys/epoll.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "emu/base/check.h"
#include "emu/base/log.h"
#include "emu/wire/udp_socket.h"
#include "hca/attach/udp_ring.h"

namespace hca {
namespace {

constexpr std::uint32_t kTxSlots = 2048;  // filled or waiting for room in the session
constexpr std::uint32_t kRxSlots = 2048;  // delivered and not released
// Then the stream waits, and with it the fabric's window closes.
constexpr std::size_t kEventsMax = 8192;
// Emulated time runs on by itself so long between two frames of the fabric (one every ms).
constexpr std::uint64_t kExtrapolateNs = 2'000'000;
constexpr std::uint64_t kApartNs = 10'000'000;  // by so much clocks of one time may differ
constexpr std::size_t kIpUdpBytes = 28;
// Batches of datagrams taken at a time: a flood of strangers must not stop the node.
constexpr int kTurnBatches = 16;

// Entries that arrive at the end and are taken from the front, in lots.
template <class T>
class Queue {
 public:
  void push(const T& value) { values_.push_back(value); }
  std::size_t size() const { return values_.size() - taken_; }
  void clear() {
    values_.clear();
    taken_ = 0;
  }
  std::size_t take(std::span<T> out) {
    const std::size_t n = std::min(out.size(), size());
    std::copy_n(values_.begin() + static_cast<std::ptrdiff_t>(taken_), n, out.begin());
    drop(n);
    return n;
  }
  const T& front() const { return values_[taken_]; }
  void drop(std::size_t n) {
    taken_ += n;
    if (taken_ == values_.size()) clear();
  }

 private:
  std::vector<T> values_;
  std::size_t taken_ = 0;
};

class Slots {
 public:
  explicit Slots(std::uint16_t count) : bytes_(std::size_t{count} * emu::kPacketBytesMax) {
    free_.reserve(count);
    reset();
  }
  void reset() {
    free_.clear();
    const auto count = static_cast<std::uint16_t>(bytes_.size() / emu::kPacketBytesMax);
    for (std::uint16_t i = count; i-- > 0;) free_.push_back(i);
  }
  std::size_t free_count() const { return free_.size(); }
  std::uint16_t get() {
    const std::uint16_t slot = free_.back();
    free_.pop_back();
    return slot;
  }
  void put(std::uint16_t slot) { free_.push_back(slot); }
  std::uint8_t* at(std::uint16_t slot) { return &bytes_[std::size_t{slot} * emu::kPacketBytesMax]; }

 private:
  std::vector<std::uint8_t> bytes_;
  std::vector<std::uint16_t> free_;
};

class UdpAttachment final : public Attachment {
 public:
  UdpAttachment(const UdpAttachOptions& options, emu::UdpAddress fabric, emu::UniqueFd socket);
  ~UdpAttachment() override;

  void begin_turn(std::uint64_t host_ns) override {
    host_ns_ = host_ns;
    follow_clock();
  }
  AttachState service(std::uint64_t host_ns) override;
  AttachState state() const override { return state_; }
  const std::string& reason() const override { return reason_; }
  bool link_down() const override {
    return state_ == AttachState::down && session_state_.refusal() == emu::Refusal::link_down;
  }
  std::uint64_t session() const override { return session_; }
  const FabricInfo& info() const override { return info_; }
  emu::Cycle now_cycle() const override { return now_cycle_; }
  emu::ChannelCounters frames() const override { return session_state_.channel().counters(); }

  std::optional<TxBuffer> acquire() override;
  std::size_t acquirable() const override {
    return state_ == AttachState::attached ? tx_slots_.free_count() : 0;
  }
  void abandon(std::uint16_t buffer) override { tx_slots_.put(buffer); }
  std::size_t send(std::span<const emu::TxDesc> descriptors) override;
  std::size_t receive(std::span<Received> out) override;
  void release(std::uint32_t buffer) override { rx_slots_.put(static_cast<std::uint16_t>(buffer)); }
  std::size_t injected(std::span<emu::Injected> out) override;
  std::size_t answers(std::span<emu::Answer> out) override;
  void flush() override { transmit(); }
  bool prepare_sleep() override;
  bool end_sleep(bool readable) override { return readable; }
  int fd() const override { return epoll_.get(); }

 private:
  // False between the beginning of an epoch and the service() that tells the owner of it.
  bool current() const { return session_state_.epoch().number == session_; }
  void poll_socket();
  void read_stream();
  bool keep(const emu::Record& record);
  void follow_epoch();
  void follow_clock();
  bool aligned();
  void push_waiting();
  void transmit();
  void explain(std::uint64_t host_ns);
  void explain(const emu::Disagreement& terms);

  emu::Initiator session_state_;
  emu::UdpAddress fabric_;
  std::string fabric_text_;
  std::string doubt_;
  std::string node_name_;
  AttachState state_ = AttachState::down;
  std::string reason_ = "not attached yet";
  std::uint64_t session_ = 0;
  FabricInfo info_;
  std::uint64_t host_ns_ = 0;
  emu::Cycle now_cycle_ = 0;
  // Of this epoch: how far this node's time is before the fabric's, which may have begun anew while
  // this one, whose programs have seen it, never runs backwards.
  emu::Cycle ahead_ = 0;
  bool aligned_ = false;
  Slots tx_slots_{kTxSlots};
  Slots rx_slots_{kRxSlots};
  Queue<emu::TxDesc> waiting_;  // sent, no room in the session's window yet
  Queue<Received> received_;
  Queue<emu::Injected> injected_;
  Queue<emu::Answer> answers_;
  emu::UniqueFd fd_;               // while io_uring drives the socket
  std::unique_ptr<UdpRing> ring_;  // one of these two
  std::optional<emu::UdpSocket> socket_;
  emu::UniqueFd epoll_;
};

emu::InitiatorOptions initiator_options(const UdpAttachOptions& options) {
  const std::size_t frame =
      std::clamp(options.mtu - kIpUdpBytes, emu::kFrameBytesMin, emu::kFrameBytesMax);
  emu::InitiatorOptions out;
  out.cluster_key = options.cluster_key;
  out.node_name = options.node_name;
  out.entropy = emu::random_key();
  out.limits = {.frame_bytes = frame, .heartbeat_ns = options.heartbeat_ns};
  out.timing.dead_ns = options.dead_ns;
  out.timing.silent_ns = options.dead_ns / 3;
  out.terms = options.terms;
  return out;
}

UdpAttachment::UdpAttachment(const UdpAttachOptions& options, emu::UdpAddress fabric,
                             emu::UniqueFd socket)
    : session_state_(initiator_options(options)),
      fabric_(fabric),
      fabric_text_(options.fabric),
      doubt_(options.doubt),
      node_name_(options.node_name),
      epoll_(::epoll_create1(EPOLL_CLOEXEC)) {
  CHECK(epoll_);
  if (options.io_uring) {
    if (auto ring = UdpRing::open(socket.get())) ring_ = std::move(*ring);
  }
  epoll_event event{};
  event.events = EPOLLIN;
  if (ring_) {
    fd_ = std::move(socket);
  } else {
    socket_.emplace(std::move(socket));
  }
  const int readable = ring_ ? ring_->fd() : socket_->fd();
  CHECK(::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, readable, &event) == 0);
}

UdpAttachment::~UdpAttachment() {
  if (state_ != AttachState::attached) return;
  const emu::Train bye = session_state_.farewell();
  if (socket_) {
    const emu::UdpSocket::Outgoing out{fabric_, bye};
    socket_->send({&out, 1});
  } else if (!ring_->sending()) {
    ring_->send(fabric_, bye);
  }
}

// --- coming and going -------------------------------------------------------------------------

AttachState UdpAttachment::service(std::uint64_t host_ns) {
  host_ns_ = host_ns;
  poll_socket();
  follow_epoch();
  read_stream();
  state_ = session_state_.attached(host_ns) ? AttachState::attached : AttachState::down;
  explain(host_ns);
  follow_clock();
  transmit();
  return state_;
}

void UdpAttachment::explain(std::uint64_t host_ns) {
  if (state_ == AttachState::attached) {
    if (!reason_.empty()) reason_.clear();
    return;
  }
  if (session_state_.other_terms()) return explain(*session_state_.other_terms());
  switch (session_state_.refusal()) {
    case emu::Refusal::version:
      reason_ = "fabricd speaks another version: install the same build of both";
      return;
    case emu::Refusal::unknown_node:
      reason_ = "the cluster has no node of this name";
      return;
    case emu::Refusal::busy:
      reason_ = "another process is attached as this node";
      return;
    case emu::Refusal::link_down:
      reason_ = fmt::format("its link is down; to have it back: flitnet link {} up", node_name_);
      return;
    case emu::Refusal::none:
      break;
  }
  const emu::Channel& channel = session_state_.channel();
  if (const std::string stuck = channel.stuck(); !stuck.empty()) {
    reason_ = stuck;
  } else if (session_ != 0 && channel.said_bye()) {
    reason_ = "fabricd has left";
  } else if (session_ != 0 && channel.broken()) {
    reason_ = "fabricd sent a record that makes no sense: are both of the same build?";
  } else if (session_ != 0) {
    reason_ = fmt::format(
        "fabricd at {} is silent for {} ms: is it up, and has it the same key? (each `flitnet up` "
        "makes a new one)",
        fabric_text_, (host_ns - channel.last_heard_ns()) / 1'000'000);
  } else {
    reason_ = fmt::format("no answer from fabricd at {}: is it up, and has it the same key?{}",
                          fabric_text_, doubt_);
  }
}

void UdpAttachment::explain(const emu::Disagreement& terms) {
  const std::string reason =
      fmt::format("cluster.toml here is not the fabric's: {} is {} there, {} here", terms.key,
                  terms.there, terms.here);
  if (reason != reason_) emu::log_warning(reason);
  reason_ = reason;
}

// A new epoch: what was under way in the last one is gone, and its owner forgets it too.
void UdpAttachment::follow_epoch() {
  if (session_state_.epoch().number == session_) return;
  session_ = session_state_.epoch().number;
  tx_slots_.reset();
  rx_slots_.reset();
  waiting_.clear();
  received_.clear();
  injected_.clear();
  answers_.clear();
  info_ = {session_state_.node(), {session_state_.cycle_ps()}, kTxSlots};
  aligned_ = false;
}

// Whether the fabric's time is known: every frame tells it.
bool UdpAttachment::aligned() {
  const emu::Cycle theirs = session_state_.channel().peer_cycle();
  if (aligned_ || theirs == 0 || info_.cycle_time.cycle_ps == 0) return aligned_;
  aligned_ = true;
  const emu::Cycle apart = info_.cycle_time.cycle_at(kApartNs);
  ahead_ = theirs + apart < now_cycle_ ? now_cycle_ - theirs : 0;
  return true;
}

void UdpAttachment::follow_clock() {
  const emu::Channel& channel = session_state_.channel();
  if (!current() || !aligned()) return;
  const std::uint64_t since =
      std::min(host_ns_ - std::min(host_ns_, channel.peer_cycle_ns()), kExtrapolateNs);
  const emu::Cycle guess = channel.peer_cycle() + since * 1000 / info_.cycle_time.cycle_ps;
  now_cycle_ = std::max(now_cycle_, guess + ahead_);
}

// --- the socket -------------------------------------------------------------------------------

void UdpAttachment::poll_socket() {
  if (ring_) {
    ring_->receive([this](std::span<const std::byte> datagram) {
      session_state_.receive(datagram, host_ns_);
      read_stream();
    });
  } else {
    const auto sink = [this](const emu::UdpAddress&, std::span<const std::byte> datagram) {
      session_state_.receive(datagram, host_ns_);
      read_stream();
    };
    for (int i = 0; i < kTurnBatches && socket_->receive(sink) == emu::UdpSocket::kReceiveBatch;
         ++i) {
    }
  }
  read_stream();
  follow_clock();  // nothing that came is ahead of it
}

void UdpAttachment::transmit() {
  push_waiting();
  while (!ring_ || !ring_->sending()) {
    const emu::Train train = session_state_.transmit(host_ns_);
    if (train.empty()) return;
    if (ring_) {
      ring_->send(fabric_, train);
      poll_socket();  // its completion, as a rule
    } else {
      const emu::UdpSocket::Outgoing out{fabric_, train};
      socket_->send({&out, 1});
    }
  }
}

// --- towards the fabric -----------------------------------------------------------------------

std::optional<TxBuffer> UdpAttachment::acquire() {
  if (acquirable() == 0) return std::nullopt;
  const std::uint16_t slot = tx_slots_.get();
  return TxBuffer{slot, tx_slots_.at(slot)};
}

std::size_t UdpAttachment::send(std::span<const emu::TxDesc> descriptors) {
  if (state_ != AttachState::attached) return 0;
  for (const emu::TxDesc& desc : descriptors) {
    CHECK(desc.buffer < kTxSlots && desc.length <= emu::kPacketBytesMax);
    waiting_.push(desc);
  }
  push_waiting();
  return descriptors.size();
}

void UdpAttachment::push_waiting() {
  while (current() && waiting_.size() != 0) {
    emu::TxDesc desc = waiting_.front();
    const std::uint16_t slot = std::exchange(desc.buffer, std::uint16_t{0});
    desc.launch_cycle -= std::min(desc.launch_cycle, ahead_);
    const std::span packet(tx_slots_.at(slot), desc.length);
    if (!session_state_.send(emu::RecordKind::tx, std::as_bytes(std::span(&desc, 1)),
                             std::as_bytes(packet))) {
      return;
    }
    tx_slots_.put(slot);
    waiting_.drop(1);
  }
}

// --- from the fabric --------------------------------------------------------------------------

// Takes records while there is a place for each; the rest waits in the session's window.
void UdpAttachment::read_stream() {
  if (!current() || !aligned()) return;
  while (rx_slots_.free_count() != 0 && injected_.size() < kEventsMax &&
         answers_.size() < kEventsMax) {
    const auto record = session_state_.front();
    if (!record) return;
    if (!keep(*record)) return session_state_.break_off();
    session_state_.pop();
  }
}

bool UdpAttachment::keep(const emu::Record& record) {
  switch (record.kind) {
    case emu::RecordKind::rx: {
      const auto rx = emu::parse_rx(record.body);
      if (!rx) return false;
      const std::uint16_t slot = rx_slots_.get();
      std::memcpy(rx_slots_.at(slot), rx->packet.data(), rx->packet.size());
      Received received{rx->desc, rx_slots_.at(slot)};
      received.desc.buffer = slot;
      received.desc.head_cycle += ahead_;
      received.desc.arrival_cycle += ahead_;
      received_.push(received);
      return true;
    }
    case emu::RecordKind::injected: {
      auto event = emu::parse_injected(record.body);
      if (event) event->tail_cycle += ahead_;
      if (event) injected_.push(*event);
      return event.has_value();
    }
    case emu::RecordKind::answer: {
      auto answer = emu::parse_answer(record.body);
      if (answer) answer->cycle += ahead_;
      if (answer) answers_.push(*answer);
      return answer.has_value();
    }
    case emu::RecordKind::tx:
      return false;
  }
  return false;
}

std::size_t UdpAttachment::receive(std::span<Received> out) {
  if (state_ != AttachState::attached) return 0;
  if (received_.size() == 0) poll_socket();
  return received_.take(out);
}

std::size_t UdpAttachment::injected(std::span<emu::Injected> out) {
  return state_ == AttachState::attached ? injected_.take(out) : 0;
}

std::size_t UdpAttachment::answers(std::span<emu::Answer> out) {
  return state_ == AttachState::attached ? answers_.take(out) : 0;
}

bool UdpAttachment::prepare_sleep() {
  poll_socket();
  transmit();
  return received_.size() == 0 && injected_.size() == 0 && answers_.size() == 0;
}

}  // namespace

emu::Result<std::unique_ptr<Attachment>> make_udp_attachment(const UdpAttachOptions& options) {
  const auto fabric = emu::UdpAddress::resolve(options.fabric);
  if (!fabric) return std::unexpected(fabric.error());
  if (options.mtu < emu::kFrameBytesMin + kIpUdpBytes) {
    return emu::fail("mtu {}: at least {}", options.mtu, emu::kFrameBytesMin + kIpUdpBytes);
  }
  auto socket = emu::open_udp_socket({});
  if (!socket) return std::unexpected(socket.error());
  return std::make_unique<UdpAttachment>(options, *fabric, std::move(*socket));
}

}  // namespace hca

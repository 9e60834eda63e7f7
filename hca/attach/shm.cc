#include "hca/attach/shm.h"

#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "emu/base/check.h"
#include "emu/base/prefetch.h"
#include "emu/clock/page.h"
#include "emu/ring/unix_socket.h"
#include "emu/wire/shm_layout.h"
#include "hca/attach/shm_session.h"

namespace hca {

namespace {

constexpr std::uint64_t kRetryNs = 50'000'000;       // between attempts to reach the fabric
constexpr std::uint64_t kWelcomeNs = 2'000'000'000;  // fabricd answers a hello at once
constexpr std::uint64_t kSocketEveryNs = 5'000'000;  // while attached
constexpr std::size_t kBurst = 64;
constexpr char kNoDescriptors[] = "no descriptor is left for what fabricd sends (RLIMIT_NOFILE)";

class ShmAttachment final : public Attachment {
 public:
  explicit ShmAttachment(ShmAttachOptions options)
      : options_(std::move(options)), epoll_(::epoll_create1(EPOLL_CLOEXEC)) {
    CHECK(epoll_);
  }
  ~ShmAttachment() override {
    if (attached()) end_lending();
  }

  AttachState service(std::uint64_t host_ns) override;
  AttachState state() const override { return state_; }
  const std::string& reason() const override { return reason_; }
  bool link_down() const override { return link_down_ && !attached(); }
  std::uint64_t session() const override { return session_count_; }
  const FabricInfo& info() const override { return info_; }
  emu::Cycle now_cycle() const override { return clock_ ? clock_->cycle() : 0; }

  std::optional<TxBuffer> acquire() override;
  std::size_t acquirable() const override;
  std::optional<TxBuffer> acquire_train() override;
  bool lend(std::uint16_t buffer, std::span<const std::uint8_t> payload,
            std::uint8_t* home) override;
  void bring_home() override;
  void abandon(std::uint16_t buffer) override {
    if (attached()) current_->take_back(buffer);
  }
  std::size_t send(std::span<const emu::TxDesc> descriptors) override;
  bool has_incoming() override {
    return attached() &&
           !(current_->rx.empty() && current_->injected.empty() && current_->answers.empty());
  }
  std::size_t receive(std::span<Received> out) override;
  void release(std::uint32_t buffer) override {
    if (attached()) current_->released.push_back({buffer});
  }
  std::size_t injected(std::span<emu::Injected> out) override;
  std::size_t answers(std::span<emu::Answer> out) override;
  void served(emu::Cycle cycle) override {
    if (!attached() || cycle == current_->served_before) return;
    current_->served_before = cycle;
    current_->served->cycle.store(cycle, std::memory_order_release);
  }
  void flush() override;
  bool prepare_sleep() override;
  bool end_sleep(bool readable) override;
  int fd() const override { return epoll_.get(); }

 private:
  bool attached() const { return state_ == AttachState::attached; }
  void connect(std::uint64_t host_ns);
  void await_welcome(std::uint64_t host_ns);
  emu::Result<void> open_session(const emu::ShmWelcome& welcome, emu::ReceivedMessage& message);
  void read_control();
  emu::Result<void> handle_pool(std::span<const std::byte> bytes, emu::ReceivedMessage& message);
  const std::uint8_t* find(const emu::RxDesc& desc);
  std::span<const std::uint8_t> lent(const emu::RxDesc& desc) const {
    if (options_.lending == nullptr || desc.more_packets == 0) return {};
    return options_.lending->find(desc.buffer);
  }
  void end_lending() const;
  void lose(std::string why);
  void watch(int fd) const;

  ShmAttachOptions options_;
  AttachState state_ = AttachState::down;
  std::unique_ptr<ShmSession> current_;  // attached, or the last one: kept for its memory
  std::unique_ptr<ShmSession> coming_;   // hello sent, no welcome yet
  std::uint64_t session_count_ = 0;
  std::optional<emu::ClockReader> clock_;
  FabricInfo info_;
  std::string reason_ = "not attached yet";
  bool link_down_ = false;
  std::uint64_t attempted_ns_ = 0;
  std::uint64_t socket_read_ns_ = 0;
  emu::UniqueFd epoll_;
};

// --- coming and going -------------------------------------------------------------------------

AttachState ShmAttachment::service(std::uint64_t host_ns) {
  if (attached()) {
    if (host_ns - socket_read_ns_ >= kSocketEveryNs) {
      socket_read_ns_ = host_ns;
      read_control();
    }
  } else if (coming_ != nullptr) {
    await_welcome(host_ns);
  } else if (attempted_ns_ == 0 || host_ns - attempted_ns_ >= kRetryNs) {
    connect(host_ns);
    if (coming_ != nullptr) await_welcome(host_ns);
  }
  return state_;
}

void ShmAttachment::watch(int fd) const {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.fd = fd;
  CHECK(::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) == 0);
}

void ShmAttachment::connect(std::uint64_t host_ns) {
  attempted_ns_ = host_ns;
  auto socket = emu::connect_unix(options_.run_dir + "/fabric.sock", true);
  if (!socket) {
    link_down_ = false;
    reason_ = socket.error().message;
    return;
  }
  emu::ShmHello hello{};
  hello.magic = emu::kShmMagic;
  hello.version = emu::kMessageVersion;
  hello.type = emu::ShmMessageType::hello;
  options_.node_name.copy(hello.node_name, emu::kNodeNameBytes - 1);
  auto sent = emu::send_message(socket->get(), std::as_bytes(std::span(&hello, 1)));
  if (!sent || !*sent) {
    reason_ = sent ? "the fabric's socket is full" : sent.error().message;
    return;
  }
  coming_ = std::make_unique<ShmSession>(options_.lending);
  coming_->socket = std::move(*socket);
  watch(coming_->socket.get());
}

void ShmAttachment::await_welcome(std::uint64_t host_ns) {
  emu::ShmWelcome welcome;
  std::array<std::byte, sizeof welcome> buffer;
  auto message = emu::receive_message(coming_->socket.get(), buffer);
  const bool nothing = message && message->state == emu::ReceivedMessage::State::nothing_yet;
  if (nothing && host_ns - attempted_ns_ < kWelcomeNs) return;
  if (!message) {
    reason_ = message.error().message;
  } else if (nothing || message->state == emu::ReceivedMessage::State::closed) {
    reason_ = nothing ? "fabricd does not answer" : "fabricd closed the connection";
  } else if (message->fds_lost) {
    reason_ = kNoDescriptors;
  } else if (message->bytes != sizeof welcome) {
    reason_ = "fabricd answered something that is not a welcome";
  } else {
    std::memcpy(&welcome, buffer.data(), sizeof welcome);
    auto opened = open_session(welcome, *message);
    if (opened) {
      socket_read_ns_ = 0;
      return;
    }
    reason_ = opened.error().message;
  }
  coming_.reset();
}

emu::Result<void> ShmAttachment::open_session(const emu::ShmWelcome& welcome,
                                              emu::ReceivedMessage& message) {
  if (welcome.magic != emu::kShmMagic) return emu::fail("fabric.sock is not fabricd's");
  const bool link_down = welcome.type == emu::ShmMessageType::link_down;
  link_down_ = link_down;
  if (link_down || welcome.type == emu::ShmMessageType::refused) {
    return emu::fail("{}{}", link_down ? "" : "fabricd refused: ",
                     std::string(welcome.reason, ::strnlen(welcome.reason, emu::kReasonBytes)));
  }
  if (welcome.version != emu::kMessageVersion || welcome.type != emu::ShmMessageType::welcome ||
      message.fd_count != emu::kWelcomeFds || welcome.pool_slots == 0 ||
      welcome.pool_slots > emu::kPoolSlotsMax || welcome.cycle_ps == 0) {
    return emu::fail("fabricd's welcome is not of this version of flitnet");
  }
  ShmSession& s = *coming_;
  const emu::ShmRings rings = emu::shm_rings(welcome.pool_slots);
  auto region = emu::Region::map(message.fds[0].take(), rings.bytes, emu::Access::read_write);
  if (!region) return std::unexpected(region.error());
  s.region = std::move(*region);
  s.wake_fabric = message.fds[1].take();
  s.wake_node = message.fds[2].take();
  auto pool = emu::Region::map(message.fds[3].take(), emu::pool_bytes(welcome.pool_slots),
                               emu::Access::read_write);
  if (!pool) return std::unexpected(pool.error());
  auto clock = emu::ClockReader::open(options_.run_dir + "/clock.page");
  if (!clock) return std::unexpected(clock.error());

  auto at = [&](std::uint64_t offset) { return s.region.data() + offset; };
  s.tx = emu::RingProducer(emu::RingView<emu::TxDesc>(at(rings.tx), rings.tx_capacity));
  s.rx_free = emu::RingProducer(emu::RingView<emu::Free>(at(rings.rx_free), emu::kRxFreeCapacity));
  s.rx = emu::RingConsumer(emu::RingView<emu::RxDesc>(at(rings.rx), emu::kRxCapacity));
  s.tx_free = emu::RingConsumer(emu::RingView<emu::Free>(at(rings.tx_free), rings.tx_capacity));
  s.injected =
      emu::RingConsumer(emu::RingView<emu::Injected>(at(rings.injected), emu::kInjectedCapacity));
  s.answers =
      emu::RingConsumer(emu::RingView<emu::Answer>(at(rings.answers), emu::kAnswersCapacity));
  s.served = s.region.at(rings.served);
  s.waker = emu::DoorbellWaker(s.region.at(rings.fabric_asleep), s.wake_fabric.get());
  s.sleeper = emu::DoorbellSleeper(s.region.at(rings.node_asleep), s.wake_node.get());
  s.own_pool = welcome.pool_id;
  s.own_base = reinterpret_cast<std::uint8_t*>(pool->data());
  s.pools.emplace(welcome.pool_id, ShmPool{welcome.pool_slots, std::move(*pool)});
  s.first_train_slot =
      welcome.trains != 0 ? emu::first_train_slot(welcome.pool_slots) : welcome.pool_slots;
  s.free_slots.reserve(s.first_train_slot);
  for (std::size_t i = s.first_train_slot; i-- > 0;)
    s.free_slots.push_back(static_cast<std::uint16_t>(i));
  for (std::size_t i = s.first_train_slot; i < welcome.pool_slots; i += emu::kTrainSlots)
    s.free_trains.push_back(static_cast<std::uint16_t>(i));
  watch(s.wake_node.get());

  clock_ = std::move(*clock);
  info_ = {welcome.node, {welcome.cycle_ps}, welcome.pool_slots};
  if (options_.lending != nullptr) options_.lending->open(welcome.pool_id, welcome.pool_slots);
  current_ = std::move(coming_);
  ++session_count_;
  state_ = AttachState::attached;
  reason_.clear();
  return {};
}

void ShmAttachment::lose(std::string why) {
  if (!attached()) return;
  end_lending();
  state_ = AttachState::down;
  reason_ = std::move(why);
  attempted_ns_ = 0;
  // The rings end here; the memory behind received packets stays until the next session. By hand:
  // fabricd may hold the eventfd open, and then closing ours leaves it watched.
  (void)::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, current_->wake_node.get(), nullptr);
  current_->socket.reset();
  current_->wake_node.reset();
  current_->wake_fabric.reset();
}

void ShmAttachment::read_control() {
  std::array<std::byte, 512> buffer;
  while (attached()) {
    auto message = emu::receive_message(current_->socket.get(), buffer);
    if (!message) return lose(message.error().message);
    if (message->state == emu::ReceivedMessage::State::nothing_yet) return;
    if (message->state == emu::ReceivedMessage::State::closed) {
      return lose("fabricd closed the connection");
    }
    if (message->fds_lost) return lose(kNoDescriptors);
    auto handled = handle_pool(std::span(buffer).first(message->bytes), *message);
    if (!handled) return lose(handled.error().message);
  }
}

emu::Result<void> ShmAttachment::handle_pool(std::span<const std::byte> bytes,
                                             emu::ReceivedMessage& message) {
  emu::ShmPool about;
  if (bytes.size() != sizeof about) return emu::fail("control message of {} bytes", bytes.size());
  std::memcpy(&about, bytes.data(), sizeof about);
  const bool own = about.pool_id == current_->own_pool;
  if (about.type == emu::ShmMessageType::pool_removed) {
    if (!own) current_->pools.erase(about.pool_id);
    return {};
  }
  if (about.type != emu::ShmMessageType::pool_added || message.fd_count != 1 || about.slots == 0 ||
      about.slots > emu::kPoolSlotsMax || own) {
    return emu::fail("unknown control message {}", static_cast<unsigned>(about.type));
  }
  auto region =
      emu::Region::map(message.fds[0].take(), emu::pool_bytes(about.slots), emu::Access::read_only);
  if (!region) return std::unexpected(region.error());
  current_->pools.insert_or_assign(about.pool_id, ShmPool{about.slots, std::move(*region)});
  return {};
}

// --- towards the fabric -----------------------------------------------------------------------

std::optional<TxBuffer> ShmAttachment::acquire() {
  if (!attached()) return std::nullopt;
  auto& slots = current_->free_slots;
  // Soon, so that the slots in use are few and stay in the cache.
  if (slots.empty() || ++current_->acquired % kBurst == 0) current_->take_back_sent();
  if (slots.empty()) return std::nullopt;
  const std::uint16_t buffer = slots.back();
  slots.pop_back();
  // The headers of the next packet go there: a fabric that read it has its lines.
  if (!slots.empty()) {
    emu::prefetch_to_write(current_->own_base + std::size_t{slots.back()} * emu::kPacketBytesMax);
  }
  return current_->buffer(buffer);
}

std::optional<TxBuffer> ShmAttachment::acquire_train() {
  if (attached())
    current_->take_back_sent();  // each time: what came back last is still in the cache
  if (!attached() || current_->free_trains.empty()) return std::nullopt;
  const std::uint16_t buffer = current_->free_trains.back();
  current_->free_trains.pop_back();
  return current_->buffer(buffer);
}

bool ShmAttachment::lend(std::uint16_t buffer, std::span<const std::uint8_t> payload,
                         std::uint8_t* home) {
  if (options_.lending == nullptr || !attached()) return false;
  options_.lending->lend(current_->own_buffer(buffer), payload, home);
  return true;
}

void ShmAttachment::end_lending() const {
  if (options_.lending == nullptr) return;
  current_->take_back_sent();  // what nobody reads any more
  options_.lending->close(current_->own_pool);
}

void ShmAttachment::bring_home() {
  if (options_.lending == nullptr || !attached()) return;
  current_->take_back_sent();
  options_.lending->bring_home_all(current_->own_pool);
}

std::size_t ShmAttachment::acquirable() const {
  if (!attached()) return 0;
  current_->take_back_sent();
  return current_->free_slots.size();
}

std::size_t ShmAttachment::send(std::span<const emu::TxDesc> descriptors) {
  if (!attached()) return 0;
  const std::size_t count = current_->tx.push(descriptors);
  current_->published |= count != 0;
  return count;
}

// --- from the fabric --------------------------------------------------------------------------

const std::uint8_t* ShmAttachment::find(const emu::RxDesc& desc) {
  const std::uint16_t id = emu::pool_of_buffer(desc.buffer);
  auto pool = current_->pools.find(id);
  if (pool == current_->pools.end()) {
    // Told on the socket before the first packet of the pool, but not read yet.
    read_control();
    if (!attached()) return nullptr;
    pool = current_->pools.find(id);
    if (pool == current_->pools.end()) return nullptr;
  }
  const std::size_t slot = emu::slot_of_buffer(desc.buffer);
  const std::size_t slots = emu::slots_of(desc);
  if (slot + slots > pool->second.slots || emu::buffer_bytes(desc) > slots * emu::kPacketBytesMax) {
    return nullptr;
  }
  return reinterpret_cast<const std::uint8_t*>(pool->second.region.data()) +
         slot * emu::kPacketBytesMax;
}

std::size_t ShmAttachment::receive(std::span<Received> out) {
  std::size_t filled = 0;
  std::array<emu::RxDesc, kBurst> burst;
  while (attached() && filled < out.size()) {
    const std::size_t wanted = std::min(kBurst, out.size() - filled);
    const std::size_t count = current_->rx.pop(std::span(burst).first(wanted));
    for (std::size_t i = 0; i < count; ++i) {
      const std::uint8_t* bytes = find(burst[i]);
      if (bytes == nullptr) {
        lose("fabricd delivered a packet from a pool that it never shared");
        return 0;
      }
      out[filled++] = {burst[i], bytes, lent(burst[i])};
    }
    if (count < wanted) break;
  }
  return filled;
}

std::size_t ShmAttachment::injected(std::span<emu::Injected> out) {
  return attached() ? current_->injected.pop(out) : 0;
}

std::size_t ShmAttachment::answers(std::span<emu::Answer> out) {
  return attached() ? current_->answers.pop(out) : 0;
}

// --- publishing and waiting -------------------------------------------------------------------

void ShmAttachment::flush() {
  if (!attached()) return;
  auto& released = current_->released;
  if (!released.empty()) {
    const std::size_t count = current_->rx_free.push(released);
    released.erase(released.begin(), released.begin() + static_cast<std::ptrdiff_t>(count));
    current_->published |= count != 0;
  }
  if (!std::exchange(current_->published, false)) return;
  current_->waker.wake();
}

bool ShmAttachment::prepare_sleep() {
  if (!attached()) return true;  // fd() may still become readable by the welcome
  ShmSession& s = *current_;
  s.sleeper.prepare_sleep();
  const bool quiet = !has_incoming() && (!s.tx_free.available() || !s.free_slots.empty());
  if (!quiet) s.sleeper.cancel_sleep();
  return quiet;
}

bool ShmAttachment::end_sleep(bool readable) {
  if (!attached()) return readable;
  if (!readable) {
    current_->sleeper.cancel_sleep();
    return false;
  }
  const bool by_packets = current_->sleeper.rung();
  current_->sleeper.awake();
  if (by_packets) return false;
  socket_read_ns_ = 0;  // then it was the control channel
  return true;
}

}  // namespace

std::unique_ptr<Attachment> make_shm_attachment(ShmAttachOptions options) {
  return std::make_unique<ShmAttachment>(std::move(options));
}

}  // namespace hca

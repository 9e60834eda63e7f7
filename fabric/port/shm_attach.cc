// Who comes and goes at the shm port: hello, rings and pools for a node, its loss, what drains.
#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "emu/base/bytes.h"
#include "emu/base/check.h"
#include "emu/base/log.h"
#include "emu/ring/unix_socket.h"
#include "emu/wire/shm_layout.h"
#include "fabric/port/shm.h"
#include "fabric/port/shm_session.h"

namespace fabric {

namespace {

// Connections that have not said hello: more are an accident or an attack.
constexpr std::size_t kGreetingsMax = 64;
constexpr std::uint64_t kGreetingNs = 2'000'000'000;

emu::ShmPool pool_message(emu::ShmMessageType type, std::uint16_t pool, std::size_t slots) {
  return {emu::kShmMagic, type, pool, 0, static_cast<std::uint32_t>(slots)};
}

void notify(ShmSession& node, const emu::ShmPool& message, std::span<const int> fds) {
  auto told = emu::send_message(node.socket.get(), emu::bytes_of(message), fds);
  if (!told) node.fault("its process closed the connection");
  if (told && !*told) node.fault("does not read its control channel");
}

void refuse(int socket, emu::ShmMessageType type, const std::string& reason) {
  emu::ShmWelcome answer{};
  answer.magic = emu::kShmMagic;
  answer.version = emu::kMessageVersion;
  answer.type = type;
  reason.copy(answer.reason, emu::kReasonBytes - 1);
  (void)emu::send_message(socket, emu::bytes_of(answer));
}

emu::Result<void> watch(int epoll, int fd) {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.fd = fd;
  if (::epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) != 0) {
    return emu::fail("cannot wait for an attached node: {}", std::strerror(errno));
  }
  return {};
}

}  // namespace

ShmPort::ShmPort(const ShmPortOptions& options, PacketMemory& memory)
    : options_(options), memory_(memory) {}

ShmPort::~ShmPort() {
  Inbox nobody;
  for (emu::NodeId node = 0; node < emu::kNodesMax; ++node) {
    if (sessions_[node] != nullptr) lose(node, "the fabric ends", nobody);
  }
  // Packets that were inside the engine come home here.
  for (auto& session : draining_) memory_.set_owner(session->pool, nullptr);
  ::unlink(options_.socket_path.c_str());
}

emu::Result<std::unique_ptr<ShmPort>> ShmPort::open(const ShmPortOptions& options,
                                                    PacketMemory& memory) {
  CHECK(options.rules.node_count <= emu::kNodesMax);
  CHECK(options.rules.node_names.size() == options.rules.node_count);
  std::unique_ptr<ShmPort> port(new ShmPort(options, memory));
  auto listener = emu::listen_unix(options.socket_path);
  if (!listener) return std::unexpected(listener.error());
  port->listener_ = std::move(*listener);
  port->epoll_ = emu::UniqueFd(::epoll_create1(EPOLL_CLOEXEC));
  if (!port->epoll_) return emu::fail("epoll: {}", std::strerror(errno));
  if (auto done = watch(port->epoll_.get(), port->listener_.get()); !done) {
    return std::unexpected(done.error());
  }
  return port;
}

void ShmPort::poll_sockets(std::uint64_t host_ns, Inbox& inbox) {
  std::array<epoll_event, 64> events;
  const int count = ::epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), 0);
  for (int i = 0; i < count; ++i) {
    const int fd = events[static_cast<std::size_t>(i)].data.fd;
    if (fd == listener_.get()) {
      accept_all(host_ns);
      continue;
    }
    const auto it = std::find_if(live_.begin(), live_.end(),
                                 [fd](ShmSession* s) { return s->socket.get() == fd; });
    if (it == live_.end()) continue;  // an eventfd, or a greeting
    // A node says nothing after its hello: anything readable is its end, or a fault.
    std::array<std::byte, 256> buffer;
    auto message = emu::receive_message(fd, buffer);
    if (message && message->state == emu::ReceivedMessage::State::nothing_yet) continue;
    const bool closed = !message || message->state == emu::ReceivedMessage::State::closed;
    lose((*it)->node, closed ? "its process closed the connection" : "spoke out of turn", inbox);
  }
}

void ShmPort::accept_all(std::uint64_t host_ns) {
  while (greetings_.size() < kGreetingsMax) {
    auto socket = emu::accept_unix(listener_.get());
    if (!socket) return;  // of another user, or we are out of descriptors: again next time
    if (!*socket) return;
    if (watch(epoll_.get(), socket->get())) {
      greetings_.push_back({std::move(*socket), host_ns});
    }
  }
}

void ShmPort::greet(std::uint64_t host_ns, Inbox& inbox) {
  std::erase_if(greetings_, [&](Greeting& greeting) {
    return hello(greeting, inbox) || host_ns - greeting.since_ns > kGreetingNs;
  });
}

bool ShmPort::hello(Greeting& greeting, Inbox& inbox) {
  std::array<std::byte, sizeof(emu::ShmHello)> buffer;
  auto message = emu::receive_message(greeting.socket.get(), buffer);
  if (!message) return true;
  if (message->state == emu::ReceivedMessage::State::nothing_yet) return false;
  if (message->state == emu::ReceivedMessage::State::closed) return true;
  auto node = admit_hello(std::span(buffer).first(message->bytes));
  if (!node) {
    refuse(greeting.socket.get(), emu::ShmMessageType::refused, node.error().message);
    return true;
  }
  if (options_.objection && options_.objection(*node) == emu::Refusal::link_down) {
    refuse(greeting.socket.get(), emu::ShmMessageType::link_down,
           fmt::format("its link is down; to have it back: flitnet link {} up",
                       options_.rules.node_names[*node]));
    return true;
  }
  if (auto opened = open_session(*node, greeting.socket); !opened) {
    const std::string& reason = opened.error().message;
    refuse(greeting.socket.get(), emu::ShmMessageType::refused, reason);
    // Ours to mend, so our log has it, too; once, for the node asks again and again.
    if (reason != shortage_)
      emu::log_warning(
          fmt::format("node {} refused: {}", options_.rules.node_names[*node], reason));
    shortage_ = reason;
    return true;
  }
  shortage_.clear();
  inbox.events.push_back({*node, NodeEventKind::attached, {}});
  return true;
}

emu::Result<emu::NodeId> ShmPort::admit_hello(std::span<const std::byte> message) const {
  emu::ShmHello hello;
  if (message.size() != sizeof hello) return emu::fail("hello of {} bytes", message.size());
  std::memcpy(&hello, message.data(), sizeof hello);
  if (hello.magic != emu::kShmMagic || hello.type != emu::ShmMessageType::hello) {
    return emu::fail("not a hello");
  }
  if (hello.version != emu::kMessageVersion) {
    return emu::fail("hcad speaks version {}, fabricd {}: install the same build of both",
                     hello.version, emu::kMessageVersion);
  }
  const std::string name(hello.node_name, ::strnlen(hello.node_name, emu::kNodeNameBytes));
  const auto& names = options_.rules.node_names;
  const auto it = std::find(names.begin(), names.end(), name);
  if (it == names.end()) return emu::fail("the cluster has no node '{}'", name);
  const auto node = static_cast<emu::NodeId>(it - names.begin());
  if (sessions_[node] != nullptr) {
    return emu::fail("node {} is attached by process {}", name, sessions_[node]->pid);
  }
  if (options_.objection && options_.objection(node) == emu::Refusal::busy) {
    return emu::fail("node {} is attached from another host", name);
  }
  return node;
}

// The socket is taken if it succeeds.
emu::Result<void> ShmPort::open_session(emu::NodeId node, emu::UniqueFd& socket) {
  auto session = std::make_unique<ShmSession>(memory_, node);
  const emu::ShmRings rings = emu::shm_rings(options_.slots_per_node);
  auto region = emu::Region::create("flitnet-rings", rings.bytes);
  if (!region) return std::unexpected(region.error());
  auto wake_fabric = emu::make_eventfd();
  auto wake_node = emu::make_eventfd();
  if (!wake_fabric || !wake_node) return emu::fail("eventfd: {}", std::strerror(errno));
  if (auto peer = emu::peer_of(socket.get())) session->pid = peer->pid;
  session->region = std::move(*region);
  session->wake_fabric = std::move(*wake_fabric);
  session->wake_node = std::move(*wake_node);
  if (auto done = watch(epoll_.get(), session->wake_fabric.get()); !done) return done;

  auto at = [&](std::uint64_t offset) { return session->region.data() + offset; };
  session->tx = emu::RingConsumer(emu::RingView<emu::TxDesc>(at(rings.tx), rings.tx_capacity));
  session->rx_free =
      emu::RingConsumer(emu::RingView<emu::Free>(at(rings.rx_free), emu::kRxFreeCapacity));
  session->rx.connect(
      emu::RingProducer(emu::RingView<emu::RxDesc>(at(rings.rx), emu::kRxCapacity)));
  session->tx_free.connect(
      emu::RingProducer(emu::RingView<emu::Free>(at(rings.tx_free), rings.tx_capacity)));
  session->injected.connect(
      emu::RingProducer(emu::RingView<emu::Injected>(at(rings.injected), emu::kInjectedCapacity)));
  session->answers.connect(
      emu::RingProducer(emu::RingView<emu::Answer>(at(rings.answers), emu::kAnswersCapacity)));
  session->sleeper =
      emu::DoorbellSleeper(session->region.at(rings.fabric_asleep), session->wake_fabric.get());
  session->served = session->region.at(rings.served);
  session->waker =
      emu::DoorbellWaker(session->region.at(rings.node_asleep), session->wake_node.get());

  auto pool = memory_.create_pool(options_.slots_per_node, session.get());
  if (!pool) return std::unexpected(pool.error());
  session->pool = *pool;
  session->socket = std::move(socket);
  // All slots are the sender's from the start.
  for (std::size_t i = 0; i < options_.slots_per_node; ++i) {
    const PacketHandle packet = memory_.allocate(*pool);
    CHECK(packet != kNoPacket);
    memory_.meta(packet).state = SlotState::sender;
  }
  sessions_[node] = std::move(session);
  live_.push_back(sessions_[node].get());
  if (auto introduced = introduce_pools(*sessions_[node]); !introduced)
    sessions_[node]->fault(introduced.error().message);
  return {};
}

emu::Result<void> ShmPort::introduce_pools(ShmSession& session) {
  emu::ShmWelcome welcome{};
  welcome.magic = emu::kShmMagic;
  welcome.version = emu::kMessageVersion;
  welcome.type = emu::ShmMessageType::welcome;
  welcome.pool_slots = static_cast<std::uint32_t>(options_.slots_per_node);
  welcome.cycle_ps = options_.rules.cycle_time.cycle_ps;
  welcome.node = session.node;
  welcome.pool_id = session.pool;
  welcome.trains = options_.rules.trains ? 1 : 0;
  const std::array<int, emu::kWelcomeFds> fds = {session.region.fd(), session.wake_fabric.get(),
                                                 session.wake_node.get(), memory_.fd(session.pool)};
  auto sent = emu::send_message(session.socket.get(), emu::bytes_of(welcome), fds);
  if (!sent || !*sent) return emu::fail("went away before its welcome");
  // The new node learns of every pool, every other node of the new one, before any packet of it.
  auto tell = [&](ShmSession& to, std::uint16_t pool) {
    const auto message = pool_message(emu::ShmMessageType::pool_added, pool, memory_.slots(pool));
    const std::array<int, 1> fd = {memory_.read_only_fd(pool)};
    notify(to, message, fd);
  };
  for (const auto pool : memory_.pools()) {
    if (pool != session.pool) tell(session, pool);
  }
  for (ShmSession* other : live_) {
    if (other != &session) tell(*other, session.pool);
  }
  return {};
}

void ShmPort::lose(emu::NodeId node, std::string reason, Inbox& inbox) {
  std::unique_ptr<ShmSession> session = std::move(sessions_[node]);
  std::erase(live_, session.get());
  session->alive = false;
  // By hand: the node may hold the eventfd open, and then closing ours leaves it watched.
  (void)::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, session->socket.get(), nullptr);
  (void)::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, session->wake_fabric.get(), nullptr);
  session->socket.reset();
  session->wake_fabric.reset();
  session->wake_node.reset();
  // What others sent goes back to them; what it was filling is free; what is under way drains.
  memory_.release_held_by(node);
  for (std::size_t i = 0; i < options_.slots_per_node; ++i) {
    const PacketHandle packet = handle_of(session->pool, static_cast<std::uint16_t>(i));
    if (memory_.meta(packet).state == SlotState::sender) memory_.free(packet);
  }
  draining_.push_back(std::move(session));
  inbox.events.push_back({node, NodeEventKind::lost, std::move(reason)});
}

void ShmPort::reap_drained() {
  std::erase_if(draining_, [&](std::unique_ptr<ShmSession>& session) {
    if (memory_.free_count(session->pool) != options_.slots_per_node) return false;
    memory_.destroy_pool(session->pool);
    const auto message = pool_message(emu::ShmMessageType::pool_removed, session->pool, 0);
    for (ShmSession* other : live_) notify(*other, message, {});
    return true;
  });
}

}  // namespace fabric

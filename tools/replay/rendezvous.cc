#include "tools/replay/rendezvous.h"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include <fmt/core.h>

namespace tools {
namespace {

constexpr std::size_t kLineBytesMax = 4096;
constexpr std::size_t kPeersMax = 1024;
constexpr std::uint64_t kListener = ~std::uint64_t{0};  // epoll's data; a peer's is its index
constexpr auto kRetry = std::chrono::milliseconds(100);

emu::Result<sockaddr_un> address_of(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) {
    return emu::fail("{}: path too long for a socket ({} of {} bytes); use a shorter run folder",
                     path, path.size(), sizeof address.sun_path - 1);
  }
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  return address;
}

int stream_socket() { return ::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0); }

int connect_to(int fd, const sockaddr_un& address) {
  return ::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address);
}

bool same_user(int fd) {
  ucred peer{};
  socklen_t size = sizeof peer;
  return ::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && peer.uid == ::geteuid();
}

}  // namespace

emu::Result<Rendezvous> Rendezvous::listen(const std::string& folder, const std::string& kind,
                                           const std::string& name) {
  Rendezvous self;
  self.folder_ = folder;
  self.kind_ = kind;
  self.name_ = name;
  if (name.empty() || name.find('/') != std::string::npos) return emu::fail("bad name '{}'", name);
  if (::mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) {
    return emu::fail("{}: {}", folder, std::strerror(errno));
  }
  const std::string path = self.path_of(name);
  const auto address = address_of(path);
  if (!address) return std::unexpected(address.error());
  // A socket that nobody listens on was left by a process that died.
  const int probe = stream_socket();
  const bool alive = connect_to(probe, *address) == 0;
  ::close(probe);
  if (alive) return emu::fail("{}: another {} runs as {}", path, kind, name);
  ::unlink(path.c_str());
  self.listen_fd_ = stream_socket();
  if (::bind(self.listen_fd_, reinterpret_cast<const sockaddr*>(&*address), sizeof *address) != 0 ||
      ::listen(self.listen_fd_, 64) != 0) {
    return emu::fail("{}: {}", path, std::strerror(errno));
  }
  self.epoll_fd_ = ::epoll_create1(EPOLL_CLOEXEC);
  epoll_event event{.events = EPOLLIN, .data = {.u64 = kListener}};
  if (self.epoll_fd_ < 0 ||
      ::epoll_ctl(self.epoll_fd_, EPOLL_CTL_ADD, self.listen_fd_, &event) != 0) {
    return emu::fail("{}: epoll: {}", path, std::strerror(errno));
  }
  return self;
}

Rendezvous::Rendezvous(Rendezvous&& other) noexcept
    : folder_(std::move(other.folder_)),
      kind_(std::move(other.kind_)),
      name_(std::move(other.name_)),
      listen_fd_(std::exchange(other.listen_fd_, -1)),
      epoll_fd_(std::exchange(other.epoll_fd_, -1)),
      peers_(std::exchange(other.peers_, {})) {}

Rendezvous::~Rendezvous() {
  for (const Peer& peer : peers_) {
    if (peer.fd >= 0) ::close(peer.fd);
  }
  if (epoll_fd_ >= 0) ::close(epoll_fd_);
  if (listen_fd_ < 0) return;
  ::close(listen_fd_);
  ::unlink(path_of(name_).c_str());
}

std::string Rendezvous::path_of(const std::string& name) const {
  return fmt::format("{}/{}.{}.sock", folder_, kind_, name);
}

Rendezvous::PeerIndex Rendezvous::call(const std::string& name) {
  for (PeerIndex i = 0; i < peers_.size(); ++i) {
    if (peers_[i].name == name && !peers_[i].incoming) return i;
  }
  peers_.push_back({.name = name, .out = fmt::format("hello name={}\n", name_)});
  try_connect(peers_.back());
  return peers_.size() - 1;
}

void Rendezvous::send(PeerIndex peer, std::string line) {
  if (peers_[peer].state == State::gone) return;
  peers_[peer].out += line + '\n';
  if (peers_[peer].state == State::up) write_to(peer);
}

void Rendezvous::try_connect(Peer& peer) {
  const auto now = std::chrono::steady_clock::now();
  if (now < peer.next_try) return;
  peer.next_try = now + kRetry;
  const auto address = address_of(path_of(peer.name));
  if (!address) return;
  const int fd = stream_socket();
  if (fd < 0) return;
  if (connect_to(fd, *address) != 0 || !same_user(fd)) {
    ::close(fd);
    return;
  }
  peer.fd = fd;
  peer.state = State::up;
}

void Rendezvous::watch(PeerIndex index) {
  Peer& peer = peers_[index];
  const std::uint32_t wanted = EPOLLIN | (peer.out.empty() ? 0U : EPOLLOUT);
  if (wanted == peer.watched) return;
  epoll_event event{.events = wanted, .data = {.u64 = index}};
  const int change = peer.watched == 0 ? EPOLL_CTL_ADD : EPOLL_CTL_MOD;
  if (::epoll_ctl(epoll_fd_, change, peer.fd, &event) == 0) peer.watched = wanted;
}

void Rendezvous::wait(std::chrono::nanoseconds timeout, const Handler& handler) {
  for (PeerIndex i = 0; i < peers_.size(); ++i) {
    Peer& peer = peers_[i];
    if (peer.state == State::calling) {
      try_connect(peer);
      if (peer.state == State::calling)
        timeout = std::min<std::chrono::nanoseconds>(timeout, kRetry);
    }
    if (peer.state == State::up) watch(i);
  }
  const auto ns = std::max<std::int64_t>(timeout.count(), 0);
  const timespec limit{.tv_sec = ns / 1'000'000'000, .tv_nsec = ns % 1'000'000'000};
  pollfd all{.fd = epoll_fd_, .events = POLLIN, .revents = 0};
  if (::ppoll(&all, 1, &limit, nullptr) <= 0) return;
  std::array<epoll_event, 64> events;
  const int count = ::epoll_wait(epoll_fd_, events.data(), static_cast<int>(events.size()), 0);
  bool callers = false;
  for (int k = 0; k < count; ++k) {
    const epoll_event& event = events[static_cast<std::size_t>(k)];
    if (event.data.u64 == kListener) {
      callers = true;
      continue;
    }
    const auto index = static_cast<PeerIndex>(event.data.u64);
    if ((event.events & EPOLLOUT) != 0) write_to(index);
    if ((event.events & (EPOLLIN | EPOLLHUP | EPOLLERR)) != 0) read_from(index, handler);
  }
  if (callers) accept_all();
}

void Rendezvous::flush(std::chrono::milliseconds timeout) {
  const auto end = std::chrono::steady_clock::now() + timeout;
  const auto waiting = [this] {
    return std::ranges::any_of(
        peers_, [](const Peer& peer) { return peer.state == State::up && !peer.out.empty(); });
  };
  while (waiting() && std::chrono::steady_clock::now() < end) {
    wait(std::chrono::milliseconds(5),
         {.line = [](PeerIndex, const Words&) {}, .gone = [](PeerIndex) {}});
  }
}

void Rendezvous::accept_all() {
  while (true) {
    const int fd = ::accept4(listen_fd_, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0) return;
    if (!same_user(fd) || peers_.size() >= kPeersMax) {
      ::close(fd);
      continue;
    }
    peers_.push_back({.state = State::up, .incoming = true, .fd = fd});
  }
}

void Rendezvous::read_from(PeerIndex index, const Handler& handler) {
  char buffer[16 * 1024];
  while (peers_[index].state == State::up) {
    const ssize_t got = ::recv(peers_[index].fd, buffer, sizeof buffer, 0);
    if (got > 0) {
      peers_[index].in.append(buffer, static_cast<std::size_t>(got));
      take_lines(index, handler);
    } else if (got == 0 || (errno != EAGAIN && errno != EINTR)) {
      drop(index, handler);
    } else if (errno == EAGAIN) {
      return;
    }
  }
}

void Rendezvous::take_lines(PeerIndex index, const Handler& handler) {
  std::string text = std::exchange(peers_[index].in, {});
  std::size_t from = 0;
  for (std::size_t end = text.find('\n'); end != std::string::npos; end = text.find('\n', from)) {
    const Words words = Words::parse(std::string_view(text).substr(from, end - from), " ");
    from = end + 1;
    if (peers_[index].incoming && words.verb() == "hello") {
      peers_[index].name = words.text("name");
    } else {
      handler.line(index, words);
    }
  }
  text.erase(0, from);
  if (text.size() > kLineBytesMax) {
    drop(index, handler);  // nobody of ours sends such lines
    return;
  }
  peers_[index].in = std::move(text);
}

void Rendezvous::write_to(PeerIndex index) {
  Peer& peer = peers_[index];
  while (!peer.out.empty()) {
    const ssize_t sent = ::send(peer.fd, peer.out.data(), peer.out.size(), MSG_NOSIGNAL);
    if (sent <= 0) return;  // full, or gone: then reading tells
    peer.out.erase(0, static_cast<std::size_t>(sent));
  }
}

void Rendezvous::drop(PeerIndex index, const Handler& handler) {
  Peer& peer = peers_[index];
  if (peer.state == State::gone) return;
  ::close(std::exchange(peer.fd, -1));  // epoll forgets it
  peer.state = State::gone;
  handler.gone(index);
}

}  // namespace tools

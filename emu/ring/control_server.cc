#include "emu/ring/control_server.h"

#include <sys/epoll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <span>
#include <utility>

#include "emu/ring/unix_socket.h"

namespace emu {

namespace {
constexpr std::size_t kClientsMax = 64;

bool watch(int epoll, int fd, int operation = EPOLL_CTL_ADD, std::uint32_t events = EPOLLIN) {
  epoll_event event{};
  event.events = events;
  event.data.fd = fd;
  return ::epoll_ctl(epoll, operation, fd, &event) == 0;
}
}  // namespace

ControlServer::ControlServer(std::string path, Answer answer)
    : path_(std::move(path)), answer_(std::move(answer)) {}

ControlServer::~ControlServer() { ::unlink(path_.c_str()); }

bool ControlServer::removed() const {
  struct stat info {};
  if (::stat(path_.c_str(), &info) == 0) return info.st_ino != inode_;
  return errno == ENOENT || errno == ENOTDIR;
}

Result<std::unique_ptr<ControlServer>> ControlServer::open(const std::string& path, Answer answer) {
  auto listener = listen_unix(path);
  if (!listener) return std::unexpected(listener.error());
  std::unique_ptr<ControlServer> server(new ControlServer(path, std::move(answer)));
  server->listener_ = std::move(*listener);
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) return fail("{}: {}", path, std::strerror(errno));
  server->inode_ = info.st_ino;
  server->epoll_ = UniqueFd(::epoll_create1(EPOLL_CLOEXEC));
  if (!server->epoll_ || !watch(server->epoll_.get(), server->listener_.get())) {
    return fail("{}: epoll: {}", path, std::strerror(errno));
  }
  return server;
}

void ControlServer::service() {
  std::array<epoll_event, 16> events;
  const int count = ::epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), 0);
  for (int i = 0; i < count; ++i) {
    const int fd = events[static_cast<std::size_t>(i)].data.fd;
    if (fd == listener_.get()) {
      accept_all();
      continue;
    }
    const auto client = std::ranges::find(clients_, fd, [](auto& c) { return c.socket.get(); });
    if (client == clients_.end()) continue;
    const bool stays = client->unsent.empty() ? serve(*client) : send(*client);
    if (!stays) clients_.erase(client);
  }
}

void ControlServer::accept_all() {
  // The oldest client makes room: whoever keeps connections open does not lock others out.
  while (true) {
    auto client = accept_unix(listener_.get());
    if (!client) return;  // of another user, or we are out of descriptors: again next time
    if (!*client) return;
    if (clients_.size() == kClientsMax) clients_.erase(clients_.begin());
    if (watch(epoll_.get(), client->get())) clients_.push_back({std::move(*client), {}});
  }
}

bool ControlServer::serve(Client& client) {
  std::array<std::byte, 4096> buffer;
  auto message = receive_message(client.socket.get(), buffer);
  if (!message) return false;
  if (message->state == ReceivedMessage::State::nothing_yet) return true;
  if (message->state == ReceivedMessage::State::closed) return false;
  const std::string request(reinterpret_cast<const char*>(buffer.data()), message->bytes);
  client.unsent = answer_(request) + "\n";
  return send(client);
}

bool ControlServer::send(Client& client) {
  std::span rest(client.unsent);
  while (!rest.empty()) {
    const auto piece = rest.first(std::min(rest.size(), kMessageBytesMax));
    auto sent = send_message(client.socket.get(), std::as_bytes(piece));
    if (!sent) return false;
    if (!*sent) break;
    rest = rest.subspan(piece.size());
  }
  client.unsent.erase(0, client.unsent.size() - rest.size());
  return watch(epoll_.get(), client.socket.get(), EPOLL_CTL_MOD,
               client.unsent.empty() ? EPOLLIN : EPOLLOUT);
}

}  // namespace emu

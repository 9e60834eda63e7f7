#include "emu/ring/control_server.h"

#include <sys/epoll.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "emu/ring/unix_socket.h"

namespace emu {

namespace {
constexpr std::size_t kClientsMax = 64;

bool watch(int epoll, int fd) {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.fd = fd;
  return ::epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) == 0;
}
}  // namespace

ControlServer::ControlServer(std::string path, Answer answer)
    : path_(std::move(path)), answer_(std::move(answer)) {}

ControlServer::~ControlServer() { ::unlink(path_.c_str()); }

Result<std::unique_ptr<ControlServer>> ControlServer::open(const std::string& path, Answer answer) {
  auto listener = listen_unix(path);
  if (!listener) return std::unexpected(listener.error());
  std::unique_ptr<ControlServer> server(new ControlServer(path, std::move(answer)));
  server->listener_ = std::move(*listener);
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
    } else if (!serve(fd)) {
      std::erase_if(clients_, [fd](const UniqueFd& client) { return client.get() == fd; });
    }
  }
}

void ControlServer::accept_all() {
  // The oldest client makes room: whoever keeps connections open does not lock others out.
  while (true) {
    auto client = accept_unix(listener_.get());
    if (!client) return;  // of another user, or we are out of descriptors: again next time
    if (!*client) return;
    if (clients_.size() == kClientsMax) clients_.erase(clients_.begin());
    if (watch(epoll_.get(), client->get())) clients_.push_back(std::move(*client));
  }
}

bool ControlServer::serve(int client) {
  std::array<std::byte, 4096> buffer;
  auto message = receive_message(client, buffer);
  if (!message) return false;
  if (message->state == ReceivedMessage::State::nothing_yet) return true;
  if (message->state == ReceivedMessage::State::closed) return false;
  const std::string request(reinterpret_cast<const char*>(buffer.data()), message->bytes);
  const std::string reply = answer_(request) + "\n";
  auto sent = send_message(client, std::as_bytes(std::span(reply)));
  return sent && *sent;
}

}  // namespace emu

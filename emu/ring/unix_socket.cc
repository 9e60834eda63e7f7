#include "emu/ring/unix_socket.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

namespace emu {
namespace {

// sockaddr_un holds 107 characters; a run directory may lie deeper. Then the parent is opened and
// the address goes through /proc/self/fd.
struct Address {
  sockaddr_un name{};
  UniqueFd parent;
};

Result<Address> address_of(const std::string& path) {
  Address address;
  address.name.sun_family = AF_UNIX;
  std::string usable = path;
  if (path.size() >= sizeof address.name.sun_path) {
    const std::size_t slash = path.rfind('/');
    if (slash == std::string::npos) return fail("socket name {} is too long", path);
    const std::string parent = path.substr(0, slash);
    address.parent = UniqueFd(open(parent.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
    if (!address.parent) return fail("{}: {}", parent, std::strerror(errno));
    usable = fmt::format("/proc/self/fd/{}/{}", address.parent.get(), path.substr(slash + 1));
    if (usable.size() >= sizeof address.name.sun_path) {
      return fail("socket name {} is too long", path);
    }
  }
  std::copy(usable.begin(), usable.end(), address.name.sun_path);
  return address;
}

const sockaddr* generic(const Address& address) {
  return reinterpret_cast<const sockaddr*>(&address.name);
}

UniqueFd new_socket(bool nonblocking) {
  return UniqueFd(
      socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | (nonblocking ? SOCK_NONBLOCK : 0), 0));
}

// Is there a socket at this address on which nobody listens any more?
bool is_stale(const Address& address) {
  UniqueFd probe = new_socket(true);
  if (!probe) return false;
  return connect(probe.get(), generic(address), sizeof address.name) != 0 && errno == ECONNREFUSED;
}

Result<void> bind_replacing_stale(int fd, const Address& address, const std::string& path) {
  if (bind(fd, generic(address), sizeof address.name) == 0) return {};
  if (errno != EADDRINUSE) return fail("cannot make socket {}: {}", path, std::strerror(errno));
  struct stat info {};
  if (lstat(path.c_str(), &info) == 0 && !S_ISSOCK(info.st_mode)) {
    return fail("{} exists and is not a socket", path);
  }
  if (!is_stale(address)) return fail("socket {} is in use by a running process", path);
  if (unlink(path.c_str()) != 0 && errno != ENOENT) {
    return fail("cannot remove the stale socket {}: {}", path, std::strerror(errno));
  }
  if (bind(fd, generic(address), sizeof address.name) == 0) return {};
  return fail("cannot make socket {}: {}", path, std::strerror(errno));
}

// Takes the descriptors out of a received control message; those beyond the limit are closed.
void take_fds(msghdr& header, ReceivedMessage& message, bool& too_many) {
  for (cmsghdr* c = CMSG_FIRSTHDR(&header); c != nullptr; c = CMSG_NXTHDR(&header, c)) {
    if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof fd);
      ForeignFd owned{UniqueFd(fd)};
      if (message.fd_count == kMessageFdsMax) {
        too_many = true;
      } else {
        message.fds[message.fd_count++] = std::move(owned);
      }
    }
  }
}

}  // namespace

Result<UniqueFd> listen_unix(const std::string& path) {
  auto address = address_of(path);
  if (!address) return std::unexpected(address.error());
  UniqueFd fd = new_socket(true);
  if (!fd) return fail("socket: {}", std::strerror(errno));
  // The mode of the inode is that of the socket at bind time, masked; the run directory is 0700
  // besides.
  fchmod(fd.get(), 0600);
  if (auto bound = bind_replacing_stale(fd.get(), *address, path); !bound) {
    return std::unexpected(bound.error());
  }
  if (listen(fd.get(), 128) != 0) return fail("listen on {}: {}", path, std::strerror(errno));
  return fd;
}

Result<UniqueFd> connect_unix(const std::string& path, bool nonblocking) {
  auto address = address_of(path);
  if (!address) return std::unexpected(address.error());
  UniqueFd fd = new_socket(nonblocking);
  if (!fd) return fail("socket: {}", std::strerror(errno));
  if (connect(fd.get(), generic(*address), sizeof address->name) == 0) return fd;
  if (errno == ECONNREFUSED) return fail("nobody listens on {}: its process is gone", path);
  if (errno == ENOENT) return fail("{} does not exist: is the cluster up?", path);
  return fail("cannot connect to {}: {}", path, std::strerror(errno));
}

Result<UniqueFd> accept_unix(int listener) {
  UniqueFd fd(accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (!fd) {
    const bool nobody = errno == EAGAIN || errno == ECONNABORTED || errno == EINTR;
    if (nobody) return UniqueFd();
    return fail("accept: {}", std::strerror(errno));
  }
  if (auto peer = check_same_user(fd.get()); !peer) return std::unexpected(peer.error());
  return fd;
}

Result<Peer> peer_of(int socket) {
  ucred credentials{};
  socklen_t size = sizeof credentials;
  if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &credentials, &size) != 0) {
    return fail("SO_PEERCRED: {}", std::strerror(errno));
  }
  return Peer{credentials.pid, credentials.uid};
}

Result<Peer> check_same_user(int socket) {
  auto peer = peer_of(socket);
  if (peer && peer->uid != geteuid() && peer->uid != 0) {
    return fail("process {} of user {} may not attach", peer->pid, peer->uid);
  }
  return peer;
}

Result<bool> send_message(int socket, std::span<const std::byte> bytes, std::span<const int> fds) {
  if (fds.size() > kMessageFdsMax || bytes.size() > kMessageBytesMax || bytes.empty()) {
    return fail("a message of {} bytes and {} descriptors", bytes.size(), fds.size());
  }
  iovec piece{const_cast<std::byte*>(bytes.data()), bytes.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * kMessageFdsMax)] = {};
  msghdr header{};
  header.msg_iov = &piece;
  header.msg_iovlen = 1;
  if (!fds.empty()) {
    header.msg_control = control;
    header.msg_controllen = CMSG_SPACE(fds.size_bytes());
    cmsghdr* c = CMSG_FIRSTHDR(&header);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(fds.size_bytes());
    std::memcpy(CMSG_DATA(c), fds.data(), fds.size_bytes());
  }
  ssize_t sent = -1;
  do {
    sent = sendmsg(socket, &header, MSG_NOSIGNAL);
  } while (sent < 0 && errno == EINTR);
  if (sent >= 0) return true;
  if (errno == EAGAIN) return false;
  const int error = errno;
  auto failed = fail("sending to a local process: {}", std::strerror(error));
  errno = error;
  return failed;
}

Result<ReceivedMessage> receive_message(int socket, std::span<std::byte> buffer) {
  iovec piece{buffer.data(), buffer.size()};
  // Room for more descriptors than we take, so that a message with too many is seen as such.
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * (kMessageFdsMax + 1))] = {};
  msghdr header{};
  header.msg_iov = &piece;
  header.msg_iovlen = 1;
  header.msg_control = control;
  header.msg_controllen = sizeof control;
  ssize_t got = -1;
  do {
    got = recvmsg(socket, &header, MSG_CMSG_CLOEXEC);
  } while (got < 0 && errno == EINTR);
  ReceivedMessage message;
  if (got < 0) {
    if (errno == EAGAIN) return message;
    if (errno == ECONNRESET) {
      message.state = ReceivedMessage::State::closed;
      return message;
    }
    return fail("receiving from a local process: {}", std::strerror(errno));
  }
  bool too_many = false;
  take_fds(header, message, too_many);
  if (too_many) return fail("a message with more than {} descriptors", kMessageFdsMax);
  if ((header.msg_flags & MSG_TRUNC) != 0) {
    return fail("a message of more than {} bytes", buffer.size());
  }
  // There was room for one more than we take, so what is missing the kernel could not install: this
  // process is at its limit (RLIMIT_NOFILE).
  if ((header.msg_flags & MSG_CTRUNC) != 0) {
    message.fds_lost = true;
    while (message.fd_count > 0) message.fds[--message.fd_count].reset();
  }
  message.bytes = static_cast<std::size_t>(got);
  message.state = got == 0 ? ReceivedMessage::State::closed : ReceivedMessage::State::message;
  return message;
}

Result<bool> wait_readable(int fd, int timeout_ms) {
  pollfd wait{fd, POLLIN, 0};
  const int ready = poll(&wait, 1, timeout_ms);
  if (ready < 0 && errno != EINTR) return fail("poll: {}", std::strerror(errno));
  return ready > 0;
}

}  // namespace emu

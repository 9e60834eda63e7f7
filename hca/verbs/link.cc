#include "hca/verbs/link.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <new>
#include <span>
#include <utility>
#include <vector>

#include "emu/ring/unix_socket.h"
#include "hca/verbs/not_cancelled.h"
#include "hca/verbs/say.h"

namespace hca {

// Every open link of this process, for fork: a child that kept the socket would keep its parent's
// device alive in hcad after the parent's death, and would answer into its conversation.
struct LiveLinks {
  std::mutex mutex;
  std::vector<Link*> links;

  static LiveLinks& instance() {
    static LiveLinks* const live = new LiveLinks;  // never destroyed: programs fork at exit too
    return *live;
  }
  static void before_fork() { instance().mutex.lock(); }
  static void in_parent() { instance().mutex.unlock(); }
  static void in_child() {
    for (Link* link : instance().links) link->abandon();
    instance().links.clear();
    instance().mutex.unlock();
  }
  void add(Link* link) {
    static const int handlers = ::pthread_atfork(before_fork, in_parent, in_child);
    (void)handlers;
    const std::lock_guard lock(mutex);
    links.push_back(link);
  }
  void remove(Link* link) {
    const std::lock_guard lock(mutex);
    std::erase(links, link);
  }
};

std::unique_ptr<Link> Link::open(const char* path) {
  errno = 0;
  auto socket = emu::connect_unix(path);
  if (!socket) {
    const bool at_limit = errno == EMFILE || errno == ENFILE;
    say("{}", socket.error().message);
    errno = at_limit ? EMFILE : ENODEV;
    return nullptr;
  }
  auto peer = emu::check_same_user(socket->get());
  if (!peer) {
    say("{}: {}", path, peer.error().message);
    errno = EPERM;
    return nullptr;
  }
  return std::unique_ptr<Link>(new (std::nothrow) Link(std::move(*socket), peer->pid));
}

Link::Link(emu::UniqueFd socket, pid_t hcad) : socket_(std::move(socket)), hcad_(hcad) {
  LiveLinks::instance().add(this);
}

Link::~Link() { LiveLinks::instance().remove(this); }

void Link::abandon() noexcept {
  abandoned_.store(true, std::memory_order_relaxed);
  dead_.store(true, std::memory_order_relaxed);
  socket_.reset();
}

// An hcad that lives but answers nonsense must stop writing our rings as well.
int Link::fail() {
  hang_up();
  return EIO;
}

void Link::hang_up() {
  ::shutdown(socket_.get(), SHUT_RDWR);
  dead_.store(true, std::memory_order_relaxed);
}

// In a forked child the lock may be held for ever, by a thread that it does not have: the test
// comes before. While another thread of ours had its turn the link may have died: it comes again.
int Link::ask(const ControlRequest& request, Answered& answered, int fd) {
  if (abandoned()) return EIO;
  const NotCancelled to_its_end;  // what is asked is answered, or the next would take the answer
  const std::lock_guard lock(turn_);
  if (dead()) return EIO;
  const std::span<const int> fds(&fd, fd >= 0 ? 1 : 0);
  const auto sent = emu::send_message(socket_.get(), std::as_bytes(std::span(&request, 1)), fds);
  // Where `fd` is not open nothing has left, and the next request is answered as ever. Had our own
  // socket been lost, errno would be the same.
  if (!sent && errno == EBADF && ::fcntl(socket_.get(), F_GETFD) >= 0) return EBADF;
  if (!sent || !*sent) return fail();
  auto message =
      emu::receive_message(socket_.get(), std::as_writable_bytes(std::span(&answered.reply, 1)));
  if (!message || message->state != emu::ReceivedMessage::State::message ||
      message->bytes != sizeof(ControlReply) || answered.reply.op != request.op) {
    return fail();
  }
  answered.fds_lost = message->fds_lost;
  for (std::size_t i = 0; i < std::min(message->fd_count, kReplyFdsMax); ++i) {
    answered.fds[i] = message->fds[i].take();
  }
  // As behind a call of the kernel: programs print errno, whatever the call returns.
  if (answered.reply.error != 0) errno = answered.reply.error;
  return answered.reply.error;
}

int Link::talk(std::span<const std::byte> bytes, std::span<std::byte> reply, std::size_t& got) {
  if (abandoned()) return EIO;
  const NotCancelled to_its_end;
  const std::lock_guard lock(turn_);
  if (dead()) return EIO;
  const auto sent = emu::send_message(socket_.get(), bytes);
  if (!sent || !*sent) return fail();
  auto message = emu::receive_message(socket_.get(), reply);
  if (!message || message->state != emu::ReceivedMessage::State::message) return fail();
  got = message->bytes;
  return 0;
}

bool Link::look_dead() {
  if (dead()) return true;
  const NotCancelled to_its_end;
  pollfd wait{socket_.get(), POLLRDHUP, 0};
  if (::poll(&wait, 1, 0) > 0 && (wait.revents & (POLLHUP | POLLRDHUP | POLLERR)) != 0) {
    dead_.store(true, std::memory_order_relaxed);
  }
  return dead();
}

}  // namespace hca

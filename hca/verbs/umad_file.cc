// The descriptor of an open umad is a socket of hcad that keeps messages apart: a datagram that the
// program writes is one, and so is what it reads (hca/umad). What the kernel answers at once, hcad
// does: whether there is an agent, and which.
#include "hca/verbs/umad_file.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <rdma/ib_user_mad.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "emu/ring/unix_socket.h"
#include "hca/verbs/counter_file.h"
#include "hca/verbs/link.h"
#include "hca/verbs/marked_fds.h"
#include "hca/verbs/next.h"
#include "hca/verbs/nodes.h"
#include "hca/verbs/not_cancelled.h"

namespace hca {

namespace {

constexpr std::string_view kUmadPath = "/dev/infiniband/umad";
constexpr std::string_view kSocketName = "/hcad.sock";
constexpr std::uint32_t kUmadAgentsMax = 32;  // of a file, as in the kernel

// [descriptor] a bit for each agent that was registered by it.
std::array<std::atomic<std::uint32_t>, MarkedFds::kMost> g_agents;
// Those that were a umad's when they were opened: perhaps another file's by now.
MarkedFds g_was_umad;

int umad_error(int error) {
  errno = error;
  return -1;
}

// A connection with an hcad. Only umads are used by their number: a device's has no descriptor that
// its program would know.
bool is_umad(int fd) {
  sockaddr_un peer{};
  socklen_t size = sizeof peer;
  if (::getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &size) != 0) return false;
  if (peer.sun_family != AF_UNIX || size > sizeof peer) return false;
  return std::string_view(peer.sun_path, ::strnlen(peer.sun_path, sizeof peer.sun_path))
      .ends_with(kSocketName);
}

std::mutex g_reading;  // nobody takes what another has looked at

void own_reading() {
  static const int handlers = ::pthread_atfork([] { g_reading.lock(); }, [] { g_reading.unlock(); },
                                               [] { g_reading.unlock(); });
  (void)handlers;
}

constexpr int kPatienceMs = 1000;  // for hcad to look

// A datagram that hcad need not answer. The kernel's umad takes any at once; a socket may be full
// for as long as hcad does not look. 0 or an errno.
int send_umad(int fd, std::span<const std::byte> message) {
  constexpr int kAtOnce = MSG_NOSIGNAL | MSG_DONTWAIT;
  ssize_t sent = ::send(fd, message.data(), message.size(), kAtOnce);
  if (sent < 0 && errno == EAGAIN) {
    pollfd wait{fd, POLLOUT, 0};
    if (::poll(&wait, 1, kPatienceMs) < 0) return errno;
    sent = ::send(fd, message.data(), message.size(), kAtOnce);
  }
  if (sent >= 0) return 0;
  return errno == EPIPE ? EIO : errno;
}

// What hcad answers, in a pipe: whatever it sends on the connection itself is the program's to
// read. 0 or an errno.
int ask_hcad(int fd, std::span<const std::byte> message, UmadAnswer& answer) {
  const NotCancelled to_its_end;
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return errno;
  const emu::UniqueFd reads(ends[0]);
  emu::UniqueFd writes(ends[1]);
  pollfd wait{fd, POLLOUT, 0};
  const int room = ::poll(&wait, 1, kPatienceMs);
  if (room <= 0) return room < 0 ? errno : EAGAIN;
  const int end = writes.get();
  const auto sent = emu::send_message(fd, message, std::span(&end, 1));
  if (!sent || !*sent) return sent ? EAGAIN : EIO;
  writes.reset();  // the other is hcad's: if it goes, so does the pipe
  ssize_t got = 0;
  do {
    got = ::read(reads.get(), &answer, sizeof answer);
  } while (got < 0 && errno == EINTR);
  return got == sizeof answer ? answer.error : EIO;
}

std::uint32_t bit_of(std::uint32_t agent) { return 1U << (agent % kUmadAgentsMax); }

int add_agent(int fd, ib_user_mad_reg_req2& agent) {
  if (!MarkedFds::fits(fd)) return umad_error(EINVAL);
  if (agent.qpn > 1) return umad_error(EINVAL);
  UmadAnswer answer{};
  if (const int error = ask_hcad(fd, std::as_bytes(std::span(&agent, 1)), answer)) {
    const bool unknown = (agent.flags & ~IB_USER_MAD_REG_FLAGS_CAP) != 0;
    if (unknown) agent.flags = IB_USER_MAD_REG_FLAGS_CAP;  // its program may ask again
    return umad_error(error);
  }
  agent.id = answer.agent;
  g_agents[static_cast<std::size_t>(fd)].fetch_or(bit_of(agent.id));
  return 0;
}

int add_old_agent(int fd, ib_user_mad_reg_req& asked) {
  ib_user_mad_reg_req2 agent{};
  agent.qpn = asked.qpn;
  agent.mgmt_class = asked.mgmt_class;
  agent.mgmt_class_version = asked.mgmt_class_version;
  std::memcpy(agent.method_mask, asked.method_mask, sizeof agent.method_mask);
  agent.oui = std::uint32_t{asked.oui[0]} << 16 | std::uint32_t{asked.oui[1]} << 8 | asked.oui[2];
  agent.rmpp_version = asked.rmpp_version;
  const int result = add_agent(fd, agent);
  if (result == 0) asked.id = agent.id;
  return result;
}

int remove_agent(int fd, std::uint32_t id) {
  if (!MarkedFds::fits(fd) || id >= kUmadAgentsMax) return umad_error(EINVAL);
  g_agents[static_cast<std::size_t>(fd)].fetch_and(~bit_of(id));
  UmadAnswer answer{};
  const int error = ask_hcad(fd, std::as_bytes(std::span(&id, 1)), answer);
  return error == 0 ? 0 : umad_error(error);
}

int open_of(const char* socket_path, int flags) {
  auto link = Link::open(socket_path);
  if (!link) return -1;
  ControlRequest request{};
  request.op = ControlOp::open_umad;
  request.hello = kOurHello;
  Answered answered;
  if (const int error = link->ask(request, answered)) return umad_error(error);
  emu::UniqueFd socket = link->take_socket();
  const int fd = socket.get();
  if (!MarkedFds::fits(fd)) return umad_error(EMFILE);
  const int status = ::fcntl(fd, F_GETFL);
  if ((flags & O_NONBLOCK) != 0) (void)::fcntl(fd, F_SETFL, status | O_NONBLOCK);
  if ((flags & O_CLOEXEC) == 0) (void)::fcntl(fd, F_SETFD, 0);
  own_reading();
  g_agents[static_cast<std::size_t>(fd)].store(0);
  g_was_umad.set(fd, true);
  return socket.release();
}

// A message if there is one. One that is longer than the program's room stays (ENOSPC), and its
// beginning says how long it is. EIO: its hcad has gone; a stock umad_recv() would take 0 bytes for
// a datagram.
ssize_t read_one(int fd, void* bytes, std::size_t room) {
  const std::lock_guard lock(g_reading);
  const ssize_t whole = ::recv(fd, bytes, room, MSG_PEEK | MSG_TRUNC | MSG_DONTWAIT);
  if (whole == 0 || (whole < 0 && errno == ECONNRESET)) return umad_error(EIO);
  if (whole < 0) return -1;
  if (static_cast<std::size_t>(whole) > room) return umad_error(ENOSPC);
  return ::recv(fd, bytes, room, MSG_DONTWAIT);
}

ssize_t read_umad(int fd, void* bytes, std::size_t room) {
  while (true) {
    const ssize_t got = read_one(fd, bytes, room);
    if (got >= 0 || errno != EAGAIN || (::fcntl(fd, F_GETFL) & O_NONBLOCK) != 0) return got;
    pollfd wait{fd, POLLIN, 0};
    if (::poll(&wait, 1, -1) < 0) return -1;
  }
}

}  // namespace

std::optional<int> open_umad(const char* path, int flags) {
  if (path == nullptr || std::strncmp(path, kUmadPath.data(), kUmadPath.size()) != 0) return {};
  const auto sockets = node_sockets();
  for (std::size_t i = 0; i < sockets.size(); ++i)
    if (path + kUmadPath.size() == std::to_string(i)) return open_of(sockets[i].c_str(), flags);
  return {};
}

std::optional<int> ask_umad(int fd, unsigned long request, void* argument) {
  const bool known = request == IB_USER_MAD_REGISTER_AGENT ||
                     request == IB_USER_MAD_REGISTER_AGENT2 ||
                     request == IB_USER_MAD_UNREGISTER_AGENT || request == IB_USER_MAD_ENABLE_PKEY;
  if (!known || !is_umad(fd)) return {};
  if (request == IB_USER_MAD_ENABLE_PKEY) return 0;
  if (argument == nullptr) return umad_error(EFAULT);
  if (request == IB_USER_MAD_REGISTER_AGENT)
    return add_old_agent(fd, *static_cast<ib_user_mad_reg_req*>(argument));
  if (request == IB_USER_MAD_REGISTER_AGENT2)
    return add_agent(fd, *static_cast<ib_user_mad_reg_req2*>(argument));
  return remove_agent(fd, *static_cast<std::uint32_t*>(argument));
}

// Only for an agent that was registered elsewhere (by this file's other descriptor, or its other
// process), or not at all, does hcad have to be asked.
std::optional<ssize_t> write_umad(int fd, const void* bytes, std::size_t count) {
  if (!g_was_umad.has(fd) || !is_umad(fd)) return {};
  constexpr std::size_t kRmppHeaderBytes = 36;  // the least that the kernel takes
  constexpr std::size_t kMadBytes = 256;        // longer ones in segments (RMPP) are refused
  if (count < sizeof(ib_user_mad_hdr) + kRmppHeaderBytes ||
      count > sizeof(ib_user_mad_hdr) + kMadBytes)
    return umad_error(EINVAL);
  std::uint32_t agent = 0;  // ib_user_mad_hdr::id
  std::memcpy(&agent, bytes, sizeof agent);
  if (agent >= kUmadAgentsMax) return umad_error(EINVAL);
  const std::span message(static_cast<const std::byte*>(bytes), count);
  const bool known = (g_agents[static_cast<std::size_t>(fd)].load() & bit_of(agent)) != 0;
  UmadAnswer answer{};
  const int error = known ? send_umad(fd, message) : ask_hcad(fd, message, answer);
  return error == 0 ? static_cast<ssize_t>(count) : umad_error(error);
}

}  // namespace hca

using namespace hca;

extern "C" {

ssize_t flitnet_read(int fd, void* bytes, std::size_t room) __asm__("read");
// The same as _FORTIFY_SOURCE has it.
ssize_t flitnet_read_chk(int fd, void* bytes, std::size_t room,
                         std::size_t there) __asm__("__read_chk");

ssize_t flitnet_read(int fd, void* bytes, std::size_t room) {
  if (g_was_umad.has(fd) && is_umad(fd)) return read_umad(fd, bytes, room);
  before_read(fd);
  static const auto real = next<ssize_t (*)(int, void*, std::size_t)>("read");
  return real(fd, bytes, room);
}

ssize_t flitnet_read_chk(int fd, void* bytes, std::size_t room, std::size_t there) {
  if (g_was_umad.has(fd) && room <= there) return flitnet_read(fd, bytes, room);
  before_read(fd);
  static const auto real = next<ssize_t (*)(int, void*, std::size_t, std::size_t)>("__read_chk");
  return real(fd, bytes, room, there);
}

}  // extern "C"

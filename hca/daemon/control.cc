#include "hca/daemon/control.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include <fmt/core.h>

#include "emu/base/log.h"
#include "emu/clock/host.h"
#include "emu/ring/doorbell.h"
#include "emu/ring/unix_socket.h"
#include "hca/daemon/request.h"
#include "hca/daemon/trouble.h"

namespace hca {

namespace {
// Connections that have not said yet what they are, beside the devices and files of all programs.
constexpr std::size_t kSilentMax = 1024;
// Of rdma_cm and umad, two descriptors of ours each. A program has one for each event channel, and
// one for each id without a channel, as rsockets are. Three more programs find as many.
constexpr std::size_t kFilesMax = 8192;
constexpr std::uint32_t kFilesOfProgramMax = kFilesMax / 4;
constexpr int kRequestsPerTurn = 64;  // of one program, so that it cannot starve the datapath

bool may_be_first(ControlOp op) {
  return op == ControlOp::hello || op == ControlOp::open_cm || op == ControlOp::open_umad ||
         op == ControlOp::read_counter;
}

bool watch(int epoll, int fd) {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.fd = fd;
  return ::epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) == 0;
}
}  // namespace

Control::Control(std::string path, const emu::Region& node_page, ProcessMemory& memory)
    : path_(std::move(path)), node_page_(node_page), memory_(memory) {}

Control::~Control() { ::unlink(path_.c_str()); }

emu::Result<std::unique_ptr<Control>> Control::open(const std::string& socket_path,
                                                    const emu::Region& node_page,
                                                    ProcessMemory& memory) {
  auto listener = emu::listen_unix(socket_path);
  if (!listener) return std::unexpected(listener.error());
  std::unique_ptr<Control> control(new Control(socket_path, node_page, memory));
  control->listener_ = std::move(*listener);
  auto doorbell = emu::make_eventfd();
  if (!doorbell) return std::unexpected(doorbell.error());
  control->doorbell_fd_ = std::move(*doorbell);
  control->epoll_ = emu::UniqueFd(::epoll_create1(EPOLL_CLOEXEC));
  if (!control->epoll_ || !watch(control->epoll_.get(), control->listener_.get())) {
    return emu::fail("{}: epoll: {}", socket_path, std::strerror(errno));
  }
  return control;
}

void Control::service(emu::Cycle now) {
  if (!spare_) spare_ = emu::UniqueFd(::fcntl(doorbell_fd_.get(), F_DUPFD_CLOEXEC, 0));
  std::array<epoll_event, 16> events;
  const int count = ::epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), 0);
  for (int i = 0; i < count; ++i) {
    const int fd = events[static_cast<std::size_t>(i)].data.fd;
    if (fd == listener_.get()) {
      accept_all();
      continue;
    }
    const auto it = clients_.find(fd);
    if (it == clients_.end()) {
      has_room(fd);
    } else if (!served(*it->second, now)) {
      close(*it->second);
      clients_.erase(it);
    }
  }
}

void Control::accept_all() {
  while (true) {
    auto socket = emu::accept_unix(listener_.get());
    if (!socket) {
      complain(socket.error().message);
      if (!out_of_descriptors() || !make_room()) return;
      socket = emu::accept_unix(listener_.get());
      if (socket && *socket) admit(std::move(*socket));
      return;
    }
    if (!*socket) return;
    admit(std::move(*socket));
  }
}

void Control::admit(emu::UniqueFd socket) try {
  const std::size_t known = devices_.size() + file_count_;
  if (clients_.size() - known >= kSilentMax && !evict_silent()) return;
  auto peer = emu::peer_of(socket.get());
  if (!peer || !watch(epoll_.get(), socket.get())) return;
  auto client = std::make_unique<Client>();
  client->socket = std::move(socket);
  client->pid = peer->pid;
  client->number = next_client_++;
  const int fd = client->socket.get();
  clients_[fd] = std::move(client);
} catch (const std::bad_alloc&) {
  // Its connection ends.
}

bool Control::out_of_descriptors() const {
  const emu::UniqueFd one(::fcntl(epoll_.get(), F_DUPFD_CLOEXEC, 0));
  return !one && (errno == EMFILE || errno == ENFILE);
}

// Who waits for us to accept it must not wait for ever: it takes the spare descriptor's place. What
// its hello brings finds no room, EMFILE is its answer, it goes, and the place is free again. Who
// came so and says nothing makes room in its turn.
bool Control::make_room() {
  const bool had_one = static_cast<bool>(spare_);
  spare_.reset();
  return had_one || evict_silent();
}

// Whoever connects and says nothing does not lock others out.
bool Control::evict_silent() {
  auto oldest = clients_.end();
  for (auto it = clients_.begin(); it != clients_.end(); ++it) {
    const Client& client = *it->second;
    if (client.said_hello || client.is_file()) continue;
    if (oldest == clients_.end() || client.number < oldest->second->number) oldest = it;
  }
  if (oldest == clients_.end()) return false;
  close(*oldest->second);
  clients_.erase(oldest);
  return true;
}

int Control::take_file(Client& client) {
  if (client.holds_file) return 0;
  if (file_count_ >= kFilesMax) {
    complain(
        fmt::format("programs have {} files of rdma_cm and umad open, as many as a node has: "
                    "one more of program {} was refused",
                    kFilesMax, client.pid));
    return ENFILE;
  }
  std::uint32_t& files = files_of_[client.pid];
  if (files >= kFilesOfProgramMax) {
    complain(
        fmt::format("program {} has {} files of rdma_cm and umad open, as many as one may: "
                    "one more was refused",
                    client.pid, kFilesOfProgramMax));
    return EMFILE;
  }
  ++files;
  ++file_count_;
  client.holds_file = true;
  return 0;
}

// Who asks for what there is no memory for at a point where that cannot be answered goes alone.
bool Control::served(Client& client, emu::Cycle now) try {
  return serve(client, now);
} catch (const std::bad_alloc&) {
  return false;
}

bool Control::serve(Client& client, emu::Cycle now) {
  for (int i = 0; i < kRequestsPerTurn; ++i) {
    Incoming in;
    alignas(ControlRequest) std::array<std::byte, kCmBytesMax> buffer;
    auto message = emu::receive_message(client.socket.get(), buffer);
    if (!message) {
      complain(fmt::format("program {}: {}", client.pid, message.error().message));
      return false;
    }
    using State = emu::ReceivedMessage::State;
    if (message->state == State::nothing_yet) return true;
    if (message->state == State::closed) return false;
    if (client.cm_file != 0) {
      if (!serve_cm(client, std::span(buffer).first(message->bytes), now)) return false;
      continue;
    }
    if (client.mad_file != 0) {
      if (message->fds_lost) continue;  // its program finds the end of its pipe, and no answer
      if (message->fd_count > 0) in.fd = std::move(message->fds[0]);
      if (!serve_umad(client, std::span(buffer).first(message->bytes), in)) return false;
      continue;
    }
    if (message->bytes != sizeof(ControlRequest)) {
      complain(
          fmt::format("program {}: a request of {} bytes: another version of the verbs "
                      "library?",
                      client.pid, message->bytes));
      return false;
    }
    std::memcpy(&in.request, buffer.data(), sizeof in.request);
    if (message->fd_count > 0) in.fd = std::move(message->fds[0]);
    if (!client.said_hello && !may_be_first(in.request.op)) return false;
    ControlReply reply{};
    reply.op = in.request.op;
    reply_fds_.clear();
    reply_owned_.clear();
    const int error = message->fds_lost ? EMFILE : handle(client, in, now, reply);
    if (error == kAnsweredLater) continue;
    reply.error = error;
    if (!send_reply(client, reply) || in.request.op == ControlOp::goodbye) return false;
  }
  return true;
}

void Control::complain(const std::string& line) {
  const auto left_out = complaints_.allow(emu::host_now_ns());
  if (!left_out) return;
  emu::log_warning(*left_out == 0 ? line : fmt::format("{} ({} more left out)", line, *left_out));
}

bool Control::send_reply(Client& client, const ControlReply& reply) {
  auto sent =
      emu::send_message(client.socket.get(), std::as_bytes(std::span(&reply, 1)), reply_fds_);
  reply_fds_.clear();
  reply_owned_.clear();
  // A program that does not read its replies is broken: requests are answered one by one.
  return sent && *sent;
}

void Control::hand_over(emu::UniqueFd fd) {
  reply_fds_.push_back(fd.get());
  reply_owned_.push_back(std::move(fd));
}

void Control::close(Client& client) {
  if (client.cm_file != 0) cm_->close(client.cm_file);
  if (client.mad_file != 0) mads_->close(client.mad_file);
  if (client.holds_file) {
    const auto files = files_of_.find(client.pid);
    if (--files->second == 0) files_of_.erase(files);
    --file_count_;
  }
  leave(client);
}

void Control::leave(Client& client) {
  if (!std::exchange(client.said_hello, false)) return;
  std::erase(devices_, &client);
  host_->close_client(client.id);
  memory_.detach(client.id);
  by_id_[client.id] = nullptr;
}

Client* Control::find(ClientId id) { return id < by_id_.size() ? by_id_[id] : nullptr; }

bool Control::doorbells(emu::Cycle now) {
  bool any = false;
  for (const Client* client : devices_) {
    if (!client->rung()) continue;
    host_->doorbells(client->id, now);
    any = true;
  }
  return any;
}

bool Control::prepare_sleep() {
  // Not when it woke us: a message waited then. Who has rung since is seen by its doorbells below.
  if (std::exchange(rung_, false)) emu::drain_eventfd(doorbell_fd_.get());
  for (const Client* client : devices_) {
    // A read-modify-write: either the program sees it after its push, or we see the push.
    client->doorbell_page()->sleeping.exchange(1, std::memory_order_seq_cst);
  }
  return std::none_of(devices_.begin(), devices_.end(),
                      [](const Client* client) { return client->rung(); });
}

void Control::awake(bool rung) {
  for (const Client* client : devices_) {
    client->doorbell_page()->sleeping.store(0, std::memory_order_relaxed);
  }
  rung_ |= rung;
}

void Control::admission(ClientId id, std::uint32_t qpn, const AdmissionOutcome& outcome) {
  Client* client = find(id);
  if (client == nullptr || client->rate_pending_qpn != qpn) return;
  client->rate_pending_qpn = 0;
  ControlReply reply = rate_reply(outcome);
  if (reply.error != 0) {
    emu::log_info(
        fmt::format("QP {:#x} of program {}: reservation {}", qpn, client->pid, describe(outcome)));
  }
  // If it cannot be sent the program is gone or broken; its socket tells soon.
  (void)send_reply(*client, reply);
}

void Control::trouble(const Trouble& trouble) {
  if (trouble == last_trouble_) return;
  last_trouble_ = trouble;
  const auto left_out = troubles_.allow(emu::host_now_ns());
  if (!left_out) return;
  const Client* client = trouble.there ? find(trouble.client) : nullptr;
  const std::string owner = client == nullptr ? "" : fmt::format(" of program {}", client->pid);
  const std::string more = *left_out == 0 ? "" : fmt::format(" ({} more left out)", *left_out);
  emu::log_info(
      fmt::format("QP {:#x}{}: {}{}", trouble.qpn, owner, describe(trouble, nodes_), more));
}

void Control::mad(emu::NodeId source, const Mad& bytes) {
  if (bytes[emu::kMadClassAt] != emu::kClassCommunication) {
    if (mads_ != nullptr) mads_->from_node(source, bytes);
  } else if (cm_ != nullptr) {
    cm_->arrived(source, bytes);
  }
}

void Control::subnet_mad(emu::Lid from, std::uint32_t qpn, std::span<const std::uint8_t> mad) {
  if (mads_ != nullptr) mads_->from_subnet(from, qpn, mad);
}

bool Control::serve_cm(Client& client, std::span<const std::byte> command, emu::Cycle now) {
  std::array<std::byte, kCmBytesMax> bytes;
  const auto to = std::span(bytes).subspan(sizeof(CmReply));
  const Cm::Answer answer = cm_->command(
      client.cm_file, {reinterpret_cast<const std::uint8_t*>(command.data()), command.size()},
      {reinterpret_cast<std::uint8_t*>(to.data()), to.size()}, now);
  const CmReply reply{answer.error, static_cast<std::uint32_t>(answer.bytes)};
  std::memcpy(bytes.data(), &reply, sizeof reply);
  const auto sent =
      emu::send_message(client.socket.get(), std::span(bytes).first(sizeof reply + answer.bytes));
  return sent && *sent;
}

}  // namespace hca

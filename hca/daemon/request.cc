// One function for each request of a program. Numbers that come in are only ever looked up; sizes
// are checked before memory is made for them.
#include "hca/daemon/request.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <utility>

#include <fmt/core.h>

#include "emu/base/check.h"
#include "emu/base/log.h"
#include "emu/ring/unix_socket.h"
#include "hca/daemon/control.h"
#include "hca/host/gid.h"

namespace hca {

namespace {

bool is_pipe(int fd) {
  struct statx info {};
  return emu::look_at(fd, info) && S_ISFIFO(info.stx_mode);
}

// Our end of the pipe whose end a program handed over: opened anew, so that it never waits,
// whatever the program sets on its own. None: it is no pipe, or nobody reads it.
emu::UniqueFd own_end(const emu::ForeignFd& given) {
  if (!given || !is_pipe(given.get())) return {};
  return emu::reopen(given.get(), O_WRONLY | O_NONBLOCK);
}

bool within_limits(const QpCapacity& capacity) {
  return capacity.send_wr <= kMaxQpWr && capacity.recv_wr <= kMaxQpWr &&
         capacity.send_sge <= kMaxSge && capacity.recv_sge <= kMaxSge &&
         capacity.inline_bytes <= kMaxInline;
}

// States are numbers of tables here; a program that asks by itself may name any.
bool states_exist(const ControlModify& modify) {
  const auto exists = [&modify](std::uint32_t bit, QpState state) {
    return (modify.mask & bit) == 0 || static_cast<std::size_t>(state) < kQpStates;
  };
  return exists(kQpState, modify.attributes.state) &&
         exists(kQpCurState, modify.attributes.cur_state);
}

}  // namespace

// Memory ends for who asked for more of it, not for the node.
int Control::handle(Client& client, Incoming& in, emu::Cycle now, ControlReply& reply) try {
  // Once an object is there, what goes with the reply finds room.
  reply_fds_.reserve(emu::kMessageFdsMax);
  reply_owned_.reserve(emu::kMessageFdsMax);
  return handle_usual(client, in, now, reply);
} catch (const std::bad_alloc&) {
  reply_fds_.clear();
  reply_owned_.clear();
  return ENOMEM;
}

int Control::handle_usual(Client& client, Incoming& in, emu::Cycle now, ControlReply& reply) {
  const ControlRequest& request = in.request;
  switch (request.op) {
    case ControlOp::hello:
      return hello(client, in, reply);
    case ControlOp::goodbye:
      leave(client);
      return 0;
    case ControlOp::create_pd: {
      const auto pd = host_->create_pd(client.id);
      if (!pd) return pd.error();
      reply.number = *pd;
      return 0;
    }
    case ControlOp::destroy_pd:
      return host_->destroy_pd(client.id, request.number);
    case ControlOp::register_mr:
    case ControlOp::reregister_mr:
      return register_mr(client, in, reply);
    case ControlOp::deregister_mr:
      return deregister_mr(client, request);
    case ControlOp::create_channel:
      return create_channel(client, in, reply);
    case ControlOp::destroy_channel:
      return client.channels.erase(request.number) == 1 ? 0 : ENOENT;
    case ControlOp::create_cq:
      return create_cq(client, request, reply);
    case ControlOp::resize_cq:
      return resize_cq(client, request);
    case ControlOp::adopt_cq:
      return adopt_cq(client, request);
    case ControlOp::destroy_cq:
      return destroy_cq(client, request);
    case ControlOp::create_qp:
      return create_qp(client, request, reply);
    case ControlOp::modify_qp:
      if (!states_exist(request.modify)) return EINVAL;
      return host_->modify_qp(client.id, request.number, request.modify.attributes,
                              request.modify.mask, now);
    case ControlOp::query_qp: {
      const auto attributes = host_->query_qp(client.id, request.number);
      if (!attributes) return attributes.error();
      reply.modify.attributes = *attributes;
      return 0;
    }
    case ControlOp::destroy_qp:
      return destroy_qp(client, request);
    case ControlOp::set_rate:
      return set_rate(client, request, now);
    case ControlOp::create_srq:
      return create_srq(client, request, reply);
    case ControlOp::modify_srq:
      return host_->set_srq_limit(client.id, request.number, request.srq.limit);
    case ControlOp::query_srq: {
      const auto srq = host_->query_srq(client.id, request.number);
      if (!srq) return srq.error();
      reply.srq = {srq->max_wr, srq->max_sge, srq->limit, 0, 0, 0};
      return 0;
    }
    case ControlOp::destroy_srq:
      return destroy_srq(client, request);
    default:
      return handle_rare(client, in, reply);
  }
}

// Files of the kernel; windows, advice, groups, XRC domains.
int Control::handle_rare(Client& client, Incoming& in, ControlReply& reply) {
  const ControlRequest& request = in.request;
  switch (request.op) {
    case ControlOp::open_cm:
      return open_cm(client, in, reply);
    case ControlOp::open_umad:
      return open_umad(client, in);
    case ControlOp::read_counter:
      return read_counter(client, request.counter, reply);
    case ControlOp::alloc_mw: {
      const auto key = host_->alloc_mw(client.id, request.number, request.mr.access);
      if (!key) return key.error();
      reply.number = reply.mr.rkey = *key;
      return 0;
    }
    case ControlOp::dealloc_mw:
      return host_->dealloc_mw(client.id, request.number);
    case ControlOp::advise: {
      const auto address = host_->advised(client.id, request.number, request.mr.rkey,
                                          request.mr.iova, request.mr.length, request.mr.access);
      if (!address) return address.error();
      reply.mr.address = *address;
      return 0;
    }
    case ControlOp::attach_mcast:
    case ControlOp::detach_mcast: {
      emu::Gid gid;
      std::copy(std::begin(request.mcast.gid), std::end(request.mcast.gid), gid.begin());
      return request.op == ControlOp::attach_mcast
                 ? host_->attach_mcast(client.id, request.number, gid, request.mcast.lid)
                 : host_->detach_mcast(client.id, request.number, gid, request.mcast.lid);
    }
    case ControlOp::find_gid: {
      emu::Gid gid;
      std::copy(std::begin(request.mcast.gid), std::end(request.mcast.gid), gid.begin());
      const auto node = node_of_gid(host_->options(), gid);
      if (!node) return EHOSTUNREACH;
      reply.number = emu::lid_of(*node);
      return 0;
    }
    case ControlOp::fire_cq:
      completion(client.id, request.number);
      return 0;
    case ControlOp::open_xrcd:
      return open_xrcd(client, in, reply);
    case ControlOp::close_xrcd:
      return close_xrcd(client, request.number);
    case ControlOp::open_qp:
      return open_qp(client, request, reply);
    default:
      return EOPNOTSUPP;
  }
}

int Control::open_cm(Client& client, Incoming& in, ControlReply& reply) {
  if (client.said_hello || client.is_file()) return EALREADY;
  if (cm_ == nullptr) return EOPNOTSUPP;
  if (!speaks_our_version(client, in.request.hello)) return EPROTO;
  if (!in.fd || !is_pipe(in.fd.get())) return EBADF;
  if (const int error = take_file(client)) return error;
  client.cm_file = cm_->open(in.fd.get(), static_cast<std::uint32_t>(client.pid));
  if (client.cm_file == 0) return EBADF;
  reply.number = client.cm_file;
  return 0;
}

int Control::open_umad(Client& client, Incoming& in) {
  if (client.said_hello || client.is_file()) return EALREADY;
  if (mads_ == nullptr) return EOPNOTSUPP;
  if (!speaks_our_version(client, in.request.hello)) return EPROTO;
  if (const int error = take_file(client)) return error;
  client.mad_file = mads_->open(client.socket.get());
  return 0;
}

bool Control::serve_umad(Client& client, std::span<const std::byte> message, Incoming& in) {
  return mads_->write(client.mad_file, message, own_end(in.fd));
}

int Control::read_counter(const Client& client, const ControlCounter& counter,
                          ControlReply& reply) {
  if (!speaks_our_version(client, counter.hello)) return EPROTO;
  const std::string_view name(counter.name, ::strnlen(counter.name, sizeof counter.name));
  const auto value = read_counter_ ? read_counter_(name) : std::nullopt;
  if (!value) return ENOENT;
  reply.value = *value;
  return 0;
}

bool Control::speaks_our_version(const Client& client, const ControlHello& hello) {
  if (hello.magic == kControlMagic && hello.version == kControlVersion &&
      hello.abi_version == kAbiVersion) {
    return true;
  }
  complain(fmt::format("program {} speaks version {}.{}, this hcad {}.{}: rebuild one", client.pid,
                       hello.version, hello.abi_version, kControlVersion, kAbiVersion));
  return false;
}

int Control::hello(Client& client, Incoming& in, ControlReply& reply) {
  if (client.said_hello) return EALREADY;
  if (!speaks_our_version(client, in.request.hello)) return EPROTO;
  emu::UniqueFd events = own_end(in.fd);
  if (!events) return EBADF;
  auto doorbells = emu::Region::create("flitnet-doorbells", sizeof(DoorbellPage));
  auto node_page = node_page_.reopen_read_only();
  if (!doorbells || !node_page) return no_room();
  client.doorbells = std::move(*doorbells);
  DoorbellPage* page = client.doorbell_page();
  page->magic = kDoorbellMagic;
  page->version = kAbiVersion;
  page->entries = kDoorbellEntries;
  const auto id = host_->open_client(page);
  if (!id) {
    complain(
        fmt::format("programs have {} devices open, as many as a node has: one more of program "
                    "{} was refused",
                    devices_.size(), client.pid));
    return id.error();
  }
  try {
    if (by_id_.size() <= *id) by_id_.resize(*id + 1, nullptr);
    devices_.reserve(devices_.size() + 1);
    memory_.attach(*id, client.pid);
  } catch (...) {
    host_->close_client(*id);
    throw;
  }
  client.id = *id;
  client.events.end = std::move(events);
  client.said_hello = true;
  devices_.push_back(&client);
  by_id_[client.id] = &client;
  reply.client = client.id;
  hand_over(std::move(*node_page));
  hand_over(client.doorbells.take_fd());
  reply_fds_.push_back(doorbell_fd_.get());
  return 0;
}

int Control::create_channel(Client& client, Incoming& in, ControlReply& reply) {
  constexpr std::size_t kChannelsMax = 4096;
  if (client.channels.size() >= kChannelsMax) return ENOMEM;
  emu::UniqueFd events = own_end(in.fd);
  if (!events) return EBADF;
  reply.number = client.next_channel++;
  client.channels[reply.number].end = std::move(events);
  return 0;
}

int Control::create_qp(Client& client, const ControlRequest& request, ControlReply& reply) {
  const ControlQp& qp = request.qp;
  if (!within_limits(qp.capacity())) return EINVAL;
  const QpLayout layout = qp_layout(qp.capacity());
  auto made = emu::Region::create("flitnet-qp", layout.bytes);
  if (!made) return no_room();
  auto region = std::make_shared<emu::Region>(std::move(*made));
  QpSpec spec;
  spec.pd = request.number;
  spec.send_cq = qp.send_cq;
  spec.recv_cq = qp.recv_cq;
  spec.type = qp.type;
  spec.signal_all = qp.signal_all != 0;
  spec.capacity = qp.capacity();
  spec.srq = qp.srq;
  spec.xrcd = qp.xrcd;
  const auto number = host_->create_qp(
      client.id, spec, {reinterpret_cast<std::uint8_t*>(region->data()), layout.bytes});
  if (!number) return number.error();
  keep(client.qps, *number, std::shared_ptr(region),
       [&] { (void)host_->destroy_qp(client.id, *number); });
  reply.number = *number;
  reply.qp = qp;
  if (qp.type == QpType::xrc_recv) {
    reply_fds_.push_back(region->fd());  // other programs may open it, too
  } else {
    hand_over(region->take_fd());
  }
  return 0;
}

int Control::open_qp(Client& client, const ControlRequest& request, ControlReply& reply) {
  const auto handle = host_->open_qp(client.id, request.number, request.qp.xrcd);
  if (!handle) return handle.error();
  const auto has_it = [&](const auto& qp) { return (qp.first & kQpNumberMask) == request.number; };
  std::shared_ptr<emu::Region> region;
  for (const Client* other : devices_) {
    const auto found = std::find_if(other->qps.begin(), other->qps.end(), has_it);
    if (found != other->qps.end()) region = found->second;
  }
  CHECK(region != nullptr);  // who made it, or opened it first
  reply_fds_ = {region->fd()};
  client.qps[*handle] = region;
  reply.number = *handle;
  return 0;
}

int Control::destroy_qp(Client& client, const ControlRequest& request) {
  if (const int error = host_->destroy_qp(client.id, request.number)) return error;
  client.qps.erase(request.number);
  recall_async(client, AsyncSource::qp, request.number);
  return 0;
}

int Control::create_srq(Client& client, const ControlRequest& request, ControlReply& reply) {
  const ControlSrq& srq = request.srq;
  if (srq.max_wr == 0 || srq.max_wr > kMaxSrqWr || srq.max_sge > kMaxSge) return EINVAL;
  const std::uint32_t bytes = srq_layout(srq.max_wr, srq.max_sge).bytes;
  auto region = emu::Region::create("flitnet-srq", bytes);
  if (!region) return no_room();
  const auto number = host_->create_srq(
      client.id,
      {request.number, srq.max_wr, srq.max_sge, srq.limit, srq.xrc != 0, srq.xrcd, srq.cq},
      {reinterpret_cast<std::uint8_t*>(region->data()), bytes});
  if (!number) return number.error();
  reply.number = *number;
  reply.srq = srq;
  auto fd = region->take_fd();
  keep(client.srqs, *number, std::move(*region),
       [&] { (void)host_->destroy_srq(client.id, *number); });
  hand_over(std::move(fd));
  return 0;
}

int Control::destroy_srq(Client& client, const ControlRequest& request) {
  const int error = host_->destroy_srq(client.id, request.number);
  if (error != 0) return error;
  client.srqs.erase(request.number);
  recall_async(client, AsyncSource::srq, request.number);
  return 0;
}

int Control::open_xrcd(Client& client, Incoming& in, ControlReply& reply) {
  struct statx info {};
  if (in.fd && !emu::look_at(in.fd.get(), info)) return EBADF;
  const XrcFile file{makedev(info.stx_dev_major, info.stx_dev_minor), info.stx_ino};
  const std::uint32_t flags = in.request.number;
  const auto xrcd = host_->open_xrcd(client.id, in.fd ? &file : nullptr, (flags & kXrcdCreate) != 0,
                                     (flags & kXrcdExclusive) != 0);
  if (!xrcd) return xrcd.error();
  reply.number = *xrcd;
  keep(client.xrcds, *xrcd, std::move(in.fd), [&] { (void)host_->close_xrcd(client.id, *xrcd); });
  return 0;
}

int Control::close_xrcd(Client& client, std::uint32_t xrcd) {
  const int error = host_->close_xrcd(client.id, xrcd);
  if (error == 0) client.xrcds.erase(xrcd);
  return error;
}

int Control::set_rate(Client& client, const ControlRequest& request, emu::Cycle now) {
  if (client.rate_pending_qpn != 0) return EBUSY;
  client.rate_pending_qpn = request.number;
  const int error = host_->request_rate(client.id, request.number, request.rate.rate_bps,
                                        request.rate.peak_bps, now);
  if (error == 0) return kAnsweredLater;
  client.rate_pending_qpn = 0;
  return error;
}

ControlReply rate_reply(const AdmissionOutcome& outcome) {
  ControlReply reply{};
  reply.op = ControlOp::set_rate;
  reply.rate.rejected_by = kRejectedByNobody;
  reply.rate.rate_bps = outcome.rate_bps;
  switch (outcome.verdict) {
    case AdmissionVerdict::granted:
      break;
    case AdmissionVerdict::refused_by_hca:
      reply.error = ENOSPC;
      reply.rate.rejected_by = kRejectedByHca;
      break;
    case AdmissionVerdict::refused_by_router:
      reply.error = ENOSPC;
      reply.rate.rejected_by = outcome.router;
      break;
    case AdmissionVerdict::no_answer:
      reply.error = ETIMEDOUT;
      break;
    case AdmissionVerdict::cancelled:
      reply.error = ECANCELED;
      break;
  }
  return reply;
}

std::string describe(const AdmissionOutcome& outcome) {
  switch (outcome.verdict) {
    case AdmissionVerdict::granted:
      return fmt::format("of {} b/s granted", outcome.rate_bps);
    case AdmissionVerdict::refused_by_hca:
      return fmt::format("refused by this HCA's link, which has {} b/s left", outcome.free_bps);
    case AdmissionVerdict::refused_by_router:
      return fmt::format("refused by router {}", outcome.router);
    case AdmissionVerdict::no_answer:
      return "without an answer from the fabric";
    case AdmissionVerdict::cancelled:
      return "cancelled";
  }
  return "?";
}

}  // namespace hca

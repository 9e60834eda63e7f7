// The ABI of /dev/infiniband/rdma_cm, version 4: one command, one function. Structures are copied
// out of the bytes once; what is shorter than its command is refused.
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "hca/cm/state.h"

namespace hca {

namespace {

struct Call {
  CmState& s;
  CmFileId file;
  std::span<const std::uint8_t> in;    // behind the header
  std::span<const std::uint8_t> more;  // what the library adds
  std::span<std::uint8_t> to;
};

template <class T>
bool take(const Call& call, T& command) {
  if (call.in.size() < sizeof command) return false;
  std::memcpy(&command, call.in.data(), sizeof command);
  return true;
}

// Commands on one id: the structure, the id in it, then `act`.
template <class T, class Act>
CmAnswer on_id(const Call& call, Act act) {
  T command{};
  if (!take(call, command)) return {EINVAL, 0};
  Id* id = find_id(call.s, call.file, command.id);
  if (id == nullptr) return {ENOENT, 0};
  return act(*id, command);
}

CmAnswer create_id(const Call& call) {
  rdma_ucm_create_id command{};
  if (!take(call, command)) return {EINVAL, 0};
  std::uint8_t qp_type = command.qp_type;
  if (command.ps == RDMA_PS_TCP) qp_type = 2;                                 // IBV_QPT_RC
  if (command.ps == RDMA_PS_UDP || command.ps == RDMA_PS_IPOIB) qp_type = 4;  // IBV_QPT_UD
  if (command.ps != RDMA_PS_TCP && command.ps != RDMA_PS_UDP && command.ps != RDMA_PS_IPOIB &&
      command.ps != RDMA_PS_IB) {
    return {EINVAL, 0};
  }
  Id* id = new_id(call.s, call.file);
  if (id == nullptr) return {ENOMEM, 0};
  id->uid = command.uid;
  id->port_space = command.ps;
  id->qp_type = qp_type;
  if (is_datagram(*id)) id->qkey = kUdpQkey;
  return answer_with(rdma_ucm_create_id_resp{id->number}, call.to);
}

CmAnswer destroy(const Call& call) {
  return on_id<rdma_ucm_destroy_id>(call, [&call](Id& id, const rdma_ucm_destroy_id&) {
    const std::uint32_t number = id.number;
    const rdma_ucm_destroy_id_resp reply{id.events_reported};
    destroy_id(call.s, number);
    return answer_with(reply, call.to);
  });
}

CmAnswer migrate(const Call& call) {
  rdma_ucm_migrate_id command{};
  CmFileId old = 0;
  if (!take(call, command) || call.more.size() != sizeof old) return {EINVAL, 0};
  std::memcpy(&old, call.more.data(), sizeof old);
  Id* id = find_id(call.s, old, command.id);
  if (id == nullptr || call.s.files[old].owner != call.s.files[call.file].owner) return {ENOENT, 0};
  if (id->listener != kNobody) return {ENOENT, 0};  // unseen: it goes with its listener
  if (old == call.file) return answer_with(rdma_ucm_migrate_resp{id->events_reported}, call.to);
  move_id(call.s, *id, call.file);
  auto& from = call.s.files[old].events;
  auto& to = call.s.files[call.file].events;
  std::erase_if(from, [&](const WaitingEvent& event) {
    if (event.id != id->number) return false;
    to.push_back(event);
    // A request that waits goes with its listener.
    if (event.request != kNobody) move_id(call.s, call.s.ids.at(event.request), call.file);
    return true;
  });
  tell_file(call.s, old);
  tell_file(call.s, call.file);
  return answer_with(rdma_ucm_migrate_resp{id->events_reported}, call.to);
}

CmAnswer get_qp_attr(const Call& call) {
  return on_id<rdma_ucm_init_qp_attr>(call, [&call](Id& id, const rdma_ucm_init_qp_attr& command) {
    ib_uverbs_qp_attr attributes;
    if (const int error = init_qp_attr(call.s, id, command.qp_state, attributes)) {
      return CmAnswer{error, 0};
    }
    return answer_with(attributes, call.to);
  });
}

CmAnswer group(const Call& call, std::uint32_t command_number) {
  if (command_number == RDMA_USER_CM_CMD_LEAVE_MCAST) {
    rdma_ucm_destroy_id command{};
    if (!take(call, command)) return {EINVAL, 0};
    return leave(call.s, call.file, command.id, call.to);
  }
  return on_id<rdma_ucm_join_ip_mcast>(call, [&call](Id& id, const rdma_ucm_join_ip_mcast& c) {
    return join(call.s, id, c.uid, c.addr, call.to);
  });
}

// Commands that answer with nothing but an errno.
CmAnswer act(const Call& call, std::uint32_t command_number) {
  CmState& s = call.s;
  switch (command_number) {
    case RDMA_USER_CM_CMD_BIND_IP:
      return on_id<rdma_ucm_bind_ip>(call, [&s](Id& id, const rdma_ucm_bind_ip& c) {
        return CmAnswer{bind_ip(s, id, c.addr), 0};
      });
    case RDMA_USER_CM_CMD_RESOLVE_IP:
      return on_id<rdma_ucm_resolve_ip>(call, [&s](Id& id, const rdma_ucm_resolve_ip& c) {
        return CmAnswer{resolve_ip(s, id, c), 0};
      });
    case RDMA_USER_CM_CMD_RESOLVE_ROUTE:
      return on_id<rdma_ucm_resolve_route>(call, [&s](Id& id, const rdma_ucm_resolve_route&) {
        return CmAnswer{resolve_route(s, id), 0};
      });
    case RDMA_USER_CM_CMD_LISTEN:
      return on_id<rdma_ucm_listen>(call, [&s](Id& id, const rdma_ucm_listen& c) {
        return CmAnswer{listen_on(s, id, c.backlog), 0};
      });
    case RDMA_USER_CM_CMD_REJECT:
      return on_id<rdma_ucm_reject>(call, [&s](Id& id, const rdma_ucm_reject& c) {
        return CmAnswer{reject(s, id, c), 0};
      });
    case RDMA_USER_CM_CMD_DISCONNECT:
      return on_id<rdma_ucm_disconnect>(call, [&s](Id& id, const rdma_ucm_disconnect&) {
        return CmAnswer{disconnect(s, id), 0};
      });
    case RDMA_USER_CM_CMD_NOTIFY:
      return on_id<rdma_ucm_notify>(call, [&s](Id& id, const rdma_ucm_notify& c) {
        return CmAnswer{notify(s, id, c.event), 0};
      });
    case RDMA_USER_CM_CMD_SET_OPTION:
      return on_id<rdma_ucm_set_option>(call, [&call](Id& id, const rdma_ucm_set_option& c) {
        return CmAnswer{set_option(call.s, id, c, call.more), 0};
      });
    default:
      // BIND, RESOLVE_ADDR, JOIN_MCAST and QUERY belong to AF_IB addresses: without BIND, librdmacm
      // goes on with IP addresses.
      return {EINVAL, 0};
  }
}

// The end of connect and accept differs between versions of the ABI: what is missing is zero.
template <class T>
T take_padded(const Call& call) {
  T command{};
  std::memcpy(&command, call.in.data(), std::min(sizeof command, call.in.size()));
  return command;
}

CmAnswer dispatch(const Call& call, std::uint32_t command_number) {
  CmState& s = call.s;
  switch (command_number) {
    case RDMA_USER_CM_CMD_CREATE_ID:
      return create_id(call);
    case RDMA_USER_CM_CMD_DESTROY_ID:
      return destroy(call);
    case RDMA_USER_CM_CMD_QUERY_ROUTE:
      return on_id<rdma_ucm_query>(call, [&call](Id& id, const rdma_ucm_query&) {
        return answer_with(query_route(call.s, id), call.to);
      });
    case RDMA_USER_CM_CMD_CONNECT: {
      const auto command = take_padded<rdma_ucm_connect>(call);
      Id* id = find_id(s, call.file, command.id);
      return {id == nullptr ? ENOENT : connect(s, *id, command), 0};
    }
    case RDMA_USER_CM_CMD_ACCEPT: {
      const auto command = take_padded<rdma_ucm_accept>(call);
      Id* id = find_id(s, call.file, command.id);
      return {id == nullptr ? ENOENT : accept(s, *id, command), 0};
    }
    case RDMA_USER_CM_CMD_INIT_QP_ATTR:
      return get_qp_attr(call);
    case RDMA_USER_CM_CMD_GET_EVENT:
      return take_event(s, call.file, call.to);
    case RDMA_USER_CM_CMD_JOIN_IP_MCAST:
    case RDMA_USER_CM_CMD_LEAVE_MCAST:
      return group(call, command_number);
    case RDMA_USER_CM_CMD_MIGRATE_ID:
      return migrate(call);
    default:
      return act(call, command_number);
  }
}

}  // namespace

Cm::Cm(const CmOptions& options, AddressBook addresses, CmOut& out)
    : state_(std::make_unique<CmState>(options, std::move(addresses), out)) {}
Cm::~Cm() = default;

CmFileId Cm::open(std::uint32_t owner) {
  const CmFileId file = state_->next_file++;
  state_->files[file].owner = owner;
  return file;
}

void Cm::close(CmFileId file) {
  const auto closing = state_->files.find(file);
  if (closing == state_->files.end()) return;
  // Nobody will read what waits; each id would look for its own among it.
  closing->second.events.clear();
  const auto mine = closing->second.ids;  // from which each that ends is taken
  for (const std::uint32_t number : mine) destroy_id(*state_, number);
  state_->files.erase(closing);
}

Cm::Answer Cm::command(CmFileId file, std::span<const std::uint8_t> command,
                       std::span<std::uint8_t> to, emu::EmuNs now_ns) {
  CmState& s = *state_;
  s.now_ns = std::max(s.now_ns, now_ns);
  rdma_ucm_cmd_hdr header;
  if (command.size() < sizeof header || !s.files.contains(file)) return {EINVAL, 0};
  std::memcpy(&header, command.data(), sizeof header);
  if (header.in > command.size() - sizeof header) return {EINVAL, 0};
  const auto in = command.subspan(sizeof header, header.in);
  const auto more = command.subspan(sizeof header + header.in);
  const Call call{s, file, in, more, to.first(std::min<std::size_t>(header.out, to.size()))};
  return dispatch(call, header.cmd);
}

void Cm::receive(emu::NodeId source, const Mad& mad, emu::EmuNs now_ns) {
  state_->now_ns = std::max(state_->now_ns, now_ns);
  if (source >= state_->addresses.nodes()) return;
  if (const auto message = parse(mad)) receive_message(*state_, source, *message);
}

void Cm::advance(emu::EmuNs now_ns) {
  CmState& s = *state_;
  s.now_ns = std::max(s.now_ns, now_ns);
  if (!s.parked.empty()) serve_parked(s);
  repeat_farewells(s);
  fire_timers(s);
}

std::size_t Cm::ids() const { return state_->ids.size(); }
std::size_t Cm::listeners() const {
  return static_cast<std::size_t>(
      std::count_if(state_->ids.begin(), state_->ids.end(),
                    [](const auto& id) { return id.second.state == IdState::listening; }));
}

}  // namespace hca

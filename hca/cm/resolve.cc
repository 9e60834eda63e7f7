// Addresses and routes: bind, resolve, listen, and what a QP has to be told for a connection.
// Addresses resolve by the configuration, routes are computed: every node reaches every other.
#include <rdma/ib_user_sa.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstring>

#include "hca/abi/attributes.h"
#include "hca/cm/state.h"
#include "hca/host/gid.h"

namespace hca {

namespace {

constexpr std::uint8_t kAckTimeout = 16;   // 268 ms: longer than any queue of a loaded fabric
constexpr std::uint8_t kMinRnrTimer = 12;  // 0.64 ms, as perftest sets it by itself
// Ports of who names none, as Linux has them. Where none of a thousand by chance is free, hardly
// any is, and to look at all of them would keep the node's packets waiting.
constexpr std::uint32_t kEphemeralFirst = 32768;
constexpr std::uint32_t kEphemeralPorts = 60999 - kEphemeralFirst + 1;
constexpr std::uint32_t kPortsTried = 1024;
constexpr std::uint8_t kHopLimit = 64;

void put_gid(const CmState& s, emu::NodeId node, std::span<std::uint8_t, 16> to) {
  const emu::Gid gid = path_gid(s, node);
  std::copy(gid.begin(), gid.end(), to.begin());
}

// What a path record has of a route, at its places in one (IBA 15.2.5.16).
struct Route {
  std::array<std::uint8_t, 16> dgid{};
  std::array<std::uint8_t, 16> sgid{};
  emu::Lid dlid = 0;
  emu::Lid slid = 0;
  std::uint8_t sl = 0;
  std::uint8_t mtu = 0;
  bool operator==(const Route&) const = default;
};
using PathRecord = std::array<std::uint8_t, 64>;
static_assert(sizeof(PathRecord) == sizeof(ib_path_rec_data::path_rec));

Route route_of(const PathRecord& record) {
  Route route;
  std::copy_n(&record[8], 16, route.dgid.begin());
  std::copy_n(&record[24], 16, route.sgid.begin());
  route.dlid = static_cast<emu::Lid>(record[40] << 8 | record[41]);
  route.slid = static_cast<emu::Lid>(record[42] << 8 | record[43]);
  route.sl = record[53] & 15;
  route.mtu = record[54] & 63;
  return route;
}

// Two families may share a port if the one in IPv6 clothes takes no IPv4.
bool separate(const Id& a, const Id& b) {
  return a.local.six != b.local.six && (a.local.six ? a.only_six : b.only_six);
}

template <class MayShare>
bool port_taken(const CmState& s, const Id& mine, std::uint16_t port, MayShare may_share) {
  return std::ranges::any_of(holders(s, mine.port_space, port), [&](const auto& entry) {
    const Id& other = s.ids.at(entry.second);
    return &other != &mine && !may_share(mine, other) && !separate(mine, other);
  });
}

bool both_reuse(const Id& mine, const Id& other) {
  return mine.reuse_address && other.reuse_address && other.state != IdState::listening;
}

// Who has a peer listens no more, and keeps it: the two ends together tell one from the other.
bool have_different_peers(const Id& mine, const Id& other) {
  return mine.remote.given && other.remote.given &&
         (mine.remote.v4 != other.remote.v4 || mine.remote.port != other.remote.port);
}

void hold_port(CmState& s, Id& id) {
  id.has_port = true;
  s.ports.emplace(port_key(id.port_space, id.local.port), id.number);
}

// Any loopback address is this node; the name that others know it by is what programs pass on to
// them (libfabric).
IpAddress named(const CmState& s, IpAddress address) {
  if (!address.any()) address.v4 = s.addresses.own();
  return address;
}

// Of an id that has no address yet.
int bind_source(CmState& s, Id& id, const IpAddress& source, const IpAddress& peer) {
  if (source.given && !s.addresses.is_own(source.v4)) return EADDRNOTAVAIL;
  id.local = source.given ? named(s, source) : IpAddress{true, peer.six, 0, 0};
  id.remote = peer;
  if (const int error = take_port(s, id)) {
    id.local = id.remote = {};
    return error;
  }
  id.state = IdState::bound;
  return 0;
}

}  // namespace

emu::Gid path_gid(const CmState& s, emu::NodeId node) {
  if (s.options.roce) return ip_gid(s.addresses.of(node));
  return guid_gid(s.options.gid_prefix, s.options.guid_base + node + 1);
}

int take_port(CmState& s, Id& id) {
  if (id.has_port) return 0;
  if (id.local.port != 0) {
    if (port_taken(s, id, id.local.port, both_reuse)) return EADDRINUSE;
    hold_port(s, id);
    return 0;
  }
  for (std::uint32_t i = 0; i < kPortsTried; ++i) {
    const auto port = static_cast<std::uint16_t>(kEphemeralFirst + s.prng.below(kEphemeralPorts));
    if (port_taken(s, id, port, have_different_peers)) continue;
    id.local.port = port;
    hold_port(s, id);
    return 0;
  }
  return EADDRNOTAVAIL;
}

int bind_ip(CmState& s, Id& id, const sockaddr_in6& from) {
  if (id.state != IdState::idle) return EINVAL;
  const auto address = from_sockaddr(from);
  if (!address) return from.sin6_family == AF_INET6 ? EADDRNOTAVAIL : EAFNOSUPPORT;
  if (!address->given) return EAFNOSUPPORT;
  if (!s.addresses.is_own(address->v4)) return EADDRNOTAVAIL;
  id.local = named(s, *address);
  if (const int error = take_port(s, id)) {
    id.local = {};
    return error;
  }
  id.state = IdState::bound;
  return 0;
}

int resolve_ip(CmState& s, Id& id, const rdma_ucm_resolve_ip& command) {
  if (id.state != IdState::idle && id.state != IdState::bound) return EINVAL;
  if (id.addr_error_waits) return EINVAL;  // the last answer was not fetched
  const auto source = from_sockaddr(command.src_addr);
  const auto remote = from_sockaddr(command.dst_addr);
  if (!source || !remote || !remote->given) return EINVAL;
  // A group of hosts: there is nobody to find, the route is the port itself.
  const bool group = remote->v4 >> 28 == 0xe;
  const bool here = group || s.addresses.is_own(remote->v4);  // any address, too, as for TCP
  const auto node = here ? std::optional(s.addresses.self()) : s.addresses.node_at(remote->v4);
  IpAddress peer = *remote;
  peer.given = node.has_value();  // who has none shares its port with nobody
  if (node && !group && *node == s.addresses.self()) peer.v4 = s.addresses.own();
  if (id.state == IdState::idle) {
    if (const int error = bind_source(s, id, *source, peer)) return error;
  }
  if (!node) {
    push_simple(s, id, CmEvent::addr_error, -EHOSTUNREACH);
    return 0;
  }
  id.remote = peer;
  if (id.local.any()) id.local.v4 = s.addresses.own();
  id.peer = *node;
  id.has_peer = true;
  id.path_mtu = s.options.path_mtu;
  id.state = IdState::addr_resolved;
  push_simple(s, id, CmEvent::addr_resolved);
  return 0;
}

int resolve_route(CmState& s, Id& id) {
  if (id.state != IdState::addr_resolved) return EINVAL;
  id.state = IdState::route_resolved;
  push_simple(s, id, CmEvent::route_resolved);
  return 0;
}

// A program may have resolved the route by itself; there is none but the one that is computed here.
// As in the kernel, of several records the one counts that is primary, both ways and for datagrams
// of management.
int set_path(CmState& s, Id& id, std::span<const std::uint8_t> value) {
  constexpr std::uint32_t kWanted = IB_PATH_GMP | IB_PATH_PRIMARY | IB_PATH_BIDIRECTIONAL;
  if (id.state != IdState::addr_resolved) return EINVAL;
  Route computed;
  put_gid(s, id.peer, computed.dgid);
  put_gid(s, s.addresses.self(), computed.sgid);
  if (!s.options.roce) {
    computed.dlid = emu::lid_of(id.peer);
    computed.slid = emu::lid_of(s.addresses.self());
  }
  computed.sl = sl_of(id);
  computed.mtu = s.options.path_mtu;
  for (; value.size() >= sizeof(ib_path_rec_data);
       value = value.subspan(sizeof(ib_path_rec_data))) {
    ib_path_rec_data data;
    std::memcpy(&data, value.data(), sizeof data);
    if (data.flags != kWanted) continue;
    return route_of(std::bit_cast<PathRecord>(data.path_rec)) == computed ? resolve_route(s, id)
                                                                          : EINVAL;
  }
  return EINVAL;
}

int listen_on(CmState& s, Id& id, std::uint32_t backlog) {
  constexpr std::uint32_t kBacklogMax = 1024;
  if (id.state == IdState::idle) {
    id.local = {true, false, 0, 0};
    if (const int error = take_port(s, id)) return error;
    id.state = IdState::bound;
  }
  if (id.state != IdState::bound) return EINVAL;
  if (id.reuse_address && port_taken(s, id, id.local.port, both_reuse)) return EADDRINUSE;
  id.backlog = backlog == 0 || backlog > kBacklogMax ? kBacklogMax : backlog;
  id.state = IdState::listening;
  serve_parked(s);
  return 0;
}

Id* listener_for(CmState& s, std::uint16_t port_space, std::uint16_t port, std::uint32_t v4) {
  for (const auto& [key, number] : holders(s, port_space, port)) {
    Id& id = s.ids.at(number);
    const bool only_six = id.local.six && id.only_six && id.local.any();  // no node has IPv6
    if (id.state == IdState::listening && !only_six &&
        (id.local.any() || id.local.v4 == v4 || s.addresses.is_own(v4))) {
      return &id;
    }
  }
  return nullptr;
}

// The upper three bits of the type of service (IP precedence) are the service level.
std::uint8_t sl_of(const Id& id) { return id.passive ? id.sl : id.tos >> 5; }

rdma_ucm_query_route_resp query_route(const CmState& s, const Id& id) {
  rdma_ucm_query_route_resp to{};
  to.src_addr = to_sockaddr(id.local);
  to.dst_addr = to_sockaddr(id.remote);
  to.ibdev_index = 0xffffffff;
  const bool has_device = id.has_peer || (id.local.given && !id.local.any());
  if (!has_device) return to;
  to.node_guid = __builtin_bswap64(s.options.guid_base + s.addresses.self() + 1);
  to.port_num = 1;
  ib_user_path_rec& path = to.ib_route[0];
  put_gid(s, s.addresses.self(), path.sgid);
  path.pkey = 0xffff;
  if (!id.has_peer) return to;
  put_gid(s, id.peer, path.dgid);
  if (id.state == IdState::addr_resolved) return to;
  to.num_paths = 1;
  if (!s.options.roce) {
    path.dlid = __builtin_bswap16(emu::lid_of(id.peer));
    path.slid = __builtin_bswap16(emu::lid_of(s.addresses.self()));
  }
  path.hop_limit = s.options.roce ? kHopLimit : 0;
  path.traffic_class = id.tos;
  path.reversible = 1;
  path.numb_path = 1;
  path.sl = sl_of(id);
  constexpr std::uint8_t kExactly = 2;
  path.mtu_selector = path.rate_selector = path.packet_life_time_selector = kExactly;
  path.mtu = s.options.path_mtu;
  path.rate = s.options.rate;
  path.packet_life_time = kAckTimeout - 1;
  return to;
}

void fill_ah(const CmState& s, const Id& id, ib_uverbs_ah_attr& to) {
  if (s.options.roce) {
    to.is_global = 1;
    put_gid(s, id.peer, to.grh.dgid);
    to.grh.sgid_index = kIpGidIndex;
    to.grh.hop_limit = kHopLimit;
    to.grh.traffic_class = id.tos;
  } else {
    to.dlid = emu::lid_of(id.peer);
  }
  to.sl = sl_of(id);
  to.port_num = 1;
}

int init_qp_attr(const CmState& s, const Id& id, std::uint32_t qp_state, ib_uverbs_qp_attr& to) {
  to = {};
  to.qp_state = qp_state;
  to.qp_attr_mask = kQpState;
  const auto state = static_cast<QpState>(qp_state);
  if (state == QpState::init) {
    to.port_num = 1;
    to.qp_attr_mask |= kQpPkeyIndex | kQpPort;
    if (is_datagram(id)) {
      to.qkey = id.qkey != 0 ? id.qkey : kUdpQkey;
      to.qp_attr_mask |= kQpQkey;
    } else {
      to.qp_access_flags = kAccessRemoteWrite;
      if (id.responder_resources != 0)
        to.qp_access_flags |= kAccessRemoteRead | kAccessRemoteAtomic;
      to.qp_attr_mask |= kQpAccessFlags;
    }
    return 0;
  }
  if (is_datagram(id) || id.remote_qpn == 0) return EINVAL;
  const auto type = static_cast<QpType>(id.qp_type);
  if (state == QpState::rtr) {
    fill_ah(s, id, to.ah_attr);
    to.path_mtu = id.path_mtu;
    to.dest_qp_num = id.remote_qpn;
    to.rq_psn = id.remote_psn;
    to.qp_attr_mask |= kQpAv | kQpPathMtu | kQpDestQpn | kQpRqPsn;
    if (type == QpType::rc || type == QpType::xrc_recv) {
      to.max_dest_rd_atomic = id.responder_resources;
      to.min_rnr_timer = kMinRnrTimer;
      to.qp_attr_mask |= kQpMaxDestRdAtomic | kQpMinRnrTimer;
    }
    return 0;
  }
  if (state != QpState::rts) return EINVAL;
  to.sq_psn = id.psn;
  to.qp_attr_mask |= kQpSqPsn;
  if (type == QpType::rc || type == QpType::xrc_send) {
    to.retry_cnt = id.retry_count;
    to.rnr_retry = id.rnr_retry_count;
    to.max_rd_atomic = id.initiator_depth;
    to.qp_attr_mask |= kQpRetryCnt | kQpRnrRetry | kQpMaxQpRdAtomic;
  }
  if (type != QpType::uc) {
    to.timeout = id.ack_timeout.value_or(kAckTimeout);
    to.qp_attr_mask |= kQpTimeout;
  }
  return 0;
}

int set_option(CmState& s, Id& id, const rdma_ucm_set_option& command,
               std::span<const std::uint8_t> value) {
  if (command.level == RDMA_OPTION_IB && command.optname == RDMA_OPTION_IB_PATH)
    return set_path(s, id, value);
  if (command.level != RDMA_OPTION_ID) return ENOSYS;
  if (command.optname == RDMA_OPTION_ID_TOS || command.optname == RDMA_OPTION_ID_ACK_TIMEOUT) {
    if (value.size() != 1) return EINVAL;
    if (command.optname == RDMA_OPTION_ID_TOS) {
      id.tos = value[0];
      return 0;
    }
    const auto type = static_cast<QpType>(id.qp_type);  // the others wait for no answers
    if (type != QpType::rc && type != QpType::xrc_send) return EINVAL;
    id.ack_timeout = value[0] & 31;
    return 0;
  }
  int number = 0;
  if (value.size() != sizeof number) return EINVAL;
  std::memcpy(&number, value.data(), sizeof number);
  if (command.optname == RDMA_OPTION_ID_REUSEADDR) {
    // Sharing may begin until somebody listens, but not end: another may have the port by then.
    const bool may = number != 0 ? id.state != IdState::listening : id.state == IdState::idle;
    if (!may) return EINVAL;
    id.reuse_address = number != 0;
    return 0;
  }
  if (command.optname != RDMA_OPTION_ID_AFONLY) return ENOSYS;
  if (id.state != IdState::idle && id.state != IdState::bound) return EINVAL;
  id.only_six = number != 0;  // of an id bound to IPv4 it says nothing
  return 0;
}

}  // namespace hca

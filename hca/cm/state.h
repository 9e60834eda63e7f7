// The state of the communication manager, and what its files offer one another:
//   command.cc (the ABI) -> resolve.cc (addresses, routes, QP attributes), connection.cc (RC, XRC),
//   datagram.cc (UD), multicast.cc;  receive.cc: messages of other nodes, life.cc: whether they are
//   to be heard;  events.cc: to programs;  timers.cc: ids that wait;  farewell.cc: what is left of
//   ids that are gone
#pragma once

#include <rdma/rdma_user_cm.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <unordered_map>
#include <utility>
#include <vector>

#include "emu/base/prng.h"
#include "emu/packet/headers.h"
#include "hca/cm/cm.h"
#include "hca/cm/mad.h"

namespace hca {

// A time as messages say it (IBA 12.7.4).
constexpr emu::EmuNs timeout_ns(std::uint8_t timeout) { return emu::EmuNs{4096} << timeout; }

// A request is sent so often, and an answer awaited so long, as the kernel's rdma_cm has it.
inline constexpr std::uint8_t kAttempts = 15;
inline constexpr std::uint8_t kAnswerTimeout = 20;
inline constexpr emu::EmuNs kAnswerNs = timeout_ns(kAnswerTimeout);
inline constexpr std::uint8_t kDreqAttempts = 4;
// Until late packets of a connection are gone (IBA 12.9.8.4).
inline constexpr emu::EmuNs kTimewaitNs = timeout_ns(15);

enum class IdState : std::uint8_t {
  idle,
  bound,
  addr_resolved,
  route_resolved,
  listening,
  req_sent,
  req_received,  // or a SIDR request
  rep_sent,
  rep_received,
  established,
  dreq_sent,
  dreq_received,
  timewait,
  sidr_sent,
  ended,
};

// Numbers of <rdma/rdma_cma.h>: enum rdma_cm_event_type.
enum class CmEvent : std::uint32_t {
  addr_resolved = 0,
  addr_error,
  route_resolved,
  route_error,
  connect_request,
  connect_response,
  connect_error,
  unreachable,
  rejected,
  established,
  disconnected,
  device_removal,
  multicast_join,
  multicast_error,
  addr_change,
  timewait_exit,
};

inline constexpr std::uint32_t kNobody = 0xffffffff;

// What the ABI calls an id: a listener, or one end of a connection.
struct Id {
  std::uint32_t number = 0;
  CmFileId file = 0;
  std::uint32_t owner = 0;  // of that file, and of any that it moves to
  std::uint64_t uid = 0;    // the program's name for it; 0: a request not accepted yet
  std::uint16_t port_space = 0;
  std::uint8_t qp_type = 0;
  IdState state = IdState::idle;
  bool passive = false;
  bool reuse_address = false;
  bool only_six = false;  // bound to IPv6 it takes no IPv4 (RDMA_OPTION_ID_AFONLY)
  bool has_port = false;  // it holds local.port in its port space
  bool refused = false;   // by its program: `unanswered` is the REJ, said again if asked again
  std::uint8_t tos = 0;
  std::optional<std::uint8_t> ack_timeout;  // that the program wants: 0 is for ever
  IpAddress local;
  IpAddress remote;
  emu::NodeId peer = 0;
  bool has_peer = false;

  std::uint32_t remote_id = 0;
  std::uint32_t qpn = 0;
  std::uint32_t qkey = 0;
  std::uint32_t psn = 0;
  std::uint32_t remote_qpn = 0;
  std::uint32_t remote_psn = 0;
  std::uint8_t responder_resources = 0;
  std::uint8_t initiator_depth = 0;
  std::uint8_t retry_count = 0;
  std::uint8_t rnr_retry_count = 0;
  std::uint8_t path_mtu = 0;
  std::uint8_t sl = 0;

  std::uint32_t backlog = 0;           // listeners: requests that may wait
  std::uint32_t requests_waiting = 0;  // not yet seen by the program
  std::uint32_t listener = kNobody;    // of a request that the program has not seen
  std::uint32_t events_reported = 0;
  bool addr_error_waits = false;      // its event was not fetched
  std::vector<std::uint32_t> groups;  // that it is in, by their numbers

  // The message that waits for an answer.
  Mad unanswered{};
  emu::EmuNs again_at = emu::kNever;  // wait_until() sets it
  std::uint8_t attempts_left = 0;
};

struct Multicast {
  std::uint32_t number = 0;
  std::uint32_t id = 0;
  std::uint64_t uid = 0;
  std::uint32_t events_reported = 0;
};

struct WaitingEvent {
  std::uint32_t id = 0;             // whose acknowledgement counts: the listener of a request
  std::uint32_t request = kNobody;  // connect_request: the new id
  std::uint32_t multicast = kNobody;
  rdma_ucm_event_resp body{};
};

// The last word of an id that is gone, a DREQ: whoever destroys an id does not wait for the answer,
// and a peer that never hears it would wait for ever.
struct Farewell {
  std::uint32_t owner = 0;  // of the id
  emu::NodeId peer = 0;
  std::uint32_t remote_id = 0;
  std::uint32_t remote_qpn = 0;
  std::uint8_t attempts_left = 0;
  emu::EmuNs again_at = emu::kNever;
};

// How much a program has, by all its files together.
struct Program {
  std::uint32_t ids = 0;
  std::uint32_t groups = 0;
  std::uint32_t farewells = 0;
  bool operator==(const Program&) const = default;
};

struct CmFile {
  std::uint32_t owner = 0;
  std::set<std::uint32_t> ids;  // that are on it
  std::deque<WaitingEvent> events;
};

// A request for a service that nobody offers just now. Servers that listen anew for each client
// (perftest) are often there a moment later, so it waits before it is refused.
struct ParkedRequest {
  emu::NodeId source = 0;
  CmMessage message;
  emu::EmuNs until_ns = 0;
};
inline constexpr std::size_t kParkedMax = 256;
inline constexpr emu::EmuNs kParkedNs = 250'000'000;

// Another node, by the lives of it that were heard.
struct Peer {
  std::uint32_t life = 0;
  // The last ones before: of those a message may be on its way still. Who starts takes longer than
  // a packet crosses, so these are more than enough.
  std::array<std::uint32_t, 4> former{};
};

struct CmState {
  CmState(const CmOptions& o, AddressBook book, CmOut& to)
      : options(o), addresses(std::move(book)), out(to), prng(o.seed + o.life) {}
  CmOptions options;
  AddressBook addresses;
  CmOut& out;
  emu::Prng prng;
  emu::EmuNs now_ns = 0;
  std::uint32_t next_number = 1;
  CmFileId next_file = 1;
  std::unordered_map<CmFileId, CmFile> files;
  std::unordered_map<std::uint32_t, Id> ids;
  // Which ids wait for a time, the next first: (Id::again_at, id).
  std::set<std::pair<emu::EmuNs, std::uint32_t>> timers;
  std::unordered_map<std::uint32_t, Multicast> multicasts;
  std::uint32_t next_multicast = 1;
  std::unordered_map<std::uint32_t, Program> programs;    // by owner, those that have anything
  std::unordered_map<std::uint32_t, Farewell> farewells;  // by the number of the id that is gone
  // When they are to be said again, the next first: (Farewell::again_at, that number).
  std::set<std::pair<emu::EmuNs, std::uint32_t>> farewell_times;
  // Who holds a port: (port space and port, id), several ids only where they share it.
  std::set<std::pair<std::uint32_t, std::uint32_t>> ports;
  std::vector<ParkedRequest> parked;
  std::unordered_map<emu::NodeId, Peer> peers;
  // Who asked: a request that comes again is known by its sender and its id there.
  std::map<std::pair<emu::NodeId, std::uint32_t>, std::uint32_t> requests;
};

constexpr std::uint32_t port_key(std::uint16_t port_space, std::uint16_t port) {
  return std::uint32_t{port_space} << 16 | port;
}

// The ids that hold a port.
inline auto holders(const CmState& s, std::uint16_t port_space, std::uint16_t port) {
  const std::uint32_t key = port_key(port_space, port);
  return std::ranges::subrange(s.ports.lower_bound({key, 0}), s.ports.upper_bound({key, kNobody}));
}

// An id on the wire (and the number of what is on the wire): another one in each life, so that what
// is addressed to a former life finds nobody in this one.
constexpr std::uint32_t wire_id(const CmState& s, std::uint32_t number) {
  return number ^ s.options.life;
}
constexpr std::uint32_t number_of(const CmState& s, std::uint32_t wire_id) {
  return wire_id ^ s.options.life;
}

using CmAnswer = Cm::Answer;

// ---- events.cc ----
void tell_file(CmState& s, CmFileId file);  // its events have changed
void push_event(CmState& s, Id& id, CmEvent event, const rdma_ucm_event_resp& body);
void push_simple(CmState& s, Id& id, CmEvent event, int status = 0);
inline rdma_ucm_ece to_abi(const Ece& ece) { return {ece.vendor_id, ece.options}; }
inline Ece from_abi(const rdma_ucm_ece& ece) { return {ece.vendor_id, ece.attr_mod}; }
CmAnswer take_event(CmState& s, CmFileId file, std::span<std::uint8_t> to);
void destroy_id(CmState& s, std::uint32_t number);  // tells the peer what it must know
Id* new_id(CmState& s, CmFileId file);
Id* find_id(CmState& s, CmFileId file, std::uint32_t number);
void move_id(CmState& s, Id& id, CmFileId file);
// One more of what a program has, and one less; false: it has as much as one program may.
bool take_share(CmState& s, std::uint32_t owner, std::uint32_t Program::*what);
void give_back(CmState& s, std::uint32_t owner, std::uint32_t Program::*what);

// ---- resolve.cc ----
int bind_ip(CmState& s, Id& id, const sockaddr_in6& address);
int take_port(CmState& s, Id& id);
int resolve_ip(CmState& s, Id& id, const rdma_ucm_resolve_ip& command);
int resolve_route(CmState& s, Id& id);
int listen_on(CmState& s, Id& id, std::uint32_t backlog);
rdma_ucm_query_route_resp query_route(const CmState& s, const Id& id);
int init_qp_attr(const CmState& s, const Id& id, std::uint32_t qp_state, ib_uverbs_qp_attr& to);
int set_option(CmState& s, Id& id, const rdma_ucm_set_option& command,
               std::span<const std::uint8_t> value);
Id* listener_for(CmState& s, std::uint16_t port_space, std::uint16_t port, std::uint32_t v4);
emu::Gid path_gid(const CmState& s, emu::NodeId node);
void fill_ah(const CmState& s, const Id& id, ib_uverbs_ah_attr& to);
std::uint8_t sl_of(const Id& id);

// ---- connection.cc ----
int connect(CmState& s, Id& id, const rdma_ucm_connect& command);
int accept(CmState& s, Id& id, const rdma_ucm_accept& command);
int reject(CmState& s, Id& id, const rdma_ucm_reject& command);
int disconnect(CmState& s, Id& id);
int notify(CmState& s, Id& id, std::uint32_t event);
void end_connection(CmState& s, Id& id);  // the id goes: what does its peer have to hear?
void send_asked(CmState& s, Id& id, const CmMessage& message, std::uint8_t attempts);
void send_once(CmState& s, emu::NodeId peer, const CmMessage& message);
Mad stamped(const CmState& s, CmMessage message);  // with our life, ready to be sent
void answered(CmState& s, Id& id);
void rest(CmState& s, Id& id);  // the connection is over; late packets of it may be on their way
void timer_fired(CmState& s, Id& id);
std::uint8_t transport_of(const Id& id);  // as a REQ says it
// rdma_cm's own header, then the program's data; false: too long.
bool fill_private(const Id& id, CmMessage& message, const std::uint8_t* data, std::size_t bytes);

// ---- datagram.cc ----
int resolve_service(CmState& s, Id& id, const rdma_ucm_conn_param& param);
int answer_service(CmState& s, Id& id, std::uint8_t status, const rdma_ucm_conn_param& param,
                   const Ece& ece = {});
void on_sidr_req(CmState& s, emu::NodeId source, const CmMessage& m);
void on_sidr_rep(CmState& s, emu::NodeId source, const CmMessage& m);

// ---- farewell.cc ----
// An id with a connection goes, and has said so: that is said again until it is answered.
void add_farewell(CmState& s, const Id& id, std::uint8_t attempts, emu::EmuNs again_at);
void on_farewell_drep(CmState& s, emu::NodeId source, const CmMessage& m);
void end_farewells(CmState& s, emu::NodeId peer);
void repeat_farewells(CmState& s);  // whose time has come

// ---- timers.cc ----
void wait_until(CmState& s, Id& id, emu::EmuNs at);  // kNever: for nothing
void fire_timers(CmState& s);                        // whose time has come

// ---- life.cc ----
// Whether a message of that life of a node is to be heard: none of a former life is, and the first
// of a new one ends what there was with the former.
bool is_heard(CmState& s, emu::NodeId source, std::uint32_t life);

// ---- receive.cc ----
void receive_message(CmState& s, emu::NodeId source, const CmMessage& m);
// Nobody offers the service of a request: it waits, or is refused if it may not any more.
void park(CmState& s, emu::NodeId source, const CmMessage& m);
void refuse_service(CmState& s, emu::NodeId source, const CmMessage& m);
void serve_parked(CmState& s);  // somebody listens now, or time has passed
// A new id for a request that arrived at a listener, its event told; null: nobody listens there
// (the peer was told), or no room (it will ask again).
Id* new_request(CmState& s, emu::NodeId source, const CmMessage& m, Id& listener);

// ---- multicast.cc ----
CmAnswer join(CmState& s, Id& id, std::uint64_t uid, const sockaddr_in6& group,
              std::span<std::uint8_t> to);
CmAnswer leave(CmState& s, CmFileId file, std::uint32_t number, std::span<std::uint8_t> to);

inline bool is_over(const Id& id) {
  return id.state == IdState::timewait || id.state == IdState::ended;
}
inline bool is_datagram(const Id& id) { return id.qp_type == 4; }  // IBV_QPT_UD
inline constexpr std::uint32_t kUdpQkey = 0x01234567;              // RDMA_UDP_QKEY

// The answer of a command, cut to what its caller has room for.
template <class T>
CmAnswer answer_with(const T& value, std::span<std::uint8_t> to) {
  const std::size_t bytes = std::min(sizeof value, to.size());
  if (bytes != 0) std::memcpy(to.data(), &value, bytes);
  return {0, bytes};
}

}  // namespace hca

// The host half of an HCA: QPs, memory keys, doorbells, transport, credits, power, admission. A
// library without I/O, threads or clocks: applications' rings and the fabric's packets come in,
// packets and completions go out, time is handed in. hca/daemon calls it in a loop, tests/sim many
// of them.
//
//   control:   open_client … create_qp … modify_qp …    (any time, between the calls below)
//   loop:      doorbells(client)   for each client whose ring has entries
//              receive(arrivals), injected(events), answered(answers)
//              advance(now)        timers, transmission
//              until next_event()  nothing happens by itself
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <expected>
#include <memory>
#include <span>
#include <string_view>

#include "emu/base/units.h"
#include "emu/packet/headers.h"
#include "emu/wire/message.h"
#include "hca/abi/attributes.h"
#include "hca/abi/rings.h"
#include "hca/host/counters.h"
#include "hca/host/events.h"
#include "hca/host/mad.h"
#include "hca/host/memory.h"
#include "hca/host/options.h"
#include "hca/host/port.h"
#include "hca/host/xrc.h"

namespace hca {

template <class T>
using OrErrno = std::expected<T, int>;  // errno values as the verbs man pages name them

struct MrSpec {
  std::uint64_t address = 0;  // in the client
  std::uint64_t iova = 0;     // what work requests and peers call it
  std::uint64_t length = 0;
  std::uint32_t access = 0;        // kAccess…
  std::uint8_t* mapped = nullptr;  // the same bytes in our own address space, if shared; else null
};
struct MrKeys {
  std::uint32_t lkey = 0;
  std::uint32_t rkey = 0;
};

// What exists, of all programs together.
struct ObjectCounts {
  std::uint32_t pds = 0;
  std::uint32_t mrs = 0;  // and bound windows
  std::uint32_t cqs = 0;
  std::uint32_t srqs = 0;
  std::uint32_t qps = 0;
};

inline constexpr std::uint32_t kNoSrqNumber = ~0u;

struct QpSpec {
  std::uint32_t pd = 0;
  std::uint32_t send_cq = 0;
  std::uint32_t recv_cq = 0;
  QpType type = QpType::rc;
  bool signal_all = false;
  QpCapacity capacity;
  std::uint32_t srq = kNoSrqNumber;  // then capacity.recv_wr is 0
  std::uint32_t xrcd = 0;            // xrc_recv, which has no PD, no CQs and no capacity
};

struct SrqSpec {
  std::uint32_t pd = 0;
  std::uint32_t max_wr = 1;
  std::uint32_t max_sge = 1;
  std::uint32_t limit = 0;
  bool xrc = false;  // then these two
  std::uint32_t xrcd = 0;
  std::uint32_t cq = 0;
};

class HostState;  // hca/host/state.h

class Host {
 public:
  Host(const HostOptions& options, Memory& memory, PacketPort& port, HostEvents& events);
  ~Host();
  Host(const Host&) = delete;
  Host& operator=(const Host&) = delete;

  // Clients. close_client destroys all it owns, gives back what it booked; nobody else notices.
  OrErrno<ClientId> open_client(DoorbellPage* doorbells);
  void close_client(ClientId client);

  // Objects. Numbers are the node's; another client's number is ENOENT. A busy object is EBUSY.
  OrErrno<std::uint32_t> create_pd(ClientId client);
  int destroy_pd(ClientId client, std::uint32_t pd);
  OrErrno<MrKeys> register_mr(ClientId client, std::uint32_t pd, const MrSpec& spec);
  // mask: IBV_REREG_MR_CHANGE_TRANSLATION 1, _PD 2, _ACCESS 4. The key of a moved region changes.
  OrErrno<MrKeys> reregister_mr(ClientId client, std::uint32_t lkey, std::uint32_t mask,
                                std::uint32_t pd, const MrSpec& spec);
  int deregister_mr(ClientId client, std::uint32_t lkey);
  // Memory windows, type 1 or 2; returns the first key, whose slot is the handle. A region that
  // windows are bound to is EBUSY.
  OrErrno<std::uint32_t> alloc_mw(ClientId client, std::uint32_t pd, std::uint32_t type);
  int dealloc_mw(ClientId client, std::uint32_t handle);
  // Where in the client the memory is that a list entry names, of a region paged on demand that is
  // to have this access. EFAULT: there is none; EINVAL: of another kind; EPERM: it may not have it.
  OrErrno<std::uint64_t> advised(ClientId client, std::uint32_t pd, std::uint32_t lkey,
                                 std::uint64_t iova, std::uint64_t length,
                                 std::uint32_t access) const;
  // `region` is cq_bytes(depth) long, depth a power of two; Host writes its header.
  OrErrno<std::uint32_t> create_cq(ClientId client, std::uint32_t depth,
                                   std::span<std::uint8_t> region);
  // Moves the CQ to another region (ibv_resize_cq); unconsumed CQEs are copied. EINVAL: too few for
  // them; EBUSY: too few for the completions of what is posted, and it stays where it is.
  int resize_cq(ClientId client, std::uint32_t cq, std::uint32_t depth,
                std::span<std::uint8_t> region);
  int destroy_cq(ClientId client, std::uint32_t cq);
  // `region` is srq_layout(max_wr, max_sge).bytes long; Host writes its header.
  OrErrno<std::uint32_t> create_srq(ClientId client, const SrqSpec& spec,
                                    std::span<std::uint8_t> region);
  int set_srq_limit(ClientId client, std::uint32_t srq, std::uint32_t limit);
  OrErrno<SrqSpec> query_srq(ClientId client, std::uint32_t srq) const;
  int destroy_srq(ClientId client, std::uint32_t srq);
  // `region` is qp_layout(capacity).bytes long; Host writes its header. std::bad_alloc: there is no
  // memory for it, and nothing has changed.
  OrErrno<std::uint32_t> create_qp(ClientId client, const QpSpec& spec,
                                   std::span<std::uint8_t> region);
  int modify_qp(ClientId client, std::uint32_t qpn, const QpAttributes& attributes,
                std::uint32_t mask, emu::Cycle now);
  OrErrno<QpAttributes> query_qp(ClientId client, std::uint32_t qpn) const;
  // One more handle of an XRC_RECV QP of the same domain; the last to destroy it ends it.
  OrErrno<std::uint32_t> open_qp(ClientId client, std::uint32_t qpn, std::uint32_t xrcd);
  // XRC domains, by handle. `file` null: a new one of its own. EAGAIN: none of that file and not
  // to be made; EINVAL: there is one already, but `exclusive`.
  OrErrno<std::uint32_t> open_xrcd(ClientId client, const XrcFile* file, bool create,
                                   bool exclusive);
  int close_xrcd(ClientId client, std::uint32_t xrcd);
  int destroy_qp(ClientId client, std::uint32_t handle);  // its number, or what open_qp() gave

  // UD only; a QP that is attached somewhere is EBUSY at destroy_qp.
  int attach_mcast(ClientId client, std::uint32_t qpn, const emu::Gid& gid, emu::Lid lid);
  int detach_mcast(ClientId client, std::uint32_t qpn, const emu::Gid& gid, emu::Lid lid);

  // Admission (ibv_modify_qp_rate_limit): 0 means that HostEvents::admission will tell, perhaps
  // before this returns. rate 0 gives back what was booked. One request per QP at a time (EBUSY).
  int request_rate(ClientId client, std::uint32_t qpn, std::uint64_t rate_bps,
                   std::uint64_t peak_bps, emu::Cycle now);

  // Queues a management datagram to QP1 of a node; false: too many wait. Those that arrive come by
  // HostEvents::mad.
  bool send_mad(emu::NodeId dest, const Mad& mad);
  // One for the subnet's agents, to QP0 or QP1 of any LID; comes back by HostEvents::subnet_mad.
  bool send_subnet_mad(emu::Lid dlid, std::uint32_t qpn, const Mad& mad);

  // Switches and budgets may change while running (`flitnet` control commands).
  void set_controls(const HostControls& controls);
  // Another scheme of best effort's congestion control from now on; false: there is none of that
  // name. What is on its way counts for nothing.
  bool set_congestion(std::string_view scheme, CqLayout layout);
  // The scheme in force: "none" where congestion control is off.
  std::string_view congestion() const;
  // What the scheme in force must be told.
  Signal congestion_needs() const;
  void fabric_state(const FabricState& state, emu::Cycle now);
  // For this HCA's scheme, or for another HCA, to be passed on by a management datagram.
  void notice(const emu::Notice& notice, emu::Cycle now);
  // By how much the scheme holds each message back now, where it does it so.
  emu::Cycle congestion_delay() const;
  // Ways as they are now, by destination: ports out of the own router (HostOptions::useful_ports)
  // and links between routers (HostOptions::hops_to).
  void set_ways(std::vector<PortMask> ports, std::span<const std::uint8_t> hops);

  // Datapath. None of these allocates.
  void doorbells(ClientId client, emu::Cycle now);
  void receive(std::span<const Arrival> arrivals, emu::Cycle now);
  void injected(std::span<const emu::Injected> events, emu::Cycle now);
  void answered(std::span<const emu::Answer> answers, emu::Cycle now);
  // Timers and transmission. Returns how many packets went out.
  std::size_t advance(emu::Cycle now);
  // The cycle at which advance() has something to do by itself; kNever: only input will change
  // anything. Not later than needed, perhaps earlier.
  emu::Cycle next_event() const;
  // Until then advance() does nothing unless one of the calls above comes first. 0 where that
  // cannot be said: a QP is queued and waits for what does not announce itself (slots, a scheme's
  // picture).
  emu::Cycle quiet_until() const;

  // The link is gone, and with it the packets handed on. Credits come back, transport recovers by
  // its timers.
  void link_lost(emu::Cycle now);
  // The fabric was restarted, or has ended our session: the same, and its bookings are gone, too.
  // Granted connections are probed again.
  void fabric_restarted(emu::Cycle now);

  const HostCounters& counters() const;
  ObjectCounts objects() const;                               // walks all of them
  std::array<std::uint32_t, kQpStates> qps_by_state() const;  // walks the QPs: for metrics
  const HostOptions& options() const;
  // Everything is quiet: no QP has work, no packet is out. For tests.
  bool idle() const;

 private:
  std::unique_ptr<HostState> state_;
};

}  // namespace hca

// The library's side of each verbs object: it begins with the public structure of
// <infiniband/verbs.h>, which programs hold, and adds what lies behind it. One cast per object.
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "emu/ring/fd.h"
#include "emu/ring/region.h"
#include "hca/abi/limits.h"
#include "hca/abi/node.h"
#include "hca/abi/rings.h"
#include "hca/verbs/link.h"

// A namespace of their own, because the host half has a Cq, an Mr, a Pd, a Qp and an Srq, too, and
// tests link both: one's destructor would destroy the other's objects.
namespace hca::verbs {

// What an hcad answers to hello, and the connection itself. Who waits for an event keeps it: the
// device may be closed meanwhile.
struct Session {
  std::unique_ptr<Link> link;
  std::shared_ptr<const emu::Region> node_page;
  emu::Region doorbells;  // with its descriptor, to read from (inline_recv.h)
  emu::UniqueFd doorbell_fd;
  emu::UniqueFd events;  // read end of the pipe of asynchronous events; it waits
  // What programs watch: an epoll of that pipe. The end of a pipe alone is no POLLIN, and who asks
  // for nothing else would not hear of the last event, that hcad has gone.
  emu::UniqueFd async;
  // Who was waiting holds this to look at the context, and looks at it only if it is not closed.
  std::mutex closing;
  bool closed = false;
};

// One per node that the program is on: its HCA. Providers of rdma-core look behind an ibv_device
// whether it is theirs; they shall find zeros.
struct Device : ibv_device {
  std::array<std::byte, 1024> looked_at_by_providers;
  int references;      // of lists and open contexts
  std::string socket;  // of its hcad
  // Of the hcad that was met last: each opened device keeps the page of its own.
  std::shared_ptr<const emu::Region> node_page;
  std::unique_ptr<Session> spare;  // made for the list; the first open takes it
};

inline const NodePage& node_in(const emu::Region& page) {
  return *reinterpret_cast<const NodePage*>(page.data());
}

struct Cq;
struct Qp;
struct Srq;

// A QP where pollers find it by its number, without a lock. While a CQ has completions of a QP, the
// CQ's lock keeps it here: who destroys it takes them out first (forget_completions).
struct QpEntry {
  std::atomic<std::uint32_t> number{0};  // 0: none
  std::atomic<Qp*> qp{nullptr};
};

struct Context : verbs_context {
  Device* home = nullptr;
  std::shared_ptr<Session> session;

  std::mutex doorbell_lock;
  std::uint32_t doorbell_tail = 0;
  std::uint32_t doorbell_head = 0;  // hcad's when we last looked

  std::mutex table_lock;
  std::unordered_map<std::uint32_t, Cq*> cqs;
  std::unordered_map<std::uint32_t, Qp*> qps;  // by handle
  std::unordered_map<std::uint32_t, Srq*> srqs;
  // By the low bits of their numbers, which differ; without XRC's receiving QPs, whose completions
  // outlive them. Written under table_lock.
  std::array<QpEntry, kQpSlots> qp_entries;
  bool fatal_told = false;     // DEVICE_FATAL was delivered
  bool queues_failed = false;  // hcad has gone, and every QP is in ERR

  const NodePage& node() const { return node_in(*session->node_page); }
  DoorbellPage& doorbells() const {
    return *reinterpret_cast<DoorbellPage*>(session->doorbells.data());
  }
  Link& link() const { return *session->link; }
  bool dead() const { return session->link->dead(); }
  QpEntry& qp_entry(std::uint32_t number) { return qp_entries[number % kQpSlots]; }
};

struct Td : ibv_td {
  std::atomic<int> parents{0};  // parent domains of this thread
};
struct Pd : ibv_pd {
  Pd* below = nullptr;          // of a parent domain: the one that protects
  Td* thread = nullptr;         // and the thread's, if any
  std::atomic<int> parents{0};  // parent domains above this one
};
struct Dm : ibv_dm {
  emu::Region region;
  std::size_t length = 0;  // as asked for; the region is whole pages
  std::atomic<int> regions{0};
};
struct Mr : ibv_mr {
  Dm* device_memory = nullptr;  // of which it is a part
  unsigned access = 0;          // as the program asked for it
};

// A domain of XRC, as this program has it open.
struct Xrcd : ibv_xrcd {
  std::uint32_t handle;
};

struct Ah : ibv_ah {
  ibv_ah_attr attributes;
};

struct Channel : ibv_comp_channel {
  std::uint32_t number;
  emu::UniqueFd read_end;  // == fd
};

struct Cq : ibv_cq_ex {
  std::uint32_t number = 0;
  std::mutex lock;
  // Moved by a resize under lock and Context::table_lock: either holds the ring in place. Who
  // sleeps on it keeps it without them.
  std::shared_ptr<emu::Region> region;
  std::byte* ring = nullptr;  // == region->data()
  std::uint32_t depth = 0;
  std::uint32_t consumed = 0;           // == the page's head
  std::atomic<bool> armed_anew{false};  // nobody has looked since
  std::uint32_t told = 0;               // the tail when we fired the channel ourselves; under lock
  std::uint32_t completion_events = 0;  // got; under Context::table_lock
  std::uint32_t async_events = 0;
  Cqe current{};                    // of the extended poll, between start and end
  std::atomic<pthread_t> poller{};  // who has the lock between start and end

  CqPage& page() const { return *reinterpret_cast<CqPage*>(ring); }
  Cqe& slot(std::uint32_t index) const {
    return reinterpret_cast<Cqe*>(ring + sizeof(CqPage))[index & (depth - 1)];
  }
};

struct Srq : ibv_srq {
  std::uint32_t number = 0;
  std::mutex lock;
  emu::Region region;
  SrqLayout layout{};
  std::uint32_t max_sge = 0;
  std::uint32_t tail = 0;          // under lock
  std::uint32_t async_events = 0;  // got; under Context::table_lock

  SrqPage& page() const { return *reinterpret_cast<SrqPage*>(region.data()); }
  std::byte* slot(std::uint32_t index) const {
    return region.data() + sizeof(SrqPage) +
           std::size_t{index & (layout.depth - 1)} * layout.stride;
  }
};

struct Qp : ibv_qp_ex {
  bool extended = false;  // made for the ibv_wr_* calls
  bool signal_all = false;
  std::mutex send_lock;
  std::mutex recv_lock;
  emu::Region region;
  QpLayout layout{};
  ibv_qp_cap capacity{};
  std::uint32_t async_events = 0;  // got; under Context::table_lock

  // Under send_lock.
  std::uint32_t sq_tail = 0;
  std::uint32_t credit_used = 0;
  std::uint64_t launch_ns = 0;  // of the next work request
  std::uint32_t launch_span_ns = 0;
  // Between wr_start and wr_complete, under send_lock too.
  std::uint32_t wr_first = 0;        // sq_tail at wr_start
  std::uint32_t wr_credit_used = 0;  // credit_used at wr_start
  int wr_error = 0;
  bool wr_open = false;  // a request is being filled, in slot sq_tail
  SendWqe wr{};
  std::uint64_t wr_length = 0;

  std::uint32_t rq_tail = 0;  // under recv_lock

  // Slots below these are free: completions of theirs, or of later ones, were polled. Whoever polls
  // writes, under the lock of the CQ.
  std::atomic<std::uint32_t> sq_polled{0};
  std::atomic<std::uint32_t> rq_polled{0};

  // Indexes in its CQs below which completions are of its life before the last RESET.
  std::atomic<std::uint32_t> send_cq_begin{0};
  std::atomic<std::uint32_t> recv_cq_begin{0};

  std::atomic<int> rejected_by{-1};

  QpPage& page() const { return *reinterpret_cast<QpPage*>(region.data()); }
  std::byte* send_slot(std::uint32_t index) const {
    return region.data() + layout.sq_offset +
           std::size_t{index & (layout.sq_depth - 1)} * layout.sq_stride;
  }
  std::byte* recv_slot(std::uint32_t index) const {
    return region.data() + layout.rq_offset +
           std::size_t{index & (layout.rq_depth - 1)} * layout.rq_stride;
  }
};

}  // namespace hca::verbs

namespace hca {

using namespace verbs;

// ibv_cq and ibv_qp are the beginnings of their extended forms.
inline Context* to_context(ibv_context* context) {
  return static_cast<Context*>(verbs_get_ctx(context));
}
inline Cq* to_cq(ibv_cq* cq) { return static_cast<Cq*>(reinterpret_cast<ibv_cq_ex*>(cq)); }
inline Cq* to_cq(ibv_cq_ex* cq) { return static_cast<Cq*>(cq); }
inline Qp* to_qp(ibv_qp* qp) { return static_cast<Qp*>(reinterpret_cast<ibv_qp_ex*>(qp)); }
inline Qp* to_qp(ibv_qp_ex* qp) { return static_cast<Qp*>(qp); }
inline ibv_cq* base(Cq* cq) { return reinterpret_cast<ibv_cq*>(static_cast<ibv_cq_ex*>(cq)); }
inline ibv_qp* base(Qp* qp) { return &qp->qp_base; }

// Verbs that return a pointer set errno; those that return int return it.
inline std::nullptr_t null_with(int error) {
  errno = error;
  return nullptr;
}

// What the files of this library offer one another.
void fill_ops(Context& context);  // context.cc: every function pointer that programs call inline
void fill_cq_ops(Cq& cq);         // poll_extended.cc
void fill_wr_ops(Qp& qp);         // work_request.cc

int query_device(ibv_context* context, const ibv_query_device_ex_input* input,
                 ibv_device_attr_ex* attributes, std::size_t size);
int query_port(ibv_context* context, std::uint8_t port, ibv_port_attr* attributes,
               std::size_t size);
int query_rt_values(ibv_context* context, ibv_values_ex* values);
ibv_cq_ex* create_cq_ex(ibv_context* context, ibv_cq_init_attr_ex* init);
ibv_qp* create_qp_ex(ibv_context* context, ibv_qp_init_attr_ex* init);
int modify_qp_rate_limit(ibv_qp* qp, ibv_qp_rate_limit_attr* attributes);
ibv_dm* alloc_dm(ibv_context* context, ibv_alloc_dm_attr* attributes);
int free_dm(ibv_dm* dm);
ibv_mr* reg_dm_mr(ibv_pd* pd, ibv_dm* dm, std::uint64_t offset, std::size_t length,
                  unsigned access);
ibv_mw* alloc_mw(ibv_pd* pd, ibv_mw_type type);
int bind_mw(ibv_qp* qp, ibv_mw* mw, ibv_mw_bind* bind);
int dealloc_mw(ibv_mw* mw);
ibv_td* alloc_td(ibv_context* context, ibv_td_init_attr* init);
int dealloc_td(ibv_td* td);
ibv_pd* alloc_parent_domain(ibv_context* context, ibv_parent_domain_init_attr* init);
int advise_mr(ibv_pd* pd, ibv_advise_mr_advice advice, std::uint32_t flags, ibv_sge* list,
              std::uint32_t count);
ibv_srq* create_srq_ex(ibv_context* context, ibv_srq_init_attr_ex* init);
int get_srq_num(ibv_srq* srq, std::uint32_t* number);
ibv_xrcd* open_xrcd(ibv_context* context, ibv_xrcd_init_attr* init);
int close_xrcd(ibv_xrcd* xrcd);
ibv_qp* open_qp(ibv_context* context, ibv_qp_open_attr* attributes);
int poll_cq(ibv_cq* cq, int count, ibv_wc* completions);
int req_notify_cq(ibv_cq* cq, int solicited_only);
int post_send(ibv_qp* qp, ibv_send_wr* wr, ibv_send_wr** bad_wr);
int post_srq_recv(ibv_srq* srq, ibv_recv_wr* wr, ibv_recv_wr** bad_wr);
int post_recv(ibv_qp* qp, ibv_recv_wr* wr, ibv_recv_wr** bad_wr);

bool is_receive(const Cqe& cqe);  // poll.cc
// A completion was polled: its slot is free, and those before it. Under the CQ's lock.
void free_slots(Context& context, const Cqe& cqe);

// ---- death.cc: hcad has gone ----
void note_death(Context& context);  // QPs go to ERR, once; nothing while hcad lives
// A work request of this CQ that will never complete, now flushed. Under the CQ's lock, after its
// ring is empty; false: there is none, or hcad lives.
bool next_flushed(Cq& cq, Cqe& cqe);
bool flushes_waiting(const Context& context, const Cq& cq);  // under table_lock
// Takes what was completed for a QP out of a CQ: its QP is gone or starts anew. Returns the CQ's
// tail.
std::uint32_t forget_completions(Cq& cq, std::uint32_t qp_num);
// Blocks until `got` events of an object were acknowledged.
void wait_acknowledged(pthread_mutex_t& mutex, pthread_cond_t& cond,
                       const std::uint32_t& acknowledged, std::uint32_t got);

}  // namespace hca

// Queue pairs: create, modify, query, destroy, reserve bandwidth.
#include <algorithm>
#include <chrono>
#include <new>
#include <thread>
#include <utility>

#include "hca/verbs/not_cancelled.h"
#include "hca/verbs/objects.h"
#include "hca/verbs/qp_attributes.h"

namespace hca {

namespace {

// Starts the rings anew; their QP is in RESET, so nobody else touches them.
void reset_rings(Qp& qp) {
  const std::scoped_lock lock(qp.send_lock, qp.recv_lock);
  qp.sq_tail = qp.rq_tail = 0;
  qp.sq_polled = qp.rq_polled = 0;
  qp.credit_used = 0;
  qp.launch_ns = 0;
  qp.launch_span_ns = 0;
}

// Not of an SRQ's CQ (XRC): what it holds is the SRQ's.
void forget_completions(Qp& qp) {
  const ibv_qp& b = qp.qp_base;
  if (b.send_cq != nullptr) {
    qp.send_cq_begin = qp.recv_cq_begin = hca::forget_completions(*to_cq(b.send_cq), b.qp_num);
  }
  if (b.recv_cq != nullptr && b.recv_cq != b.send_cq) {
    qp.recv_cq_begin = hca::forget_completions(*to_cq(b.recv_cq), b.qp_num);
  }
}

// An HCA has sent a datagram long before the call that destroys its QP reaches it, and so has the
// kernel's software HCA; programs that ask for no completion rely on that (mckey's sender). Here
// the link may be thousands of times slower: what was posted leaves first, as long as any of it
// does.
void let_datagrams_leave(const Context& context, const Qp& qp) {
  using std::chrono::steady_clock;
  constexpr auto kStuckAfter = std::chrono::milliseconds(500);
  constexpr auto kLookEvery = std::chrono::microseconds(100);
  if (qp.qp_base.qp_type != IBV_QPT_UD) return;
  const NotCancelled to_its_end;
  const QpPage& page = qp.page();
  std::uint32_t head = page.sq_head.load(std::memory_order_acquire);
  auto moved = steady_clock::now();
  while (head != page.sq_tail.load(std::memory_order_relaxed) && !context.dead() &&
         steady_clock::now() - moved < kStuckAfter) {
    std::this_thread::sleep_for(kLookEvery);
    const std::uint32_t now = page.sq_head.load(std::memory_order_acquire);
    if (now != head) moved = steady_clock::now();
    head = now;
  }
}

bool has_receives(ibv_qp_type type) {
  return type == IBV_QPT_RC || type == IBV_QPT_UC || type == IBV_QPT_UD;
}

// Of one that has none what its program says of their capacity means nothing.
bool has_own_receives(const ibv_qp_init_attr_ex& init) {
  return has_receives(init.qp_type) && init.srq == nullptr;
}

int check_init(const ibv_qp_init_attr_ex& init) {
  if (init.qp_type == IBV_QPT_XRC_RECV) {
    const bool given = (init.comp_mask & IBV_QP_INIT_ATTR_XRCD) != 0 && init.xrcd != nullptr;
    return given && init.srq == nullptr ? 0 : EINVAL;
  }
  if (!has_receives(init.qp_type) && init.qp_type != IBV_QPT_XRC_SEND) return EOPNOTSUPP;
  if (init.pd == nullptr || init.send_cq == nullptr) return EINVAL;
  if (has_receives(init.qp_type) ? init.recv_cq == nullptr : init.srq != nullptr) return EINVAL;
  const ibv_qp_cap& cap = init.cap;
  if (cap.max_send_wr > kMaxQpWr || cap.max_send_sge > kMaxSge ||
      cap.max_inline_data > kMaxInline) {
    return EINVAL;
  }
  const bool too_many = cap.max_recv_wr > kMaxQpWr || cap.max_recv_sge > kMaxSge;
  return too_many && has_own_receives(init) ? EINVAL : 0;
}

int take_region(Answered& answered, const QpLayout& layout, Qp& qp) {
  if (!answered.fds[0]) return answered.without_fds();
  auto region = emu::Region::map(std::move(answered.fds[0]), layout.bytes, emu::Access::read_write);
  if (!region) return ENOMEM;
  (void)region->take_fd();  // closes, as a CQ's
  qp.region = std::move(*region);
  const QpPage& page = qp.page();
  const bool known = page.magic == kQpMagic && page.version == kAbiVersion &&
                     page.sq_depth == layout.sq_depth && page.sq_stride == layout.sq_stride &&
                     page.rq_depth == layout.rq_depth && page.rq_stride == layout.rq_stride;
  qp.layout = layout;
  return known ? 0 : EPROTO;
}

int destroy_at_hcad(Context& context, std::uint32_t handle) {
  ControlRequest request{};
  request.op = ControlOp::destroy_qp;
  request.number = handle;
  return context.link().ask(request);
}

// A capacity of nothing still has a slot or a list entry: programs say 0 for "whatever is least".
// Slots are multiples of 64 bytes, so that much inline costs nothing; rdma_xclient takes it
// unasked.
constexpr std::uint32_t kLeastInline = 64;
void set_capacity(const ibv_qp_init_attr_ex& init, ControlQp& qp) {
  const ibv_qp_cap& cap = init.cap;
  const bool receives = has_own_receives(init);
  qp.recv_wr = receives ? std::max<std::uint32_t>(cap.max_recv_wr, 1) : 0;
  qp.srq = init.srq != nullptr ? static_cast<const Srq*>(init.srq)->number : kNoSrq;
  if (init.qp_type == IBV_QPT_XRC_RECV) {
    qp.send_sge = qp.recv_sge = 1;
    return;
  }
  qp.send_wr = std::max<std::uint32_t>(cap.max_send_wr, 1);
  qp.send_sge = std::max<std::uint32_t>(cap.max_send_sge, 1);
  qp.recv_sge = receives ? std::max<std::uint32_t>(cap.max_recv_sge, 1) : 1;
  qp.inline_bytes = std::max(cap.max_inline_data, kLeastInline);
}

void enter(ibv_context* base_context, Qp& qp, std::uint32_t handle) {
  const std::uint32_t number = handle & kQpNumberMask;
  ibv_qp& b = qp.qp_base;
  b.context = base_context;
  b.handle = handle;
  b.qp_num = number;
  pthread_mutex_init(&b.mutex, nullptr);
  pthread_cond_init(&b.cond, nullptr);
  fill_wr_ops(qp);
  Context* context = to_context(base_context);
  const std::lock_guard lock(context->table_lock);
  context->qps[handle] = &qp;
  if (b.qp_type == IBV_QPT_XRC_RECV) return;
  QpEntry& entry = context->qp_entry(number);
  entry.qp.store(&qp, std::memory_order_relaxed);
  entry.number.store(number, std::memory_order_release);  // pairs with free_slots
}

// Nothing of it is in a CQ any more.
void leave(Context& context, Qp& qp) {
  const ibv_qp& b = qp.qp_base;
  // The number, or its low bits, may be another QP's already: hcad gave it free.
  if (const auto it = context.qps.find(b.handle); it != context.qps.end() && it->second == &qp) {
    context.qps.erase(it);
  }
  QpEntry& entry = context.qp_entry(b.qp_num);
  if (entry.qp.load(std::memory_order_relaxed) != &qp) return;
  entry.number.store(0, std::memory_order_relaxed);
  entry.qp.store(nullptr, std::memory_order_relaxed);
}

Qp* create(ibv_context* base_context, ibv_qp_init_attr_ex& init) {
  if (const int wrong = check_init(init)) return null_with(wrong);
  Context* context = to_context(base_context);
  std::unique_ptr<Qp> qp(new (std::nothrow) Qp{});
  if (!qp) return null_with(ENOMEM);
  ControlRequest request{};
  request.op = ControlOp::create_qp;
  if (init.qp_type == IBV_QPT_XRC_RECV) {
    request.qp.xrcd = static_cast<Xrcd*>(init.xrcd)->handle;
    if ((init.comp_mask & IBV_QP_INIT_ATTR_PD) == 0) init.pd = nullptr;  // librdmacm has one
    init.send_cq = nullptr;
  } else {
    request.number = init.pd->handle;
    request.qp.send_cq = to_cq(init.send_cq)->number;
  }
  if (has_receives(init.qp_type)) {
    request.qp.recv_cq = to_cq(init.recv_cq)->number;
  } else {
    init.recv_cq = nullptr;
  }
  set_capacity(init, request.qp);
  request.qp.type = static_cast<QpType>(init.qp_type);
  request.qp.signal_all = init.sq_sig_all != 0 ? 1 : 0;
  Answered answered;
  if (const int error = context->link().ask(request, answered)) return null_with(error);
  const std::uint32_t number = answered.reply.number;
  const QpCapacity granted = answered.reply.qp.capacity();
  if (const int error = take_region(answered, qp_layout(granted), *qp)) {
    (void)destroy_at_hcad(*context, number);
    return null_with(error);
  }
  ibv_qp& b = qp->qp_base;
  b.qp_context = init.qp_context;
  b.pd = init.pd;
  b.send_cq = init.send_cq;
  b.recv_cq = init.recv_cq;
  b.srq = init.srq;
  b.state = IBV_QPS_RESET;
  b.qp_type = init.qp_type;
  qp->signal_all = init.sq_sig_all != 0;
  qp->capacity = {qp->layout.sq_depth, qp->layout.rq_depth, granted.send_sge, granted.recv_sge,
                  granted.inline_bytes};
  init.cap = qp->capacity;
  enter(base_context, *qp, number);
  return qp.release();
}

}  // namespace

ibv_qp* create_qp_ex(ibv_context* context, ibv_qp_init_attr_ex* init) {
  if (context == nullptr || init == nullptr) return null_with(EINVAL);
  constexpr std::uint32_t kKnown = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_CREATE_FLAGS |
                                   IBV_QP_INIT_ATTR_SEND_OPS_FLAGS | IBV_QP_INIT_ATTR_XRCD;
  constexpr std::uint64_t kOps =
      IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM | IBV_QP_EX_WITH_SEND |
      IBV_QP_EX_WITH_SEND_WITH_IMM | IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP |
      IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD | IBV_QP_EX_WITH_BIND_MW | IBV_QP_EX_WITH_LOCAL_INV |
      IBV_QP_EX_WITH_SEND_WITH_INV | IBV_QP_EX_WITH_ATOMIC_WRITE;
  const std::uint32_t mask = init->comp_mask;
  if ((mask & ~kKnown) != 0) return null_with(EOPNOTSUPP);
  if ((mask & IBV_QP_INIT_ATTR_PD) == 0 && init->qp_type != IBV_QPT_XRC_RECV) {
    return null_with(EINVAL);
  }
  if ((mask & IBV_QP_INIT_ATTR_CREATE_FLAGS) != 0 && init->create_flags != 0) {
    return null_with(EOPNOTSUPP);
  }
  const bool extended = (mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS) != 0;
  if (extended && (init->send_ops_flags & ~kOps) != 0) return null_with(EOPNOTSUPP);
  Qp* qp = create(context, *init);
  if (qp == nullptr) return nullptr;
  qp->extended = extended;
  return base(qp);
}

// The QP that another program made in the same domain, or this one.
ibv_qp* open_qp(ibv_context* base_context, ibv_qp_open_attr* attributes) {
  constexpr std::uint32_t kNeeded =
      IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE;
  if (base_context == nullptr || attributes == nullptr ||
      (attributes->comp_mask & kNeeded) != kNeeded || attributes->xrcd == nullptr ||
      attributes->qp_type != IBV_QPT_XRC_RECV) {
    return null_with(EINVAL);
  }
  Context* context = to_context(base_context);
  std::unique_ptr<Qp> qp(new (std::nothrow) Qp{});
  if (!qp) return null_with(ENOMEM);
  ControlRequest request{};
  request.op = ControlOp::open_qp;
  request.number = attributes->qp_num;
  request.qp.xrcd = static_cast<Xrcd*>(attributes->xrcd)->handle;
  Answered answered;
  if (const int error = context->link().ask(request, answered)) return null_with(error);
  if (const int error = take_region(answered, qp_layout({0, 0, 1, 1, 0}), *qp)) {
    (void)destroy_at_hcad(*context, answered.reply.number);
    return null_with(error);
  }
  ibv_qp& b = qp->qp_base;
  b.qp_context =
      (attributes->comp_mask & IBV_QP_OPEN_ATTR_CONTEXT) != 0 ? attributes->qp_context : nullptr;
  b.state = IBV_QPS_UNKNOWN;
  b.qp_type = attributes->qp_type;
  enter(base_context, *qp, answered.reply.number);
  return base(qp.release());
}

// The rate is the mean of the connection, max_burst_sz what it may send within one frame time of
// video (the papers' streams have 30 frames a second): together they say the peak.
int modify_qp_rate_limit(ibv_qp* base_qp, ibv_qp_rate_limit_attr* attributes) {
  if (base_qp == nullptr || attributes == nullptr || attributes->comp_mask != 0) return EINVAL;
  Qp* qp = to_qp(base_qp);
  ControlRequest request{};
  request.op = ControlOp::set_rate;
  request.number = base_qp->qp_num;
  request.rate.rate_bps = std::uint64_t{attributes->rate_limit} * 1000;
  constexpr std::uint64_t kFramesPerSecond = 30;
  request.rate.peak_bps = std::max(request.rate.rate_bps,
                                   std::uint64_t{attributes->max_burst_sz} * 8 * kFramesPerSecond);
  Answered answered;
  const int error = to_context(base_qp->context)->link().ask(request, answered);
  qp->rejected_by.store(error == 0 ? kRejectedByNobody : answered.reply.rate.rejected_by);
  return error;
}

}  // namespace hca

using namespace hca;

extern "C" {

ibv_qp* ibv_create_qp(ibv_pd* pd, ibv_qp_init_attr* init) {
  if (pd == nullptr || init == nullptr) return null_with(EINVAL);
  ibv_qp_init_attr_ex wanted{};
  wanted.qp_context = init->qp_context;
  wanted.send_cq = init->send_cq;
  wanted.recv_cq = init->recv_cq;
  wanted.srq = init->srq;
  wanted.cap = init->cap;
  wanted.qp_type = init->qp_type;
  wanted.sq_sig_all = init->sq_sig_all;
  wanted.pd = pd;
  Qp* qp = create(pd->context, wanted);
  if (qp == nullptr) return nullptr;
  init->cap = wanted.cap;
  return base(qp);
}

ibv_qp_ex* ibv_qp_to_qp_ex(ibv_qp* qp) {
  return qp != nullptr && to_qp(qp)->extended ? to_qp(qp) : nullptr;
}

int ibv_modify_qp(ibv_qp* base_qp, ibv_qp_attr* attributes, int mask) {
  if (base_qp == nullptr || attributes == nullptr) return EINVAL;
  const auto bits = static_cast<std::uint32_t>(mask);
  if ((bits & (IBV_QP_ALT_PATH | IBV_QP_RATE_LIMIT | IBV_QP_CAP)) != 0) return EOPNOTSUPP;
  if ((bits & IBV_QP_STATE) != 0 && attributes->qp_state >= IBV_QPS_UNKNOWN) return EINVAL;
  Qp* qp = to_qp(base_qp);
  ControlRequest request{};
  request.op = ControlOp::modify_qp;
  request.number = base_qp->qp_num;
  request.modify.attributes = to_attributes(*attributes);
  request.modify.mask = bits;
  Context* context = to_context(base_qp->context);
  const int error = context->link().ask(request);
  if (context->dead() && bits == IBV_QP_STATE && attributes->qp_state == IBV_QPS_ERR) {
    note_death(*context);
    return 0;  // it is there already
  }
  if (error != 0 || (bits & IBV_QP_STATE) == 0) return error;
  base_qp->state = attributes->qp_state;
  if (attributes->qp_state == IBV_QPS_RESET) {
    forget_completions(*qp);
    reset_rings(*qp);
  }
  return 0;
}

int ibv_query_qp(ibv_qp* base_qp, ibv_qp_attr* attributes, int, ibv_qp_init_attr* init) {
  if (base_qp == nullptr || attributes == nullptr) return EINVAL;
  Qp* qp = to_qp(base_qp);
  ControlRequest request{};
  request.op = ControlOp::query_qp;
  request.number = base_qp->qp_num;
  Answered answered;
  Context* context = to_context(base_qp->context);
  const int error = context->link().ask(request, answered);
  if (error != 0 && (!context->dead() || context->link().abandoned())) return error;
  if (error != 0) {  // of a dead device the state is all that is known
    note_death(*context);
    answered.reply.modify.attributes = {};
    answered.reply.modify.attributes.state = QpState::err;
    answered.reply.modify.attributes.cur_state = QpState::err;
  }
  from_attributes(answered.reply.modify.attributes, *attributes);
  attributes->cap = qp->capacity;
  base_qp->state = attributes->qp_state;
  if (init == nullptr) return 0;
  *init = {};
  init->qp_context = base_qp->qp_context;
  init->send_cq = base_qp->send_cq;
  init->recv_cq = base_qp->recv_cq;
  init->srq = base_qp->srq;
  init->cap = qp->capacity;
  init->qp_type = base_qp->qp_type;
  init->sq_sig_all = qp->signal_all ? 1 : 0;
  return 0;
}

int ibv_destroy_qp(ibv_qp* base_qp) {
  if (base_qp == nullptr) return EINVAL;
  Qp* qp = to_qp(base_qp);
  Context* context = to_context(base_qp->context);
  let_datagrams_leave(*context, *qp);
  const int error = destroy_at_hcad(*context, base_qp->handle);
  if (error != 0 && !context->dead()) return error;
  forget_completions(*qp);
  std::uint32_t asyncs = 0;
  {
    const std::lock_guard lock(context->table_lock);
    leave(*context, *qp);
    asyncs = qp->async_events;
  }
  wait_acknowledged(base_qp->mutex, base_qp->cond, base_qp->events_completed, asyncs);
  pthread_mutex_destroy(&base_qp->mutex);
  pthread_cond_destroy(&base_qp->cond);
  delete qp;
  return 0;
}

}  // extern "C"

namespace {

int ask_group(ibv_qp* qp, const ibv_gid* gid, std::uint16_t lid, ControlOp op) {
  if (qp == nullptr || gid == nullptr) return EINVAL;
  ControlRequest request{};
  request.op = op;
  request.number = qp->qp_num;
  std::copy(std::begin(gid->raw), std::end(gid->raw), request.mcast.gid);
  request.mcast.lid = lid;
  return to_context(qp->context)->link().ask(request);
}

}  // namespace

extern "C" {

int ibv_attach_mcast(ibv_qp* qp, const ibv_gid* gid, std::uint16_t lid) {
  return ask_group(qp, gid, lid, ControlOp::attach_mcast);
}

int ibv_detach_mcast(ibv_qp* qp, const ibv_gid* gid, std::uint16_t lid) {
  return ask_group(qp, gid, lid, ControlOp::detach_mcast);
}

int ibv_query_qp_data_in_order(ibv_qp*, ibv_wr_opcode, std::uint32_t) { return 0; }

// Enhanced connection establishment: we have nothing to negotiate, but a name to be known by.
int ibv_query_ece(ibv_qp* qp, ibv_ece* ece) {
  if (qp == nullptr || ece == nullptr) return EINVAL;
  *ece = {to_context(qp->context)->node().vendor_id, 0, 0};
  return 0;
}

int ibv_set_ece(ibv_qp* qp, ibv_ece* ece) {
  if (qp == nullptr || ece == nullptr || ece->comp_mask != 0) return EINVAL;
  if (ece->vendor_id == 0) return 0;  // the peer has none
  return ece->vendor_id == to_context(qp->context)->node().vendor_id ? 0 : EINVAL;
}

}  // extern "C"

// Shared receive queues.
#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#include "hca/verbs/objects.h"

namespace hca {

namespace {

Srq* to_srq(ibv_srq* srq) { return static_cast<Srq*>(srq); }

int take_region(Answered& answered, const ControlSrq& granted, Srq& srq) {
  if (!answered.fds[0]) return answered.without_fds();
  srq.layout = srq_layout(granted.max_wr, granted.max_sge);
  auto region =
      emu::Region::map(std::move(answered.fds[0]), srq.layout.bytes, emu::Access::read_write);
  if (!region) return ENOMEM;
  (void)region->take_fd();  // closes, as a CQ's
  srq.region = std::move(*region);
  const SrqPage& page = srq.page();
  const bool known = page.magic == kSrqMagic && page.version == kAbiVersion &&
                     page.depth == srq.layout.depth && page.stride == srq.layout.stride;
  return known ? 0 : EPROTO;
}

int ask_about(ibv_srq* srq, ControlOp op, std::uint32_t limit, Answered& answered) {
  ControlRequest request{};
  request.op = op;
  request.number = to_srq(srq)->number;
  request.srq.limit = limit;
  return to_context(srq->context)->link().ask(request, answered);
}

int put_receive(Srq& srq, const ibv_recv_wr& wr) {
  const auto count = static_cast<std::uint32_t>(wr.num_sge);
  if (wr.num_sge < 0 || count > srq.max_sge || (count != 0 && wr.sg_list == nullptr)) {
    return EINVAL;
  }
  // Acquire: hcad has copied the slot before it gave it back.
  if (srq.tail - srq.page().head.load(std::memory_order_acquire) >= srq.layout.depth) {
    return ENOMEM;
  }
  const RecvWqe wqe{wr.wr_id, count, 0};
  std::byte* slot = srq.slot(srq.tail);
  std::memcpy(slot, &wqe, sizeof wqe);
  if (count != 0) std::memcpy(slot + sizeof wqe, wr.sg_list, count * sizeof(Sge));
  ++srq.tail;
  return 0;
}

}  // namespace

int post_srq_recv(ibv_srq* base_srq, ibv_recv_wr* wr, ibv_recv_wr** bad_wr) {
  if (base_srq == nullptr) return EINVAL;
  Srq& srq = *to_srq(base_srq);
  if (to_context(base_srq->context)->link().abandoned()) {
    if (bad_wr != nullptr) *bad_wr = wr;
    return EIO;
  }
  const std::lock_guard lock(srq.lock);
  int error = 0;
  while (error == 0 && wr != nullptr) {
    error = put_receive(srq, *wr);
    if (error == 0) wr = wr->next;
  }
  if (error != 0 && bad_wr != nullptr) *bad_wr = wr;
  // No doorbell: hcad looks when a message arrives.
  srq.page().tail.store(srq.tail, std::memory_order_release);
  return error;
}

namespace {

// `request` says what is special about it.
ibv_srq* create(ibv_pd* pd, void* srq_context, ibv_srq_attr& attr, ControlRequest& request) {
  if (attr.max_wr > kMaxSrqWr || attr.max_sge > kMaxSge) return null_with(EINVAL);
  Context* context = to_context(pd->context);
  std::unique_ptr<Srq> srq(new (std::nothrow) Srq{});
  if (!srq) return null_with(ENOMEM);
  request.op = ControlOp::create_srq;
  request.number = pd->handle;
  request.srq.max_wr = std::max<std::uint32_t>(attr.max_wr, 1);
  request.srq.max_sge = std::max<std::uint32_t>(attr.max_sge, 1);
  Answered answered;
  if (const int error = context->link().ask(request, answered)) return null_with(error);
  srq->number = srq->handle = answered.reply.number;
  if (const int error = take_region(answered, answered.reply.srq, *srq)) {
    request.op = ControlOp::destroy_srq;
    request.number = srq->number;
    (void)context->link().ask(request);
    return null_with(error);
  }
  srq->max_sge = request.srq.max_sge;
  srq->context = pd->context;
  srq->srq_context = srq_context;
  srq->pd = pd;
  pthread_mutex_init(&srq->mutex, nullptr);
  pthread_cond_init(&srq->cond, nullptr);
  attr.max_wr = request.srq.max_wr;
  attr.max_sge = request.srq.max_sge;
  const std::lock_guard lock(context->table_lock);
  context->srqs[srq->number] = srq.get();
  return srq.release();
}

}  // namespace

ibv_srq* create_srq_ex(ibv_context*, ibv_srq_init_attr_ex* init) {
  if (init == nullptr || (init->comp_mask & IBV_SRQ_INIT_ATTR_PD) == 0 || init->pd == nullptr) {
    return null_with(EINVAL);
  }
  constexpr std::uint32_t kXrc = IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ;
  constexpr std::uint32_t kKnown = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | kXrc;
  const ibv_srq_type type =
      (init->comp_mask & IBV_SRQ_INIT_ATTR_TYPE) != 0 ? init->srq_type : IBV_SRQT_BASIC;
  if ((type != IBV_SRQT_BASIC && type != IBV_SRQT_XRC) || (init->comp_mask & ~kKnown) != 0) {
    return null_with(EOPNOTSUPP);
  }
  ControlRequest request{};
  if (type == IBV_SRQT_XRC) {
    if ((init->comp_mask & kXrc) != kXrc || init->xrcd == nullptr || init->cq == nullptr) {
      return null_with(EINVAL);
    }
    request.srq.xrc = 1;
    request.srq.xrcd = static_cast<Xrcd*>(init->xrcd)->handle;
    request.srq.cq = to_cq(init->cq)->number;
  }
  return create(init->pd, init->srq_context, init->attr, request);
}

int get_srq_num(ibv_srq* srq, std::uint32_t* number) {
  if (srq == nullptr || number == nullptr) return EINVAL;
  *number = to_srq(srq)->number;
  return 0;
}

}  // namespace hca

using namespace hca;

extern "C" {

ibv_srq* ibv_create_srq(ibv_pd* pd, ibv_srq_init_attr* init) {
  if (pd == nullptr || init == nullptr) return null_with(EINVAL);
  ControlRequest request{};
  return create(pd, init->srq_context, init->attr, request);
}

int ibv_modify_srq(ibv_srq* srq, ibv_srq_attr* attributes, int mask) {
  if (srq == nullptr || attributes == nullptr) return EINVAL;
  if ((mask & ~IBV_SRQ_LIMIT) != 0) return EOPNOTSUPP;  // no resizing
  if (mask == 0) return 0;
  Answered ignored;
  return ask_about(srq, ControlOp::modify_srq, attributes->srq_limit, ignored);
}

int ibv_query_srq(ibv_srq* srq, ibv_srq_attr* attributes) {
  if (srq == nullptr || attributes == nullptr) return EINVAL;
  Answered answered;
  if (const int error = ask_about(srq, ControlOp::query_srq, 0, answered)) return error;
  const ControlSrq& found = answered.reply.srq;
  *attributes = {found.max_wr, found.max_sge, found.limit};
  return 0;
}

int ibv_destroy_srq(ibv_srq* base_srq) {
  if (base_srq == nullptr) return EINVAL;
  Srq* srq = to_srq(base_srq);
  Context* context = to_context(srq->context);
  Answered ignored;
  const int error = ask_about(base_srq, ControlOp::destroy_srq, 0, ignored);
  if (error != 0 && !context->dead()) return error;
  std::uint32_t asyncs = 0;
  {
    const std::lock_guard lock(context->table_lock);
    if (const auto it = context->srqs.find(srq->number);
        it != context->srqs.end() && it->second == srq) {
      context->srqs.erase(it);
    }
    asyncs = srq->async_events;
  }
  wait_acknowledged(srq->mutex, srq->cond, srq->events_completed, asyncs);
  pthread_mutex_destroy(&srq->mutex);
  pthread_cond_destroy(&srq->cond);
  delete srq;
  return 0;
}

}  // extern "C"

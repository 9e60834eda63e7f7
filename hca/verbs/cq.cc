// Completion queues: create, resize, destroy.
#include <bit>
#include <cstring>
#include <new>
#include <utility>

#include "hca/verbs/inline_recv.h"
#include "hca/verbs/objects.h"
#include "hca/verbs/polling.h"

namespace hca {

namespace {

// What our completions can tell. Their one clock is the emulated one, which has no time of day.
constexpr std::uint64_t kWcFlags =
    std::uint64_t{IBV_WC_STANDARD_FLAGS} | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP;

// 0 or an errno.
int map_region(Answered& answered, std::uint32_t depth, std::shared_ptr<emu::Region>& mapped) {
  if (!answered.fds[0]) return answered.without_fds();
  auto region =
      emu::Region::map(std::move(answered.fds[0]), cq_bytes(depth), emu::Access::read_write);
  if (!region) return ENOMEM;
  (void)region->take_fd();  // closes: programs have thousands of CQs, and descriptors of their own
  mapped = std::make_shared<emu::Region>(std::move(*region));
  return 0;
}

int use_region(std::shared_ptr<emu::Region> region, std::uint32_t depth, Cq& cq) {
  const auto* page = reinterpret_cast<const CqPage*>(region->data());
  if (page->magic != kCqMagic || page->version != kAbiVersion || page->depth != depth) {
    return EPROTO;
  }
  cq.region = std::move(region);
  cq.ring = cq.region->data();
  cq.depth = depth;
  cq.cqe = static_cast<int>(depth);
  return 0;
}

int take_region(Answered& answered, std::uint32_t depth, Cq& cq) {
  std::shared_ptr<emu::Region> region;
  const int error = map_region(answered, depth, region);
  return error != 0 ? error : use_region(std::move(region), depth, cq);
}

void destroy_at_hcad(Context& context, std::uint32_t number) {
  ControlRequest request{};
  request.op = ControlOp::destroy_cq;
  request.number = number;
  (void)context.link().ask(request);
}

Cq* create(ibv_context* base_context, std::uint32_t entries, void* cq_context,
           ibv_comp_channel* channel) {
  if (base_context == nullptr || entries == 0 || entries > kMaxCqe) return null_with(EINVAL);
  Context* context = to_context(base_context);
  std::unique_ptr<Cq> cq(new (std::nothrow) Cq{});
  if (!cq) return null_with(ENOMEM);
  ControlRequest request{};
  request.op = ControlOp::create_cq;
  request.cq.depth = std::bit_ceil(entries);
  request.cq.channel = channel != nullptr ? static_cast<Channel*>(channel)->number : kNoChannel;
  Answered answered;
  if (const int error = context->link().ask(request, answered)) return null_with(error);
  cq->number = answered.reply.number;
  if (const int error = take_region(answered, request.cq.depth, *cq)) {
    destroy_at_hcad(*context, cq->number);
    return null_with(error);
  }
  cq->context = base_context;
  cq->channel = channel;
  cq->cq_context = cq_context;
  cq->handle = cq->number;
  pthread_mutex_init(&cq->mutex, nullptr);
  pthread_cond_init(&cq->cond, nullptr);
  fill_cq_ops(*cq);
  if (channel != nullptr) __atomic_fetch_add(&channel->refcnt, 1, __ATOMIC_RELAXED);
  const std::lock_guard lock(context->table_lock);
  context->cqs[cq->number] = cq.get();
  return cq.release();
}

}  // namespace

ibv_cq_ex* create_cq_ex(ibv_context* context, ibv_cq_init_attr_ex* init) {
  if (init == nullptr) return null_with(EINVAL);
  constexpr std::uint32_t kKnown = IBV_CQ_INIT_ATTR_MASK_FLAGS | IBV_CQ_INIT_ATTR_MASK_PD;
  if ((init->comp_mask & ~kKnown) != 0) return null_with(EOPNOTSUPP);
  // An overrun is never ignored here (IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN): completions would be
  // lost.
  constexpr std::uint32_t kFlags = IBV_CREATE_CQ_ATTR_SINGLE_THREADED;
  if ((init->comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS) != 0 && (init->flags & ~kFlags) != 0) {
    return null_with(EOPNOTSUPP);
  }
  if ((init->wc_flags & ~kWcFlags) != 0) return null_with(EOPNOTSUPP);
  if (init->comp_vector != 0) return null_with(EINVAL);
  return create(context, init->cqe, init->cq_context, init->channel);
}

std::uint32_t forget_completions(Cq& cq, std::uint32_t qp_num) {
  // To a child of fork the ring is its parent's, and the lock may be held for ever.
  if (to_context(cq.context)->link().abandoned()) return 0;
  const auto lock = lock_unless_polled_here(cq);
  CqPage& page = cq.page();
  const std::uint32_t tail = page.tail.load(std::memory_order_acquire);
  // From the newest down: what stays moves up over what goes, then the oldest slots are free.
  std::uint32_t to = tail;
  for (std::uint32_t from = tail; from != cq.consumed;) {
    const Cqe& cqe = cq.slot(--from);
    if (cqe.qp_num == qp_num) {
      if (is_inline(cqe)) (void)bring_home(*to_context(cq.context));
      continue;
    }
    if (--to == from) continue;
    cq.slot(to) = cqe;
    cq.slot(to).sequence = to + 1;
  }
  cq.consumed = to;
  page.head.store(to, std::memory_order_release);
  return tail;
}

}  // namespace hca

using namespace hca;

extern "C" {

ibv_cq* ibv_create_cq(ibv_context* context, int entries, void* cq_context,
                      ibv_comp_channel* channel, int vector) {
  if (entries <= 0 || vector != 0) return null_with(EINVAL);
  Cq* cq = create(context, static_cast<std::uint32_t>(entries), cq_context, channel);
  return cq != nullptr ? base(cq) : nullptr;
}

int ibv_resize_cq(ibv_cq* base_cq, int entries) {
  if (base_cq == nullptr || entries <= 0 || static_cast<std::uint32_t>(entries) > kMaxCqe) {
    return EINVAL;
  }
  Cq* cq = to_cq(base_cq);
  Context& context = *to_context(cq->context);
  if (context.link().abandoned()) return EIO;
  const auto lock = lock_unless_polled_here(*cq);
  ControlRequest request{};
  request.op = ControlOp::resize_cq;
  request.number = cq->number;
  request.cq.depth = std::bit_ceil(static_cast<std::uint32_t>(entries));
  request.cq.channel = kNoChannel;
  Answered answered;
  if (const int error = context.link().ask(request, answered)) return error;
  // hcad goes over to the new ring when it hears that we have it.
  std::shared_ptr<emu::Region> region;
  const std::uint32_t depth = request.cq.depth;
  const int wrong = map_region(answered, depth, region);
  request.op = ControlOp::adopt_cq;
  request.cq.depth = wrong == 0 ? depth : 0;
  const int error = context.link().ask(request);
  if (wrong != 0) return wrong;
  if (error == EBUSY) return 0;  // the old ring is larger, and so large it still has to be
  if (error != 0) return error;
  const std::lock_guard table(context.table_lock);
  return use_region(std::move(region), depth, *cq);
}

int ibv_destroy_cq(ibv_cq* base_cq) {
  if (base_cq == nullptr) return EINVAL;
  Cq* cq = to_cq(base_cq);
  Context* context = to_context(cq->context);
  ControlRequest request{};
  request.op = ControlOp::destroy_cq;
  request.number = cq->number;
  const int error = context->link().ask(request);
  if (error != 0 && !context->dead()) return error;
  bring_cq_home(*context, cq->number);
  std::uint32_t completions = 0;
  std::uint32_t asyncs = 0;
  {
    const std::lock_guard lock(context->table_lock);
    // The number may be another CQ's already: hcad gave it free.
    if (const auto it = context->cqs.find(cq->number);
        it != context->cqs.end() && it->second == cq) {
      context->cqs.erase(it);
    }
    completions = cq->completion_events;
    asyncs = cq->async_events;
  }
  wait_acknowledged(cq->mutex, cq->cond, cq->comp_events_completed, completions);
  wait_acknowledged(cq->mutex, cq->cond, cq->async_events_completed, asyncs);
  if (cq->channel != nullptr) __atomic_fetch_sub(&cq->channel->refcnt, 1, __ATOMIC_RELAXED);
  pthread_mutex_destroy(&cq->mutex);
  pthread_cond_destroy(&cq->cond);
  delete cq;
  return 0;
}

}  // extern "C"

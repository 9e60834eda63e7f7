// Memory windows, thread and parent domains, advice about memory: what stands around regions.
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <new>

#include "hca/verbs/post.h"

namespace hca {

ibv_mw* alloc_mw(ibv_pd* pd, ibv_mw_type type) {
  if (pd == nullptr || (type != IBV_MW_TYPE_1 && type != IBV_MW_TYPE_2)) return null_with(EINVAL);
  auto* mw = new (std::nothrow) ibv_mw{};
  if (mw == nullptr) return null_with(ENOMEM);
  ControlRequest request{};
  request.op = ControlOp::alloc_mw;
  request.number = pd->handle;
  request.mr.access = type;
  Answered answered;
  if (const int error = to_context(pd->context)->link().ask(request, answered)) {
    delete mw;
    return null_with(error);
  }
  mw->context = pd->context;
  mw->pd = pd;
  mw->handle = answered.reply.number;
  mw->rkey = answered.reply.mr.rkey;
  mw->type = type;
  return mw;
}

int dealloc_mw(ibv_mw* mw) {
  if (mw == nullptr) return EINVAL;
  ControlRequest request{};
  request.op = ControlOp::dealloc_mw;
  request.number = mw->handle;
  Context* context = to_context(mw->context);
  const int error = context->link().ask(request);
  if (error != 0 && !context->dead()) return error;
  delete mw;
  return 0;
}

WqeExtension binding(std::uint32_t rkey, const ibv_mw_bind_info& info) {
  WqeExtension extension{};
  extension.bind_length = info.length;
  extension.bind_lkey = info.mr != nullptr ? info.mr->lkey : 0;
  extension.bind_rkey = rkey;
  extension.bind_access = info.mw_access_flags;
  return extension;
}

// A bind of type 1 that is flushed has moved the key here and not in hcad, which goes by the
// handle.
std::uint32_t name_of(const ibv_mw& mw) { return mw.type == IBV_MW_TYPE_1 ? mw.handle : mw.rkey; }

// Type 1: the key is ours to choose, and the program finds it in the window at once.
int bind_mw(ibv_qp* qp, ibv_mw* mw, ibv_mw_bind* bind) {
  if (qp == nullptr || mw == nullptr || bind == nullptr) return EINVAL;
  ibv_send_wr wr{};
  wr.wr_id = bind->wr_id;
  wr.send_flags = bind->send_flags;
  wr.opcode = IBV_WR_BIND_MW;
  wr.bind_mw.mw = mw;
  wr.bind_mw.rkey = ibv_inc_rkey(mw->rkey);
  wr.bind_mw.bind_info = bind->bind_info;
  ibv_send_wr* bad = nullptr;
  const int error = post_send(qp, &wr, &bad);
  if (error == 0) mw->rkey = wr.bind_mw.rkey;
  return error;
}

ibv_td* alloc_td(ibv_context* context, ibv_td_init_attr* init) {
  if (context == nullptr || init == nullptr || init->comp_mask != 0) return null_with(EINVAL);
  auto* td = new (std::nothrow) Td{};
  if (td == nullptr) return null_with(ENOMEM);
  td->context = context;
  return td;
}

int dealloc_td(ibv_td* base_td) {
  auto* td = static_cast<Td*>(base_td);
  if (td->parents.load(std::memory_order_relaxed) != 0) return EBUSY;
  delete td;
  return 0;
}

// Its protection is that of the domain below. Allocators are never called: rings are hcad's memory.
ibv_pd* alloc_parent_domain(ibv_context* context, ibv_parent_domain_init_attr* init) {
  constexpr std::uint32_t kKnown =
      IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS | IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT;
  if (context == nullptr || init == nullptr || init->pd == nullptr) return null_with(EINVAL);
  if ((init->comp_mask & ~kKnown) != 0) return null_with(EINVAL);
  auto* pd = new (std::nothrow) Pd{};
  if (pd == nullptr) return null_with(ENOMEM);
  auto* below = static_cast<Pd*>(init->pd);
  pd->context = context;
  pd->handle = below->handle;
  pd->below = below->below != nullptr ? below->below : below;
  pd->below->parents.fetch_add(1, std::memory_order_relaxed);
  pd->thread = static_cast<Td*>(init->td);
  if (pd->thread != nullptr) pd->thread->parents.fetch_add(1, std::memory_order_relaxed);
  return pd;
}

namespace {

// Brings the pages in, for reading or for writing.
int populate(std::uint64_t address, std::uint64_t length, bool write) {
  const auto page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  const std::uint64_t first = address / page * page;
  const std::uint64_t bytes = address + length - first;
  const int advice = write ? MADV_POPULATE_WRITE : MADV_POPULATE_READ;
  auto* const pages = reinterpret_cast<void*>(first);
  if (::madvise(pages, bytes, advice) == 0) return 0;
  if (errno == ENOMEM) return EFAULT;  // nothing is mapped there
  if (errno != EINVAL) return errno;
  // Of no bytes an older kernel refuses it, too; there pages come when they are used.
  if (::madvise(pages, 0, advice) != 0) return 0;
  return write ? EPERM : EFAULT;  // mapped, but not for that
}

}  // namespace

int advise_mr(ibv_pd* pd, ibv_advise_mr_advice advice, std::uint32_t flags, ibv_sge* list,
              std::uint32_t count) {
  if (pd == nullptr || list == nullptr || count == 0) return EINVAL;
  if ((flags & ~static_cast<std::uint32_t>(IBV_ADVISE_MR_FLAG_FLUSH)) != 0) return EINVAL;
  if (advice != IBV_ADVISE_MR_ADVICE_PREFETCH && advice != IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE &&
      advice != IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT) {
    return EOPNOTSUPP;
  }
  const bool write = advice == IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE;
  for (std::uint32_t i = 0; i < count; ++i) {
    ControlRequest request{};
    request.op = ControlOp::advise;
    request.number = pd->handle;
    request.mr.iova = list[i].addr;
    request.mr.length = list[i].length;
    request.mr.rkey = list[i].lkey;
    request.mr.access = write ? kAccessLocalWrite : 0;
    Answered answered;
    if (const int error = to_context(pd->context)->link().ask(request, answered)) return error;
    // Without a fault there is nothing to do: hcad has no page table of its own to fill.
    if (advice == IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT) continue;
    const std::uint64_t address = answered.reply.mr.address;
    if (const int error = populate(address, list[i].length, write)) return error;
  }
  return 0;
}

}  // namespace hca

#include "hca/host/srq.h"

#include <cerrno>
#include <cstring>
#include <new>

#include "hca/host/state.h"

namespace hca {

namespace {

Srq* find_srq(HostState& s, ClientId client, std::uint32_t number) {
  if (number >= s.srqs_.size()) return nullptr;
  Srq& srq = s.srqs_[number];
  return srq.used && srq.client == client ? &srq : nullptr;
}

void write_header(const Srq& srq) {
  auto* page = new (srq.region) SrqPage{};
  page->magic = kSrqMagic;
  page->version = kAbiVersion;
  page->srq_num = srq.number;
  page->depth = srq.layout.depth;
  page->stride = srq.layout.stride;
  page->max_sge = srq.max_sge;
}

}  // namespace

TakeRecv take_shared(HostState& s, Qp& qp) {
  Srq& srq = s.srqs_[qp.srq];
  const std::uint32_t tail = srq.page->tail.load(std::memory_order_acquire);
  if (tail == srq.next) return TakeRecv::none;
  if (tail - srq.next > srq.layout.depth) return TakeRecv::broken;
  const std::uint8_t* slot = srq.region + sizeof(SrqPage) +
                             std::size_t{srq.next & (srq.layout.depth - 1)} * srq.layout.stride;
  if (!copy_receive(qp, slot, srq.max_sge)) return TakeRecv::broken;
  srq.page->head.store(++srq.next, std::memory_order_release);
  if (tail - srq.next < srq.limit) {
    srq.limit = 0;
    s.events_.async(srq.client, AsyncEvent::srq_limit_reached, srq.number);
  }
  return TakeRecv::ok;
}

OrErrno<std::uint32_t> Host::create_srq(ClientId client, const SrqSpec& spec,
                                        std::span<std::uint8_t> region) {
  HostState& s = *state_;
  if (find_pd(s, client, spec.pd) == nullptr) return std::unexpected(ENOENT);
  if (spec.max_wr == 0 || spec.max_wr > kMaxSrqWr || spec.max_sge == 0 || spec.max_sge > kMaxSge ||
      spec.limit > spec.max_wr) {
    return std::unexpected(EINVAL);
  }
  XrcHandle* xrcd = nullptr;
  if (spec.xrc) {
    xrcd = find_xrcd(s, client, spec.xrcd);
    if (xrcd == nullptr || find_cq(s, client, spec.cq) == nullptr) return std::unexpected(ENOENT);
  }
  const SrqLayout layout = srq_layout(spec.max_wr, spec.max_sge);
  if (region.size() < layout.bytes) return std::unexpected(EINVAL);
  if (s.free_srqs_.empty()) return std::unexpected(ENOMEM);
  const std::uint32_t number = s.free_srqs_.back();
  s.free_srqs_.pop_back();
  Srq& srq = s.srqs_[number];
  srq = {};
  srq.used = true;
  srq.client = client;
  srq.number = number;
  srq.pd = spec.pd;
  srq.layout = layout;
  srq.max_wr = spec.max_wr;
  srq.max_sge = spec.max_sge;
  srq.limit = spec.limit;
  srq.region = region.data();
  srq.page = reinterpret_cast<SrqPage*>(region.data());
  if (xrcd != nullptr) {
    srq.xrc_domain = xrcd->domain;
    srq.xrcd = spec.xrcd;
    srq.cq = spec.cq;
    ++xrcd->users;
    ++s.cqs_[spec.cq].users;
  }
  write_header(srq);
  ++s.pds_[spec.pd].users;
  return number;
}

int Host::set_srq_limit(ClientId client, std::uint32_t number, std::uint32_t limit) {
  Srq* srq = find_srq(*state_, client, number);
  if (srq == nullptr) return ENOENT;
  if (limit > srq->max_wr) return EINVAL;
  srq->limit = limit;
  return 0;
}

OrErrno<SrqSpec> Host::query_srq(ClientId client, std::uint32_t number) const {
  const Srq* srq = find_srq(*state_, client, number);
  if (srq == nullptr) return std::unexpected(ENOENT);
  return SrqSpec{srq->pd, srq->max_wr, srq->max_sge, srq->limit};
}

int Host::destroy_srq(ClientId client, std::uint32_t number) {
  HostState& s = *state_;
  const Srq* srq = find_srq(s, client, number);
  if (srq == nullptr) return ENOENT;
  if (srq->users != 0) return EBUSY;
  if (srq->xrc_domain != kNone) {
    settle(s);
    leave_srq(s, number);
    --s.xrc_handles_[srq->xrcd].users;
    --s.cqs_[srq->cq].users;
  }
  --s.pds_[srq->pd].users;
  s.srqs_[number] = {};
  s.free_srqs_.insert(s.free_srqs_.begin(), number);
  return 0;
}

}  // namespace hca

// Queue pairs: made, looked at, destroyed. Off the datapath; allocation is allowed here.
#include <cerrno>
#include <memory>
#include <new>
#include <utility>

#include "hca/host/state.h"

namespace hca {

namespace {

void write_qp_header(const Qp& qp) {
  auto* page = new (qp.region) QpPage{};
  page->magic = kQpMagic;
  page->version = kAbiVersion;
  page->qp_num = qp.number;
  page->sq_depth = qp.layout.sq_depth;
  page->sq_stride = qp.layout.sq_stride;
  page->rq_depth = qp.layout.rq_depth;
  page->rq_stride = qp.layout.rq_stride;
  page->sq_offset = qp.layout.sq_offset;
  page->rq_offset = qp.layout.rq_offset;
  page->max_inline = qp.capacity.inline_bytes;
  page->max_sge_send = qp.capacity.send_sge;
  page->max_sge_recv = qp.capacity.recv_sge;
}

bool within_limits(const QpCapacity& capacity) {
  return capacity.send_wr <= kMaxQpWr && capacity.recv_wr <= kMaxQpWr &&
         capacity.send_sge <= kMaxSge && capacity.recv_sge <= kMaxSge &&
         capacity.inline_bytes <= kMaxInline;
}

// What a QP of this type is made of; what it has not stays null.
struct Parts {
  Pd* pd = nullptr;
  Cq* send_cq = nullptr;
  Cq* recv_cq = nullptr;
  Srq* srq = nullptr;
  XrcHandle* xrcd = nullptr;
};
int find_parts(HostState& s, ClientId client, const QpSpec& spec, Parts& parts) {
  const QpCapacity& capacity = spec.capacity;
  if (spec.type == QpType::xrc_recv) {
    parts.xrcd = find_xrcd(s, client, spec.xrcd);
    if (parts.xrcd == nullptr) return ENOENT;
    const bool has_own = capacity.send_wr != 0 || capacity.recv_wr != 0;
    return has_own || spec.srq != kNoSrqNumber ? EINVAL : 0;
  }
  parts.pd = find_pd(s, client, spec.pd);
  parts.send_cq = find_cq(s, client, spec.send_cq);
  if (parts.pd == nullptr || parts.send_cq == nullptr) return ENOENT;
  if (spec.type == QpType::xrc_send) {
    return capacity.recv_wr != 0 || spec.srq != kNoSrqNumber ? EINVAL : 0;
  }
  parts.recv_cq = find_cq(s, client, spec.recv_cq);
  if (parts.recv_cq == nullptr) return ENOENT;
  if (spec.srq == kNoSrqNumber) return 0;
  if (spec.srq >= s.srqs_.size()) return ENOENT;
  parts.srq = &s.srqs_[spec.srq];
  if (!parts.srq->used || parts.srq->client != client) return ENOENT;
  return parts.srq->xrc_domain != kNone || capacity.recv_wr != 0 ? EINVAL : 0;
}

void hold_parts(const HostState& s, const QpSpec& spec, Qp& qp, const Parts& parts) {
  if (parts.xrcd != nullptr) {
    qp.pd = kNone;
    qp.xrc_domain = parts.xrcd->domain;
    qp.openers.push_back(
        {qp.client, static_cast<std::uint32_t>(parts.xrcd - &s.xrc_handles_[0]), 0});
    ++parts.xrcd->users;
    return;
  }
  qp.pd = spec.pd;
  qp.send_cq = spec.send_cq;
  ++parts.pd->users;
  ++parts.send_cq->users;
  if (parts.recv_cq == nullptr) return;
  qp.recv_cq = spec.recv_cq;
  ++parts.recv_cq->users;
  if (parts.srq == nullptr) return;
  qp.srq = spec.srq;
  ++parts.srq->users;
}

constexpr bool is_served(QpType type) {
  return type == QpType::rc || type == QpType::uc || type == QpType::ud ||
         type == QpType::xrc_send || type == QpType::xrc_recv;
}

}  // namespace

void free_qp(HostState& s, Qp& qp) {
  take_back_lent(s, qp);
  leave_responses(s, qp);
  release_rate(s, qp, true);
  unqueue(s, qp);
  detach_all(s, qp.number);
  if (qp.type != QpType::xrc_recv) {  // that has none of these of its own
    --s.cqs_[qp.send_cq].users;
    if (qp.recv_cq != kNone) --s.cqs_[qp.recv_cq].users;
    if (qp.srq != kNone) --s.srqs_[qp.srq].users;
    --s.pds_[qp.pd].users;
  }
  const std::uint32_t slot = qp.slot;
  s.qps_[slot].reset();
  s.free_qps_.insert(s.free_qps_.begin(), slot);
}

OrErrno<std::uint32_t> Host::create_qp(ClientId client, const QpSpec& spec,
                                       std::span<std::uint8_t> region) {
  HostState& s = *state_;
  if (!is_served(spec.type)) return std::unexpected(EOPNOTSUPP);
  Parts parts;
  if (const int error = find_parts(s, client, spec, parts)) return std::unexpected(error);
  if (!within_limits(spec.capacity)) return std::unexpected(EINVAL);
  const QpLayout layout = qp_layout(spec.capacity);
  if (region.size() < layout.bytes) return std::unexpected(EINVAL);
  if (s.free_qps_.empty()) return std::unexpected(ENOMEM);

  // All memory first: without it nothing has changed.
  auto qp = std::make_unique<Qp>();
  qp->sends = LazyArray<SendEntry>(layout.sq_depth);
  qp->send_copies = LazyArray<std::uint8_t>(std::size_t{layout.sq_depth} * layout.sq_stride);
  if (parts.xrcd != nullptr) qp->openers.reserve(1);

  const std::uint32_t slot = s.free_qps_.back();
  s.free_qps_.pop_back();
  std::uint16_t& generation = s.qp_generations_[slot];
  generation = static_cast<std::uint16_t>((generation + 1) % kQpGenerations);
  qp->slot = slot;
  qp->number = static_cast<std::uint32_t>(generation) << kQpSlotBits | slot;
  qp->client = client;
  qp->type = spec.type;
  qp->signal_all = spec.signal_all;
  qp->capacity = spec.capacity;
  qp->layout = layout;
  qp->region = region.data();
  qp->page = reinterpret_cast<QpPage*>(region.data());
  write_qp_header(*qp);
  hold_parts(s, spec, *qp, parts);
  const std::uint32_t number = qp->number;
  s.qps_[slot] = std::move(qp);
  return number;
}

OrErrno<QpAttributes> Host::query_qp(ClientId client, std::uint32_t qpn) const {
  Qp* qp = state_->find_qp(qpn);
  if (qp == nullptr || !owns(*qp, client)) return std::unexpected(ENOENT);
  QpAttributes attributes = qp->attributes;
  attributes.state = attributes.cur_state = qp->state;
  if (state_->options_.roce) attributes.av.dlid = 0;  // what the program gave was a GID
  attributes.rq_psn = qp->type != QpType::ud ? qp->epsn : attributes.rq_psn;
  attributes.sq_psn = qp->psn_fetch;
  attributes.sq_draining = qp->state == QpState::sqd && !qp->drained ? 1 : 0;
  return attributes;
}

int Host::destroy_qp(ClientId client, std::uint32_t handle) {
  HostState& s = *state_;
  Qp* qp = s.find_qp(handle & kQpNumberMask);
  if (qp == nullptr || !has_handle(*qp, client, handle)) return ENOENT;
  if (is_attached(s, qp->number)) return EBUSY;
  if (qp->type == QpType::xrc_recv && !let_go(s, *qp, client, handle)) return 0;
  free_qp(s, *qp);
  return 0;
}

}  // namespace hca

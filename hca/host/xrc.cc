// The extended reliable connection (IBA annex A14): a QP that receives belongs to a domain, not to
// a program. Each request names, in its XRCETH, the SRQ that takes it: that one's receives, its CQ,
// its protection domain. Called by respond.cc for each request, and by objects.cc.
#include <algorithm>
#include <cerrno>

#include "hca/host/state.h"

namespace hca {

namespace {

const Srq* srq_of(const HostState& s, const Qp& qp, std::uint32_t number) {
  if (number >= s.srqs_.size()) return nullptr;
  const Srq& srq = s.srqs_[number];
  return srq.used && srq.xrc_domain == qp.xrc_domain ? &srq : nullptr;
}

std::uint32_t find_domain(const HostState& s, const XrcFile& file) {
  const auto found =
      std::find_if(s.xrc_domains_.begin(), s.xrc_domains_.end(), [&file](const XrcDomain& domain) {
        return domain.handles != 0 && domain.has_file && domain.file == file;
      });
  return found == s.xrc_domains_.end() ? kNone
                                       : static_cast<std::uint32_t>(found - s.xrc_domains_.begin());
}

// As many domains as handles, so there is always room for one more of each together.
std::uint32_t free_domain(const HostState& s) {
  const auto found = std::find_if(s.xrc_domains_.begin(), s.xrc_domains_.end(),
                                  [](const XrcDomain& domain) { return domain.handles == 0; });
  return static_cast<std::uint32_t>(found - s.xrc_domains_.begin());
}

std::uint32_t handle_of(const Qp& qp, const QpOpener& opener) {
  return qp.number | opener.opening << kQpOpeningShift;
}

// kNone: there are as many as there may be.
std::uint32_t free_opening(const Qp& qp) {
  std::uint32_t opening = 0;
  const auto taken = [&](const QpOpener& opener) { return opener.opening == opening; };
  while (std::any_of(qp.openers.begin(), qp.openers.end(), taken)) ++opening;
  return opening < kMaxQpOpenings ? opening : kNone;
}

}  // namespace

void tell(HostState& s, const Qp& qp, AsyncEvent event) {
  if (qp.type != QpType::xrc_recv) {
    s.events_.async(qp.client, event, qp.number);
    return;
  }
  for (const QpOpener& opener : qp.openers) {
    s.events_.async(opener.client, event, handle_of(qp, opener));
  }
}

bool owns(const Qp& qp, ClientId client) {
  if (qp.type != QpType::xrc_recv) return qp.client == client;
  return std::any_of(qp.openers.begin(), qp.openers.end(),
                     [client](const QpOpener& opener) { return opener.client == client; });
}

bool has_handle(const Qp& qp, ClientId client, std::uint32_t handle) {
  if (qp.type != QpType::xrc_recv) return qp.client == client && qp.number == handle;
  return std::any_of(qp.openers.begin(), qp.openers.end(), [&](const QpOpener& opener) {
    return opener.client == client && handle_of(qp, opener) == handle;
  });
}

std::uint32_t request_pd(const HostState& s, const Qp& qp, const emu::PacketHeaders& headers) {
  if (qp.type != QpType::xrc_recv) return qp.pd;
  const Srq* srq = srq_of(s, qp, headers.xrc_srq);
  return srq == nullptr ? kNone : srq->pd;
}

bool enter_srq(HostState& s, Qp& qp, const emu::PacketHeaders& headers, bool first) {
  if (qp.type != QpType::xrc_recv) return true;
  if (!first) return qp.srq == headers.xrc_srq;
  const Srq* srq = srq_of(s, qp, headers.xrc_srq);
  if (srq == nullptr) return false;
  qp.srq = srq->number;
  qp.recv_cq = srq->cq;
  qp.pd = srq->pd;
  qp.client = srq->client;
  return true;
}

XrcHandle* find_xrcd(HostState& s, ClientId client, std::uint32_t xrcd) {
  if (xrcd >= s.xrc_handles_.size()) return nullptr;
  XrcHandle& handle = s.xrc_handles_[xrcd];
  return handle.used && handle.client == client ? &handle : nullptr;
}

void leave_srq(HostState& s, std::uint32_t srq) {
  for (auto& qp : s.qps_) {
    if (qp == nullptr || qp->type != QpType::xrc_recv || qp->srq != srq) continue;
    // What it was in the middle of has no end: the next packet of that message is refused.
    qp->have_recv = false;
    qp->receiving = Receiving::nothing;
    qp->srq = qp->recv_cq = qp->pd = kNone;
    qp->client = qp->openers.front().client;
  }
}

bool let_go(HostState& s, Qp& qp, ClientId client, std::uint32_t handle) {
  std::erase_if(qp.openers, [&](const QpOpener& opener) {
    const bool meant = handle == kNone || handle_of(qp, opener) == handle;
    if (opener.client != client || !meant) return false;
    --s.xrc_handles_[opener.xrcd].users;
    return true;
  });
  if (qp.openers.empty()) return true;
  if (qp.client == client && qp.srq == kNone) qp.client = qp.openers.front().client;
  return false;
}

OrErrno<std::uint32_t> Host::open_xrcd(ClientId client, const XrcFile* file, bool create,
                                       bool exclusive) {
  HostState& s = *state_;
  if (client >= s.clients_.size() || !s.clients_[client].open) return std::unexpected(EINVAL);
  std::uint32_t domain = file != nullptr ? find_domain(s, *file) : kNone;
  if (file != nullptr && domain == kNone && !create) return std::unexpected(EAGAIN);
  if (domain != kNone && exclusive) return std::unexpected(EINVAL);
  const auto free = std::find_if(s.xrc_handles_.begin(), s.xrc_handles_.end(),
                                 [](const XrcHandle& handle) { return !handle.used; });
  if (free == s.xrc_handles_.end()) return std::unexpected(ENOMEM);
  if (domain == kNone) {
    domain = free_domain(s);
    s.xrc_domains_[domain] = {file != nullptr, file != nullptr ? *file : XrcFile{}, 0};
  }
  ++s.xrc_domains_[domain].handles;
  *free = {true, client, domain, 0};
  return static_cast<std::uint32_t>(free - s.xrc_handles_.begin());
}

int Host::close_xrcd(ClientId client, std::uint32_t xrcd) {
  HostState& s = *state_;
  XrcHandle* handle = find_xrcd(s, client, xrcd);
  if (handle == nullptr) return ENOENT;
  if (handle->users != 0) return EBUSY;
  --s.xrc_domains_[handle->domain].handles;
  *handle = {};
  return 0;
}

OrErrno<std::uint32_t> Host::open_qp(ClientId client, std::uint32_t qpn, std::uint32_t xrcd) {
  HostState& s = *state_;
  XrcHandle* domain = find_xrcd(s, client, xrcd);
  if (domain == nullptr) return std::unexpected(ENOENT);
  Qp* qp = s.find_qp(qpn);
  if (qp == nullptr || qp->type != QpType::xrc_recv || qp->xrc_domain != domain->domain) {
    return std::unexpected(EINVAL);
  }
  const std::uint32_t opening = free_opening(*qp);
  if (opening == kNone) return std::unexpected(ENOMEM);
  qp->openers.push_back({client, xrcd, opening});
  ++domain->users;
  return handle_of(*qp, qp->openers.back());
}

}  // namespace hca

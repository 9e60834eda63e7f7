// Memory windows (IBA 10.6.7): a key for a part of a region, given out and taken back by work
// requests in the order of the send queue. A window stands in the table of regions under its own
// slot; the lower byte of its key is the program's to choose.
#include <cerrno>

#include "hca/host/state.h"

namespace hca {

namespace {

Mr* find_window(HostState& s, std::uint32_t key, std::uint32_t pd) {
  const std::uint32_t slot = mr_slot(key);
  if (key == 0 || slot >= s.mrs_.size()) return nullptr;
  Mr& mr = s.mrs_[slot];
  return mr.key != 0 && mr.kind != MrKind::region && mr.pd == pd ? &mr : nullptr;
}

void unbind(HostState& s, Mr& window) {
  if (window.parent == 0) return;
  --s.mrs_[mr_slot(window.parent)].windows;
  window.parent = 0;
  window.access = 0;
  window.length = 0;
}

// Type 2 is named by its key. Of type 1 the program has the key of each bind at once, also of one
// that is flushed then, so a bind names the window as alloc_mw did.
bool is_named(const Mr& window, std::uint32_t name) {
  if (window.kind == MrKind::window2) return window.key == name;
  return (name & kConsumersPart) == window.generation;
}

WcStatus bind(HostState& s, const Qp& qp, const SendWqe& wqe) {
  const WqeExtension& wish = extension_of(wqe);
  Mr* window = find_window(s, wqe.rkey, qp.pd);
  if (window == nullptr || !is_named(*window, wqe.rkey)) return WcStatus::mw_bind_err;
  // Of the key that is asked for, the lowest 8 bits count: the others say which window it is.
  const std::uint32_t new_key = (window->key & ~kConsumersPart) | (wish.bind_rkey & kConsumersPart);
  // One of type 2 is invalidated before it is bound anew, one of type 1 is simply moved.
  if (window->kind == MrKind::window2 && (window->parent != 0 || wish.bind_length == 0)) {
    return WcStatus::mw_bind_err;
  }
  if (wish.bind_length == 0) {
    unbind(s, *window);
    window->key = new_key;
    return WcStatus::success;
  }
  Range range;
  const std::uint32_t slot = mr_slot(wish.bind_lkey);
  // Who may write through a window must be allowed to write the region itself.
  constexpr std::uint32_t kWrites = kAccessRemoteWrite | kAccessRemoteAtomic;
  const std::uint32_t needs =
      kAccessMwBind | ((wish.bind_access & kWrites) != 0 ? kAccessLocalWrite : 0);
  // A window is for peers: what is said of local use changes nothing.
  constexpr std::uint32_t kRemote = kWrites | kAccessRemoteRead;
  if ((wish.bind_access & ~(kRemote | kAccessLocalWrite | kAccessZeroBased)) != 0 ||
      !resolve(s.mrs_, wish.bind_lkey, qp.pd, wqe.remote_addr, wish.bind_length, needs, range) ||
      s.mrs_[slot].kind != MrKind::region) {
    return WcStatus::mw_bind_err;
  }
  unbind(s, *window);
  window->key = new_key;
  window->parent = wish.bind_lkey;
  window->iova = (wish.bind_access & kAccessZeroBased) != 0 ? 0 : wqe.remote_addr;
  window->length = wish.bind_length;
  window->address = range.address;
  window->mapped = range.mapped;
  window->access = wish.bind_access & kRemote;
  window->client = range.client;
  window->qpn = window->kind == MrKind::window2 ? qp.number : kAnyQp;
  ++s.mrs_[slot].windows;
  return WcStatus::success;
}

}  // namespace

bool may_invalidate(HostState& s, const Qp& qp, std::uint32_t key) {
  const Mr* window = find_window(s, key, qp.pd);
  return window != nullptr && window->key == key && window->kind == MrKind::window2 &&
         window->parent != 0 && window->qpn == qp.number;
}

void invalidate(HostState& s, const Qp& qp, std::uint32_t key) {
  write_pieces(s);  // what came before by this key is written before it ends
  unbind(s, *find_window(s, key, qp.pd));
}

WcStatus run_local(HostState& s, const Qp& qp, const SendWqe& wqe) {
  if (wqe.opcode == WrOpcode::bind_mw) return bind(s, qp, wqe);
  if (!may_invalidate(s, qp, wqe.imm)) return WcStatus::mw_bind_err;
  invalidate(s, qp, wqe.imm);
  return WcStatus::success;
}

OrErrno<std::uint32_t> Host::alloc_mw(ClientId client, std::uint32_t pd, std::uint32_t type) {
  HostState& s = *state_;
  if (pd >= s.pds_.size() || !s.pds_[pd].used || s.pds_[pd].client != client) {
    return std::unexpected(ENOENT);
  }
  if (type != 1 && type != 2) return std::unexpected(EINVAL);
  if (s.free_mrs_.empty()) return std::unexpected(ENOMEM);
  const std::uint32_t slot = s.free_mrs_.front();
  s.free_mrs_.pop_front();
  Mr& mr = s.mrs_[slot];
  const auto generation = static_cast<std::uint8_t>(mr.generation + 1);
  mr = {};
  mr.generation = generation;
  mr.key = slot << 8 | generation;
  mr.pd = pd;
  mr.client = client;
  mr.kind = type == 1 ? MrKind::window1 : MrKind::window2;
  ++s.pds_[pd].users;
  return mr.key;
}

int Host::dealloc_mw(ClientId client, std::uint32_t handle) {
  HostState& s = *state_;
  const std::uint32_t slot = mr_slot(handle);
  if (handle == 0 || slot >= s.mrs_.size()) return ENOENT;
  Mr& mr = s.mrs_[slot];
  if (mr.key == 0 || mr.kind == MrKind::region || mr.client != client) return ENOENT;
  settle(s);
  unbind(s, mr);
  free_mr(s, mr);
  return 0;
}

OrErrno<std::uint64_t> Host::advised(ClientId client, std::uint32_t pd, std::uint32_t lkey,
                                     std::uint64_t iova, std::uint64_t length,
                                     std::uint32_t access) const {
  const std::vector<Mr>& mrs = state_->mrs_;
  const KeyFault fault = key_fault(mrs, lkey, pd, iova, length, kAccessLocalRead);
  if (fault == KeyFault::domain) return std::unexpected(EPERM);
  if (fault == KeyFault::window) return std::unexpected(EINVAL);
  if (fault == KeyFault::unknown) return std::unexpected(EFAULT);
  const Mr& mr = mrs[mr_slot(lkey)];
  if (mr.client != client) return std::unexpected(EFAULT);
  if ((mr.access & kAccessOnDemand) == 0) return std::unexpected(EINVAL);
  if ((mr.access & access) != access) return std::unexpected(EPERM);
  if (fault != KeyFault::none) return std::unexpected(EFAULT);
  return mr.address + (iova - mr.iova);
}

}  // namespace hca

// Memory regions and their keys: from (key, address, length, access) to bytes that may be touched.
// Called for every piece of every packet, so a key names its slot directly.
#pragma once

#include <cstdint>
#include <vector>

#include "hca/abi/attributes.h"
#include "hca/host/memory.h"
#include "hca/host/trouble.h"

namespace hca {

inline constexpr std::uint32_t kAccessLocalRead = 0;  // every region has it

// A window has no memory of its own: it opens a part of a region to peers, under another key.
enum class MrKind : std::uint8_t { region, window1, window2 };
inline constexpr std::uint32_t kAnyQp = ~0u;

struct Mr {
  std::uint64_t iova = 0;
  std::uint64_t length = 0;
  std::uint64_t address = 0;       // in the client
  std::uint8_t* mapped = nullptr;  // ours, or null
  std::uint32_t key = 0;           // 0: slot is free
  std::uint32_t pd = 0;
  std::uint32_t access = 0;
  ClientId client = 0;
  std::uint8_t generation = 0;  // changes with every use of the slot, so that old keys fail
  MrKind kind = MrKind::region;
  std::uint32_t qpn = kAnyQp;  // window2: the QP that bound it
  std::uint32_t parent = 0;    // windows: key of the region that it is bound to; 0: unbound
  std::uint32_t windows = 0;   // regions: bound to it
};

// Where a checked range lies.
struct Range {
  std::uint8_t* mapped = nullptr;  // use this if not null
  std::uint64_t address = 0;       // else this address of `client`
  ClientId client = 0;
  std::uint32_t private_key = 0;  // of a region that no peer has rights to; 0: one may have
};

// slot << 8 | generation; slot 0 is never given out, so key 0 is never valid.
constexpr std::uint32_t mr_slot(std::uint32_t key) { return key >> 8; }
constexpr std::uint32_t kConsumersPart = 0xff;  // who binds a window chooses these bits

// `qpn`: the QP that the request came by, where it is a peer's.
inline KeyFault key_fault(const std::vector<Mr>& mrs, std::uint32_t key, std::uint32_t pd,
                          std::uint64_t iova, std::uint64_t length, std::uint32_t access,
                          std::uint32_t qpn = kAnyQp) {
  const std::uint32_t slot = mr_slot(key);
  if (slot >= mrs.size()) return KeyFault::unknown;
  const Mr& mr = mrs[slot];
  if (mr.key != key || key == 0) return KeyFault::unknown;
  if (mr.pd != pd) return KeyFault::domain;
  if ((mr.access & access) != access) {
    const bool bound = mr.kind == MrKind::region || mr.parent != 0;
    return bound ? KeyFault::access : KeyFault::unbound;
  }
  if (mr.kind != MrKind::region) {  // for peers alone, and one of type 2 for its QP's peer alone
    const bool remote =
        (access & (kAccessRemoteRead | kAccessRemoteWrite | kAccessRemoteAtomic)) != 0;
    if (!remote || (mr.qpn != kAnyQp && mr.qpn != qpn)) return KeyFault::window;
  }
  // The subtractions cannot wrap where they are reached.
  const bool inside =
      iova >= mr.iova && length <= mr.length && iova - mr.iova <= mr.length - length;
  return inside ? KeyFault::none : KeyFault::bounds;
}

inline bool resolve(const std::vector<Mr>& mrs, std::uint32_t key, std::uint32_t pd,
                    std::uint64_t iova, std::uint64_t length, std::uint32_t access, Range& range,
                    std::uint32_t qpn = kAnyQp) {
  if (key_fault(mrs, key, pd, iova, length, access, qpn) != KeyFault::none) return false;
  const Mr& mr = mrs[mr_slot(key)];
  const std::uint64_t offset = iova - mr.iova;
  range.mapped = mr.mapped == nullptr ? nullptr : mr.mapped + offset;
  range.address = mr.address + offset;
  range.client = mr.client;
  constexpr std::uint32_t kForPeers =
      kAccessRemoteWrite | kAccessRemoteRead | kAccessRemoteAtomic | kAccessMwBind;
  range.private_key = (mr.access & kForPeers) == 0 ? mr.key : 0;
  return true;
}

}  // namespace hca

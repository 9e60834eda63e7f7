// Device memory: pages that hcad maps too, so that it touches them without a call. Programs reach
// them by copying in and out only; work requests name them by offsets.
#include <cstring>
#include <new>
#include <utility>

#include "hca/verbs/objects.h"

namespace hca {

namespace {

constexpr std::size_t kWord = 4;  // what a device moves at once

bool inside(const Dm& dm, std::uint64_t offset, std::size_t length) {
  return offset <= dm.length && length <= dm.length - offset;
}

int copy_to(ibv_dm* base_dm, std::uint64_t offset, const void* from, std::size_t length) {
  auto* dm = static_cast<Dm*>(base_dm);
  if (!inside(*dm, offset, length) || offset % kWord != 0 || length % kWord != 0) return EINVAL;
  std::memcpy(dm->region.data() + offset, from, length);
  return 0;
}

int copy_from(void* to, ibv_dm* base_dm, std::uint64_t offset, std::size_t length) {
  const auto* dm = static_cast<const Dm*>(base_dm);
  if (!inside(*dm, offset, length) || offset % kWord != 0 || length % kWord != 0) return EINVAL;
  std::memcpy(to, dm->region.data() + offset, length);
  return 0;
}

}  // namespace

ibv_dm* alloc_dm(ibv_context* context, ibv_alloc_dm_attr* attributes) {
  if (context == nullptr || attributes == nullptr || attributes->comp_mask != 0 ||
      attributes->length == 0) {
    return null_with(EINVAL);
  }
  if (attributes->length > kMaxDmBytes) return null_with(ENOMEM);
  std::unique_ptr<Dm> dm(new (std::nothrow) Dm{});
  auto region = emu::Region::create("flitnet-dm", attributes->length);
  if (!dm || !region) return null_with(ENOMEM);
  dm->region = std::move(*region);
  dm->length = attributes->length;
  dm->context = context;
  dm->memcpy_to_dm = copy_to;
  dm->memcpy_from_dm = copy_from;
  return dm.release();
}

int free_dm(ibv_dm* base_dm) {
  auto* dm = static_cast<Dm*>(base_dm);
  if (dm->regions.load(std::memory_order_relaxed) != 0) return EBUSY;
  delete dm;
  return 0;
}

ibv_mr* reg_dm_mr(ibv_pd* pd, ibv_dm* base_dm, std::uint64_t offset, std::size_t length,
                  unsigned access) {
  if (pd == nullptr || base_dm == nullptr) return null_with(EINVAL);
  auto* dm = static_cast<Dm*>(base_dm);
  // Offsets are all that a program knows of it; the device moves words of four bytes.
  const bool zero_based = (access & IBV_ACCESS_ZERO_BASED) != 0;
  if (!zero_based || offset % kWord != 0 || !inside(*dm, offset, length)) return null_with(EINVAL);
  ibv_mr* mr = ibv_reg_mr_iova2(pd, dm->region.data() + offset, length, 0, access);
  if (mr == nullptr) return nullptr;
  mr->addr = nullptr;
  static_cast<Mr*>(mr)->device_memory = dm;
  dm->regions.fetch_add(1, std::memory_order_relaxed);
  return mr;
}

}  // namespace hca

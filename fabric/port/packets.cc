#include "fabric/port/packets.h"

#include <rte_errno.h>
#include <rte_malloc.h>
#include <rte_mbuf.h>
#include <rte_mempool.h>
#include <rte_version.h>

#include <string>
#include <utility>

#include "emu/base/check.h"
#include "emu/ring/region.h"
#include "emu/wire/shm_layout.h"

namespace fabric {

namespace {
constexpr std::size_t kPageBytes = 4096;
constexpr std::size_t kPoolIds = 65536;

// DPDK's cache hands out the slot that came back last, whose bytes are in the processor's cache;
// the mempool behind it goes round through all of them.
constexpr unsigned cache_of(std::size_t slots) {
  return slots >= 1024 ? 256 : static_cast<unsigned>(slots / 4);
}
}  // namespace

// The memory of one pool and its face towards DPDK.
class PacketPool {
 public:
  PacketPool() = default;
  PacketPool(const PacketPool&) = delete;
  PacketPool& operator=(const PacketPool&) = delete;
  ~PacketPool() {
    if (mempool != nullptr) rte_mempool_free(mempool);
    if (registered) rte_extmem_unregister(region.data(), region.size());
  }

  emu::Region region;
  emu::UniqueFd read_only;
  rte_mempool* mempool = nullptr;
  bool registered = false;
  std::vector<rte_mbuf*> mbufs;  // by slot
  std::vector<PacketMeta> metas;
  std::size_t slots = 0;
  std::size_t free = 0;
  PoolOwner* owner = nullptr;
};

namespace {

emu::Result<void> register_with_dpdk(PacketPool& pool, std::uint16_t id) {
  void* base = pool.region.data();
  if (rte_extmem_register(base, pool.region.size(), nullptr, 0, kPageBytes) != 0) {
    return emu::fail("packet pool {}: DPDK does not take its memory: {}", id,
                     rte_strerror(rte_errno));
  }
  pool.registered = true;
  rte_pktmbuf_extmem memory{};
  memory.buf_ptr = base;
  memory.buf_iova = RTE_BAD_IOVA;
  memory.buf_len = pool.slots * emu::kPacketBytesMax;
  memory.elt_size = emu::kPacketBytesMax;
  const std::string name = "flitnet" + std::to_string(id);
  pool.mempool = rte_pktmbuf_pool_create_extbuf(
      name.c_str(), static_cast<unsigned>(pool.slots), cache_of(pool.slots), 0,
      static_cast<std::uint16_t>(emu::kPacketBytesMax), SOCKET_ID_ANY, &memory, 1);
  if (pool.mempool == nullptr) {
    return emu::fail("packet pool {} of {} packets: no mempool: {}", id, pool.slots,
                     rte_strerror(rte_errno));
  }
  return {};
}

// The mempool decides which mbuf got which slot; from here on it is a table.
void index_mbufs(PacketPool& pool) {
  pool.mbufs.resize(pool.slots);
  rte_mempool_obj_iter(
      pool.mempool,
      [](rte_mempool*, void* opaque, void* object, unsigned) {
        auto& p = *static_cast<PacketPool*>(opaque);
        auto* mbuf = static_cast<rte_mbuf*>(object);
        const auto offset =
            static_cast<std::size_t>(static_cast<std::byte*>(mbuf->buf_addr) - p.region.data());
        CHECK(offset % emu::kPacketBytesMax == 0 && offset / emu::kPacketBytesMax < p.slots);
        p.mbufs[offset / emu::kPacketBytesMax] = mbuf;
      },
      &pool);
  for (const auto* mbuf : pool.mbufs) CHECK(mbuf != nullptr);
}

}  // namespace

PacketMemory::PacketMemory() : metas_(kPoolIds), bases_(kPoolIds), pools_(kPoolIds) {}
PacketMemory::~PacketMemory() = default;

emu::Result<std::uint16_t> PacketMemory::create_pool(std::size_t slots, PoolOwner* owner) {
  CHECK(slots > 0 && slots <= emu::kPoolSlotsMax);
  while (next_id_ == 0 || pools_[next_id_] != nullptr) ++next_id_;
  const std::uint16_t id = next_id_++;
  auto pool = std::make_unique<PacketPool>();
  pool->slots = slots;
  pool->free = slots;
  pool->owner = owner;
  auto region = emu::Region::create("flitnet-packets", emu::pool_bytes(slots));
  if (!region) return std::unexpected(region.error());
  pool->region = std::move(*region);
  auto read_only = pool->region.reopen_read_only();
  if (!read_only) return std::unexpected(read_only.error());
  pool->read_only = std::move(*read_only);
  if (auto done = register_with_dpdk(*pool, id); !done) return std::unexpected(done.error());
  index_mbufs(*pool);
  pool->metas.resize(slots);
  metas_[id] = pool->metas.data();
  bases_[id] = reinterpret_cast<std::uint8_t*>(pool->region.data());
  pools_[id] = std::move(pool);
  pool_ids_.push_back(id);
  return id;
}

void PacketMemory::set_owner(std::uint16_t pool, PoolOwner* owner) {
  CHECK(pools_[pool] != nullptr);
  pools_[pool]->owner = owner;
}

void PacketMemory::destroy_pool(std::uint16_t pool) {
  CHECK(pools_[pool] != nullptr);
  CHECK(pools_[pool]->free == pools_[pool]->slots);
  metas_[pool] = nullptr;
  bases_[pool] = nullptr;
  pools_[pool].reset();
  std::erase(pool_ids_, pool);
}

PacketHandle PacketMemory::allocate(std::uint16_t id) {
  PacketPool& pool = *pools_[id];
  void* object = nullptr;
  if (rte_mempool_get(pool.mempool, &object) != 0) return kNoPacket;
  auto* mbuf = static_cast<rte_mbuf*>(object);
  rte_pktmbuf_reset(mbuf);
  mbuf->data_off = 0;
  const auto offset =
      static_cast<std::size_t>(static_cast<std::byte*>(mbuf->buf_addr) - pool.region.data());
  const auto slot = static_cast<std::uint16_t>(offset / emu::kPacketBytesMax);
  pool.metas[slot] = PacketMeta{};
  pool.metas[slot].state = SlotState::fabric;
  --pool.free;
  return handle_of(id, slot);
}

void PacketMemory::free(PacketHandle handle) {
  PacketPool& pool = *pools_[pool_id_of(handle)];
  PacketMeta& packet = pool.metas[slot_of(handle)];
  CHECK(packet.state != SlotState::free);
  packet.state = SlotState::free;
  rte_mempool_put(pool.mempool, pool.mbufs[slot_of(handle)]);
  ++pool.free;
}

void PacketMemory::release(PacketHandle handle) {
  PoolOwner* owner = pools_[pool_id_of(handle)]->owner;
  if (owner != nullptr) {
    owner->returned(handle);
  } else {
    free(handle);
  }
}

void PacketMemory::release_held_by(emu::NodeId node) {
  // A copy: an owner may destroy its pool when the last packet is back.
  const std::vector<std::uint16_t> ids(pool_ids_);
  for (const auto id : ids) {
    for (std::size_t slot = 0; pools_[id] != nullptr && slot < pools_[id]->slots; ++slot) {
      PacketMeta& packet = pools_[id]->metas[slot];
      if (packet.state != SlotState::holder || packet.holder != node) continue;
      const PacketHandle handle = handle_of(id, static_cast<std::uint16_t>(slot));
      (void)whole_bytes(handle);  // a node that does not know yet may still read it
      release(handle);
    }
  }
}

bool PacketMemory::valid(PacketHandle handle) const {
  const auto& pool = pools_[pool_id_of(handle)];
  return pool != nullptr && slot_of(handle) < pool->slots;
}

rte_mbuf* PacketMemory::mbuf(PacketHandle handle) {
  return pools_[pool_id_of(handle)]->mbufs[slot_of(handle)];
}

std::size_t PacketMemory::slots(std::uint16_t pool) const { return pools_[pool]->slots; }
std::size_t PacketMemory::free_count(std::uint16_t pool) const { return pools_[pool]->free; }
int PacketMemory::fd(std::uint16_t pool) const { return pools_[pool]->region.fd(); }
int PacketMemory::read_only_fd(std::uint16_t pool) const { return pools_[pool]->read_only.get(); }

}  // namespace fabric

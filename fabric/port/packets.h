// Packet memory: every packet in the fabric lies in a slot of a pool. A pool is a memfd, shared
// with the processes that fill or read it, registered with DPDK as the external memory of an mbuf
// mempool: slot i is the data room of mbuf i, so ethdev ports send and receive the same buffers.
// A packet crosses the fabric by its handle; its bytes stay where the sender put them.
//
// Who has a slot is written here and nowhere else, so that when a process dies each of its buffers
// is found again. One thread (fabricd's loop) owns all of it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "emu/base/result.h"
#include "emu/base/units.h"
#include "emu/wire/lending.h"
#include "emu/wire/message.h"

struct rte_mbuf;

namespace fabric {

// pool id << 16 | slot. Also what descriptors in the shared rings call `buffer`. Pool ids are
// never 0 and not reused while anybody may still know them, so 0 is no packet.
using PacketHandle = std::uint32_t;
inline constexpr PacketHandle kNoPacket = 0;
constexpr std::uint16_t pool_id_of(PacketHandle h) { return static_cast<std::uint16_t>(h >> 16); }
constexpr std::uint16_t slot_of(PacketHandle h) { return static_cast<std::uint16_t>(h & 0xffff); }
constexpr PacketHandle handle_of(std::uint16_t pool, std::uint16_t slot) {
  return PacketHandle{pool} << 16 | slot;
}

enum class SlotState : std::uint8_t {
  free,    // in the mempool
  sender,  // with the hcad that fills it
  fabric,  // between port in and tail arrived
  holder,  // delivered: with the process of node `holder` until it releases it
};

// What the edge of the fabric knows of a packet; filled by the port it came in by.
struct PacketMeta {
  std::uint64_t cookie = 0;  // the sender's own; goes back in Injected
  emu::Cycle launch_cycle = 0;
  emu::Cycle head_cycle = 0;  // filled when the head flit leaves
  std::uint16_t length = 0;
  std::uint16_t flits = 0;
  std::uint16_t more_packets = 0;  // of a train; that of its first slot speaks for all
  emu::NodeId source = 0;
  emu::NodeId dest = 0;
  emu::NodeId holder = 0;   // SlotState::holder only
  std::uint16_t epoch = 0;  // of its source when it entered: events of an older one go nowhere
  std::uint16_t vtick = 0;  // 0: the lane's
  emu::Vl vl_in = 0;
  emu::Vl vl_out = 0;
  emu::TrafficClass traffic_class = emu::TrafficClass::best_effort;
  emu::PacketKind kind = emu::PacketKind::data;
  SlotState state = SlotState::free;
};

// Who gets a packet of a pool back when the fabric and its receiver have done with it: the shm port
// hands the slot to the hcad that owns the pool. Without an owner it returns to the mempool.
class PoolOwner {
 public:
  virtual ~PoolOwner() = default;
  virtual void returned(PacketHandle packet) = 0;
};

class PacketPool;

class PacketMemory {
 public:
  PacketMemory();
  ~PacketMemory();
  PacketMemory(const PacketMemory&) = delete;
  PacketMemory& operator=(const PacketMemory&) = delete;

  // A new pool of `slots` (at most 65535) packets, all free.
  emu::Result<std::uint16_t> create_pool(std::size_t slots, PoolOwner* owner = nullptr);
  void set_owner(std::uint16_t pool, PoolOwner* owner);
  // All slots of the pool must be free. Unmaps and unregisters it.
  void destroy_pool(std::uint16_t pool);

  // One packet out of a pool for fabricd's own use (UDP and ethdev ports, answers): state fabric,
  // the rest of its meta cleared. kNoPacket when the pool is empty.
  PacketHandle allocate(std::uint16_t pool);
  // The packet has been delivered and read, or its destination is gone: back to the pool's owner.
  // Every port and the loop end a packet's way with this call.
  void release(PacketHandle handle);
  // Back to the mempool, whatever its state was.
  void free(PacketHandle handle);
  // Releases every packet that the processes of `node` hold.
  void release_held_by(emu::NodeId node);

  // False unless the handle names a slot of a pool that exists: for handles from outside.
  bool valid(PacketHandle handle) const;
  // The rest requires valid handles.
  PacketMeta& meta(PacketHandle handle) { return metas_[pool_id_of(handle)][slot_of(handle)]; }
  std::uint8_t* bytes(PacketHandle handle) {
    return bases_[pool_id_of(handle)] + std::size_t{slot_of(handle)} * emu::kPacketBytesMax;
  }
  // The same for who reads or hands on all of the packet, a lent payload too.
  std::uint8_t* whole_bytes(PacketHandle handle) {
    if (lending_ != nullptr) lending_->bring_home(handle);
    return bytes(handle);
  }
  // Before the owner of `pool` is told of it: an owner in another process has the buffer alone.
  void hand_to(std::uint16_t pool, PacketHandle handle) {
    if (lending_ != nullptr && !lending_->is_open(pool)) lending_->bring_home(handle);
  }
  // Nodes of this process lend payloads by it.
  void set_lending(emu::Lending* lending) { lending_ = lending; }
  rte_mbuf* mbuf(PacketHandle handle);

  std::size_t slots(std::uint16_t pool) const;
  std::size_t free_count(std::uint16_t pool) const;
  int fd(std::uint16_t pool) const;            // read-write
  int read_only_fd(std::uint16_t pool) const;  // cannot be mapped for writing
  std::span<const std::uint16_t> pools() const { return pool_ids_; }

 private:
  // Indexed by pool id: the two tables of the hot path, then the rest.
  std::vector<PacketMeta*> metas_;
  std::vector<std::uint8_t*> bases_;
  std::vector<std::unique_ptr<PacketPool>> pools_;
  std::vector<std::uint16_t> pool_ids_;
  std::uint16_t next_id_ = 1;
  emu::Lending* lending_ = nullptr;
};

}  // namespace fabric

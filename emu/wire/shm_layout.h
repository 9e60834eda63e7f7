// The shared-memory attachment as data: what hcad and fabricd say on <run>/fabric.sock (SEQPACKET,
// descriptors passed beside) and where the rings lie in the region that both map. Rings, regions
// and doorbells are those of emu/ring; the entries those of emu/wire/message.h.
//
//   hcad                                    fabricd
//   ShmHello                      ->
//                                 <-        ShmWelcome + rings, two eventfds, this node's pool
//                                 <-        ShmPool added: every other pool, read-only
//                                 <-        ShmPool added / removed: as other nodes come and go
//   closed socket: the session is over, on either side.
#pragma once

#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "emu/base/units.h"
#include "emu/ring/doorbell.h"
#include "emu/ring/region.h"
#include "emu/ring/spsc.h"
#include "emu/wire/message.h"

namespace emu {

inline constexpr std::uint32_t kShmMagic = 0x6d687346;  // "Fshm"
inline constexpr std::size_t kNodeNameBytes = 64;
inline constexpr std::size_t kReasonBytes = 160;
inline constexpr std::size_t kPoolSlotsMax = 65535;  // a slot index has 16 bits

enum class ShmMessageType : std::uint32_t {
  hello = 1,
  welcome,
  refused,
  pool_added,
  pool_removed,
  link_down,  // a refusal, too: the node's link is out of service
};

struct ShmHello {
  std::uint32_t magic;
  std::uint32_t version;  // kMessageVersion
  ShmMessageType type;
  std::uint32_t reserved;
  char node_name[kNodeNameBytes];  // zero-terminated
};

// fds: rings (read-write), eventfd that wakes fabricd, eventfd that wakes this node, pool (rw).
inline constexpr std::size_t kWelcomeFds = 4;
struct ShmWelcome {
  std::uint32_t magic;
  std::uint32_t version;
  ShmMessageType type;  // welcome; or refused, link_down: then only `reason` counts
  std::uint32_t pool_slots;
  std::uint64_t cycle_ps;
  NodeId node;
  std::uint16_t pool_id;
  std::uint32_t trains;  // 1: packets may be handed on in trains
  char reason[kReasonBytes];
};

// fds: the pool, read-only (pool_added).
struct ShmPool {
  std::uint32_t magic;
  ShmMessageType type;
  std::uint16_t pool_id;
  std::uint16_t reserved;
  std::uint32_t slots;
};
static_assert(sizeof(ShmHello) == 16 + kNodeNameBytes &&
              std::has_unique_object_representations_v<ShmHello>);
static_assert(sizeof(ShmWelcome) == 32 + kReasonBytes &&
              std::has_unique_object_representations_v<ShmWelcome>);
static_assert(sizeof(ShmPool) == 16 && std::has_unique_object_representations_v<ShmPool>);

// `buffer` in TxDesc and in the Free of tx_free is a slot of the node's own pool; in RxDesc and in
// the Free of rx_free it is pool id << 16 | slot.
constexpr std::uint16_t pool_of_buffer(std::uint32_t b) {
  return static_cast<std::uint16_t>(b >> 16);
}
constexpr std::uint16_t slot_of_buffer(std::uint32_t b) { return static_cast<std::uint16_t>(b); }

// Bytes of a pool's region: whole pages.
constexpr std::size_t pool_bytes(std::size_t slots) {
  return (slots * kPacketBytesMax + 4095) & ~std::size_t{4095};
}

// Trains begin in the first slot of a group of kTrainSlots; so many groups, the last of the pool,
// are kept for them.
constexpr std::size_t train_groups(std::size_t slots) { return slots / 4 / kTrainSlots; }
constexpr std::size_t first_train_slot(std::size_t slots) {
  return slots - train_groups(slots) * kTrainSlots;
}

// The cycle up to which the node has served: everything delivered by then is taken, every timer and
// launch due by then has been seen to. A node that sleeps promises the cycle at which it looks
// again. Emulated time keeps near it (emu/clock/follow.h). Alone on its cache line.
struct ServedWord {
  alignas(kCacheLine) std::atomic<std::uint64_t> cycle;
};

// Where everything lies in the rings region; both sides compute it from the number of slots.
struct ShmRings {
  Offset<DoorbellWord> fabric_asleep;  // fabricd sleeps: hcad rings
  Offset<DoorbellWord> node_asleep;    // hcad sleeps: fabricd rings
  Offset<ServedWord> served;           // written by hcad
  std::uint64_t tx = 0;                // TxDesc, hcad -> fabricd
  std::uint64_t rx_free = 0;           // Free, hcad -> fabricd: delivered packets given back
  std::uint64_t rx = 0;                // RxDesc, fabricd -> hcad
  std::uint64_t tx_free = 0;           // Free, fabricd -> hcad: own slots given back
  std::uint64_t injected = 0;          // Injected, fabricd -> hcad
  std::uint64_t answers = 0;           // Answer, fabricd -> hcad
  // tx and tx_free hold every slot of the pool, so they never fill; the others may, and then the
  // producer keeps the rest.
  std::size_t tx_capacity = 0;
  std::size_t bytes = 0;
};
inline constexpr std::size_t kRxCapacity = 4096;
inline constexpr std::size_t kRxFreeCapacity = 8192;
inline constexpr std::size_t kInjectedCapacity = 8192;
inline constexpr std::size_t kAnswersCapacity = 1024;

inline ShmRings shm_rings(std::size_t pool_slots) {
  ShmRings rings;
  RegionLayout layout;
  rings.tx_capacity = std::bit_ceil(pool_slots);
  rings.fabric_asleep = layout.add<DoorbellWord>();
  rings.node_asleep = layout.add<DoorbellWord>();
  rings.served = layout.add<ServedWord>();
  rings.tx = layout.add_bytes(ring_bytes<TxDesc>(rings.tx_capacity));
  rings.rx_free = layout.add_bytes(ring_bytes<Free>(kRxFreeCapacity));
  rings.rx = layout.add_bytes(ring_bytes<RxDesc>(kRxCapacity));
  rings.tx_free = layout.add_bytes(ring_bytes<Free>(rings.tx_capacity));
  rings.injected = layout.add_bytes(ring_bytes<Injected>(kInjectedCapacity));
  rings.answers = layout.add_bytes(ring_bytes<Answer>(kAnswersCapacity));
  rings.bytes = layout.bytes();
  return rings;
}

}  // namespace emu

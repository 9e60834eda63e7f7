// One attached node of the shm port: its rings, its pool, what waits for it. Private to
// fabric/port.
#pragma once

#include <string>
#include <vector>

#include "emu/clock/follow.h"
#include "emu/ring/doorbell.h"
#include "emu/ring/fd.h"
#include "emu/ring/region.h"
#include "emu/ring/spsc.h"
#include "emu/wire/shm_layout.h"
#include "fabric/port/packets.h"

namespace fabric {

// Events gathered during a turn of the loop and pushed at its end. What does not fit stays, in
// order; the owner bounds it.
template <class T>
class Outbound {
 public:
  void connect(emu::RingProducer<T> ring) { ring_ = ring; }
  void add(const T& entry) { staged_.push_back(entry); }
  // Pushes what fits; true if anything went.
  bool push() {
    if (staged_.empty()) return false;
    const std::size_t count = ring_.push(staged_);
    if (count == staged_.size()) {
      staged_.clear();
    } else if (count > 0) {
      staged_.erase(staged_.begin(), staged_.begin() + static_cast<std::ptrdiff_t>(count));
    }
    return count > 0;
  }
  std::size_t waiting() const { return staged_.size(); }
  std::size_t in_ring() { return ring_.pending(); }
  std::uint64_t taken() { return ring_.popped(); }
  bool broken() const { return ring_.broken(); }

 private:
  emu::RingProducer<T> ring_;
  std::vector<T> staged_;
};

class ShmSession final : public PoolOwner {
 public:
  ShmSession(PacketMemory& memory, emu::NodeId node_id) : node(node_id), memory_(memory) {}

  // A packet of this node's pool has been read by its receiver, or is gone: the slot is the
  // sender's again, or the mempool's once the sender is lost.
  void returned(PacketHandle packet) override {
    if (!alive) return memory_.free(packet);
    memory_.meta(packet).state = SlotState::sender;
    --in_fabric;
    tx_free.add({slot_of(packet)});
  }
  // First trouble wins; the port detaches the node at its next service().
  void fault(std::string what) {
    if (reason.empty()) reason = std::move(what);
  }
  bool rings_broken() const {
    return tx.broken() || rx_free.broken() || rx.broken() || tx_free.broken() ||
           injected.broken() || answers.broken();
  }

  emu::RingConsumer<emu::TxDesc> tx;
  emu::RingConsumer<emu::Free> rx_free;
  Outbound<emu::RxDesc> rx;
  Outbound<emu::Free> tx_free;
  Outbound<emu::Injected> injected;
  Outbound<emu::Answer> answers;
  emu::DoorbellWaker waker;
  const emu::ServedWord* served = nullptr;
  emu::Follower follower;
  emu::DoorbellSleeper sleeper;
  const emu::NodeId node;
  std::size_t in_fabric = 0;  // packets of its pool sent and not yet given back
  std::uint16_t pool = 0;
  bool alive = true;
  // cold
  std::string reason;              // why it is to be detached
  std::uint64_t stalled_ns = 0;    // how long packets have waited for it without being taken
  bool had_packets = false;        // in its ring, at the last look
  std::uint64_t taken_before = 0;  // of its ring, at the last look
  pid_t pid = 0;
  emu::UniqueFd socket;
  emu::UniqueFd wake_fabric;
  emu::UniqueFd wake_node;
  emu::Region region;

 private:
  PacketMemory& memory_;
};

}  // namespace fabric

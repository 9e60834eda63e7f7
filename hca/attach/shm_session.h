// What an attachment over shared memory has while it lasts: rings, pools, the slots that are free.
// Private to hca/attach/shm.cc.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "emu/ring/doorbell.h"
#include "emu/ring/fd.h"
#include "emu/ring/region.h"
#include "emu/ring/spsc.h"
#include "emu/wire/lending.h"
#include "emu/wire/shm_layout.h"
#include "hca/attach/attach.h"

namespace hca {

struct ShmPool {
  std::uint32_t slots = 0;
  emu::Region region;
};

// Everything that ends with a session.
struct ShmSession {
  explicit ShmSession(emu::Lending* table) : lending(table) {}

  emu::Lending* const lending;  // or null
  emu::UniqueFd socket;
  emu::UniqueFd wake_fabric;
  emu::UniqueFd wake_node;
  emu::Region region;
  std::unordered_map<std::uint16_t, ShmPool> pools;  // by their ids
  std::uint16_t own_pool = 0;
  std::uint8_t* own_base = nullptr;
  emu::RingProducer<emu::TxDesc> tx;
  emu::RingProducer<emu::Free> rx_free;
  emu::RingConsumer<emu::RxDesc> rx;
  emu::RingConsumer<emu::Free> tx_free;
  emu::RingConsumer<emu::Injected> injected;
  emu::RingConsumer<emu::Answer> answers;
  emu::ServedWord* served = nullptr;
  emu::Cycle served_before = 0;  // what it shows; a fresh one: 0
  emu::DoorbellWaker waker;
  emu::DoorbellSleeper sleeper;
  std::vector<std::uint16_t> free_slots;
  std::vector<std::uint16_t> free_trains;  // first slots of groups
  std::size_t first_train_slot = 0;
  std::uint64_t acquired = 0;
  std::vector<emu::Free> released;  // not yet published
  bool published = false;           // since the last flush

  // As others call it.
  std::uint32_t own_buffer(std::uint16_t slot) const {
    return std::uint32_t{own_pool} << 16 | slot;
  }
  void take_back(std::uint16_t slot) {
    if (slot < first_train_slot) {
      free_slots.push_back(slot);
      return;
    }
    if (lending != nullptr) lending->end(own_buffer(slot));
    free_trains.push_back(slot);
  }
  // What nobody reads any more.
  void take_back_sent() {
    std::array<emu::Free, 64> burst;
    while (const std::size_t count = tx_free.pop(burst)) {
      for (std::size_t i = 0; i < count; ++i) take_back(emu::slot_of_buffer(burst[i].buffer));
      if (count < burst.size()) return;
    }
  }
  TxBuffer buffer(std::uint16_t slot) const {
    return {slot, own_base + std::size_t{slot} * emu::kPacketBytesMax};
  }
};

}  // namespace hca

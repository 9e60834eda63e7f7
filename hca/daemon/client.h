// One opened device: a program's connection, and the descriptors and mappings behind its objects.
// hca/host knows the objects themselves. Called by the control room of hcad and by host events.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <deque>
#include <memory>
#include <unordered_map>

#include "emu/ring/fd.h"
#include "emu/ring/region.h"
#include "hca/abi/control.h"
#include "hca/abi/rings.h"
#include "hca/daemon/recall.h"
#include "hca/daemon/shared_memory.h"
#include "hca/host/memory.h"

namespace hca {

struct Client {
  emu::UniqueFd socket;
  pid_t pid = 0;
  std::uint64_t number = 0;  // of all that came, in their order
  bool said_hello = false;
  bool holds_file = false;     // of those that the program and the node may have
  std::uint32_t cm_file = 0;   // not 0: this connection is an open rdma_cm, no device
  std::uint32_t mad_file = 0;  // the same, an open umad
  bool is_file() const { return cm_file != 0 || mad_file != 0; }
  ClientId id = 0;
  struct EventPipe {
    emu::UniqueFd end;               // the one that is written
    std::deque<EventRecord> unread;  // those that it has no room for
  };
  EventPipe events;  // asynchronous ones
  std::uint64_t events_lost = 0;
  emu::Region doorbells;

  struct CompletionQueue {
    emu::Region region;
    std::uint32_t channel = kNoChannel;
    emu::Region prepared;  // of a resize that the program has not confirmed yet
  };
  std::unordered_map<std::uint32_t, CompletionQueue> cqs;
  // By handle; several may have one QP open (XRC).
  std::unordered_map<std::uint32_t, std::shared_ptr<emu::Region>> qps;
  std::unordered_map<std::uint32_t, emu::Region> srqs;
  std::unordered_map<std::uint32_t, EventPipe> channels;
  // By handle: the file of the domain, held open so that its inode stays the domain's name.
  std::unordered_map<std::uint32_t, emu::ForeignFd> xrcds;
  std::uint64_t mapped_bytes = 0;                       // of `mrs`, and before it: outlives them
  std::unordered_map<std::uint32_t, SharedMemory> mrs;  // by lkey; only those that are mapped
  std::uint32_t next_channel = 1;
  std::uint32_t rate_pending_qpn = 0;  // 0: none; its set_rate is answered by the fabric

  Client() = default;
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  DoorbellPage* doorbell_page() const { return reinterpret_cast<DoorbellPage*>(doorbells.data()); }
  bool rung() const {
    const DoorbellPage* page = doorbell_page();
    return page->tail.load(std::memory_order_acquire) !=
               page->head.load(std::memory_order_relaxed) ||
           page->overflow.load(std::memory_order_relaxed) != 0;
  }
};

}  // namespace hca

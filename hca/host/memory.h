// The memory of client processes, as hca/host asks for it: gather lists between a client's
// addresses and ours. hca/daemon implements it by process_vm_readv/writev; tests in-process. Keys,
// bounds and access were checked before anything arrives here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace hca {

using ClientId = std::uint32_t;  // an attached application process; dense, reused after close

inline constexpr std::uint32_t kNone = ~0u;  // an index that names nothing

// One contiguous copy. `local` is ours, `remote` an address of that client.
struct MemoryPiece {
  std::uint8_t* local;
  std::uint64_t remote;
  std::uint32_t length;
  ClientId client;
};

class Memory {
 public:
  virtual ~Memory() = default;
  // Each copies the pieces in order and returns how many were copied whole; the one after those
  // faulted (unmapped, or the process is gone). Pieces of one client mostly stand together.
  virtual std::size_t read(std::span<const MemoryPiece> pieces) = 0;   // remote -> local
  virtual std::size_t write(std::span<const MemoryPiece> pieces) = 0;  // local -> remote
  // After a fault: the client has ended, not only its mapping. Its QPs then fall silent instead of
  // answering, as those of a node that lost power would.
  virtual bool gone(ClientId client) const = 0;
};

}  // namespace hca
